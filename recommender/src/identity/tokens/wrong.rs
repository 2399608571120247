//! What is wrong with a file of tokens, without a word of it: a secret may stand where it does not belong.

use figment::error::{Error, Kind};

/// What syntax is expected.
const FORM: &str = "expected is key = value, as evenkeel-recommender token add writes it";
/// How the TOML reader begins; line and column follow.
const SYNTAX: &str = "TOML parse error at ";
/// Keys of a file; a word that is none of them is not repeated.
const KEYS: [&str; 7] = ["token", "name", "sha256", "roles", "namespaces", "node", "expires"];

/// Says in one line where a reader's error is and what is expected there.
pub(super) fn told(text: &str, error: &Error) -> String {
    let expected = match &error.kind {
        Kind::Message(said) => {
            let at = said.lines().next().and_then(|line| line.strip_prefix(SYNTAX));
            return at.map_or_else(|| FORM.to_owned(), |at| format!("{at}: {FORM}"));
        }
        Kind::InvalidType(_, expected) | Kind::InvalidValue(_, expected) => format!("expected is {expected}"),
        Kind::InvalidLength(_, expected) => format!("expected is {expected}"),
        Kind::UnknownField(_, known) => {
            format!("a key is not known; expected is one of {}", known.join(", "))
        }
        Kind::UnknownVariant(_, known) => format!("expected is one of {}", known.join(", ")),
        Kind::MissingField(key) => format!("the key {key} is missing"),
        Kind::DuplicateField(key) => format!("the key {key} is there twice"),
        _ => FORM.to_owned(),
    };
    let entry = error.path.iter().find_map(|part| part.parse().ok());
    let key = error.path.iter().rev().find(|part| KEYS.contains(&part.as_str()) && *part != "token");
    format!("{}: {expected}", place(text, entry, key.map(String::as_str)))
}

/// Line and column, from 1, of a key of an entry, counted from 0; of the entry, or of the file's begin, without.
pub(super) fn place(text: &str, entry: Option<usize>, key: Option<&str>) -> String {
    let (mut headers, mut line, mut column) = (0, 1, 1);
    for (number, written) in (1..).zip(text.lines()) {
        let word = written.trim_start();
        let begins = 1 + written.len() - word.len();
        if word.starts_with("[[") {
            headers += 1;
            if entry.map(|entry| entry + 1) == Some(headers) {
                (line, column) = (number, begins);
            }
        } else if entry.map(|entry| entry + 1) == Some(headers)
            && key.is_some_and(|key| word.starts_with(key))
        {
            (line, column) = (number, begins);
            break;
        }
    }
    format!("line {line}, column {column}")
}
