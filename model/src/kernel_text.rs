//! Words and numbers as the kernel writes them in its files.
//!
//! Owned here: single values, which [`crate::knob`] is made of. They work on bytes as read, allocate nothing and never panic on
//! any input. Not owned: files of several lines, and which file says what.

use crate::units::{Bytes, Limit};

/// The first line without its newline and surrounding blanks.
pub fn first_line(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|&b| b == b'\n').unwrap_or(text.len());
    text[..end].trim_ascii()
}

/// Words of a line.
pub fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty())
}

/// A decimal number and nothing else. `None` on anything else, including overflow.
pub fn uint(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |n, &b| {
        let digit = b.wrapping_sub(b'0');
        if digit > 9 { None } else { n.checked_mul(10)?.checked_add(u64::from(digit)) }
    })
}

/// A decimal number with an optional minus sign.
pub fn int(text: &[u8]) -> Option<i64> {
    match text.strip_prefix(b"-") {
        Some(digits) => uint(digits).and_then(|n| 0i64.checked_sub_unsigned(n)),
        None => uint(text).and_then(|n| i64::try_from(n).ok()),
    }
}

/// `0` or `1`.
pub fn flag(text: &[u8]) -> Option<bool> {
    match text {
        b"0" => Some(false),
        b"1" => Some(true),
        _ => None,
    }
}

/// A number of bytes or `max`, as cgroup v2 writes limits.
pub fn limit(text: &[u8]) -> Option<Limit<Bytes>> {
    if text == b"max" { Some(Limit::Max) } else { uint(text).map(|n| Limit::Value(Bytes::new(n))) }
}

/// A limit of cgroup v1: bytes, -1 for none, and on reading a number near 2^63 for none, which is
/// `PAGE_COUNTER_MAX` pages and so depends on the page size (at most 64 KiB where v1 is found).
pub fn v1_limit(text: &[u8]) -> Option<Limit<Bytes>> {
    const UNLIMITED: u64 = i64::MAX as u64 - 0xffff;
    if text == b"-1" {
        return Some(Limit::Max);
    }
    uint(text).map(|n| if n >= UNLIMITED { Limit::Max } else { Limit::Value(Bytes::new(n)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_whole_and_do_not_overflow() {
        let table: [(&[u8], Option<u64>); 7] = [
            (b"0", Some(0)),
            (b"18446744073709551615", Some(u64::MAX)),
            (b"18446744073709551616", None),
            (b"", None),
            (b"-1", None),
            (b"1 ", None),
            (b"0x10", None),
        ];
        for (text, want) in table {
            assert_eq!(uint(text), want, "{:?}", String::from_utf8_lossy(text));
        }
        assert_eq!(int(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(int(b"-9223372036854775809"), None);
        assert_eq!(int(b"--1"), None);
    }
}
