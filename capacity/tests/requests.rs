//! What a pod asks for is one truth: the rules are `model`'s, and this crate's numbers for placing are those they give.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;

use evenkeel_capacity::admission::admit;
use evenkeel_capacity::cluster::Symbols;
use evenkeel_capacity::cluster::resources::{ResourceNames, amount, pod_limits, pod_requests};
use evenkeel_capacity::load::Loader;
use evenkeel_capacity::object;
use evenkeel_model::pod::read_pods;
use evenkeel_model::requirements::ResourceList;
use proptest::prelude::*;
use serde_json::{Value, json};

const RESOURCES: [&str; 5] = ["cpu", "memory", "hugepages-2Mi", "ephemeral-storage", "example.com/gpu"];

fn list() -> impl Strategy<Value = Value> {
    let amount = prop_oneof![
        (0..4000_u32).prop_map(|milli| format!("{milli}m")),
        (0..9000_u32).prop_map(|micro| format!("{micro}u")),
        (0..64_u32).prop_map(|n| n.to_string()),
        (0..4096_u32).prop_map(|n| format!("{n}Mi")),
    ];
    prop::collection::btree_map(prop::sample::select(RESOURCES.to_vec()), amount, 0..4)
        .prop_map(|list| json!(list))
}

fn requirements() -> impl Strategy<Value = Value> {
    (list(), list()).prop_map(|(requests, limits)| json!({"requests": requests, "limits": limits}))
}

fn containers(name: &'static str, least: usize) -> impl Strategy<Value = Value> {
    prop::collection::vec((requirements(), any::<bool>()), least..4).prop_map(move |all| {
        let one = |(at, (resources, sidecar)): (usize, (Value, bool))| {
            let mut container = json!({"name": format!("{name}{at}"), "resources": resources});
            if sidecar && name == "init" {
                container["restartPolicy"] = "Always".into();
            }
            container
        };
        Value::Array(all.into_iter().enumerate().map(one).collect())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn model_and_capacity_agree_on_what_a_pod_asks_for(
        containers in containers("c", 1),
        init in containers("init", 0),
        whole in prop::option::of(requirements()),
        overhead in list(),
    ) {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"containers": containers, "initContainers": init, "resources": whole, "overhead": overhead},
        });
        let told = &read_pods(&pod.to_string(), "test").unwrap()[0];
        let written: object::Pod = serde_json::from_value(pod).unwrap();
        let mut symbols = Symbols::default();
        let mut names = ResourceNames::new(&mut symbols);
        let as_numbers = |list: &ResourceList| -> BTreeMap<String, i64> {
            let all = list.iter().map(|(name, quantity)| (name.to_string(), amount(&name.to_string(), quantity)));
            all.filter(|(_, amount)| *amount > 0).collect()
        };
        let requests = pod_requests(&written, &mut names, &mut symbols).plain;
        let limits = pod_limits(&written, &mut names, &mut symbols);
        let named = |list: &[(usize, i64)]| -> BTreeMap<String, i64> {
            list.iter().map(|(at, amount)| (names.name(*at, &symbols).to_owned(), *amount)).collect()
        };
        prop_assert_eq!(named(&requests), as_numbers(&told.effective_requests()));
        prop_assert_eq!(named(&limits), as_numbers(&told.effective_limits()));
    }
}

/// Requests and limits of CPU, memory and huge pages, few enough that rules between them are kept and broken alike.
fn few() -> impl Strategy<Value = Value> {
    let amounts = [
        ("cpu", ["1", "2", "3"]),
        ("memory", ["1Gi", "2Gi", "3Gi"]),
        ("hugepages-2Mi", ["2Mi", "3Mi", "4Mi"]),
    ];
    let one = prop::sample::select(amounts.to_vec())
        .prop_flat_map(|(name, amounts)| (Just(name), prop::sample::select(amounts.to_vec())));
    let list = prop::collection::vec(one, 0..3).prop_map(|all| {
        all.into_iter()
            .map(|(name, amount)| (name.to_owned(), json!(amount)))
            .collect::<serde_json::Map<_, _>>()
    });
    (list.clone(), list).prop_map(|(requests, limits)| json!({"requests": requests, "limits": limits}))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn model_and_capacity_refuse_the_same_requests_and_limits(
        containers in prop::collection::vec(few(), 1..3),
        init in prop::collection::vec((few(), any::<bool>()), 0..2),
        whole in prop::option::of(few()),
    ) {
        let named = |name: &str, resources: &Value| json!({"name": name, "resources": resources});
        let containers: Vec<Value> =
            containers.iter().enumerate().map(|(at, own)| named(&format!("c{at}"), own)).collect();
        let init: Vec<Value> = init.iter().enumerate().map(|(at, (own, sidecar))| {
            let mut container = named(&format!("i{at}"), own);
            if *sidecar {
                container["restartPolicy"] = "Always".into();
            }
            container
        }).collect();
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"containers": containers, "initContainers": init, "resources": whole},
        });
        let broken = read_pods(&pod.to_string(), "test").unwrap()[0].check();
        let (cluster, _) = Loader::new().finish();
        let admitted = admit(&cluster, serde_json::from_value(pod).unwrap());
        let refused = admitted.refused.map(|refusal| refusal.why);
        prop_assert_eq!(broken.is_empty(), refused.is_none(), "{:?} {:?}", broken, refused);
    }
}

/// What the scores count of a pod that asks for something as a whole (`types.go`, `getNonMissingContainerRequests`): a
/// container that asks for nothing counts the default only where nothing in the pod asks for that resource.
#[test]
fn scores_count_defaults_beside_pod_level_requests_only_where_nothing_is_asked() {
    const MIB: i64 = 1 << 20;
    let container = |name: &str, requests: Value| json!({"name": name, "resources": {"requests": requests}});
    let mut sidecar = container("sidecar", json!({"cpu": "30m", "memory": "40Mi"}));
    sidecar["restartPolicy"] = "Always".into();
    let init = json!([sidecar, container("init", json!({"cpu": "60m"}))]);
    let main = json!([container("main", json!({"cpu": "1", "memory": "128Mi"}))]);
    let table = [
        // Recorded: the init container counts no memory of its own.
        (
            "cpu as a whole",
            json!({"requests": {"cpu": "1501m"}}),
            main.clone(),
            init.clone(),
            [1501, 168 * MIB],
        ),
        ("nothing as a whole", Value::Null, main, init, [1030, 240 * MIB]),
        (
            "no memory anywhere",
            json!({"requests": {"cpu": "2"}}),
            json!([container("main", json!({"cpu": "1"})), container("other", json!({}))]),
            json!([]),
            [2000, 400 * MIB],
        ),
        (
            "only a limit as a whole",
            json!({"limits": {"memory": "1Gi"}}),
            json!([container("main", json!({}))]),
            json!([]),
            [100, 1024 * MIB],
        ),
    ];
    for (name, whole, containers, before, want) in table {
        let pod = json!({"spec": {"containers": containers, "initContainers": before, "resources": whole}});
        let written: object::Pod = serde_json::from_value(pod).unwrap();
        let mut symbols = Symbols::default();
        let mut names = ResourceNames::new(&mut symbols);
        assert_eq!(pod_requests(&written, &mut names, &mut symbols).scored, want, "{name}");
    }
}
