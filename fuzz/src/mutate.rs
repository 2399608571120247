//! Bytes changed by chance that is seeded: the same seed and round give the same bytes.

/// Pieces that readers stumble over.
const PIECES: [&str; 24] = [
    "",
    "null",
    "0",
    "-1",
    "1e400",
    "9223372036854775808",
    "1Ei",
    "\"\"",
    "[]",
    "{}",
    "[{",
    "}]",
    "\"",
    "\\",
    ",",
    ":",
    "\n",
    "\n---\n",
    "\u{feff}",
    "\u{0}",
    "true",
    "max",
    "=",
    "\u{e9}",
];
/// Most changes of one text.
const CHANGES: u64 = 6;
/// Bytes a mutated text is cut to.
const MOST_BYTES: usize = 1 << 16;

/// Makes texts out of samples.
#[derive(Debug)]
pub struct Mutator<'a> {
    samples: &'a [Vec<u8>],
    chance: u64,
}

impl<'a> Mutator<'a> {
    /// Of these samples, at least one, for this round of this seed.
    pub fn new(samples: &'a [Vec<u8>], seed: u64, round: u64) -> Self {
        Self { samples, chance: seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ round }
    }

    /// A text.
    pub fn text(mut self) -> Vec<u8> {
        let mut text = self.sample().to_vec();
        for _ in 0..=self.below(CHANGES) {
            self.change(&mut text);
        }
        text.truncate(MOST_BYTES);
        text
    }

    fn sample(&mut self) -> &'a [u8] {
        let at = self.index(self.samples.len());
        self.samples.get(at).map_or(&[], |sample| sample)
    }

    fn change(&mut self, text: &mut Vec<u8>) {
        let at = self.index(text.len() + 1);
        let end = (at + self.index(24)).min(text.len());
        match self.below(6) {
            0 => {
                if let Some(byte) = text.get_mut(at) {
                    *byte ^= 1 << self.below(8);
                }
            }
            1 => text.truncate(at),
            2 => {
                let piece = PIECES[self.index(PIECES.len())];
                text.splice(at..end, piece.bytes());
            }
            3 => {
                let again = text[at..end].to_vec();
                text.splice(at..at, again);
            }
            4 => {
                let piece = PIECES[self.index(PIECES.len())];
                let many = 1 + self.index(64);
                text.splice(at..at, piece.repeat(many).into_bytes());
            }
            _ => {
                let other = self.sample();
                let from = self.index(other.len() + 1);
                let to = (from + self.index(256)).min(other.len());
                text.splice(at..end, other[from..to].iter().copied());
            }
        }
    }

    fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// A number below this one (SplitMix64, Steele et al. 2014).
    fn below(&mut self, bound: u64) -> u64 {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.chance;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound.max(1)
    }
}
