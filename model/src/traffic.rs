//! Block I/O and network traffic of one container between two looks.
//!
//! The kernel counts both; what travels is the growth between two looks with the true time between them, so that a reader needs no look
//! before it. Which resource types they are is said here, too.

use crate::name::ResourceName;

/// Operations on block devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockIo {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
}

/// What passed the interfaces of a network namespace, loopback left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NetworkIo {
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Packets received.
    pub received_packets: u64,
    /// Packets sent.
    pub sent_packets: u64,
}

impl BlockIo {
    /// Growth since an earlier look; `None` where a counter went back.
    pub fn since(&self, earlier: &Self) -> Option<Self> {
        Some(Self {
            read_bytes: self.read_bytes.checked_sub(earlier.read_bytes)?,
            written_bytes: self.written_bytes.checked_sub(earlier.written_bytes)?,
            reads: self.reads.checked_sub(earlier.reads)?,
            writes: self.writes.checked_sub(earlier.writes)?,
        })
    }
}

impl NetworkIo {
    /// Growth since an earlier look; `None` where a counter went back.
    pub fn since(&self, earlier: &Self) -> Option<Self> {
        Some(Self {
            received_bytes: self.received_bytes.checked_sub(earlier.received_bytes)?,
            sent_bytes: self.sent_bytes.checked_sub(earlier.sent_bytes)?,
            received_packets: self.received_packets.checked_sub(earlier.received_packets)?,
            sent_packets: self.sent_packets.checked_sub(earlier.sent_packets)?,
        })
    }
}

/// What a container did between two looks. The default is a look that tells nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// True time between the two looks, microseconds.
    pub span_usec: u64,
    /// Block devices; `None` where the kernel does not tell.
    pub block: Option<BlockIo>,
    /// The network of its pod, told with one container of it; `None` with the others, and where the kernel does not tell.
    pub network: Option<NetworkIo>,
    /// Its pod uses the host's network, which is not counted.
    pub host_network: bool,
}

impl Traffic {
    /// The resource types traffic is told in, per second: bytes and operations of block devices, bytes and packets of the network.
    pub const TYPES: [ResourceName; 4] = [
        ResourceName::STORAGE_BANDWIDTH,
        ResourceName::STORAGE_IOPS,
        ResourceName::NETWORK_BANDWIDTH,
        ResourceName::NETWORK_IOPS,
    ];

    /// This and what followed it, together. Where one of them tells nothing of block devices or of the network, the other's
    /// stands for the whole time.
    #[must_use]
    pub fn and(&self, later: &Self) -> Self {
        let sum = |a: u64, b: u64| a.saturating_add(b);
        let block = |a: BlockIo, b: BlockIo| BlockIo {
            read_bytes: sum(a.read_bytes, b.read_bytes),
            written_bytes: sum(a.written_bytes, b.written_bytes),
            reads: sum(a.reads, b.reads),
            writes: sum(a.writes, b.writes),
        };
        let network = |a: NetworkIo, b: NetworkIo| NetworkIo {
            received_bytes: sum(a.received_bytes, b.received_bytes),
            sent_bytes: sum(a.sent_bytes, b.sent_bytes),
            received_packets: sum(a.received_packets, b.received_packets),
            sent_packets: sum(a.sent_packets, b.sent_packets),
        };
        Self {
            span_usec: sum(self.span_usec, later.span_usec),
            block: self.block.zip(later.block).map(|(a, b)| block(a, b)).or(self.block).or(later.block),
            network: self
                .network
                .zip(later.network)
                .map(|(a, b)| network(a, b))
                .or(self.network)
                .or(later.network),
            host_network: later.host_network,
        }
    }

    /// Mean rates per second in the order of [`Self::TYPES`], both directions together, rounded; `None` where nothing is known.
    pub fn rates(&self) -> [Option<u64>; 4] {
        let per_second = |a: u64, b: u64| {
            let both = u128::from(a) + u128::from(b);
            let rate =
                (both * 1_000_000 + u128::from(self.span_usec) / 2).checked_div(self.span_usec.into())?;
            Some(u64::try_from(rate).unwrap_or(u64::MAX))
        };
        [
            self.block.and_then(|io| per_second(io.read_bytes, io.written_bytes)),
            self.block.and_then(|io| per_second(io.reads, io.writes)),
            self.network.and_then(|io| per_second(io.received_bytes, io.sent_bytes)),
            self.network.and_then(|io| per_second(io.received_packets, io.sent_packets)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_over_the_true_time_and_a_counter_that_went_back_counts_nothing() {
        let before = BlockIo { read_bytes: 10, written_bytes: 0, reads: 1, writes: 0 };
        let after = BlockIo { read_bytes: 30_010, written_bytes: 5_000, reads: 5, writes: 3 };
        let block = after.since(&before);
        assert_eq!(before.since(&after), None);
        let traffic = Traffic { span_usec: 10_000_000, block, ..Traffic::default() };
        assert_eq!(traffic.rates(), [Some(3_500), Some(1), None, None]);
        assert_eq!(Traffic { span_usec: 0, ..traffic }.rates(), [None; 4]);
        let most = NetworkIo { received_bytes: u64::MAX, sent_bytes: u64::MAX, ..NetworkIo::default() };
        let traffic = Traffic { span_usec: 1, network: Some(most), ..Traffic::default() };
        assert_eq!(traffic.rates(), [None, None, Some(u64::MAX), Some(0)]);
    }
}
