//! Block I/O and network on the wire.

use evenkeel_model::traffic::{BlockIo, NetworkIo, Traffic};

use crate::v1;

impl v1::Traffic {
    /// What a container did, under its slot; 0 where no slots are spoken of.
    pub fn of(slot: u32, traffic: &Traffic) -> Self {
        Self {
            slot,
            span_usec: traffic.span_usec,
            block: traffic.block.map(|io| v1::BlockIo {
                read_bytes: io.read_bytes,
                written_bytes: io.written_bytes,
                reads: io.reads,
                writes: io.writes,
            }),
            network: traffic.network.map(|io| v1::NetworkIo {
                received_bytes: io.received_bytes,
                sent_bytes: io.sent_bytes,
                received_packets: io.received_packets,
                sent_packets: io.sent_packets,
            }),
            host_network: traffic.host_network,
        }
    }
}

impl From<&v1::Traffic> for Traffic {
    fn from(wire: &v1::Traffic) -> Self {
        Self {
            span_usec: wire.span_usec,
            block: wire.block.map(|io| BlockIo {
                read_bytes: io.read_bytes,
                written_bytes: io.written_bytes,
                reads: io.reads,
                writes: io.writes,
            }),
            network: wire.network.map(|io| NetworkIo {
                received_bytes: io.received_bytes,
                sent_bytes: io.sent_bytes,
                received_packets: io.received_packets,
                sent_packets: io.sent_packets,
            }),
            host_network: wire.host_network,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_comes_back_as_it_was() {
        let block = BlockIo { read_bytes: 1, written_bytes: 2, reads: 3, writes: 4 };
        let network = NetworkIo { received_bytes: 5, sent_bytes: 6, received_packets: 7, sent_packets: 8 };
        let one = Traffic { span_usec: 9, block: Some(block), network: None, host_network: true };
        let other = Traffic { span_usec: 9, block: None, network: Some(network), host_network: false };
        for traffic in [one, other, Traffic::default()] {
            let wire = v1::Traffic::of(7, &traffic);
            assert_eq!((wire.slot, Traffic::from(&wire)), (7, traffic));
        }
    }
}
