//! Owns how large one thing may be that a node tells, in bytes: what is larger is cut or refused, and counted.

use crate::key::{SeriesKey, Subject};
use std::collections::BTreeMap;

use evenkeel_model::key::ContainerKey;
use evenkeel_proto::convert::amounts_from_wire;
use evenkeel_proto::v1;
use prost::Message as _;

/// Most bytes of names in one container's identity; a longer one is not followed. Names of Kubernetes have up to 253, image
/// references up to 500 or so.
const MAX_NAMES: usize = 4096;
/// Most labels of one container. Kubernetes sets no bound; pods have a dozen.
const MAX_LABELS: usize = 256;
/// Most bytes of them together; a key has up to 317, a value up to 63.
const MAX_LABEL_BYTES: usize = 16 << 10;
/// Most bytes of one decision as it is kept.
pub(crate) const MAX_DECISION: usize = 4096;
/// Most bytes of a name in a decision.
const MAX_DECISION_NAME: usize = 256;
/// Most bytes of the reason of a decision that is cut.
const MAX_REASON: usize = 1024;
/// Most bytes of a knob's value in a decision that is cut.
const MAX_VALUE: usize = 256;
/// Bytes of identity for each container that may be followed: together they are a bound of all identities.
pub(crate) const IDENTITY_BYTES_EACH: usize = 1024;

/// Bytes of names for each series that may be known: together they are a bound of the names of all series, and of those of all
/// subjects. A name of a registry, a tag and the name of a workload of Kubernetes together have 200 or so.
pub(crate) const NAME_BYTES_EACH: usize = 512;

/// Bytes of the names of a series.
pub(crate) fn series_bytes(key: &SeriesKey) -> usize {
    let image = key.image.as_ref().map_or(0, |image| image.name.len() + image.tag.len());
    container_bytes(&key.of) + image
}

fn container_bytes(key: &ContainerKey) -> usize {
    key.names().into_iter().map(str::len).sum()
}

/// Bytes of the names of a subject.
pub(crate) fn subject_bytes(subject: &Subject) -> usize {
    let bytes = |names: &[&String]| names.iter().map(|name| name.len()).sum();
    match subject {
        Subject::Own(of) => container_bytes(of),
        Subject::Command { container, image, tag, hash: _ } => bytes(&[container, image, tag]),
        Subject::NamespaceImageTag { cluster, namespace, image, tag } => {
            bytes(&[cluster, namespace, image, tag])
        }
        Subject::ImageTag { image, tag } => bytes(&[image, tag]),
        Subject::Image { image } => bytes(&[image]),
    }
}

/// Bytes of an identity in memory, but for what each has alike.
pub(crate) fn identity_bytes(identity: &v1::ContainerIdentity) -> usize {
    names(identity) + label_bytes(&identity.labels) + label_bytes(&identity.pod_requests)
}

fn names(identity: &v1::ContainerIdentity) -> usize {
    let v1::ContainerIdentity { id, namespace, pod, pod_uid, container, workload, image, .. } = identity;
    [id, namespace, pod, pod_uid, container, workload, image].into_iter().map(String::len).sum()
}

fn label_bytes(labels: &BTreeMap<String, String>) -> usize {
    labels.iter().map(|(key, value)| key.len() + value.len()).sum()
}

/// Whether the names of an identity are short enough to be followed.
pub(crate) fn is_nameable(identity: &v1::ContainerIdentity) -> bool {
    names(identity) <= MAX_NAMES
}

/// Drops all labels where there are too many, so that no policy governs the container by some of them; whether it did.
pub(crate) fn cut_labels(identity: &mut v1::ContainerIdentity) -> bool {
    let labels = &mut identity.labels;
    let too_many = labels.len() > MAX_LABELS || label_bytes(labels) > MAX_LABEL_BYTES;
    if too_many {
        *labels = BTreeMap::new();
    }
    too_many
}

/// Drops what a pod requests of other resources where a part of it cannot be read, so that no sum rests on the rest; whether it did.
pub(crate) fn cut_requests(identity: &mut v1::ContainerIdentity) -> bool {
    let unreadable = amounts_from_wire("pod_requests", &identity.pod_requests).is_err();
    if unreadable {
        identity.pod_requests = BTreeMap::new();
    }
    unreadable
}

/// Cuts a decision to [`MAX_DECISION`] bytes; whether it had to be. What it is about and why stay legible.
pub(crate) fn cut_decision(decision: &mut v1::Decision) -> bool {
    if decision.encoded_len() <= MAX_DECISION {
        return false;
    }
    let v1::Decision { pod, container, kind, knob, old, new, reason, inputs, result, node, .. } = decision;
    for name in [pod, container, knob].into_iter().flatten().chain([kind, result, node]) {
        cut(name, MAX_DECISION_NAME);
    }
    [old, new].into_iter().flatten().for_each(|value| cut(value, MAX_VALUE));
    cut(reason, MAX_REASON);
    // With the rest at its longest this leaves as much again.
    *inputs = BTreeMap::from([("cut".to_owned(), format!("the {} numbers it used", inputs.len()))]);
    true
}

/// Cuts a text at a character's border and says so.
fn cut(text: &mut String, most: usize) {
    const MARK: &str = "...";
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most - MARK.len()));
        text.push_str(MARK);
        text.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_are_cut_to_their_bound_and_small_ones_left_alone() {
        let long = |text: &str| text.repeat(4 << 20);
        let small = v1::Decision { reason: "short".into(), kind: "set".into(), ..v1::Decision::default() };
        let mut same = small.clone();
        assert!(!cut_decision(&mut same));
        assert_eq!(same, small);
        let inputs = (0..50_000).map(|i| (format!("input-{i}"), "1".to_owned())).collect();
        for mut decision in [
            v1::Decision { reason: long("ä"), ..small.clone() },
            v1::Decision { inputs, ..small.clone() },
            v1::Decision {
                pod: Some(long("p")),
                container: Some(long("c")),
                kind: long("k"),
                knob: Some(long("n")),
                old: Some(long("o")),
                new: Some(long("w")),
                reason: long("r"),
                result: long("s"),
                node: long("d"),
                ..small
            },
        ] {
            assert!(cut_decision(&mut decision));
            assert!(decision.encoded_len() <= MAX_DECISION, "{}", decision.encoded_len());
            assert!(!cut_decision(&mut decision), "once is enough");
        }
    }

    #[test]
    fn labels_are_bounded_in_count_and_bytes() {
        let of = |count: usize, bytes: usize| {
            let labels = (0..count).map(|i| (format!("{i:04}"), "x".repeat(bytes))).collect();
            v1::ContainerIdentity { labels, pod: "p".into(), ..v1::ContainerIdentity::default() }
        };
        for (count, bytes, stay) in [(0, 0, true), (256, 60, true), (257, 1, false), (1, 16 << 10, false)] {
            let mut identity = of(count, bytes);
            assert_eq!(cut_labels(&mut identity), !stay, "{count} of {bytes}");
            assert_eq!(identity.labels.is_empty(), !stay || count == 0);
        }
        assert!(is_nameable(&of(1, 1 << 20)));
        let long = v1::ContainerIdentity { image: "i".repeat(4096), ..of(0, 0) };
        assert!(!is_nameable(&long));
    }
}
