//! `[admission]`: what becomes of manifests that do not fit.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::check::Checker;

section! {
    /// What becomes of a manifest that brings the sum of requests above what is allocatable, on a node without a kubelet.
    Admission {
        /// "report": it is applied, and told what is short. "refuse": its containers are sampled and not written until it
        /// fits. Who was admitted stays, also over restarts. Default: what harms nobody.
        mode: Mode = Mode::Report,
    }
}

/// What becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// It is applied and told.
    Report,
    /// It is not applied until it fits.
    Refuse,
}

/// Checks the section.
pub(in super::super) fn check(c: &mut Checker<'_>, raw: &Admission, kubelet_rules: bool) -> Mode {
    if kubelet_rules && raw.mode == Mode::Refuse {
        let reason = "the kubelet admits pods where rules = \"kubelet\"".to_owned();
        c.fail("admission.mode", reason, "leave it at \"report\" beside a kubelet");
    }
    raw.mode
}
