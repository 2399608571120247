//! Building the sentence and the numbers behind a value.

use std::fmt::Display;

use crate::plan::{Reason, Wish};

impl Reason {
    /// A reason without numbers.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), inputs: Default::default() }
    }

    /// The same with one more number.
    pub(crate) fn with(mut self, name: &str, value: impl Display) -> Self {
        self.inputs.insert(name.to_owned(), value.to_string());
        self
    }

    /// The same with one more number, where there is one.
    pub(crate) fn with_known(self, name: &str, value: Option<u64>) -> Self {
        match value {
            Some(v) => self.with(name, v),
            None => self,
        }
    }

    /// A wish for `value` for this reason.
    pub(crate) const fn wish<T>(self, value: T) -> Wish<T> {
        Wish { value, reason: self }
    }
}
