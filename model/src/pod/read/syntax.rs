//! Owns turning text into documents: JSON (one or several values) or YAML (one or several documents), within bounds.

use serde_saphyr::options::DuplicateKeyPolicy;
use serde_saphyr::{Error, Spanned};

use super::error::{ReadError, ReadReason};
use super::tree::{Json, Placed, TreeValue, Yaml, place};
use crate::yaml::{self, YamlBounds};

/// What is read from one source of YAML; in JSON the text's length bounds it.
const BOUNDS: YamlBounds = YamlBounds { documents: 10_000, nodes: 1_000_000 };

/// A document and its place in the source, from 0.
pub(super) struct Document {
    pub(super) index: usize,
    pub(super) root: Placed,
}

/// Reads all documents, empty ones left out.
pub(super) fn documents(text: &str, source: &str) -> Result<Vec<Document>, ReadError> {
    if !text.trim_start().starts_with(['{', '[']) {
        return yaml(text, source);
    }
    // What begins like JSON may still be YAML in flow style.
    json(text, source).or_else(|error| yaml(text, source).map_err(|_| error))
}

fn json(text: &str, source: &str) -> Result<Vec<Document>, ReadError> {
    let mut documents = Vec::new();
    for (index, value) in serde_json::Deserializer::from_str(text).into_iter::<Json>().enumerate() {
        let root: Placed = value.map(Into::into).map_err(|error| ReadError {
            source_name: source.to_owned(),
            document: Some(index),
            path: None,
            line: Some(error.line() as u64).filter(|line| *line > 0),
            reason: ReadReason::Syntax(format!("not valid JSON: {error}")),
        })?;
        documents.push(Document { index, root });
    }
    Ok(documents)
}

fn yaml(text: &str, source: &str) -> Result<Vec<Document>, ReadError> {
    let roots: Vec<Spanned<Yaml>> =
        yaml::documents(text, BOUNDS).map_err(|error| yaml_error(text, source, &error))?;
    let mut starts = DocumentStarts::of(text);
    let documents =
        roots.into_iter().map(place).map(|root| Document { index: starts.before(line_of(&root)), root });
    Ok(documents.filter(|document| !matches!(document.root.value, TreeValue::Null)).collect())
}

fn yaml_error(text: &str, source: &str, error: &Error) -> ReadError {
    let line = error.location().map(|location| location.line()).filter(|line| *line > 0);
    let duplicate = match error.without_snippet() {
        Error::DuplicateMappingKey { key: Some(key), .. } => Some(key.clone()),
        _ => None,
    };
    let path = duplicate.as_ref().zip(line).and_then(|(key, line)| path_of_duplicate(text, key, line));
    let reason = match duplicate {
        Some(key) => ReadReason::DuplicateKey { key },
        None => ReadReason::Syntax(format!("not valid YAML: {error}")),
    };
    let document = Some(DocumentStarts::of(text).before(line));
    ReadError { source_name: source.to_owned(), document, path, line, reason }
}

/// Finds the field that a key given twice names, by reading the text again with the first of the two: it is the last
/// field of that name before the line of the second.
fn path_of_duplicate(text: &str, key: &str, line: u64) -> Option<String> {
    let mut options = yaml::options(text, BOUNDS);
    options.duplicate_keys = DuplicateKeyPolicy::FirstWins;
    let roots: Vec<Spanned<Yaml>> = serde_saphyr::from_str_multiple_with_options(text, options).ok()?;
    let mut best: Option<(u64, String)> = None;
    for root in roots.into_iter().map(place) {
        last_field_before(&root, key, line, &mut String::new(), &mut best);
    }
    best.map(|(_, path)| path)
}

fn last_field_before(at: &Placed, key: &str, line: u64, path: &mut String, best: &mut Option<(u64, String)>) {
    let length = path.len();
    match &at.value {
        TreeValue::List(list) => {
            for (index, element) in list.iter().enumerate() {
                path.push_str(&format!("[{index}]"));
                last_field_before(element, key, line, path, best);
                path.truncate(length);
            }
        }
        TreeValue::Map(entries) => {
            for (name, element) in entries {
                path.push_str(if length == 0 { "" } else { "." });
                path.push_str(name);
                let found = line_of(element).filter(|found| name == key && *found <= line);
                if let Some(found) = found.filter(|found| best.as_ref().is_none_or(|(last, _)| last <= found))
                {
                    *best = Some((found, path.clone()));
                }
                last_field_before(element, key, line, path, best);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

/// The line of a value, from 1.
fn line_of(placed: &Placed) -> Option<u64> {
    placed.line.map(|line| line.get().into())
}

/// Counts documents by their `---` lines.
struct DocumentStarts<'a> {
    lines: std::iter::Peekable<std::iter::Enumerate<std::str::Lines<'a>>>,
    /// Documents begun so far.
    begun: usize,
    /// Whether the current document was begun by its content rather than by `---`.
    open: bool,
}

impl<'a> DocumentStarts<'a> {
    fn of(text: &'a str) -> Self {
        Self { lines: text.lines().enumerate().peekable(), begun: 0, open: false }
    }

    /// Place, from 0, of the document that `line` (from 1) belongs to; lines must be asked for in rising order.
    fn before(&mut self, line: Option<u64>) -> usize {
        let line = line.unwrap_or(1);
        while let Some((_, text)) = self.lines.next_if(|(index, _)| (*index as u64) < line) {
            let marker = text == "---" || text.starts_with("--- ");
            let content = !text.trim().is_empty() && !text.trim_start().starts_with(['#', '%']);
            if marker || (content && !self.open) {
                self.begun += 1;
                self.open = true;
            }
        }
        self.begun.saturating_sub(1)
    }
}
