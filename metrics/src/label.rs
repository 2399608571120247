//! Labels of a sample.

use std::fmt;
use std::sync::Arc;

use evenkeel_model::shown;
use prometheus_client::encoding::{EncodeLabel as _, EncodeLabelSet, LabelSetEncoder};

/// Names with values, which are shared by the samples of many families.
#[derive(Debug, Clone, Default)]
pub struct Labels {
    shared: Arc<[(&'static str, String)]>,
    more: Vec<(&'static str, String)>,
}

impl Labels {
    /// Labels of these names and values. Characters of a value that would do something in a terminal are spelt out.
    pub fn of(pairs: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        Self {
            shared: pairs.into_iter().map(|(name, value)| spelt(name, &value)).collect(),
            more: Vec::new(),
        }
    }

    /// The same with more, in place of those that were added so before.
    #[must_use]
    pub fn and<'a>(&self, pairs: impl IntoIterator<Item = (&'static str, &'a str)>) -> Self {
        let more = pairs.into_iter().map(|(name, value)| spelt(name, value)).collect();
        Self { shared: Arc::clone(&self.shared), more }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shared.is_empty() && self.more.is_empty()
    }
}

fn spelt(name: &'static str, value: &str) -> (&'static str, String) {
    (name, shown::spelt(value).into_owned())
}

impl EncodeLabelSet for Labels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), fmt::Error> {
        self.shared
            .iter()
            .chain(&self.more)
            .try_for_each(|(name, value)| (*name, value.as_str()).encode(encoder.encode_label()))
    }
}
