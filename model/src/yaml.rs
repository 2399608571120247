//! Owns the bounds under which YAML is read, everywhere: what a text may make of itself by nesting, aliases and merge keys.
//!
//! A text of some hundred bytes can stand for billions of values by aliases of aliases. Here aliases may at most double a
//! text, so that what reading costs follows from the text's length, which whoever accepts it has to bound.

use serde::de::DeserializeOwned;
use serde_saphyr::{Error, Options};

/// Nesting of lists and maps that is read; a pod needs about ten levels.
pub const MAX_DEPTH: usize = 64;

/// Events that aliases may add to any text, however short: a pod's labels repeated in a dozen places.
const FREE_EVENTS: usize = 1000;
/// Bytes that aliases may add to any text.
const FREE_BYTES: usize = 16 << 10;
/// Bytes of text for each event (a scalar, or one end of a list or map) that aliases may add: ordinary YAML has as many.
const BYTES_PER_EVENT: usize = 8;

/// What one text may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct YamlBounds {
    /// Documents.
    pub documents: usize,
    /// Lists, maps and scalars.
    pub nodes: usize,
}

/// Options for reading a text within bounds.
#[must_use]
pub fn options(text: &str, bounds: YamlBounds) -> Options {
    let added = (text.len() / BYTES_PER_EVENT).max(FREE_EVENTS);
    let budget = serde_saphyr::budget! {
        max_depth: MAX_DEPTH,
        flow_nesting_limit: MAX_DEPTH,
        max_documents: bounds.documents,
        max_nodes: bounds.nodes,
        max_events: bounds.nodes.saturating_mul(2),
        // What anchors keep is copied once for each list or map around it that has an anchor, too.
        max_recorded_anchor_events: added.saturating_mul(8),
        max_total_scalar_bytes: text.len().saturating_mul(2).saturating_add(FREE_BYTES),
    };
    serde_saphyr::options! {
        budget: budget,
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: added },
        with_snippet: false,
        emit_comments: false,
    }
}

/// Reads all documents of a text.
///
/// # Errors
/// When it is not YAML, not of this type, or beyond its bounds.
pub fn documents<T: DeserializeOwned>(text: &str, bounds: YamlBounds) -> Result<Vec<T>, Error> {
    serde_saphyr::from_str_multiple_with_options(text, options(text, bounds))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: YamlBounds = YamlBounds { documents: 10, nodes: 1_000_000 };

    /// Nine aliases of nine aliases, `levels` deep: some hundred bytes that stand for 9^levels values.
    fn bomb(levels: usize) -> String {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..levels {
            let inner = vec![format!("*a{}", level - 1); 9].join(", ");
            text.push_str(&format!("a{level}: &a{level} [{inner}]\n"));
        }
        text
    }

    fn read(text: &str) -> Result<Vec<serde_json::Value>, String> {
        documents(text, BOUNDS).map_err(|error| error.to_string())
    }

    #[test]
    fn what_aliases_and_nesting_make_of_a_text_is_bounded() {
        let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(8000), vec!["*a"; 100].join(", "));
        let deep = "[".repeat(5000) + &"]".repeat(5000);
        let anchors: String = (0..60).map(|level| format!("{}&n{level}\n", " ".repeat(level))).collect();
        let merged: String = (1..16).fold("m0: &m0 {a: 1}\n".to_owned(), |text, level| {
            let before = vec![format!("*m{}", level - 1); 9].join(", ");
            text + &format!("m{level}: &m{level} {{<<: [{before}], k{level}: 1}}\n")
        });
        for (what, text) in [
            ("aliases of aliases", bomb(11)),
            ("a long scalar again and again", long),
            ("nesting", deep),
            ("nested anchors", anchors + "[" + &["x"; 8].join(",")),
            ("merge keys of merge keys", merged),
        ] {
            let before = std::time::Instant::now();
            assert!(read(&text).is_err(), "{what}");
            // Far above what it takes, far below what it took: the point is that it ends.
            assert!(before.elapsed().as_secs() < 5, "{what}");
        }
    }

    #[test]
    fn ordinary_aliases_and_merge_keys_are_read() {
        let text = "labels: &labels {app: web, tier: front}\n\
                    one: {matchLabels: *labels}\n\
                    two: {<<: *labels, more: some}\n";
        let read = read(text).unwrap();
        assert_eq!(read[0]["one"]["matchLabels"]["app"], "web");
        assert_eq!(read[0]["two"]["tier"], "front");
        assert_eq!(read[0]["two"]["more"], "some");
    }

    #[test]
    fn more_documents_or_values_than_allowed_are_refused() {
        let two = YamlBounds { documents: 2, nodes: 8 };
        let count = |text: &str| documents::<serde_json::Value>(text, two).map(|d| d.len()).ok();
        assert_eq!(count("a: 1\n---\nb: 2\n"), Some(2));
        assert_eq!(count("a: 1\n---\nb: 2\n---\nc: 3\n"), None);
        assert_eq!(count("[1, 2, 3, 4, 5, 6, 7]"), Some(1));
        assert_eq!(count("[1, 2, 3, 4, 5, 6, 7, 8]"), None);
    }
}
