//! Faults of an object as the API server words them (`field/errors.go`).

use std::fmt::Display;

/// Faults found so far, in order; the same one is told once.
#[derive(Debug, Default)]
pub(super) struct Faults(Vec<String>);

impl Faults {
    fn push(&mut self, fault: String) {
        if !self.0.contains(&fault) {
            self.0.push(fault);
        }
    }

    /// A value that is text, or told as text.
    pub(super) fn invalid(&mut self, path: impl Display, value: &str, why: impl Display) {
        self.push(format!("{path}: Invalid value: {value:?}: {why}"));
    }

    /// A value that is a number.
    pub(super) fn invalid_number(&mut self, path: impl Display, value: i64, why: impl Display) {
        self.push(format!("{path}: Invalid value: {value}: {why}"));
    }

    pub(super) fn required(&mut self, path: impl Display, why: &str) {
        let why = if why.is_empty() { String::new() } else { format!(": {why}") };
        self.push(format!("{path}: Required value{why}"));
    }

    pub(super) fn duplicate(&mut self, path: impl Display, value: &str) {
        self.push(format!("{path}: Duplicate value: {value:?}"));
    }

    pub(super) fn forbidden(&mut self, path: impl Display, why: &str) {
        self.push(format!("{path}: Forbidden: {why}"));
    }

    pub(super) fn unsupported(&mut self, path: impl Display, value: &str, supported: &[&str]) {
        let supported: Vec<String> = supported.iter().map(|one| format!("{one:?}")).collect();
        let supported = supported.join(", ");
        self.push(format!("{path}: Unsupported value: {value:?}: supported values: {supported}"));
    }

    /// The API server's answer to an object with these faults; nothing where there are none.
    pub(super) fn answer(self, kind: &str, name: &str) -> Option<String> {
        let told = match self.0.as_slice() {
            [] => return None,
            [one] => one.clone(),
            all => format!("[{}]", all.join(", ")),
        };
        Some(format!("{kind} {name:?} is invalid: {told}"))
    }
}
