//! What is wrong with a policy, and where.

/// A policy that cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {why}; {remedy}")]
pub struct PolicyError {
    /// The field, such as `spec.target.matchExpressions[0].values`, behind the object's number where there are several.
    pub place: String,
    /// What is wrong with it.
    pub why: String,
    /// What to write.
    pub remedy: String,
}

impl PolicyError {
    pub(super) fn new(place: impl Into<String>, why: impl Into<String>, remedy: impl Into<String>) -> Self {
        let place = match place.into() {
            empty if empty.is_empty() => "policy".to_owned(),
            place => place,
        };
        Self { place, why: why.into(), remedy: remedy.into() }
    }

    /// The same of one object of several, by its number from 1.
    #[must_use]
    pub fn of_object(self, number: usize) -> Self {
        Self { place: format!("object {number}: {}", self.place), ..self }
    }
}
