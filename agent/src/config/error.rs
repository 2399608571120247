//! A configuration error names the place, the key, the reason and the remedy.

use std::fmt;

use figment::Source;
use figment::error::Kind;

/// Something in the configuration that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigError {
    /// File, environment variable or flag.
    pub place: String,
    /// Dotted key; `None` where the place as a whole does not read.
    pub key: Option<String>,
    /// What is wrong.
    pub reason: String,
    /// What a person can do.
    pub remedy: String,
}

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if let Some(key) = &self.key {
            write!(f, "{key}: ")?;
        }
        write!(f, "{}; {}", self.reason, self.remedy)
    }
}

impl ConfigError {
    /// From what merging or deserialising said.
    pub(super) fn from_figment(error: figment::Error) -> Self {
        let mut path = error.path.clone();
        let (reason, remedy) = match &error.kind {
            Kind::UnknownField(name, expected) => {
                if path.last() != Some(name) {
                    path.push(name.clone());
                }
                ("this key is not known".to_owned(), nearest_or_all(name, expected))
            }
            Kind::UnknownVariant(value, expected) => {
                (format!("\"{value}\" is not one of its values"), nearest_or_all(value, expected))
            }
            Kind::InvalidType(found, expected) | Kind::InvalidValue(found, expected) => {
                (format!("found {found}"), format!("give {expected}"))
            }
            Kind::Message(text) => {
                (text.trim().replace('\n', " "), "correct the value or remove it to take the default".into())
            }
            other => (other.to_string(), "correct the value or remove it to take the default".into()),
        };
        let key = Some(path.join(".")).filter(|key| !key.is_empty());
        Self { place: place_of(error.metadata.as_ref()), key, reason, remedy }
    }
}

/// File, variable or flag a value came from.
pub(super) fn place_of(metadata: Option<&figment::Metadata>) -> String {
    match metadata {
        Some(metadata) => match &metadata.source {
            Some(Source::File(path)) => path.display().to_string(),
            _ => metadata.name.to_string(),
        },
        None => "configuration".to_owned(),
    }
}

fn nearest_or_all(name: &str, expected: &[&str]) -> String {
    let nearest = expected.iter().map(|known| (distance(name, known), known)).min();
    match nearest {
        // A third of the word wrong is a typing error; more is another word.
        Some((far, known)) if far <= known.len().div_ceil(3) => format!("did you mean \"{known}\"?"),
        _ => format!("known here: {}", expected.join(", ")),
    }
}

/// Edit distance (insertions, deletions, substitutions) between two short words.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_offered_only_when_it_is_near() {
        assert_eq!(
            nearest_or_all("audit_perod", &["freeze", "audit_period"]),
            "did you mean \"audit_period\"?"
        );
        assert_eq!(nearest_or_all("colour", &["freeze", "score"]), "known here: freeze, score");
        assert_eq!((distance("", "abc"), distance("kitten", "sitting")), (3, 3));
    }
}
