//! Owns a list of encoded values by time, in one piece of memory.

use evenkeel_model::narrow::usize_to_u32;

/// Values in the order they were put in, each with its time (hours or days since 1970).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Packed(Vec<u8>);

const HEAD: usize = 8;

impl Packed {
    pub(crate) fn push(&mut self, time: u32, value: &[u8]) {
        let length = usize_to_u32(value.len());
        self.0.reserve(HEAD + value.len());
        self.0.extend_from_slice(&time.to_le_bytes());
        self.0.extend_from_slice(&length.to_le_bytes());
        self.0.extend_from_slice(value);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let mut rest = self.0.as_slice();
        std::iter::from_fn(move || {
            let (head, body) = rest.split_first_chunk::<HEAD>()?;
            let [t0, t1, t2, t3, l0, l1, l2, l3] = *head;
            let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
            let (value, after) = body.split_at_checked(length)?;
            rest = after;
            Some((u32::from_le_bytes([t0, t1, t2, t3]), value))
        })
    }

    pub(crate) fn has(&self, time: u32) -> bool {
        self.iter().any(|(at, _)| at == time)
    }

    /// Drops what is before a time.
    pub(crate) fn drop_before(&mut self, time: u32) {
        if self.iter().all(|(at, _)| at >= time) {
            return;
        }
        let mut kept = Self::default();
        self.iter().filter(|(at, _)| *at >= time).for_each(|(at, value)| kept.push(at, value));
        *self = kept;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn shrink(&mut self) {
        self.0.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_comes_out_until_it_is_too_old() {
        let mut packed = Packed::default();
        for (time, value) in [(5, "five"), (7, ""), (6, "six"), (7, "again")] {
            packed.push(time, value.as_bytes());
        }
        packed.drop_before(6);
        let left: Vec<(u32, &[u8])> = packed.iter().collect();
        assert_eq!(left, [(7, b"".as_slice()), (6, b"six"), (7, b"again")]);
        packed.drop_before(9);
        assert!(packed.is_empty());
    }
}
