//! Bits in and out of bytes: least significant bit first, Rice codes with an escape, whole numbers with their
//! length, and bytewise varints for headers.
//!
//! [`BitStream`] is the one road both directions take: a writer writes the value it is given and returns it, a reader
//! ignores what it is given and returns what it read. Whoever codes through a `BitStream` is encoder and decoder at
//! once, so the two cannot drift apart.

use super::FrameError;

/// Unary part from which a Rice code gives up and writes the number with its length instead.
const ESCAPE: u32 = 16;

/// Largest Rice parameter; with the unary part it fits one refill of the reader.
pub(super) const MAX_RICE: u32 = 27;

/// A bit stream seen from either end.
pub(super) trait BitStream {
    /// One bit.
    fn flag(&mut self, value: bool) -> bool;
    /// The low `n` bits of `value`, `n` at most 32.
    fn bits(&mut self, n: u32, value: u64) -> u64;
    /// A number that is usually below a few times `2^k`; `k` at most [`MAX_RICE`].
    fn rice(&mut self, k: u32, value: u64) -> u64;
    /// Bits that may still come, by which numbers of things are checked before memory is taken for them.
    fn room(&self) -> usize;

    /// Any number: six bits of length, then the bits below its highest.
    fn wide(&mut self, value: u64) -> u64 {
        let length = (self.bits(6, u64::from(63 - (value | 1).leading_zeros())) & 0x3f) as u32;
        if length == 0 {
            return self.bits(1, value & 1);
        }
        let low = value & ((1 << length) - 1);
        let below = self.bits(length.min(32), low & 0xffff_ffff);
        let above = if length > 32 { self.bits(length - 32, low >> 32) } else { 0 };
        1 << length | above << 32 | below
    }
}

/// Appends bits to a byte vector.
pub(super) struct BitWriter<'a> {
    out: &'a mut Vec<u8>,
    buffer: u64,
    filled: u32,
}

impl<'a> BitWriter<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, buffer: 0, filled: 0 }
    }

    /// Writes the last, partly filled bytes; the unused bits are zero.
    pub(super) fn finish(self) {
        let bytes = self.filled.div_ceil(8) as usize;
        self.out.extend_from_slice(&self.buffer.to_le_bytes()[..bytes]);
    }
}

impl BitStream for BitWriter<'_> {
    fn room(&self) -> usize {
        usize::MAX
    }

    #[inline]
    fn flag(&mut self, value: bool) -> bool {
        self.bits(1, u64::from(value));
        value
    }

    #[inline]
    fn bits(&mut self, n: u32, value: u64) -> u64 {
        debug_assert!(n <= 32 && value >> n == 0, "{value} in {n} bits");
        // Fewer than 32 bits wait, so that 32 more always fit.
        self.buffer |= value << self.filled;
        self.filled += n;
        if self.filled >= 32 {
            self.out.extend_from_slice(&((self.buffer & 0xffff_ffff) as u32).to_le_bytes());
            self.buffer >>= 32;
            self.filled -= 32;
        }
        value
    }

    #[inline]
    fn rice(&mut self, k: u32, value: u64) -> u64 {
        match u32::try_from(value >> k) {
            Ok(ones) if ones < ESCAPE => {
                self.bits(ones + 1, (1 << ones) - 1);
                self.bits(k, value & ((1 << k) - 1));
            }
            _ => {
                self.bits(ESCAPE, (1 << ESCAPE) - 1);
                self.wide(value);
            }
        }
        value
    }
}

/// Takes bits from bytes. Past the end it reads zeros and remembers it: check [`BitReader::intact`].
pub(super) struct BitReader<'a> {
    bytes: &'a [u8],
    at: usize,
    buffer: u64,
    filled: u32,
    /// Bits in the buffer that no byte stands behind; they are the last ones of it.
    phantom: u32,
}

impl<'a> BitReader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, buffer: 0, filled: 0, phantom: 0 }
    }

    /// Fills the buffer to at least 56 bits.
    #[inline]
    fn refill(&mut self) {
        if let Some(word) = self.bytes.get(self.at..).and_then(<[u8]>::first_chunk::<8>) {
            // Bytes above `filled` are written again by the next refill, with the same value.
            self.buffer |= u64::from_le_bytes(*word) << self.filled;
            let taken = (63 - self.filled) >> 3;
            self.at += taken as usize;
            self.filled += taken * 8;
        } else {
            self.refill_at_the_end();
        }
    }

    #[cold]
    fn refill_at_the_end(&mut self) {
        while self.filled < 56 {
            if let Some(byte) = self.bytes.get(self.at) {
                self.buffer |= u64::from(*byte) << self.filled;
                self.at += 1;
            } else {
                self.phantom = self.phantom.saturating_add(8);
            }
            self.filled += 8;
        }
    }

    #[inline]
    fn take(&mut self, n: u32) -> u64 {
        let value = self.buffer & ((1 << n) - 1);
        self.buffer >>= n;
        self.filled -= n;
        value
    }

    /// True while everything read so far was really there.
    pub(super) const fn intact(&self) -> bool {
        self.phantom <= self.filled
    }

    /// Bits not yet read.
    pub(super) const fn remaining(&self) -> usize {
        ((self.bytes.len() - self.at) * 8 + self.filled as usize).saturating_sub(self.phantom as usize)
    }

    /// Checks that the stream ends here: everything was there and only zero padding below a byte is left.
    pub(super) fn finish(self) -> Result<(), FrameError> {
        if !self.intact() {
            return Err(FrameError::Truncated);
        }
        let left = self.remaining();
        let padding = self.buffer & ((1u64 << left.min(8)) - 1);
        if left >= 8 || padding != 0 { Err(FrameError::Trailing { bits: left }) } else { Ok(()) }
    }
}

impl BitStream for BitReader<'_> {
    fn room(&self) -> usize {
        self.remaining()
    }

    #[inline]
    fn flag(&mut self, _: bool) -> bool {
        self.bits(1, 0) == 1
    }

    #[inline]
    fn bits(&mut self, n: u32, _: u64) -> u64 {
        if self.filled < n {
            self.refill();
        }
        self.take(n)
    }

    #[inline]
    fn rice(&mut self, k: u32, _: u64) -> u64 {
        if self.filled < ESCAPE + MAX_RICE {
            self.refill();
        }
        let ones = (!self.buffer).trailing_zeros();
        if ones < ESCAPE {
            self.take(ones + 1);
            u64::from(ones) << k | self.take(k)
        } else {
            self.take(ESCAPE);
            self.wide(0)
        }
    }
}

/// Signed to unsigned, small magnitudes first: 0, -1, 1, -2, 2.
#[inline]
pub(super) const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

/// The inverse of [`zigzag`].
#[inline]
pub(super) const fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

/// Appends seven bits per byte, lowest first, high bit set on all but the last.
pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
}

/// Takes a varint off the front of `bytes`.
pub(super) fn take_varint(bytes: &mut &[u8]) -> Result<u64, FrameError> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or(FrameError::Truncated)?;
        *bytes = rest;
        let part = u64::from(byte & 0x7f);
        if part << shift >> shift != part {
            return Err(FrameError::Malformed("a varint is longer than 64 bits"));
        }
        value |= part << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(FrameError::Malformed("a varint is longer than 64 bits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        let numbers =
            [0, 1, 2, 3, 7, 8, 255, 1 << 20, (1 << 32) - 1, 1 << 32, (1 << 33) + 5, u64::MAX >> 1, u64::MAX];
        let mut out = Vec::new();
        let mut w = BitWriter::new(&mut out);
        for n in numbers {
            w.wide(n);
            w.flag(n & 1 == 1);
            for k in [0, 1, 5, 17, MAX_RICE] {
                w.rice(k, n);
            }
        }
        w.finish();
        let mut r = BitReader::new(&out);
        for n in numbers {
            assert_eq!(r.wide(0), n);
            assert_eq!(r.flag(false), n & 1 == 1);
            for k in [0, 1, 5, 17, MAX_RICE] {
                assert_eq!(r.rice(k, 0), n, "k {k}");
            }
        }
        assert!(r.intact());
        r.finish().unwrap();
    }

    #[test]
    fn reading_past_the_end_is_noticed() {
        let mut r = BitReader::new(&[0xff, 0xff]);
        r.bits(16, 0);
        assert!(r.intact());
        r.bits(1, 0);
        assert!(!r.intact());
        let mut r = BitReader::new(&[]);
        for _ in 0..1000 {
            r.wide(0);
        }
        assert_eq!(r.finish(), Err(FrameError::Truncated));
    }

    #[test]
    fn varints_and_zigzag_come_back() {
        for n in [0, 1, 127, 128, 1 << 35, u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, n);
            assert_eq!(take_varint(&mut &out[..]), Ok(n));
            assert_eq!(zigzag(unzigzag(n)), n);
        }
        assert!(take_varint(&mut &[0xff; 10][..]).is_err());
        assert_eq!(take_varint(&mut &[0x80][..]), Err(FrameError::Truncated));
    }
}
