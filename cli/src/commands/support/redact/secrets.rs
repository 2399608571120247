//! Secrets in a line of text: what stands after their names, and words that look like tokens.

use super::{ALL_OF, GONE, LONG, is_of_name, is_secret};

/// Values behind names of secrets: `name = value`, `"name": "value"`, `name=value`, `Bearer value`, `token value`.
pub(super) fn values(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(begin) = rest.find(is_of_name) {
        let (before, word) = rest.split_at(begin);
        out.push_str(before);
        let end = word.find(|c| !is_of_name(c)).unwrap_or(word.len());
        let (name, after) = word.split_at(end);
        out.push_str(name);
        rest = match secret_after(name, after) {
            None => after,
            Some((kept, secret)) => {
                out.push_str(after.get(..kept).unwrap_or_default());
                out.push_str(GONE);
                after.get(kept + secret..).unwrap_or_default()
            }
        };
    }
    out.push_str(rest);
    out
}

/// Where the secret behind a name begins, and how long it is.
pub(super) fn secret_after(name: &str, after: &str) -> Option<(usize, usize)> {
    let low = name.to_ascii_lowercase();
    if matches!(low.as_str(), "bearer" | "basic" | "token" | "password")
        && let Some(value) = after.strip_prefix(' ')
    {
        let end = value.find(|c: char| c.is_whitespace() || "\"',;".contains(c)).unwrap_or(value.len());
        // Prose goes on with short words.
        if end >= 12 && value.get(..end)?.contains(|c: char| c.is_ascii_digit()) {
            return Some((1, end));
        }
    }
    let is_all = ALL_OF.contains(&low.as_str()) && low != "command" && low != "data";
    if !is_secret(&low) && !is_all {
        return None;
    }
    let quote = usize::from(after.starts_with(['"', '\'']));
    let unquoted = after.get(quote..)?;
    let blanks = unquoted.len() - unquoted.trim_start_matches([' ', '\t']).len();
    let sign = unquoted.get(blanks..)?;
    if !sign.starts_with(['=', ':']) {
        return None;
    }
    let behind = sign.get(1..)?;
    let more = behind.len() - behind.trim_start_matches([' ', '\t', '=']).len();
    let value = behind.get(more..)?;
    let kept = quote + blanks + 1 + more;
    let trimmed = value.trim_end_matches(['\n', '\r', ',']);
    if trimmed.is_empty() || trimmed.starts_with(GONE) {
        return None;
    }
    let first = value.chars().next()?;
    // Where a secret is found stays: `{ file = "/path" }`, `{ env = "NAME" }`.
    if first == '{' && !is_all && (trimmed.contains("file") || trimmed.contains("env")) {
        return None;
    }
    let length = match first {
        '"' | '\'' => {
            let inside = value.get(1..)?;
            let end = closing(inside, first).unwrap_or_else(|| inside.trim_end().len());
            return (end > 0).then_some((kept + 1, end));
        }
        '{' | '[' => trimmed.len(),
        _ => value.find(|c: char| c.is_whitespace() || ",;&}])".contains(c)).unwrap_or(value.len()),
    };
    (length > 0).then_some((kept, length))
}

/// Where a quoted text ends.
pub(super) fn closing(text: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().find_map(|(at, c)| {
        let ends = c == quote && !escaped;
        escaped = c == '\\' && !escaped;
        ends.then_some(at)
    })
}

/// What looks like a token wherever it stands: ours, JSON web tokens, and long mixtures of both cases and digits.
pub(super) fn looks(line: &str) -> String {
    let of_token = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '+' | '=');
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(begin) = rest.find(of_token) {
        let (before, word) = rest.split_at(begin);
        out.push_str(before);
        // A JSON web token has points between its parts, the last of which looks like anything.
        let is_web = word.starts_with("eyJ");
        let ends = |c: char| !(of_token(c) || is_web && matches!(c, '.' | '-'));
        let end = word.find(ends).unwrap_or(word.len());
        let (word, after) = word.split_at(end);
        out.push_str(if is_like_a_token(word) { GONE } else { word });
        rest = after;
    }
    out.push_str(rest);
    out
}

pub(super) fn is_like_a_token(word: &str) -> bool {
    let has = |is: fn(&char) -> bool| word.chars().any(|c| is(&c));
    let mixed = has(char::is_ascii_uppercase) && has(char::is_ascii_lowercase) && has(char::is_ascii_digit);
    let own = word.strip_prefix("evk_").is_some_and(|rest| rest.len() >= 32);
    own || (word.starts_with("eyJ") && word.len() >= 16) || (word.len() >= LONG && mixed)
}
