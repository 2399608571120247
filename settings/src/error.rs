//! A configuration error names the place, the key, the reason and the remedy.

use std::fmt;

use figment::error::{Actual, Kind};

use crate::locate::{located, place_of};

/// Something in the configuration that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// File and line, environment variable or flag.
    pub place: String,
    /// Dotted key; `None` where the place as a whole does not read.
    pub key: Option<String>,
    /// What is wrong.
    pub reason: String,
    /// What a person can do; empty where the reason says it.
    pub remedy: String,
}

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if let Some(key) = &self.key {
            write!(f, "{key}: ")?;
        }
        f.write_str(&self.reason)?;
        if self.remedy.is_empty() { Ok(()) } else { write!(f, "; {}", self.remedy) }
    }
}

/// Everything that is wrong with a configuration, a line each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl std::error::Error for ConfigErrors {}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            let between = if index == 0 { "" } else { "\n" };
            write!(f, "{between}{error}")?;
        }
        Ok(())
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        Self(vec![error])
    }
}

const DEFAULT_REMEDY: &str = "correct the value or remove it to take the default";

impl ConfigError {
    /// From an error of merging or deserialising.
    pub(crate) fn from_figment(error: &figment::Error) -> Self {
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
                (format!("found {}", found_here(found)), format!("give {}", wanted(expected)))
            }
            Kind::MissingField(name) => (format!("the key {name} is missing"), "add it".to_owned()),
            Kind::Message(text) => (text.trim().replace('\n', " "), DEFAULT_REMEDY.to_owned()),
            other => (other.to_string(), DEFAULT_REMEDY.to_owned()),
        };
        let key = Some(path.join(".")).filter(|key| !key.is_empty());
        Self { place: located(place_of(error.metadata.as_ref()), &path), key, reason, remedy }
    }
}

/// What stands there, in TOML's words.
fn found_here(found: &Actual) -> String {
    match found {
        Actual::Bool(value) => value.to_string(),
        Actual::Unsigned(value) => format!("the number {value}"),
        Actual::Signed(value) => format!("the number {value}"),
        Actual::Float(value) => format!("the number {value}"),
        Actual::Str(text) => format!("the text {text:?}"),
        Actual::Seq => "a list".to_owned(),
        Actual::Map => "a table".to_owned(),
        other => other.to_string(),
    }
}

/// What belongs there: readers of Rust's own types name them in Rust's words.
fn wanted(expected: &str) -> &str {
    match expected {
        "a sequence" => "a list, such as [\"a\", \"b\"]",
        "a string" | "path string" => "a text",
        "a boolean" => "true or false",
        "a map" => "a table, whose keys stand below its name in brackets",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number that is not negative",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        of if of.starts_with("struct ") => "a table, whose keys stand below its name in brackets",
        other => other,
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
    fn types_are_told_in_the_words_of_a_configuration() {
        let table = [
            (Actual::Str("/a,/b".into()), "a sequence", "the text \"/a,/b\"; a list, such as [\"a\", \"b\"]"),
            (
                Actual::Unsigned(1),
                "struct Serve",
                "the number 1; a table, whose keys stand below its name in brackets",
            ),
            (Actual::Map, "path string", "a table; a text"),
            (Actual::Bool(true), "usize", "true; a whole number that is not negative"),
            (Actual::Seq, "a duration", "a list; a duration"),
        ];
        for (found, expected, told) in table {
            assert_eq!(format!("{}; {}", found_here(&found), wanted(expected)), told);
        }
    }

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
