//! Identifiers of objects, in a quarter of the bytes of their text: a cluster has very many.

use std::fmt;
use std::num::NonZeroU128;

/// An identifier as the API server gives it: `8-4-4-4-12` digits, hexadecimal, small letters (RFC 9562, section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Uid(NonZeroU128);

/// Lengths of the parts.
const PARTS: [usize; 5] = [8, 4, 4, 4, 12];

impl Uid {
    /// `None` for text of another form.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let lengths: Vec<usize> = text.split('-').map(str::len).collect();
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-');
        if lengths != PARTS || !text.bytes().all(is_digit) {
            return None;
        }
        let digits = text.replace('-', "");
        u128::from_str_radix(&digits, 16).ok().and_then(NonZeroU128::new).map(Self)
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:032x}", self.0);
        let mut from = 0;
        for (index, length) in PARTS.into_iter().enumerate() {
            let separator = if index == 0 { "" } else { "-" };
            write!(f, "{separator}{}", &digits[from..from + length])?;
            from += length;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_comes_back_and_other_text_is_none() {
        let text = "0a1b2c3d-0000-4abc-8def-00000000000f";
        assert_eq!(Uid::parse(text).unwrap().to_string(), text);
        for other in
            ["", "web-1", "0A1b2c3d-0000-4abc-8def-00000000000f", "0a1b2c3d00004abc8def00000000000f", "----"]
        {
            assert_eq!(Uid::parse(other), None, "{other}");
        }
    }
}
