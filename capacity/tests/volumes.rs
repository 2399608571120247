//! Volumes at the edges. The situations are those of the scheduler's own tests (`volumebinding/binder_test.go`,
//! `nodevolumelimits/csi_test.go`, `volumerestrictions/volume_restrictions_test.go`, v1.36), told anew.

#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, dead_code, reason = "helpers of tests")]

use crate::common::{answer, node, pod};
use evenkeel_capacity::load::shapes;
use serde_json::{Value, json};

const UNBOUND: &str = "node(s) didn't find available persistent volumes to bind";

/// A volume of 10Gi on a node's disk, class `waits`.
fn volume(name: &str, on: &str, size: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "waits",
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [on]},
            ]}]}},
        },
        "status": {"phase": "Available"},
    })
}

fn claim(name: &str, class: &str, size: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "resources": {"requests": {"storage": size}},
        },
        "status": {"phase": "Pending"},
    })
}

fn bound(name: &str, volume: &str) -> Value {
    let mut claim = claim(name, "waits", "1Gi");
    claim["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
    claim["spec"]["volumeName"] = volume.into();
    claim["status"]["phase"] = "Bound".into();
    claim
}

fn classes() -> Value {
    json!([
        {"metadata": {"name": "waits"}, "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"},
        {"metadata": {"name": "makes"}, "provisioner": "disk.example.com", "volumeBindingMode": "WaitForFirstConsumer"},
        {"metadata": {"name": "here"}, "provisioner": "disk.example.com", "volumeBindingMode": "WaitForFirstConsumer",
         "allowedTopologies": [{"matchLabelExpressions": [{"key": "kubernetes.io/hostname", "values": ["n2"]}]}]},
        {"metadata": {"name": "nowhere"}, "provisioner": "disk.example.com", "volumeBindingMode": "WaitForFirstConsumer",
         "allowedTopologies": [{"matchLabelExpressions": []}]},
        {"metadata": {"name": "atOnce"}, "provisioner": "disk.example.com", "volumeBindingMode": "Immediate"},
    ])
}

fn snapshot(more: Value) -> Value {
    let mut snapshot =
        json!({"nodes": [node("n1", json!({})), node("n2", json!({}))], "storageClasses": classes()});
    for (key, value) in more.as_object().into_iter().flatten() {
        snapshot[key] = value.clone();
    }
    snapshot
}

fn mounting(claims: &[&str]) -> Value {
    let volumes: Vec<Value> = claims
        .iter()
        .map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}))
        .collect();
    pod(json!({"volumes": volumes}))
}

/// The count, and the only reason where none fits.
fn check(what: &str, snapshot: &Value, pod: &Value, wanted: Result<u64, &str>) {
    let got = answer(snapshot, pod);
    match wanted {
        Ok(count) => assert_eq!(got.count, count, "{what}: {}", got.message),
        Err(reason) => {
            let reason = format!("0/2 nodes are available: {reason}.");
            assert_eq!((got.count, got.message), (0, reason), "{what}");
        }
    }
}

#[test]
fn claims_that_wait_find_a_volume_each() {
    let with = |volumes: Value, claims: Value| snapshot(json!({"pvs": volumes, "pvcs": claims}));
    let (a, b) = (claim("a", "waits", "5Gi"), claim("b", "waits", "8Gi"));
    let both = mounting(&["b", "a"]);
    check(
        "one volume on one node",
        &with(json!([volume("v", "n1", "5Gi")]), json!([a])),
        &mounting(&["a"]),
        Ok(8),
    );
    check("none at all", &with(json!([]), json!([a])), &mounting(&["a"]), Err(&format!("2 {UNBOUND}")));
    check(
        "too small",
        &with(json!([volume("v", "n1", "4Gi")]), json!([a])),
        &mounting(&["a"]),
        Err(&format!("2 {UNBOUND}")),
    );
    let one = with(json!([volume("v", "n1", "9Gi")]), json!([a, b]));
    check("two claims, one volume", &one, &both, Err(&format!("2 {UNBOUND}")));
    let apart = with(json!([volume("v", "n1", "9Gi"), volume("w", "n2", "9Gi")]), json!([a, b]));
    check("two claims, the volumes apart", &apart, &both, Err(&format!("2 {UNBOUND}")));
    // The smaller claim chooses first, whatever the order in the pod, and takes the smallest volume that will do.
    let sizes = with(json!([volume("v", "n1", "9Gi"), volume("w", "n1", "6Gi")]), json!([a, b]));
    check("two claims by size", &sizes, &both, Ok(8));
    let mut reserved = volume("v", "n1", "9Gi");
    reserved["spec"]["claimRef"] = json!({"namespace": "default", "name": "other"});
    check(
        "reserved for another",
        &with(json!([reserved]), json!([a])),
        &mounting(&["a"]),
        Err(&format!("2 {UNBOUND}")),
    );
    reserved["spec"]["claimRef"]["name"] = "a".into();
    let near = with(json!([reserved, volume("w", "n2", "9Gi")]), json!([a]));
    check("reserved for it: no other one will do", &near, &mounting(&["a"]), Ok(8));
    let got = answer(&near, &mounting(&["a"]));
    assert!(!got.per_node.contains_key("n2"), "{:?}", got.per_node);
    let mut block = volume("v", "n1", "9Gi");
    block["spec"]["volumeMode"] = "Block".into();
    check("a raw device", &with(json!([block]), json!([a])), &mounting(&["a"]), Err(&format!("2 {UNBOUND}")));
}

#[test]
fn volumes_are_made_where_their_class_allows() {
    let with = |class: &str| snapshot(json!({"pvcs": [claim("a", class, "5Gi")]}));
    let shape = mounting(&["a"]);
    check("anywhere", &with("makes"), &shape, Ok(16));
    check("on one node", &with("here"), &shape, Ok(8));
    check("a term that allows nothing", &with("nowhere"), &shape, Err(&format!("2 {UNBOUND}")));
    check("not yet bound", &with("atOnce"), &shape, Err("pod has unbound immediate PersistentVolumeClaims"));
    check("no such claim", &with("makes"), &mounting(&["b"]), Err("persistentvolumeclaim \"b\" not found"));
    let mut selected = with("makes");
    selected["pvcs"][0]["metadata"]["annotations"] = json!({"volume.kubernetes.io/selected-node": "n2"});
    let got = answer(&selected, &shape);
    assert_eq!((got.count, got.per_node["n2"]), (16, 8), "made for n2, and reachable from both");
    selected["nodes"].as_array_mut().unwrap().pop();
    let gone = answer(&selected, &shape);
    assert_eq!(
        gone.message,
        format!("0/1 nodes are available: 1 {UNBOUND}."),
        "made for a node that is gone"
    );
    let mut bound_wrong = snapshot(json!({"pvcs": [bound("a", "gone")]}));
    let text = "persistentvolume \"gone\" not found";
    check("its volume is gone", &bound_wrong, &shape, Err(text));
    bound_wrong["pvcs"][0]["status"]["phase"] = "Lost".into();
    let text = "persistentvolumeclaim \"a\" bound to non-existent persistentvolume \"gone\"";
    check("its volume was lost", &bound_wrong, &shape, Err(text));
}

#[test]
fn space_is_looked_at_where_the_driver_asks_for_it() {
    let mut with = snapshot(json!({
        "pvcs": [claim("a", "makes", "5Gi")],
        "csiDrivers": [{"metadata": {"name": "disk.example.com"}, "spec": {"storageCapacity": true}}],
    }));
    let shape = mounting(&["a"]);
    check("nothing is known of space", &with, &shape, Err("2 node(s) did not have enough free storage"));
    let space = |capacity: &str, most: Value| {
        json!([{
            "metadata": {"name": "s"}, "storageClassName": "makes", "capacity": capacity, "maximumVolumeSize": most,
            "nodeTopology": {"matchLabels": {"kubernetes.io/hostname": "n1"}},
        }])
    };
    with["csiStorageCapacities"] = space("6Gi", Value::Null);
    assert_eq!(
        answer(&with, &shape).message,
        "0/2 nodes are available: 2 Insufficient cpu.",
        "made on n1, used from both"
    );
    with["csiStorageCapacities"] = space("6Gi", "4Gi".into());
    check(
        "the largest volume is too small",
        &with,
        &shape,
        Err("2 node(s) did not have enough free storage"),
    );
    with["csiStorageCapacities"][0]["nodeTopology"] = Value::Null;
    with["csiStorageCapacities"][0]["maximumVolumeSize"] = Value::Null;
    check("space of no node", &with, &shape, Err("2 node(s) did not have enough free storage"));
}

fn limits(counts: &[(&str, i64)]) -> Value {
    let one = |(node, count): &(&str, i64)| json!({"metadata": {"name": node}, "spec": {"drivers": [{"name": "disk.example.com", "allocatable": {"count": count}}]}});
    counts.iter().map(one).collect()
}

fn attachable(name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"storageClassName": "waits", "csi": {"driver": "disk.example.com", "volumeHandle": name}},
        "status": {"phase": "Bound"},
    })
}

#[test]
fn attachments_are_counted_once_by_handle() {
    let mut with = snapshot(json!({
        "csiNodes": limits(&[("n1", 2), ("n2", 1)]),
        "pvs": [attachable("v"), attachable("w"), attachable("x")],
        "pvcs": [bound("a", "v"), bound("b", "w"), bound("c", "x")],
    }));
    let full = "node(s) exceed max volume count";
    check("the clones share one volume", &with, &mounting(&["a"]), Ok(16));
    check("two volumes", &with, &mounting(&["a", "b"]), Ok(8));
    check("three volumes", &with, &mounting(&["a", "b", "c"]), Err(&format!("2 {full}")));
    let attached = |name: &str, node: &str, volume: &str| json!({"metadata": {"name": name}, "spec": {"attacher": "disk.example.com", "nodeName": node, "source": {"persistentVolumeName": volume}}});
    with["volumeAttachments"] = json!([attached("1", "n1", "x"), attached("2", "n2", "x")]);
    check("another is still attached", &with, &mounting(&["a"]), Ok(8));
    with["volumeAttachments"] =
        json!([attached("1", "n1", "v"), attached("2", "n1", "w"), attached("3", "n2", "v")]);
    check("the same is attached already", &with, &mounting(&["a"]), Ok(16));
    let mut user = mounting(&["b"]);
    user["metadata"]["name"] = "user".into();
    user["spec"]["nodeName"] = "n2".into();
    with["volumeAttachments"] = json!([attached("1", "n2", "w")]);
    with["pods"] = json!([user]);
    check("a pod's and its attachment are one", &with, &mounting(&["a"]), Ok(8));
    let mut other = with.clone();
    other["csiNodes"][1]["spec"]["drivers"][0]["name"] = "other.example.com".into();
    check("another driver's limit", &other, &mounting(&["a"]), Ok(15));
}

#[test]
fn each_clone_gets_the_claims_made_for_it() {
    let template = |class: Value| {
        json!({"volumeClaimTemplate": {"spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": class, "resources": {"requests": {"storage": "5Gi"}},
        }}})
    };
    let ephemeral =
        |class: Value| pod(json!({"volumes": [{"name": "scratch", "ephemeral": template(class)}]}));
    let limited = snapshot(json!({"csiNodes": limits(&[("n1", 3), ("n2", 2)])}));
    check("one attachment each", &limited, &ephemeral("makes".into()), Ok(5));
    let got = answer(&limited, &ephemeral("makes".into()));
    assert_eq!(
        (got.bounds["nodes"], got.message.as_str()),
        (5, "0/2 nodes are available: 2 node(s) exceed max volume count.")
    );
    check("where the class allows", &limited, &ephemeral("here".into()), Ok(2));
    let volumes = json!([volume("v", "n1", "9Gi"), volume("w", "n1", "9Gi"), volume("x", "n2", "4Gi")]);
    check("a volume each", &snapshot(json!({"pvs": volumes})), &ephemeral("waits".into()), Ok(2));
    let mut default = limited.clone();
    check("no class, no default", &limited, &ephemeral(Value::Null), Err(&format!("2 {UNBOUND}")));
    default["storageClasses"][1]["metadata"]["annotations"] =
        json!({"storageclass.kubernetes.io/is-default-class": "true"});
    check("the default class", &default, &ephemeral(Value::Null), Ok(5));
    let set = json!({
        "kind": "StatefulSet", "metadata": {"name": "db"},
        "spec": {
            "selector": {"matchLabels": {"app": "sim"}},
            "template": {"metadata": {"labels": {"app": "sim"}}, "spec": pod(json!({}))["spec"]},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": template("makes".into())["volumeClaimTemplate"]["spec"]}],
        },
    });
    let shape = shapes(&set).unwrap().remove(0);
    let (mut cluster, mut state) = crate::common::load(&limited);
    let question = evenkeel_capacity::answer::Ask { shapes: vec![shape], ..Default::default() };
    let got = evenkeel_capacity::answer::ask(
        &mut cluster,
        &evenkeel_capacity::profile::Profiles::default(),
        &mut state,
        &question,
        &mut |_| true,
    );
    assert_eq!(got.unwrap().count, 5, "templates of a stateful set");
}

#[test]
fn a_claim_for_one_pod_bears_one() {
    let mut once = bound("a", "v");
    once["spec"]["accessModes"] = json!(["ReadWriteOncePod"]);
    let mut with = snapshot(json!({"pvs": [attachable("v")], "pvcs": [once]}));
    let in_use = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";
    let got = answer(&with, &mounting(&["a"]));
    assert_eq!((got.count, got.message), (1, format!("0/2 nodes are available: 2 {in_use}.")));
    let mut user = mounting(&["a"]);
    user["metadata"]["name"] = "user".into();
    user["spec"]["nodeName"] = "n1".into();
    with["pods"] = json!([user]);
    check("somebody has it", &with, &mounting(&["a"]), Err(&format!("2 {in_use}")));
    with["pods"][0]["metadata"]["namespace"] = "other".into();
    check("a claim of the same name elsewhere", &with, &mounting(&["a"]), Ok(1));
}

#[test]
fn disks_named_in_the_pod_are_not_shared_for_writing() {
    let disk = |kind: &str, fields: Value| pod(json!({"volumes": [{"name": "d", kind: fields}]}));
    let empty = snapshot(json!({}));
    for (kind, fields, count) in [
        ("gcePersistentDisk", json!({"pdName": "d"}), 2),
        ("gcePersistentDisk", json!({"pdName": "d", "readOnly": true}), 16),
        ("awsElasticBlockStore", json!({"volumeID": "d", "readOnly": true}), 2),
        ("iscsi", json!({"iqn": "iqn.2026-01.example:d", "readOnly": true}), 16),
        ("rbd", json!({"monitors": ["a", "b"], "image": "i"}), 2),
        ("rbd", json!({"monitors": ["a", "b"], "image": "i", "readOnly": true}), 16),
    ] {
        check(kind, &empty, &disk(kind, fields), Ok(count));
    }
}
