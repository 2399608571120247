//! Octets of an authority in HPACK's Huffman code (RFC 7541, appendix B), replaced in place.
//!
//! Go's gRPC sends the socket's path so. The octets that may not be in an authority have replacements whose codes are of
//! the same length, so that nothing around them moves.
//!
//! Owned here: finding where one code ends and the next begins. Not owned: padding and broken codes, which the library
//! judges.

/// The first code beyond those of each length: the code is canonical, so that a shorter one is whole where it is below.
const ENDS: [(u32, u32); 21] = [
    (5, 0xa),
    (6, 0x2e),
    (7, 0x7c),
    (8, 0xfe),
    (10, 0x3fd),
    (11, 0x7fd),
    (12, 0xffc),
    (13, 0x1ffe),
    (14, 0x3ffe),
    (15, 0x7fff),
    (19, 0x7_fff3),
    (20, 0xf_ffee),
    (21, 0x1f_ffe9),
    (22, 0x3f_ffec),
    (23, 0x7f_fff5),
    (24, 0xff_fff6),
    (25, 0x1ff_fff0),
    (26, 0x3ff_ffef),
    (27, 0x7ff_fff1),
    (28, 0xfff_ffff),
    (30, 0x4000_0000),
];
const SLASH: (u32, u32) = (6, 0x18);
const PERCENT: (u32, u32) = (6, 0x15);
const COLON: (u32, u32) = (7, 0x5c);
/// The code of `-`.
const DASH: u16 = 0x16;
/// The code of `B`: as long as that of a colon, which would begin a port.
const LETTER: u16 = 0x5d;

/// A code, as far as its bits came.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Code {
    bits: u32,
    value: u32,
}

impl Code {
    /// Takes in the next octet of the code. Of a path (`path` says whether it is known to be one) the codes of `/`, `%`
    /// and `:` become those of octets that an authority may have. `before` is the octet before, unless it was passed on
    /// already: a code that began there then stays, and the library refuses it.
    pub(crate) fn take(&mut self, path: &mut bool, octet: &mut u8, mut before: Option<&mut u8>) {
        for shift in (0..8).rev() {
            self.value = (self.value << 1) | u32::from((*octet >> shift) & 1);
            self.bits += 1;
            let code = (self.bits, self.value);
            if !ENDS.iter().any(|(bits, end)| *bits == self.bits && self.value < *end) {
                continue;
            }
            *self = Self::default();
            *path |= code == SLASH || code == PERCENT;
            match code {
                SLASH | PERCENT => replace(code.0, DASH, shift, octet, before.as_deref_mut()),
                COLON if *path => replace(code.0, LETTER, shift, octet, before.as_deref_mut()),
                _ => {}
            }
        }
    }
}

/// Writes a code of at most eight bits that ends `shift` bits before the end of an octet.
fn replace(bits: u32, code: u16, shift: u32, octet: &mut u8, before: Option<&mut u8>) {
    let mask = ((1_u16 << bits) - 1) << shift;
    let Some(before) = before else {
        if mask <= 0xff {
            let window = (u16::from(*octet) & !mask) | (code << shift);
            [_, *octet] = window.to_be_bytes();
        }
        return;
    };
    let window = (u16::from_be_bytes([*before, *octet]) & !mask) | (code << shift);
    [*before, *octet] = window.to_be_bytes();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Codes of some octets (RFC 7541, appendix B).
    const CODES: [(char, u32, u32); 17] = [
        ('/', 0x18, 6),
        ('%', 0x15, 6),
        (':', 0x5c, 7),
        ('-', 0x16, 6),
        ('B', 0x5d, 7),
        ('.', 0x17, 6),
        ('a', 0x3, 5),
        ('c', 0x4, 5),
        ('e', 0x5, 5),
        ('g', 0x26, 6),
        ('k', 0x75, 7),
        ('n', 0x2a, 6),
        ('o', 0x7, 5),
        ('r', 0x2c, 6),
        ('s', 0x8, 5),
        ('t', 0x9, 5),
        ('~', 0x1ffd, 13),
    ];

    fn encode(text: &str) -> Vec<u8> {
        let mut bits = String::new();
        for letter in text.chars() {
            let (_, code, length) = CODES.iter().find(|(c, ..)| *c == letter).unwrap();
            bits.push_str(&format!("{code:0width$b}", width = *length as usize));
        }
        while !bits.len().is_multiple_of(8) {
            bits.push('1');
        }
        bits.as_bytes()
            .chunks(8)
            .map(|byte| u8::from_str_radix(std::str::from_utf8(byte).unwrap(), 2).unwrap())
            .collect()
    }

    #[test]
    fn a_path_becomes_a_name_of_the_same_bits() {
        for (sent, want) in [
            ("/agent.sock", "-agent.sock"),
            ("~/ro/agent/a.sock", "~-ro-agent-a.sock"),
            ("%ro%ag:ent.sock", "-ro-agBent.sock"),
            ("aa/a:/", "aa-aB-"),
            ("agent:ac", "agent:ac"),
            ("", ""),
        ] {
            let mut bytes = encode(sent);
            let (mut code, mut path) = (Code::default(), false);
            for at in 0..bytes.len() {
                let (before, rest) = bytes.split_at_mut(at);
                code.take(&mut path, &mut rest[0], before.last_mut());
            }
            assert_eq!(bytes, encode(want), "{sent}");
        }
    }

    #[test]
    fn what_was_passed_on_stays() {
        let sent = encode("a/a/a/a/");
        let mut bytes = sent.clone();
        let (mut code, mut path) = (Code::default(), false);
        bytes.iter_mut().for_each(|octet| code.take(&mut path, octet, None));
        assert_eq!(bytes.len(), sent.len());
        assert_ne!(bytes, sent, "a code within one octet is replaced");
    }
}
