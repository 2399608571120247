//! Building the sentence and the numbers behind a value.
//!
//! An agent keeps a reason for every knob of every container, so reasons are compact: the sentence is shared with
//! whoever shows it, and all numbers are one text.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Write};

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::plan::{Reason, Wish};

/// Ends a name and a value; neither paths nor numbers of the kernel hold it.
const END: char = '\0';

/// Numbers by name, as text, in the order in which they were given.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Inputs(Box<str>);

impl Inputs {
    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut parts = self.0.split_terminator(END);
        std::iter::from_fn(move || parts.next().zip(parts.next()))
    }

    /// The same in order of the names.
    pub fn sorted(&self) -> BTreeMap<&str, &str> {
        self.iter().collect()
    }

    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find_map(|(known, value)| (known == name).then_some(value))
    }

    fn with(self, name: &str, value: impl Display) -> Self {
        let mut text = String::from(self.0);
        text.push_str(name);
        text.push(END);
        let from = text.len();
        // Writing to a string cannot fail.
        let _ = write!(text, "{value}");
        if text.get(from..).is_some_and(|value| value.contains(END)) {
            let clean = text.split_off(from).replace(END, "");
            text.push_str(&clean);
        }
        text.push(END);
        Self(text.into_boxed_str())
    }
}

impl<N: AsRef<str>, V: Display> FromIterator<(N, V)> for Inputs {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(all: I) -> Self {
        all.into_iter().fold(Self::default(), |inputs, (name, value)| inputs.with(name.as_ref(), value))
    }
}

impl fmt::Debug for Inputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.sorted()).finish()
    }
}

impl Serialize for Inputs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.sorted())
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut reason = serializer.serialize_struct("Reason", 2)?;
        reason.serialize_field("text", &*self.text)?;
        reason.serialize_field("inputs", &self.inputs)?;
        reason.end()
    }
}

impl Reason {
    /// A reason without numbers.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into().into(), inputs: Inputs::default() }
    }

    /// The same with one more number.
    pub(crate) fn with(mut self, name: &str, value: impl Display) -> Self {
        self.inputs = std::mem::take(&mut self.inputs).with(name, value);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_kept_in_order_and_shown_by_name() {
        let reason =
            Reason::new("because").with("request", 5).with("capacity", "a\0b").with_known("none", None);
        let all: Vec<_> = reason.inputs.iter().collect();
        assert_eq!(all, [("request", "5"), ("capacity", "ab")]);
        assert_eq!((reason.inputs.get("capacity"), reason.inputs.get("none")), (Some("ab"), None));
        let shown = serde_json::to_string(&reason).unwrap();
        assert_eq!(shown, r#"{"text":"because","inputs":{"capacity":"ab","request":"5"}}"#);
        assert_eq!(reason.inputs, [("request", "5"), ("capacity", "ab")].into_iter().collect());
        assert_eq!(Inputs::default().iter().count(), 0);
    }
}
