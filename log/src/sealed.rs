//! Checksums of small state files: one in front of every line, or one in front of a whole file.
//!
//! Owned here: the form of both. Not owned: what the lines and files say, and what is done about damage.
//!
//! A sealed line is the CRC32C of its text as eight hexadecimal digits, a blank and the text. A sealed file is the line
//! `evenkeel-sealed 1 CRC32C` and what it seals. What a release before wrote has neither; the caller says how to know it.

/// First word of a sealed file, and its version.
const HEAD: &[u8] = b"evenkeel-sealed 1 ";
/// Hexadecimal digits of a checksum.
const DIGITS: usize = 8;

/// Appends a line with its checksum and its end.
pub fn push_line(out: &mut String, text: &str) {
    use std::fmt::Write as _;
    let _infallible = writeln!(out, "{:08x} {text}", crc32c::crc32c(text.as_bytes()));
}

/// The text of a sealed line without its end; nothing where the checksum is missing or another.
pub fn line(line: &str) -> Option<&str> {
    let (sum, text) = line.split_at_checked(DIGITS)?;
    let text = text.strip_prefix(' ')?;
    (parse(sum.as_bytes())? == crc32c::crc32c(text.as_bytes())).then_some(text)
}

/// A whole file with its checksum in front.
pub fn file(body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD.len() + DIGITS + 1 + body.len());
    bytes.extend_from_slice(HEAD);
    bytes.extend_from_slice(format!("{:08x}\n", crc32c::crc32c(body)).as_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// What a file holds.
#[derive(Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// What was sealed, and is as it was written.
    Whole(&'a [u8]),
    /// A file that no release which seals has written.
    Unsealed(&'a [u8]),
    /// It was sealed and is not as it was written.
    Damaged,
}

/// Reads a file that may be sealed.
pub fn body(bytes: &[u8]) -> Body<'_> {
    let Some(rest) = bytes.strip_prefix(HEAD) else {
        // Cut off within its first words it is not of a release before either.
        let cut = bytes.len() < HEAD.len() && HEAD.starts_with(bytes);
        return if cut { Body::Damaged } else { Body::Unsealed(bytes) };
    };
    let whole = rest.split_at_checked(DIGITS).and_then(|(sum, rest)| {
        let body = rest.strip_prefix(b"\n")?;
        (parse(sum)? == crc32c::crc32c(body)).then_some(body)
    });
    whole.map_or(Body::Damaged, Body::Whole)
}

fn parse(digits: &[u8]) -> Option<u32> {
    if digits.iter().any(u8::is_ascii_uppercase) {
        return None;
    }
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_and_every_cut_is_seen() {
        let mut sealed = String::new();
        push_line(&mut sealed, r#"{"what":"boot","boot_id":"b"}"#);
        let whole = sealed.trim_end_matches('\n');
        assert_eq!(line(whole), Some(r#"{"what":"boot","boot_id":"b"}"#));
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.as_bytes().to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(line(&String::from_utf8_lossy(&bytes)), None, "bit {bit}");
        }
        for end in 0..whole.len() {
            assert_eq!(line(&whole[..end]), None, "cut at {end}");
        }
        // A line that only looks like one.
        assert_eq!(line("+1234567 x"), None);
    }

    #[test]
    fn a_file_is_whole_old_or_damaged() {
        let sealed = file(b"\x01\x02body");
        assert_eq!(body(&sealed), Body::Whole(b"\x01\x02body"));
        assert_eq!(body(b"{\"version\":1}"), Body::Unsealed(b"{\"version\":1}"));
        for end in 0..sealed.len() {
            assert_eq!(body(&sealed[..end]), Body::Damaged, "cut at {end}");
        }
        for bit in (HEAD.len() * 8)..sealed.len() * 8 {
            let mut bytes = sealed.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(body(&bytes), Body::Damaged, "bit {bit}");
        }
    }
}
