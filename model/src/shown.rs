//! Owns how text of others is shown, so that it does nothing but stand there: in a terminal, a log, CSV, JSON, metrics.
//!
//! Names of containers, pods and nodes, reasons and images come from people and machines that may mean harm. A control
//! character moves a cursor or begins an escape sequence; a bidi override shows a name as another (Trojan Source,
//! CVE-2021-42574); what begins with `=` is a formula to a spreadsheet. Every program shows text through here.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io;

/// Characters of one text in a table; longer ones end in dots. The longest reasons of our own have half as many.
const MAX_SHOWN: usize = 2048;
/// Stands for a character that is not shown (U+FFFD, the replacement character).
const REPLACEMENT: char = '\u{fffd}';

/// Whether a character does something besides being seen: steers a terminal, turns the direction of text, hides, or ends a
/// line.
#[must_use]
pub const fn is_hostile(c: char) -> bool {
    matches!(c,
        // C0, DEL and C1, among them ESC, CSI and NEL.
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}'
        // Soft hyphen, Arabic letter mark, zero-width space and marks of direction.
        | '\u{ad}' | '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
        // Separators of lines and paragraphs; embeddings, overrides and isolates of direction.
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        // Byte order mark, interlinear annotations, tags.
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// One line of text for people: hostile characters replaced, cut where it is too long for any screen.
#[must_use]
pub fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len().min(4 * MAX_SHOWN));
    for (count, c) in text.chars().enumerate() {
        if count == MAX_SHOWN {
            plain.push_str("...");
            break;
        }
        plain.push(if is_hostile(c) { REPLACEMENT } else { c });
    }
    plain
}

/// Text with hostile characters spelt out, as `\u{202e}`: different texts stay different, as labels of metrics have to.
#[must_use]
pub fn spelt(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hostile) {
        return Cow::Borrowed(text);
    }
    let mut spelt = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_hostile(c) {
            true => spelt.extend(c.escape_unicode()),
            false => spelt.push(c),
        }
    }
    Cow::Owned(spelt)
}

/// JSON with hostile characters in its strings escaped (RFC 8259, section 7); the value is the same. Line feeds between
/// values stay.
#[must_use]
pub fn json(text: String) -> String {
    let stays = |c: char| c == '\n' || !is_hostile(c);
    if text.chars().all(stays) {
        return text;
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if stays(c) {
            escaped.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a string cannot fail.
            let _ = write!(escaped, "\\u{unit:04x}");
        }
    }
    escaped
}

/// A cell of comma-separated values (RFC 4180): quoted where it has to be, and never a formula. What begins like one and
/// is no number gets an apostrophe in front, which spreadsheets take for "text" (OWASP, "CSV Injection").
#[must_use]
pub fn csv(text: &str) -> String {
    let plain = plain(text);
    let guarded = match plain.chars().next() {
        Some('=' | '@' | '+' | '-') if !is_amount(&plain) => format!("'{plain}"),
        _ => plain,
    };
    match guarded.contains([',', '"', ';']) {
        true => format!("\"{}\"", guarded.replace('"', "\"\"")),
        false => guarded,
    }
}

/// Whether a text is a dash for "none", or a signed number with a unit at most: a spreadsheet makes that number of it.
fn is_amount(text: &str) -> bool {
    const MAX_UNIT: usize = 3;
    if text == "-" {
        return true;
    }
    let Some(number) = text.strip_prefix(['-', '+']) else { return false };
    let unit = number.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let digits = number.len() - unit.len();
    let unit = unit.strip_prefix(' ').unwrap_or(unit);
    let plain = unit.chars().all(|c| c.is_ascii_alphabetic() || c == '%');
    digits > 0 && unit.len() <= MAX_UNIT && plain
}

/// Writes lines of a log in which hostile characters are escaped. What each call of `write` is given is one line or
/// several, as `tracing` writes them.
#[derive(Debug)]
pub struct Lines<W> {
    inner: W,
    form: LogLineFormat,
}

/// Form of a log's lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLineFormat {
    /// Text, perhaps coloured by our own escape sequences.
    Text {
        /// Escape sequences are ours: whoever formats has escaped those of others.
        coloured: bool,
    },
    /// JSON objects.
    Json,
}

impl<W: io::Write> Lines<W> {
    /// Lines of this form, written to `inner`.
    pub const fn new(inner: W, form: LogLineFormat) -> Self {
        Self { inner, form }
    }
}

impl<W: io::Write> io::Write for Lines<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let harmless = match self.form {
            LogLineFormat::Json => json(text.into_owned()),
            LogLineFormat::Text { coloured } => {
                let stays = |c: char| c == '\n' || (coloured && c == '\u{1b}');
                let keep = |c: char| if is_hostile(c) && !stays(c) { REPLACEMENT } else { c };
                text.chars().map(keep).collect()
            }
        };
        self.inner.write_all(harmless.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// Names as a hostile node or user gives them.
    const NAMES: [&str; 9] = [
        "\u{1b}[2J\u{1b}]0;title\u{7}",
        "\u{9b}31m",
        "a\nb\rc\td\0",
        "cod\u{202e}gpj.exe",
        "\u{2066}x\u{2069}\u{200f}",
        "\u{2028}line\u{feff}",
        "\u{e0041}tag",
        "=HYPERLINK(\"http://evil.example\",\"click\")",
        "<script>alert(1)</script>",
    ];

    #[test]
    fn nothing_hostile_is_left_in_any_form() {
        for name in NAMES {
            let forms = [plain(name), spelt(name).into_owned(), csv(name), json(format!("\"{name}\""))];
            for form in forms {
                assert!(!form.contains(|c| c != '\n' && is_hostile(c)), "{name:?}: {form:?}");
            }
        }
        for (text, want) in [
            ("web-1", "web-1"),
            ("naïve ☸ 名前", "naïve ☸ 名前"),
            ("a\u{1b}b", "a\u{fffd}b"),
            ("gpj\u{202e}", "gpj\u{fffd}"),
        ] {
            assert_eq!(plain(text), want);
        }
        assert_eq!(spelt("a\u{202e}\u{1b}"), "a\\u{202e}\\u{1b}");
        assert_eq!(plain(&"x".repeat(64 << 10)).len(), MAX_SHOWN + 3);
    }

    #[test]
    fn json_keeps_its_value() {
        for name in NAMES {
            let value = serde_json::json!({ "name": name, "list": [name, 1] });
            for text in [value.to_string(), format!("{value:#}\n")] {
                let escaped = json(text);
                assert_eq!(serde_json::from_str::<serde_json::Value>(&escaped).ok().as_ref(), Some(&value));
                assert!(!escaped.contains(|c| c != '\n' && is_hostile(c)), "{escaped:?}");
            }
        }
    }

    #[test]
    fn cells_are_no_formulas_and_numbers_stay_numbers() {
        for (text, want) in [
            ("web", "web"),
            ("=1+1", "'=1+1"),
            ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("+1+cmd", "'+1+cmd"),
            ("-2+3", "'-2+3"),
            ("-x", "'-x"),
            ("-", "-"),
            ("-997", "-997"),
            ("+50%", "+50%"),
            ("-1.5Gi", "-1.5Gi"),
            ("-150m", "-150m"),
            ("x, y", "\"x, y\""),
            ("=A1,\"b\"", "\"'=A1,\"\"b\"\"\""),
            ("\t=1", "\u{fffd}=1"),
        ] {
            assert_eq!(csv(text), want, "{text}");
        }
    }

    #[test]
    fn lines_of_a_log_have_no_escapes_but_our_own() {
        let written = |form, text: &str| {
            let mut lines = Lines::new(Vec::new(), form);
            lines.write_all(text.as_bytes()).expect("a vector takes everything");
            String::from_utf8(lines.inner).expect("it was text")
        };
        let plain = LogLineFormat::Text { coloured: false };
        assert_eq!(written(plain, "pod=a\u{1b}[31m\u{202e}\n"), "pod=a\u{fffd}[31m\u{fffd}\n");
        let coloured = LogLineFormat::Text { coloured: true };
        assert_eq!(
            written(coloured, "\u{1b}[2mINFO\u{1b}[0m \u{9b}31m\n"),
            "\u{1b}[2mINFO\u{1b}[0m \u{fffd}31m\n"
        );
        assert_eq!(written(LogLineFormat::Json, "{\"pod\":\"\u{9b}\"}\n"), "{\"pod\":\"\\u009b\"}\n");
    }
}
