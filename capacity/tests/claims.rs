//! Claims that every clone gets anew against quotas and limit ranges, and volumes of kinds that drivers have taken over
//! against the limits of those.

#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, dead_code, reason = "helpers of tests")]

use crate::common::{answer, node, pod};
use evenkeel_capacity::answer::StopReason;
use serde_json::{Value, json};

/// A pod whose clones get a claim of this size and class each.
fn with_claim(size: &str, class: Option<&str>) -> Value {
    let spec = json!({"storageClassName": class, "resources": {"requests": {"storage": size}}});
    pod(json!({"volumes": [{"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}]}))
}

fn snapshot(more: Value) -> Value {
    let mut snapshot = json!({
        "nodes": [node("n1", json!({})), node("n2", json!({}))],
        "storageClasses": [
            {"metadata": {"name": "gold", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
             "provisioner": "disk.example.com", "volumeBindingMode": "WaitForFirstConsumer"},
            {"metadata": {"name": "old"}, "provisioner": "kubernetes.io/gce-pd", "volumeBindingMode": "WaitForFirstConsumer"},
        ],
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        snapshot[key] = value.clone();
    }
    snapshot
}

#[test]
fn quotas_count_the_claims_of_every_clone() {
    let quota = |hard: Value, more: Value| {
        let mut quota = json!({"metadata": {"name": "q"}, "spec": {"hard": hard}});
        for (key, value) in more.as_object().into_iter().flatten() {
            quota["spec"][key] = value.clone();
        }
        quota
    };
    let used = json!([{"metadata": {"name": "there"}, "spec": {"storageClassName": "gold",
        "resources": {"requests": {"storage": "20Gi"}}}}]);
    let gold = "gold.storageclass.storage.k8s.io/requests.storage";
    let table = [
        ("storage", json!({"requests.storage": "75Gi"}), json!({}), with_claim("10Gi", Some("gold")), 5),
        ("claims", json!({"persistentvolumeclaims": "4"}), json!({}), with_claim("10Gi", Some("gold")), 3),
        (
            "counted objects",
            json!({"count/persistentvolumeclaims": "3"}),
            json!({}),
            with_claim("1Gi", None),
            2,
        ),
        ("the default class", json!({gold: "50Gi"}), json!({}), with_claim("10Gi", None), 3),
        ("another class", json!({gold: "50Gi"}), json!({}), with_claim("10Gi", Some("old")), 16),
        (
            "a class's number",
            json!({"old.storageclass.storage.k8s.io/persistentvolumeclaims": "2"}),
            json!({}),
            with_claim("1Gi", Some("old")),
            2,
        ),
        (
            "scopes speak of pods",
            json!({"requests.storage": "1Gi"}),
            json!({"scopes": ["NotBestEffort"]}),
            with_claim("9Gi", None),
            16,
        ),
        (
            "pods beside claims",
            json!({"pods": "7", "requests.storage": "1Ti"}),
            json!({}),
            with_claim("1Gi", None),
            7,
        ),
        ("a pod without claims", json!({"requests.storage": "1"}), json!({}), pod(json!({})), 16),
    ];
    for (what, hard, more, pod, wanted) in table {
        let got = answer(&snapshot(json!({"resourceQuotas": [quota(hard, more)], "pvcs": used})), &pod);
        assert_eq!(got.count, wanted, "{what}: {}", got.message);
    }
    let full = snapshot(
        json!({"resourceQuotas": [quota(json!({"requests.storage": "25Gi"}), json!({}))], "pvcs": used}),
    );
    let got = answer(&full, &with_claim("2Gi", None));
    assert_eq!((got.count, got.stop, got.bounds["quota/q"]), (2, StopReason::QuotaExceeded, 2));
    assert_eq!(
        got.message,
        "persistentvolumeclaims \"data-sim-2\" is forbidden: exceeded quota: q, requested: requests.storage=2Gi, used: \
         requests.storage=24Gi, limited: requests.storage=25Gi"
    );
}

#[test]
fn limit_ranges_bound_the_size_of_claims() {
    let range = json!([{"metadata": {"name": "r"}, "spec": {"limits": [
        {"type": "PersistentVolumeClaim", "min": {"storage": "2Gi"}, "max": {"storage": "5Gi"}},
    ]}}]);
    let asked = |pod: &Value| answer(&snapshot(json!({"limitRanges": range})), pod);
    assert_eq!(asked(&with_claim("5Gi", None)).count, 16);
    let got = asked(&with_claim("6Gi", None));
    assert_eq!((got.count, got.stop), (0, StopReason::QuotaExceeded));
    assert_eq!(
        got.message,
        "persistentvolumeclaims \"data-sim\" is forbidden: maximum storage usage per PersistentVolumeClaim is 5Gi, but \
         request is 6Gi"
    );
    assert!(
        asked(&with_claim("1Gi", None))
            .message
            .contains("minimum storage usage per PersistentVolumeClaim is 2Gi")
    );
}

fn limits(driver: &str, counts: &[(&str, u32)]) -> Value {
    let one = |(node, count): &(&str, u32)| json!({"metadata": {"name": node}, "spec": {"drivers": [{"name": driver, "allocatable": {"count": count}}]}});
    counts.iter().map(one).collect()
}

/// A volume of a kind that was built in, bound to a claim that a pod on `n1` mounts.
fn persistent(kind: &str, source: &Value, name: &str) -> (Value, Value) {
    let volume = json!({"metadata": {"name": format!("pv-{name}")}, "spec": {"accessModes": ["ReadWriteMany"], kind: source}});
    let claim = json!({
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": format!("pv-{name}"), "accessModes": ["ReadWriteMany"]},
    });
    (volume, claim)
}

fn mounting(claim: &str) -> Value {
    pod(json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}))
}

#[test]
fn volumes_of_kinds_that_were_built_in_count_against_the_limits_of_their_drivers() {
    let kinds = [
        ("awsElasticBlockStore", json!({"volumeID": "aws://eu-1a/vol-1"}), "ebs.csi.aws.com"),
        ("gcePersistentDisk", json!({"pdName": "disk"}), "pd.csi.storage.gke.io"),
        ("azureDisk", json!({"diskName": "d", "diskURI": "/subscriptions/s/d"}), "disk.csi.azure.com"),
        ("cinder", json!({"volumeID": "c"}), "cinder.csi.openstack.org"),
    ];
    for (kind, source, driver) in kinds {
        let (volume, claim) = persistent(kind, &source, "data");
        let asked = |counts: &[(&str, u32)], driver: &str| {
            let more = json!({"pvs": [volume], "pvcs": [claim], "csiNodes": limits(driver, counts)});
            answer(&snapshot(more), &mounting("data"))
        };
        let got = asked(&[("n1", 0), ("n2", 0)], driver);
        assert_eq!(got.message, "0/2 nodes are available: 2 node(s) exceed max volume count.", "{kind}");
        // All clones share the volume: a node that attaches one takes as many pods as fit.
        assert_eq!(asked(&[("n1", 0), ("n2", 1)], driver).per_node, [("n2".to_owned(), 8)].into(), "{kind}");
        assert_eq!(asked(&[("n1", 0), ("n2", 0)], "other.example.com").count, 16, "{kind}");
        // Named by the pod itself.
        let inline = pod(json!({"volumes": [{"name": "v", kind: source}]}));
        let got = answer(&snapshot(json!({"csiNodes": limits(driver, &[("n1", 0), ("n2", 0)])})), &inline);
        assert_eq!(got.message, "0/2 nodes are available: 2 node(s) exceed max volume count.", "{kind}");
    }
}

#[test]
fn what_is_on_a_node_and_what_is_yet_to_be_made_count_as_well() {
    let driver = "pd.csi.storage.gke.io";
    let (volume, claim) =
        persistent("gcePersistentDisk", &json!({"pdName": "disk", "readOnly": true}), "data");
    let mut there = mounting("data");
    there["metadata"]["name"] = "there".into();
    there["spec"]["nodeName"] = "n1".into();
    let more = json!({
        "pvs": [volume], "pvcs": [claim], "pods": [there], "csiNodes": limits(driver, &[("n1", 3), ("n2", 2)]),
    });
    // One disk is attached to n1 already, each clone brings one of its own.
    let got = answer(&snapshot(more.clone()), &with_claim("1Gi", Some("old")));
    assert_eq!(got.per_node, [("n1".to_owned(), 2), ("n2".to_owned(), 2)].into(), "{}", got.message);
    // The very disk that is attached costs nothing more.
    let mut full = more;
    full["csiNodes"] = limits(driver, &[("n1", 1), ("n2", 0)]);
    assert_eq!(answer(&snapshot(full), &mounting("data")).per_node, [("n1".to_owned(), 7)].into());
}
