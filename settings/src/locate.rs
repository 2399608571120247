//! Where a value stands: file and line, environment variable or flag.

use std::fs;
use std::path::{Path, PathBuf};

use figment::Source;
use toml_edit::{ImDocument, Item, Value};

/// Where a value comes from.
pub(crate) enum ValueOrigin {
    File(PathBuf),
    Other(String),
}

/// File, variable or flag a value came from.
pub(crate) fn place_of(metadata: Option<&figment::Metadata>) -> ValueOrigin {
    match metadata {
        Some(metadata) => match &metadata.source {
            Some(Source::File(path)) => ValueOrigin::File(path.clone()),
            _ => ValueOrigin::Other(metadata.name.to_string()),
        },
        None => ValueOrigin::Other("configuration".to_owned()),
    }
}

/// The place as text, with the line of a key where it is a file.
pub(crate) fn located(place: ValueOrigin, key: &[String]) -> String {
    match place {
        ValueOrigin::Other(name) => name,
        ValueOrigin::File(path) => match line_of(&path, key) {
            Some(line) => format!("{}:{line}", path.display()),
            None => path.display().to_string(),
        },
    }
}

/// Line of the deepest part of a key that the file has, counted from 1.
fn line_of(file: &Path, key: &[String]) -> Option<usize> {
    let text = fs::read_to_string(file).ok()?;
    let document = ImDocument::parse(text.as_str()).ok()?;
    Some(line_at(&text, start_of(document.as_item(), key)?))
}

/// Line of a byte, counted from 1.
pub(crate) fn line_at(text: &str, byte: usize) -> usize {
    text.bytes().take(byte).filter(|byte| *byte == b'\n').count() + 1
}

fn start_of(item: &Item, key: &[String]) -> Option<usize> {
    let (first, rest) = key.split_first()?;
    let found = if let Some(table) = item.as_table_like() {
        table.get_key_value(first).map(|(key, item)| (key.span(), item))
    } else {
        let index: usize = first.parse().ok()?;
        item.get(index).map(|item| (item.span(), item))
    };
    if let Some((span, inner)) = found {
        return start_of(inner, rest).or(span.or_else(|| inner.span()).map(|span| span.start));
    }
    // Tables within a list that is written as a value.
    let value = item.as_array()?.get(first.parse().ok()?)?;
    start_of_value(value, rest)
}

fn start_of_value(value: &Value, key: &[String]) -> Option<usize> {
    let here = value.span().map(|span| span.start);
    let Some((first, rest)) = key.split_first() else { return here };
    let inner = match value {
        Value::InlineTable(table) => table.get(first),
        Value::Array(list) => first.parse().ok().and_then(|index| list.get(index)),
        _ => None,
    };
    inner.and_then(|inner| start_of_value(inner, rest)).or(here)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_key_is_found() {
        let text = "a = 1\n\n[serve]\n# text\ngrpc = '1'\nlist = [\n  1,\n  { x = 2 },\n]\n[[tier]]\nname = 'a'\n\
                    [[tier]]\nname = 'b'\n[resources.\"example.com/seat\"]\nunits = ''\n";
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.toml");
        fs::write(&file, text).unwrap();
        for (key, line) in [
            (&["a"][..], Some(1)),
            (&["serve"], Some(3)),
            (&["serve", "grpc"], Some(5)),
            (&["serve", "list", "1", "x"], Some(8)),
            (&["serve", "list", "0"], Some(7)),
            (&["serve", "missing"], Some(3)),
            (&["tier", "1", "name"], Some(13)),
            (&["resources", "example.com/seat", "units"], Some(15)),
            (&["missing"], None),
        ] {
            let key: Vec<String> = key.iter().map(|part| (*part).to_owned()).collect();
            assert_eq!(line_of(&file, &key), line, "{key:?}");
        }
    }
}
