//! Owns the one question of exactly-once: what to do with the next frame of a stream. Pure.
//!
//! A stream is (cluster, node, epoch). Its frames carry contiguous sequence numbers from 1; a folded frame stands for a
//! range of them. The recommender keeps one number per stream, the last sequence taken. Everything at or below it has
//! been counted, or is known to be lost, and is never counted again; everything above it has not been counted.
//!
//! | frame, with `first..=sequence` its range | verdict |
//! | --- | --- |
//! | `sequence <= last` | duplicate: acknowledged again, not counted |
//! | `first == last + 1` | taken |
//! | `first <= last < sequence` | refused and passed over: part of the fold has been counted, and which part cannot be told |
//! | `first > last + 1`, first frame after the handshake | taken; the numbers between are lost and counted as a gap |
//! | `first > last + 1`, later | out of order: the connection ends, and the next handshake states where to go on |
//!
//! A gap is believed only right after the handshake: the client has just been told what is missing and does not have it.
//! That holds for a stream nothing is known of too, which may begin anywhere: what was known may have been lost here.
//! A frame without a number (0) only announces slots again; it has no place in this order.

/// The longest gap or fold accepted of a stream nothing is known of, in sequence numbers: 400 days of seconds.
pub const MAX_JUMP: u64 = 400 * 86_400;
/// Sequence numbers a stream may go on by however short it was silent: a day of seconds, for clocks that were set.
const FREE_JUMP: u64 = 86_400;
/// Sequence numbers for each second of silence: twice those of an agent that samples as often as it may.
const JUMP_PER_SECOND: u64 = 20;

/// The longest gap or fold accepted of a stream that was silent for so long, seconds. A sequence number that jumps further
/// is damage or a lie, and believing it would make every later frame of the true agent a duplicate.
pub const fn longest_jump(silent_seconds: u64) -> u64 {
    let jump = silent_seconds.saturating_mul(JUMP_PER_SECOND).saturating_add(FREE_JUMP);
    if jump < MAX_JUMP { jump } else { MAX_JUMP }
}

/// How far a stream has been taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// Last sequence taken; 0 = none.
    pub last: u64,
}

/// What to do with a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameVerdict {
    /// Log and count it; `lost` numbers before it never arrived.
    Take {
        /// Sequence numbers between the last one taken and this frame's first.
        lost: u64,
    },
    /// Already counted; acknowledge again.
    Duplicate,
    /// It can never be counted. The stream goes on behind it.
    Refuse {
        /// Why.
        why: String,
        /// What the client should do.
        remedy: &'static str,
    },
    /// The client does not keep to the protocol; end the connection.
    Close {
        /// Why.
        why: String,
        /// What the client should do.
        remedy: &'static str,
        /// Whatever the client sends of this epoch, it cannot be taken.
        is_over: bool,
    },
}

/// The range a frame stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// First sequence, equal to `sequence` where the frame stands for itself alone.
    pub first: u64,
    /// The frame's own sequence, the last of its range.
    pub sequence: u64,
}

impl Range {
    /// The range of a frame's `sequence` and `replaces_first`; nothing where they contradict each other.
    pub fn new(sequence: u64, replaces_first: u64) -> Option<Self> {
        let first = if replaces_first == 0 { sequence } else { replaces_first };
        (1..=sequence).contains(&first).then_some(Self { first, sequence })
    }
}

impl Position {
    /// Judges a frame by its range. `whole` tells whether its checksum matches; `resumed` whether it is the first one
    /// after a handshake that stated this position; `silent_seconds` how long nothing has come of this stream.
    pub fn judge(&self, range: Range, whole: bool, resumed: bool, silent_seconds: u64) -> FrameVerdict {
        let Range { first, sequence } = range;
        if sequence <= self.last {
            return FrameVerdict::Duplicate;
        }
        let jump = sequence - self.last;
        let longest = if self.last == 0 { MAX_JUMP } else { longest_jump(silent_seconds) };
        if jump > longest {
            return FrameVerdict::Close {
                why: format!(
                    "sequence {sequence} is {jump} after the last one, more than {longest} after {silent_seconds} s of silence"
                ),
                remedy: "the agent begins a new epoch; one of an earlier release has to be restarted",
                is_over: true,
            };
        }
        if first <= self.last {
            return FrameVerdict::Refuse {
                why: format!(
                    "it replaces {first} to {sequence}, of which up to {} are counted already",
                    self.last
                ),
                remedy: "fold only frames that were never sent",
            };
        }
        let lost = first - self.last - 1;
        if lost > 0 && !resumed {
            return FrameVerdict::Close {
                why: format!("sequence {first} follows {}, {lost} are missing between them", self.last),
                remedy: "connect again and go on behind the sequence the recommender states",
                is_over: false,
            };
        }
        if !whole {
            return FrameVerdict::Refuse {
                why: "its samples do not match their checksum".to_owned(),
                remedy: "go on with the next frame; if it happens again, check the node's memory and disk",
            };
        }
        FrameVerdict::Take { lost }
    }

    /// Passes a range, whether it was counted or given up.
    pub fn advance(&mut self, range: Range) {
        self.last = self.last.max(range.sequence);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(verdict: &FrameVerdict) -> String {
        match verdict {
            FrameVerdict::Take { lost } => format!("take {lost}"),
            FrameVerdict::Duplicate => "duplicate".to_owned(),
            FrameVerdict::Refuse { .. } => "refuse".to_owned(),
            FrameVerdict::Close { .. } => "close".to_owned(),
        }
    }

    #[test]
    fn the_table_of_the_module() {
        // last, first, sequence, whole, resumed
        let table = [
            (0, 1, 1, true, true, "take 0"),
            (0, 7, 7, true, true, "take 6"),
            (0, 7, 7, true, false, "close"),
            (0, 1, 7, true, true, "take 0"),
            (5, 5, 5, true, false, "duplicate"),
            (5, 3, 5, false, true, "duplicate"),
            (5, 6, 6, true, false, "take 0"),
            (5, 6, 9, true, false, "take 0"),
            (5, 5, 9, true, true, "refuse"),
            (5, 1, 6, true, false, "refuse"),
            (5, 8, 8, true, true, "take 2"),
            (5, 8, 12, true, true, "take 2"),
            (5, 8, 8, true, false, "close"),
            (5, 6, 6, false, false, "refuse"),
            (5, 8, 8, false, false, "close"),
            (5, 6, 5 + FREE_JUMP, true, true, "take 0"),
            (5, 6, 6 + FREE_JUMP, true, true, "close"),
            (0, 1, MAX_JUMP, true, true, "take 0"),
            (0, 1, 1 + MAX_JUMP, true, true, "close"),
            (5, u64::MAX, u64::MAX, true, true, "close"),
        ];
        for (last, first, sequence, whole, resumed, want) in table {
            let got = Position { last }.judge(Range { first, sequence }, whole, resumed, 0);
            assert_eq!(kind(&got), want, "{last} {first}..={sequence} whole={whole} resumed={resumed}");
        }
    }

    #[test]
    fn a_stream_may_go_on_by_as_much_as_it_was_silent() {
        let day = 86_400;
        for (silent, jump, want) in [
            (0, day, "take"),
            (0, day + 1, "close"),
            (day, 21 * day, "take"),
            (day, 21 * day + 1, "close"),
            (300 * day, MAX_JUMP, "take"),
            (u64::MAX, MAX_JUMP + 1, "close"),
        ] {
            let range = Range { first: 5 + jump, sequence: 5 + jump };
            let got = kind(&Position { last: 5 }.judge(range, true, true, silent));
            assert!(got.starts_with(want), "{silent} {jump}: {got}");
        }
    }

    #[test]
    fn a_range_must_not_contradict_itself() {
        for (sequence, replaces, want) in
            [(0, 0, None), (3, 4, None), (3, 0, Some(3)), (3, 3, Some(3)), (3, 1, Some(1))]
        {
            assert_eq!(Range::new(sequence, replaces).map(|r| r.first), want);
        }
    }
}
