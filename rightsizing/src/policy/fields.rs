//! Owns walking an object: each value knows the path to it, so that every error names its field.

use evenkeel_model::quantity::Quantity;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::PolicyError;

/// A value and the path to it.
#[derive(Debug, Clone)]
pub(super) struct At<'a> {
    pub(super) path: String,
    pub(super) value: &'a Value,
}

impl<'a> At<'a> {
    pub(super) fn root(value: &'a Value) -> Self {
        Self { path: String::new(), value }
    }

    fn child(&self, name: &str, value: &'a Value) -> Self {
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        Self { path, value }
    }

    pub(super) fn error(&self, why: impl Into<String>, remedy: impl Into<String>) -> PolicyError {
        PolicyError::new(self.path.clone(), why, remedy)
    }

    pub(super) fn map(&self) -> Result<&'a Map<String, Value>, PolicyError> {
        self.value.as_object().ok_or_else(|| self.error("it is no map", "write fields below it"))
    }

    /// The field of this name; null is the same as absent.
    pub(super) fn get(&self, name: &str) -> Result<Option<Self>, PolicyError> {
        let found = self.map()?.get(name).filter(|value| !value.is_null());
        Ok(found.map(|value| self.child(name, value)))
    }

    pub(super) fn required(&self, name: &str, remedy: &str) -> Result<Self, PolicyError> {
        self.get(name)?.ok_or_else(|| self.child(name, self.value).error("it is missing", remedy))
    }

    /// Refuses every key that is not listed.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), PolicyError> {
        match self.map()?.iter().find(|(key, _)| !known.contains(&key.as_str())) {
            Some((key, value)) => {
                let remedy = format!("remove it, or write one of {}", known.join(", "));
                Err(self.child(key, value).error("there is no such field", remedy))
            }
            None => Ok(()),
        }
    }

    pub(super) fn items(&self) -> Result<Vec<Self>, PolicyError> {
        let list = self.value.as_array().ok_or_else(|| self.error("it is no list", "write a list"))?;
        let item = |(at, value)| Self { path: format!("{}[{at}]", self.path), value };
        Ok(list.iter().enumerate().map(item).collect())
    }

    pub(super) fn text(&self) -> Result<&'a str, PolicyError> {
        let text = self.value.as_str().ok_or_else(|| self.error("it is no string", "write a string"))?;
        if text.is_empty() {
            Err(self.error("it is empty", "write a value, or leave it away"))
        } else {
            Ok(text)
        }
    }

    /// One of the words of an enumeration. `off` without quotes is false to many readers of YAML, and means the word.
    pub(super) fn word<T: for<'de> Deserialize<'de>>(&self, words: &str) -> Result<T, PolicyError> {
        let text = match self.value {
            Value::Bool(false) => "off",
            Value::Bool(true) => "on",
            _ => self.text()?,
        };
        T::deserialize(serde::de::value::StrDeserializer::<serde::de::value::Error>::new(text)).map_err(
            |_| {
                let written = if text == "on" { "on (or true)".to_owned() } else { format!("{text:?}") };
                self.error(format!("{written} is none of its words"), format!("write {words}"))
            },
        )
    }

    /// A part of a whole, more than 0 and at most 1.
    pub(super) fn part(&self) -> Result<f64, PolicyError> {
        match self.value.as_f64() {
            Some(part) if part > 0.0 && part <= 1.0 => Ok(part),
            _ => Err(self.error(
                format!("{} is no part of a whole", self.value),
                "write a number above 0 and at most 1, such as 0.01",
            )),
        }
    }

    pub(super) fn quantity(&self) -> Result<Quantity, PolicyError> {
        let quantity = Quantity::deserialize(self.value)
            .map_err(|e| self.error(e.to_string(), "write a quantity such as 250m or 64Mi"))?;
        if quantity.is_negative() {
            return Err(self.error(format!("{quantity} is negative"), "write an amount of zero or more"));
        }
        Ok(quantity)
    }
}
