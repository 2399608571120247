//! Owns what a person or a script is told about one quantity: the entry of `evenkeel quantity -o json`.

use serde::Serialize;

use super::{Format, Quantity};

/// One text, and what it means or why it means nothing. The JSON names are pinned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum QuantityReport {
    /// The text is a quantity.
    Accepted {
        /// The text as given.
        input: String,
        /// The canonical form.
        canonical: String,
        /// Plain decimal text.
        exact: String,
        /// Whole units, rounded away from zero, as text.
        value: String,
        /// Thousandths of a unit, rounded away from zero, as text.
        milli: String,
        /// How it was written.
        format: Format,
    },
    /// The text is not a quantity.
    Rejected {
        /// The text as given.
        input: String,
        /// What is wrong, where, and the remedy.
        error: String,
    },
}

impl QuantityReport {
    /// Reads `input` and says what it means.
    #[must_use]
    pub fn of(input: &str) -> Self {
        let text = input.to_owned();
        match Quantity::parse(input) {
            Ok(quantity) => Self::Accepted {
                input: text,
                canonical: quantity.canonical(),
                exact: quantity.exact(),
                value: quantity.value().to_string(),
                milli: quantity.milli().to_string(),
                format: quantity.format(),
            },
            Err(error) => Self::Rejected { input: text, error: error.to_string() },
        }
    }

    /// Whether the text is a quantity.
    #[must_use]
    pub fn is_accepted(&self) -> bool {
        matches!(self, Self::Accepted { .. })
    }
}
