//! What a recommender says on its stream, field by field: the network's part has read it from protobuf, and these fields alone cross
//! the border. What they mean, and which of them are believed, is decided where they are acted on.

use evenkeel_proto::v1;
use evenkeel_proto::v1::stream_response::Message;

use crate::coded::{Coded, Malformed, Reader, coded, coded_enum};

coded! {
    v1::Resume { epoch, last_seq, credits, knows_slots, token_ends, leading }
    v1::Leading { leads, term, leader }
    v1::Ack { epoch, last_seq }
    v1::Refused { epoch, sequence, why, remedy }
    v1::Overlay { panic, panic_reason, made_usec, valid_seconds, entries, panic_revert, frozen_namespaces }
    v1::OverlayEntry { namespace, workload, container, cpu_request_milli, memory_request_bytes, policy, rule }
    v1::Ping {}
    v1::Disbelieved { dropped }
    v1::Dropped { reason, count, remedy }
    v1::Renewed { token_ends, refused }
    v1::NodePods { run, from, generation, whole, changed, gone_uids, more }
    v1::PodRequirements {
        uid, namespace, name, config_hash, priority, priority_class_name, qos_class, resources, overhead, containers,
    }
    v1::ContainerRequirements { name, kind, resources }
    v1::Requirements { requests, limits }
    v1::Issued { certificate, authority, not_before, not_after }
    v1::SignRequest { csr, token, cluster, node }
}

coded_enum!(Message {
    1 = Resume(told),
    2 = Ack(told),
    3 = Refused(told),
    4 = Overlay(told),
    8 = Ping(told),
    9 = Disbelieved(told),
    10 = Renewed(told),
    11 = Pods(told),
    12 = Leading(told),
});

/// A message of a recommender; `None` is one that this version does not know.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Told(pub Option<Message>);

impl Coded for Told {
    fn write(&self, to: &mut Vec<u8>) {
        self.0.write(to);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self(Coded::read(from)?))
    }
}

/// The answer to a request for a certificate; `None` is one without.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer(pub Option<v1::Issued>);

impl Coded for Answer {
    fn write(&self, to: &mut Vec<u8>) {
        self.0.write(to);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self(Coded::read(from)?))
    }
}
