//! What a recommender says on its stream, and the node's kubelet of its pods, field by field: the network's part has read it from protobuf
//! and JSON, and these fields alone cross the border. What they mean, and which of them are believed, is decided where they are acted on.

use evenkeel_proto::v1;
use evenkeel_proto::v1::stream_response::Message;

use crate::coded::{coded, coded_enum};

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
    Told { 0 }
    Answer { 0 }
    PodList { pods, refused }
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

/// The answer to a request for a certificate; `None` is one without.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer(pub Option<v1::Issued>);

/// What the node's kubelet said.
#[derive(Debug, Clone, PartialEq)]
pub enum Kubelets {
    /// Its pods.
    Listed(PodList),
    /// Its refusal: the status, and its words.
    Refused((u16, String)),
    /// Why there is no answer.
    Failed(String),
}

coded_enum!(Kubelets { 1 = Listed(list), 2 = Refused(said), 3 = Failed(why) });

/// Pods as the kubelet lists them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PodList {
    /// Those that have not ended.
    pub pods: Vec<v1::PodRequirements>,
    /// Those that cannot be meant, and why; the first few.
    pub refused: Vec<String>,
}
