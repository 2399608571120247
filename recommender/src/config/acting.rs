//! `[acting]`: whether running containers get what policies in mode `auto` recommend.

use evenkeel_rightsizing::evidence::ENOUGH_SECONDS;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Span;

/// Whether nodes are told what their containers should request, where a policy says `auto`. An agent takes it only where
/// its own configuration accepts it (`overlay.accept`), a step at a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ActingSection {
    /// Whether anything is told.
    pub enabled: bool,
    /// How often a node is told. It goes back to what was asked for when it has heard nothing for three times as long.
    pub interval: Span,
    /// Recommendations that rest on less history than this are not applied to what runs. Default: a day, within which the
    /// daily peak has been seen once.
    pub min_span: Span,
    /// Recommendations that rest on samples older than this are not applied.
    pub max_age: Span,
}

impl Default for ActingSection {
    fn default() -> Self {
        Self {
            enabled: true,
            interval: Span::from_secs(30),
            min_span: Span::from_secs(ENOUGH_SECONDS),
            max_age: Span::from_secs(3600),
        }
    }
}
