//! Owns how rows become lines of InfluxDB's line protocol, and names and texts inside of them.
//!
//! A row is one point: measurement `evenkeel_<table>`, its labels as tags, its numbers as integer fields, each of its
//! histograms as one string field `<scheme>;<bucket>:<weight>,...` (at most 49 KiB, with every
//! bucket in use; the engine's bound is 64 KiB).
//! Times are milliseconds. What a tag cannot hold (control characters, and a backslash, which before a comma would be
//! read as something else) is written as `%` and two hexadecimal digits, `%` itself too.

use std::fmt::Write;

use evenkeel_rightsizing::histogram::{Histogram, Scheme};

use crate::engines::row::{EngineRow, PREFIX};

/// Largest number: integers are 64 bits with a sign.
pub(super) const LARGEST: u64 = i64::MAX as u64;

/// Appends the line of a row.
pub(super) fn write(row: &EngineRow, into: &mut String) {
    into.push_str(PREFIX);
    into.push_str(row.table.name());
    for (name, value) in &row.labels {
        into.push(',');
        into.push_str(name);
        into.push('=');
        tag(value, into);
    }
    let mut separator = ' ';
    // Writing to a string does not fail.
    for (name, value) in row.table.numbers().iter().zip(&row.numbers) {
        if let Some(value) = value {
            let _ = write!(into, "{separator}{name}={value}i");
            separator = ',';
        }
    }
    for (name, histogram) in row.table.histograms().iter().zip(&row.histograms) {
        if let Some(histogram) = histogram {
            let _ = write!(into, "{separator}{name}=\"{}\"", text(histogram));
            separator = ',';
        }
    }
    let _ = writeln!(into, " {}", row.time_ms());
}

fn tag(value: &str, into: &mut String) {
    for c in value.chars() {
        match c {
            ',' | '=' | ' ' => into.extend(['\\', c]),
            '%' | '\\' | '\0'..='\x1f' | '\x7f' => {
                let _ = write!(into, "%{:02X}", u32::from(c));
            }
            c => into.push(c),
        }
    }
}

/// The value of a tag as it was before it was written; nothing where a `%` stands for nothing.
pub(super) fn untag(value: &str) -> Option<String> {
    let mut parts = value.split('%');
    let mut text = parts.next()?.to_owned();
    for part in parts {
        let code = u8::from_str_radix(part.get(..2)?, 16).ok()?;
        text.push(char::from(code));
        text.push_str(&part[2..]);
    }
    Some(text)
}

fn text(histogram: &Histogram) -> String {
    let mut text = format!("{};", histogram.scheme().id());
    for (i, (bucket, weight)) in histogram.buckets().iter().enumerate() {
        let separator = if i == 0 { "" } else { "," };
        let _ = write!(text, "{separator}{bucket}:{weight}");
    }
    text
}

/// A histogram of its text; nothing where that is not one.
pub(super) fn histogram(text: &str) -> Option<Histogram> {
    let (scheme, list) = text.split_once(';')?;
    let scheme = Scheme::from_id(scheme.parse().ok()?)?;
    let entry = |part: &str| {
        let (bucket, weight) = part.split_once(':')?;
        Some((bucket.parse().ok()?, weight.parse().ok()?))
    };
    let buckets: Option<Vec<(u16, u64)>> =
        list.split(',').filter(|part| !part.is_empty()).map(entry).collect();
    Histogram::from_buckets(scheme, buckets?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_text_survives_a_tag(text in any::<String>()) {
            let mut line = String::new();
            tag(&text, &mut line);
            prop_assert!(!line.contains(|c: char| c.is_ascii_control()));
            // What the engine itself undoes.
            let kept = line.replace("\\,", ",").replace("\\=", "=").replace("\\ ", " ");
            prop_assert_eq!(untag(&kept), Some(text));
        }

        #[test]
        fn any_histogram_survives_its_text(values in prop::collection::vec((any::<u64>(), 1u64..u64::MAX >> 8), 0..60)) {
            let mut given = Histogram::new();
            values.iter().for_each(|(value, weight)| given.add(*value, *weight));
            prop_assert_eq!(histogram(&text(&given)), Some(given));
        }
    }

    #[test]
    fn what_is_no_histogram_is_none() {
        for text in
            ["", "1", "9;1:1", "1;1", "1;2:1,1:1", "1;1:0", "1;70000:1", "x;1:1", "1;1:-1", "1;1:1,1:1"]
        {
            assert_eq!(histogram(text), None, "{text}");
        }
        for tag in ["%", "%4", "%zz", "a%é"] {
            assert_eq!(untag(tag), None, "{tag}");
        }
    }
}
