//! There and back again, and one error per kind of bad value.

use std::collections::BTreeMap;

use evenkeel_model::decision::{Decision, DecisionKind, DecisionResult};
use evenkeel_model::pod::{ContainerRequirements, PodRequirements};
use evenkeel_model::requirements::Requirements;
use evenkeel_model::sample::{Field, Sample};
use evenkeel_model::usage::{Confidence, Stats, UsageRecord, UsageWindow};
use evenkeel_model::workload::{ContainerKind, ContainerResources, PodRef};
use prost::Message as _;

use super::*;

fn identity() -> Identity {
    Identity {
        id: "abc".into(),
        pod: PodRef { namespace: "default".into(), name: "web-1".into(), uid: None },
        container: "web".into(),
        kind: ContainerKind::Sidecar,
        workload: "deployment/web".into(),
        image: Some("web:1".into()),
        command_hash: Some(7),
        cgroup_inode: 42,
        requested: ContainerResources { cpu_request: Some(MilliCpu::ZERO), ..Default::default() },
        estimated: true,
        memory_class: None,
        cpu_class: Some(QosClass::Burstable),
        labels: BTreeMap::from([("app".to_owned(), "web".to_owned())]),
        pod_requests: amounts_from_wire(
            "x",
            &amounts(&[("example.com/x", "2"), ("ephemeral-storage", "1Gi")]),
        )
        .unwrap(),
    }
}

fn amounts(of: &[(&str, &str)]) -> BTreeMap<String, String> {
    of.iter().map(|(name, amount)| ((*name).to_owned(), (*amount).to_owned())).collect()
}

#[test]
fn amounts_that_are_none_are_named() {
    let many: BTreeMap<_, _> = (0..65).map(|i| (format!("example.com/x{i}"), "1".to_owned())).collect();
    for (bad, why) in [
        (amounts(&[("example.com/x", "-1")]), "example.com/x is -1, below zero"),
        (amounts(&[("example.com/x", "much")]), "much"),
        (amounts(&[("a b", "1")]), "a b"),
        (amounts(&[("cpu", "1"), ("kubernetes.io/cpu", "1")]), "named more than once"),
        (many, "it has 65 resources; 64 are the most"),
    ] {
        let told = amounts_from_wire("allocatable", &bad).unwrap_err().to_string();
        assert!(told.starts_with("allocatable cannot be read") && told.contains(why), "{why}: {told}");
    }
}

#[test]
fn an_identity_comes_back_and_bad_ones_are_named() {
    let wire: v1::ContainerIdentity = identity().into();
    assert_eq!(Identity::try_from(wire.clone()), Ok(identity()));
    let bad = |change: fn(&mut v1::ContainerIdentity)| {
        let mut wire = wire.clone();
        change(&mut wire);
        Identity::try_from(wire).unwrap_err().to_string()
    };
    assert_eq!(bad(|w| w.pod.clear()), "ContainerIdentity has no pod; the sender must fill it");
    assert_eq!(
        bad(|w| w.pod_requests = amounts(&[("example.com/x", "-1")])),
        "pod_requests cannot be read: example.com/x is -1, below zero"
    );
    assert_eq!(bad(|w| w.kind = 0), "ContainerIdentity has no kind; the sender must fill it");
    assert_eq!(bad(|w| w.kind = 99), "kind \"99\" is not known here; update this program or the sender");
    assert_eq!(
        bad(|w| w.cpu_class = -1),
        "cpu_class \"-1\" is not known here; update this program or the sender"
    );
}

#[test]
fn a_sample_comes_back_field_by_field() {
    for absent in Field::ALL {
        let mut sample = Sample::with_interval_usec(1_000_001);
        for field in Field::ALL.into_iter().filter(|f| *f != absent) {
            sample.set(field, field.index() as u64 + 1);
        }
        assert_eq!(Sample::from(&v1::Sample::from(&sample)), sample);
    }
}

#[test]
fn every_decision_comes_back() {
    let texts = |value: &str| serde_json::from_value::<DecisionKind>(value.into());
    for (kind, result) in [
        ("found", "done"),
        ("gone", "gone"),
        ("classified", "would-do"),
        ("set", "unchanged"),
        ("converged", "denied"),
        ("denied", "unsupported"),
        ("contended", "rejected"),
        ("ineffective", "failed"),
        ("oom-kill", "done"),
        ("source", "done"),
        ("agent", "done"),
    ] {
        let decision = Decision {
            time_usec: 1,
            seq: 2,
            pod: Some("a/b".into()),
            container: None,
            kind: texts(kind).unwrap(),
            knob: Some("cpu.weight".into()),
            old: None,
            new: Some("3".into()),
            reason: "why".into(),
            inputs: BTreeMap::from([("a".into(), "1".into())]),
            result: serde_json::from_value::<DecisionResult>(result.into()).unwrap(),
        };
        let wire: v1::Decision = decision.clone().into();
        assert_eq!((wire.kind.as_str(), wire.result.as_str()), (kind, result));
        assert_eq!(Decision::try_from(wire), Ok(decision));
    }
    let wire = v1::Decision { kind: "no".into(), result: "done".into(), ..Default::default() };
    let error = Decision::try_from(wire).unwrap_err();
    assert_eq!(error, ConvertError::Unknown { field: "kind", value: "no".into() });
}

#[test]
fn a_usage_record_and_a_node_come_back() {
    let stats = BTreeMap::from([("cpu".parse().unwrap(), Stats::of([1, 2, 3]))]);
    let record = UsageRecord {
        usage: stats.clone(),
        max_usage: stats.clone(),
        predicted: stats,
        predicted_seconds: Some(3_600),
        predicted_confidence: Some(Confidence::new(0.9).unwrap()),
        window: Some(UsageWindow::new(100, 160).unwrap()),
        confidence: Some(Confidence::new(0.5).unwrap()),
        dropped: 3,
    };
    let wire = usage_record(&record, "ns", "w", "c");
    assert_eq!(UsageRecord::try_from(&wire), Ok(record));
    let bad = v1::UsageRecord { confidence: Some(2.0), ..wire };
    let error = UsageRecord::try_from(&bad).unwrap_err();
    assert!(matches!(error, ConvertError::Invalid { field: "confidence", .. }));

    let facts = NodeFacts::of_size(Bytes::new(1 << 30), MilliCpu::new(2000));
    assert_eq!(NodeFacts::from(&v1::NodeFacts::from(&facts)), facts);
}

#[test]
fn requirements_of_a_pod_there_and_back() {
    let requirements = |text: &str| serde_json::from_str::<Requirements>(text).unwrap();
    let container = |name: &str, kind, resources: &str| ContainerRequirements {
        name: name.into(),
        kind,
        resources: requirements(resources),
    };
    let whole = PodRequirements {
        uid: "uid".into(),
        namespace: "shop".into(),
        name: "web".into(),
        config_hash: Some("hash".into()),
        priority: Some(-7),
        priority_class_name: Some("low".into()),
        qos_class: Some(QosClass::Burstable),
        resources: Some(requirements(r#"{"limits": {"memory": "2Gi"}}"#)),
        overhead: requirements(r#"{"requests": {"memory": "120Mi"}}"#).requests,
        containers: vec![
            container("setup", ContainerKind::Init, r#"{"requests": {"cpu": "150m"}}"#),
            container("proxy", ContainerKind::Sidecar, "{}"),
            container("main", ContainerKind::Regular, r#"{"requests": {"cpu": "0", "nvidia.com/gpu": "1"}}"#),
        ],
    };
    let least =
        PodRequirements { uid: "u".into(), namespace: "n".into(), name: "p".into(), ..Default::default() };
    for pod in [whole, least] {
        let bytes = v1::PodRequirements::from(&pod).encode_to_vec();
        let read = v1::PodRequirements::decode(bytes.as_slice()).unwrap();
        assert_eq!(PodRequirements::try_from(read), Ok(pod));
    }
}
