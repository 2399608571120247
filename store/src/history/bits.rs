//! Owns reading and writing of numbers in bits, lowest bit first.

/// A number needs more than this many quotient bits: it is written whole instead.
const LONGEST_RUN: u32 = 24;

/// Bytes under construction.
#[derive(Debug, Default)]
pub(super) struct BitWriter {
    bytes: Vec<u8>,
    word: u64,
    used: u32,
}

impl BitWriter {
    /// The lowest `count` (at most 57) bits of a number.
    fn few(&mut self, value: u64, count: u32) {
        self.word |= value << self.used;
        self.used += count;
        while self.used >= 8 {
            self.bytes.push((self.word & 0xff) as u8);
            self.word >>= 8;
            self.used -= 8;
        }
    }

    /// The lowest `count` (at most 64) bits of a number.
    pub(super) fn bits(&mut self, value: u64, count: u32) {
        if count > 32 {
            self.few(value & 0xffff_ffff, 32);
            self.few(value >> 32 & ((1 << (count - 32)) - 1), count - 32);
        } else {
            self.few(value & ((1 << count) - 1), count);
        }
    }

    /// A number of any size: its length in bits, then the bits.
    pub(super) fn number(&mut self, value: u64) {
        let length = 64 - value.leading_zeros();
        self.bits(u64::from(length), 7);
        self.bits(value, length);
    }

    /// A number of which most are below a few times 2^k.
    pub(super) fn rice(&mut self, value: u64, k: u32) {
        match u32::try_from(value >> k) {
            Ok(quotient) if quotient < LONGEST_RUN => {
                self.bits((1 << quotient) - 1, quotient + 1);
                self.bits(value, k);
            }
            _ => {
                self.bits((1 << LONGEST_RUN) - 1, LONGEST_RUN);
                self.bits(value, 64);
            }
        }
    }

    /// The bytes, the last one filled up with zeros.
    pub(super) fn finish(mut self) -> Vec<u8> {
        if self.used > 0 {
            self.bytes.push((self.word & 0xff) as u8);
        }
        self.bytes
    }
}

/// Bits a number takes as a Rice code.
pub(super) fn rice_cost(value: u64, k: u32) -> u64 {
    let quotient = value >> k;
    if quotient >= u64::from(LONGEST_RUN) { u64::from(LONGEST_RUN) + 64 } else { quotient + 1 + u64::from(k) }
}

/// Bytes being read. Every method returns nothing where the bytes end too early.
#[derive(Debug)]
pub(super) struct BitReader<'a> {
    bytes: &'a [u8],
    /// Bits to come, lowest first. Above the first `have` it may hold a part of the next byte already, which is put over
    /// the same bits again.
    word: u64,
    have: u32,
}

impl<'a> BitReader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, word: 0, have: 0 }
    }

    /// Makes at least 56 bits ready, unless there are fewer.
    #[inline]
    fn fill(&mut self) {
        if self.have >= 56 {
            return;
        }
        if let Some(eight) = self.bytes.first_chunk::<8>() {
            self.word |= u64::from_le_bytes(*eight) << self.have;
            let whole = (63 - self.have) / 8;
            self.bytes = &self.bytes[whole as usize..];
            self.have += whole * 8;
            return;
        }
        while self.have <= 56 {
            let Some((first, rest)) = self.bytes.split_first() else { return };
            self.word |= u64::from(*first) << self.have;
            self.have += 8;
            self.bytes = rest;
        }
    }

    #[inline]
    pub(super) fn bits(&mut self, count: u32) -> Option<u64> {
        if count > 32 {
            let low = self.bits(32)?;
            return Some(low | self.bits(count - 32)? << 32);
        }
        self.fill();
        self.ready(count)
    }

    /// Bits (at most 56) that `fill` has been called for.
    #[inline]
    fn ready(&mut self, count: u32) -> Option<u64> {
        if self.have < count {
            return None;
        }
        let value = self.word & ((1 << count) - 1);
        self.word >>= count;
        self.have -= count;
        Some(value)
    }

    /// Bytes of which no bit was read.
    pub(super) const fn whole_bytes_left(&self) -> usize {
        self.bytes.len() + self.have as usize / 8
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        let length = u32::try_from(self.bits(7)?).ok().filter(|length| *length <= 64)?;
        self.bits(length)
    }

    #[inline]
    pub(super) fn rice(&mut self, k: u32) -> Option<u64> {
        self.fill();
        let run = self.word.trailing_ones().min(LONGEST_RUN);
        if run == LONGEST_RUN {
            self.ready(LONGEST_RUN)?;
            return self.bits(64);
        }
        self.ready(run + 1)?;
        // Both parts are ready at once where they are short, as they nearly always are.
        let low = if run + 1 + k <= 56 { self.ready(k)? } else { self.bits(k)? };
        Some(u64::from(run) << k | low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(list in prop::collection::vec((any::<u64>(), 0..64_u32, 0..3_u8), 0..60)) {
            let mut writer = BitWriter::default();
            for (value, k, how) in &list {
                match how {
                    0 => writer.number(*value >> k),
                    1 => writer.rice(*value >> (63 - k), *k),
                    _ => writer.bits(*value, *k),
                }
            }
            let bytes = writer.finish();
            let mut reader = BitReader::new(&bytes);
            for (value, k, how) in &list {
                let (got, want) = match how {
                    0 => (reader.number(), *value >> k),
                    1 => (reader.rice(*k), *value >> (63 - k)),
                    _ => (reader.bits(*k), *value & ((1 << k) - 1)),
                };
                prop_assert_eq!(got, Some(want));
            }
        }
    }
}
