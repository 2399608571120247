//! How far one node may move a workload that runs on many: what it tells counts up to [`FACTOR`] times the most that any
//! other node told of the same workload, in this hour and the one before.
//!
//! Of fewer nodes than [`MANY`] nothing follows: a primary beside its standby is the rule there, not a lie, and what one node
//! tells is bounded by its own size alone (`state/belief.rs`). Constant in size, however many nodes there are.

use super::replica::Fold;

/// A node's use counts up to so many times that of any other.
pub(crate) const FACTOR: u64 = 4;
/// Nodes, the one in question included, from which on the others bound it.
pub(crate) const MANY: usize = 8;
/// No bound is below this: a tenth of a core (in millionths), and 64 MiB. What sleeps may wake.
const LEAST: [u64; 2] = [100_000, 64 << 20];

/// Most CPU (millionths of a core) and memory (bytes) that count of one container.
pub(crate) type Caps = [u64; 2];
/// Nothing is bounded.
pub(crate) const NO_CAPS: Caps = [u64::MAX; 2];

/// What nodes told in one hour: some of them, and the two that told most of each resource.
#[derive(Debug, Clone, Copy, Default)]
struct HourOfPeers {
    nodes: [u32; MANY],
    count: usize,
    most: [[(u32, u64); 2]; 2],
}

impl HourOfPeers {
    fn take(&mut self, node: u32, peaks: Caps) {
        if self.count < MANY && !self.nodes[..self.count].contains(&node) {
            self.nodes[self.count] = node;
            self.count += 1;
        }
        for ([first, second], peak) in self.most.iter_mut().zip(peaks) {
            if first.0 == node || first.1 == 0 {
                *first = (node, first.1.max(peak));
            } else if peak > first.1 {
                (*second, *first) = (*first, (node, peak));
            } else if second.0 == node || peak > second.1 {
                *second = (node, second.1.max(peak));
            }
        }
    }

    fn numbers(&self) -> impl Iterator<Item = u64> {
        let nodes = self.nodes.into_iter().map(u64::from);
        let most = self.most.into_iter().flatten().flat_map(|(node, peak)| [u64::from(node), peak]);
        std::iter::once(self.count as u64).chain(nodes).chain(most)
    }

    fn from_numbers(numbers: &mut impl Iterator<Item = u64>) -> Option<Self> {
        let mut told = Self { count: usize::try_from(numbers.next()?).ok()?.min(MANY), ..Self::default() };
        for node in &mut told.nodes {
            *node = u32::try_from(numbers.next()?).ok()?;
        }
        for most in told.most.iter_mut().flatten() {
            *most = (u32::try_from(numbers.next()?).ok()?, numbers.next()?);
        }
        Some(told)
    }

    fn others(&self, node: u32) -> usize {
        self.count - usize::from(self.nodes[..self.count].contains(&node))
    }

    fn most_of_others(&self, node: u32) -> Caps {
        self.most.map(|[first, second]| if first.0 == node { second.1 } else { first.1 })
    }
}

/// What nodes told of one workload's container lately.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Peers {
    hour: u32,
    now: HourOfPeers,
    before: HourOfPeers,
}

impl Peers {
    /// Takes in what a node told.
    pub(crate) fn take(&mut self, node: u32, fold: &Fold) {
        // An hour of the past, from a spool, says nothing of now.
        if fold.hour > self.hour {
            self.before = if fold.hour == self.hour + 1 { self.now } else { HourOfPeers::default() };
            (self.hour, self.now) = (fold.hour, HourOfPeers::default());
        }
        if fold.hour == self.hour {
            self.now.take(node, fold.peaks);
        }
    }

    /// As a checkpoint has it.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        std::iter::once(u64::from(self.hour)).chain(self.now.numbers()).chain(self.before.numbers()).collect()
    }

    /// From a checkpoint.
    pub(crate) fn from_numbers(numbers: &[u64]) -> Option<Self> {
        let mut numbers = numbers.iter().copied();
        let hour = u32::try_from(numbers.next()?).ok()?;
        Some(Self {
            hour,
            now: HourOfPeers::from_numbers(&mut numbers)?,
            before: HourOfPeers::from_numbers(&mut numbers)?,
        })
    }

    /// Whether many nodes have it.
    pub(crate) fn are_many(&self, node: u32) -> bool {
        self.now.others(node).max(self.before.others(node)) + 1 >= MANY
    }

    /// What counts of a node.
    pub(crate) fn caps(&self, node: u32) -> Caps {
        if !self.are_many(node) {
            return NO_CAPS;
        }
        let (now, before) = (self.now.most_of_others(node), self.before.most_of_others(node));
        [0, 1].map(|i| now[i].max(before[i]).saturating_mul(FACTOR).max(LEAST[i]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fold(hour: u32, cpu: u64, memory: u64) -> Fold {
        Fold { hour, peaks: [cpu, memory], ..Fold::default() }
    }

    #[test]
    fn one_of_many_is_bounded_by_the_others_and_one_of_few_is_not() {
        let (core, gib) = (1_000_000, 1 << 30);
        let mut peers = Peers::default();
        for node in 0..7 {
            assert_eq!(peers.caps(99), NO_CAPS, "{node} others");
            peers.take(node, &fold(5, core, gib));
        }
        assert_eq!(peers.caps(99), [4 * core, 4 * gib]);
        // However much it tells: its own numbers do not raise its bound, nor lower that of others.
        for _ in 0..10 {
            peers.take(99, &fold(5, 1000 * core, 0));
        }
        assert_eq!(peers.caps(99), [4 * core, 4 * gib]);
        assert!(peers.caps(3)[0] >= 4 * core);
        // The others are remembered for an hour, and not for two.
        peers.take(99, &fold(6, core, gib));
        assert_eq!(peers.caps(99), [4 * core, 4 * gib]);
        peers.take(99, &fold(7, core, gib));
        peers.take(99, &fold(8, core, gib));
        assert_eq!(peers.caps(99), NO_CAPS);
        let read = Peers::from_numbers(&peers.numbers()).unwrap();
        assert_eq!(read.numbers(), peers.numbers());
        assert!(Peers::from_numbers(&[1, 2]).is_none());
        peers.take(4, &fold(5, 1000 * core, 0));
        assert_eq!(peers.caps(99), NO_CAPS, "what a spool still had");
    }

    #[test]
    fn what_sleeps_may_wake() {
        let mut peers = Peers::default();
        (0..8).for_each(|node| peers.take(node, &fold(5, 10, 4096)));
        assert_eq!(peers.caps(0), LEAST);
    }

    #[test]
    fn the_two_that_told_most_are_two_nodes() {
        let mut told = HourOfPeers::default();
        for (node, peak) in [(1, 5), (1, 9), (2, 3), (3, 7), (2, 4), (1, 2), (3, 8)] {
            told.take(node, [peak; 2]);
        }
        assert_eq!(
            (told.most_of_others(1)[0], told.most_of_others(3)[0], told.most_of_others(7)[0]),
            (8, 9, 9)
        );
        told.take(3, [20; 2]);
        assert_eq!((told.most_of_others(3)[0], told.most_of_others(1)[0]), (9, 20));
    }
}
