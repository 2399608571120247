//! Owns what is taken out of texts before they are shown to others.
//!
//! Three ways, one after the other, so that what one misses another takes: secrets that are known by their text; what is in the place
//! of a secret (a key's value, a header, an annotation, the user of a URL); and what looks like one (private keys, tokens). Names
//! of files that hold secrets stay.

mod secrets;

use secrets::{looks, values};
use serde_json::Value;

/// What stands for whatever was taken out.
const GONE: &str = "[redacted]";
/// Secrets known by their text are at least so long: shorter ones would take words out.
const SHORTEST: usize = 6;
/// Letters of what looks like a token at least: ids of pods (36 with their dashes) are shorter between dashes.
const LONG: usize = 24;
/// Parts of names whose values are secrets.
const SECRET: [&str; 12] = [
    "token",
    "secret",
    "passw",
    "passphrase",
    "credential",
    "apikey",
    "api_key",
    "api-key",
    "private_key",
    "authorization",
    "cookie",
    "bearer",
];
/// Ends of names whose values say where a secret is.
const PLACE: [&str; 6] = ["file", "path", "dir", "tokens", "certs", "ca"];
/// Keys of objects whose values are taken out one and all, whatever their names.
const ALL_OF: [&str; 8] =
    ["annotations", "env", "environment", "headers", "args", "command", "arguments", "data"];

/// Takes secrets out.
#[derive(Debug, Default)]
pub(super) struct Redactor {
    known: Vec<String>,
}

impl Redactor {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// From now on this text is taken out wherever it stands.
    pub(super) fn know(&mut self, secret: &str) {
        let secret = secret.trim();
        if secret.len() >= SHORTEST && !self.known.iter().any(|known| known == secret) {
            self.known.push(secret.to_owned());
            // The longest first: one may be a part of another.
            self.known.sort_by_key(|known| std::cmp::Reverse(known.len()));
        }
    }

    /// The text without secrets, and how many places something was taken out of.
    pub(super) fn clean(&self, text: &str) -> (String, u64) {
        let mut text = structured(text).unwrap_or_else(|| text.to_owned());
        for known in &self.known {
            text = text.replace(known.as_str(), GONE);
        }
        let text = private_keys(&text);
        let text: String = sections(&text).split_inclusive('\n').map(line).collect();
        let count = text.matches(GONE).count() as u64;
        (text, count)
    }
}

/// JSON, whole or line by line, with what is in the place of a secret taken out; nothing for other texts.
fn structured(text: &str) -> Option<String> {
    if let Ok(mut value) = serde_json::from_str::<Value>(text) {
        walk(&mut value);
        return serde_json::to_string_pretty(&value).ok().map(|text| text + "\n");
    }
    if !text.starts_with('{') {
        return None;
    }
    let mut lines = String::new();
    for line in text.lines() {
        let mut value = serde_json::from_str::<Value>(line).ok()?;
        walk(&mut value);
        lines.push_str(&value.to_string());
        lines.push('\n');
    }
    Some(lines)
}

fn walk(value: &mut Value) {
    match value {
        Value::Object(entries) => {
            for (key, value) in entries.iter_mut() {
                let low = key.to_ascii_lowercase();
                match value {
                    Value::String(text) if is_secret(&low) && !text.is_empty() => *text = GONE.to_owned(),
                    Value::Object(_) | Value::Array(_) if ALL_OF.contains(&low.as_str()) => blank(value),
                    _ => walk(value),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(walk),
        _ => {}
    }
}

/// Takes every text below a value out; names of environment variables stay.
fn blank(value: &mut Value) {
    match value {
        Value::Object(entries) => {
            entries.iter_mut().filter(|(key, _)| *key != "name").for_each(|(_, value)| blank(value));
        }
        Value::Array(values) => values.iter_mut().for_each(blank),
        Value::Null | Value::Bool(_) => {}
        other => *other = Value::String(GONE.to_owned()),
    }
}

fn is_secret(name: &str) -> bool {
    let low = name.to_ascii_lowercase();
    let ends_in_key = ["_key", "-key", ".key"].iter().any(|end| low.ends_with(end)) || low == "key";
    let is_place = PLACE.iter().any(|end| low.ends_with(end));
    (SECRET.iter().any(|part| low.contains(part)) || ends_in_key) && !is_place
}

/// Takes the insides of private keys out, also in one line with escaped line ends.
fn private_keys(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("-----BEGIN ") {
        let (before, block) = rest.split_at(at);
        out.push_str(before);
        let is_private = block.lines().next().is_some_and(|line| line.contains("PRIVATE KEY"));
        if !is_private {
            let (head, after) = block.split_at("-----BEGIN ".len());
            out.push_str(head);
            rest = after;
            continue;
        }
        out.push_str(GONE);
        // Without an end everything behind it is taken out.
        rest = match block.find("-----END ") {
            None => "",
            Some(end) => {
                let tail = block.get(end + "-----END ".len()..).unwrap_or_default();
                tail.find("-----").and_then(|at| tail.get(at + 5..)).unwrap_or_default()
            }
        };
    }
    out.push_str(rest);
    out
}

/// TOML without the values of sections such as `[history.engines.headers]`, whatever their names.
fn sections(text: &str) -> String {
    let mut is_secret = false;
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim();
        if let Some(section) = trimmed.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let last = section.trim_matches(['[', ']']).rsplit('.').next().unwrap_or_default();
            is_secret = ALL_OF.contains(&last.to_ascii_lowercase().as_str());
        }
        match line.split_once('=') {
            Some((name, value)) if is_secret && !trimmed.starts_with('#') => {
                // Where a secret is found stays.
                let is_place = value.trim_start().starts_with('{');
                out.push_str(name);
                out.push_str(if is_place { "=" } else { "= " });
                out.push_str(if is_place { value } else { GONE });
                out.push_str(if is_place || !line.ends_with('\n') { "" } else { "\n" });
            }
            _ => out.push_str(line),
        }
    }
    out
}

/// One line: words in the place of a secret, then what looks like one.
fn line(line: &str) -> String {
    let line = users_of_urls(line);
    let line = values(&line);
    looks(&line)
}

/// `scheme://user:password@host` without user and password.
fn users_of_urls(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let end = after.find(|c: char| c.is_whitespace() || "/\"'<>,;".contains(c)).unwrap_or(after.len());
        rest = match after.get(..end).and_then(|host| host.rfind('@')) {
            Some(user) => {
                out.push_str(GONE);
                after.get(user..).unwrap_or_default()
            }
            None => after,
        };
    }
    out.push_str(rest);
    out
}

const fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clean(text: &str) -> String {
        Redactor::new().clean(text).0
    }

    #[test]
    fn what_is_in_the_place_of_a_secret_goes_and_the_rest_stays() {
        for (text, want) in [
            ("token = \"abc\"", "token = \"[redacted]\""),
            ("token_file = \"/etc/evenkeel/token\"", "token_file = \"/etc/evenkeel/token\""),
            ("tokens = \"/etc/evenkeel/tokens.toml\"", "tokens = \"/etc/evenkeel/tokens.toml\""),
            ("password = { file = \"/p\" }", "password = { file = \"/p\" }"),
            ("password: hunter2 and more", "password: [redacted] and more"),
            ("DB_PASSWORD=hunter2", "DB_PASSWORD=[redacted]"),
            ("headers = { X = \"v\", Y = \"w\" }", "headers = [redacted]"),
            ("Authorization: Basic aGk6eW91", "Authorization: [redacted] aGk6eW91"),
            ("sent Bearer abcdefgh12345678 to", "sent Bearer [redacted] to"),
            ("at https://anna:pw@host:1/x?a=b", "at https://[redacted]@host:1/x?a=b"),
            ("https://host/a@b", "https://host/a@b"),
            ("the token of node n1 ends in 5 min", "the token of node n1 ends in 5 min"),
            ("evenkeel_recommender_tokens_failing 0", "evenkeel_recommender_tokens_failing 0"),
            ("x eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrIn0.c2ln y", "x [redacted] y"),
            (
                "id 4f2a9d0c1b3e4f5a6b7c8d9e0f1a2b3c4d5e6f7a8b9c0d1e2f3a4b5c6d7e8f90",
                "id 4f2a9d0c1b3e4f5a6b7c8d9e0f1a2b3c4d5e6f7a8b9c0d1e2f3a4b5c6d7e8f90",
            ),
            ("AbCdEfGh0123456789IjKlMnOp", "[redacted]"),
            ("{\"token\":\"a\",\"name\":\"n\"}", "{\n  \"token\": \"[redacted]\",\n  \"name\": \"n\"\n}\n"),
            (
                "[a.headers]\nX-Scope = \"v\"\n# b = c\nY = { file = \"/p\" }\n[a.other]\nd = 1\n",
                "[a.headers]\nX-Scope = [redacted]\n# b = c\nY = { file = \"/p\" }\n[a.other]\nd = 1\n",
            ),
            ("a-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY-----b", "a[redacted]b"),
            ("k\\n-----BEGIN RSA PRIVATE KEY-----\\nMII", "k\\n[redacted]"),
            ("-----BEGIN CERTIFICATE-----", "-----BEGIN CERTIFICATE-----"),
        ] {
            assert_eq!(clean(text), want, "{text}");
        }
    }

    #[test]
    fn annotations_and_environments_go_as_a_whole() {
        let text = r#"{"metadata":{"annotations":{"a/b":"s1"},"labels":{"app":"web"}},"env":[{"name":"A","value":"s2"}],"n":1}"#;
        let cleaned = clean(text);
        assert!(!cleaned.contains("s1") && !cleaned.contains("s2"), "{cleaned}");
        assert!(cleaned.contains("web") && cleaned.contains("\"A\"") && cleaned.contains("a/b"), "{cleaned}");
        let lines = clean("{\"annotations\":{\"x\":\"s1\"}}\n{\"annotations\":{\"x\":\"s2\"}}\n");
        assert!(!lines.contains("s1") && !lines.contains("s2") && lines.lines().count() == 2, "{lines}");
    }

    #[test]
    fn known_secrets_go_wherever_they_stand() {
        let mut redactor = Redactor::new();
        redactor.know("hunter2hunter2\n");
        redactor.know("abc");
        let (text, count) = redactor.clean("xhunter2hunter2y abc hunter2hunter2");
        assert_eq!((text.as_str(), count), ("x[redacted]y abc [redacted]", 2));
    }

    #[test]
    fn any_text_is_taken() {
        for text in [
            "",
            "\u{0}",
            "token=",
            "token:\"",
            "é://ü@ö",
            "-----BEGIN PRIVATE KEY-----",
            "\"token\":",
            "{",
            "[1,2",
        ] {
            let _cleaned = clean(text);
        }
    }
}
