//! The closed forms, the quick step loop and the plain one agree, on random clusters.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::Arc;

use evenkeel_capacity::answer::{Ask, Shape, Steps, ask};
use evenkeel_capacity::engine::step::Placer;
use evenkeel_capacity::load::Loader;
use evenkeel_capacity::object::Pod;
use evenkeel_capacity::profile::{Profile, Profiles};
use evenkeel_capacity::state::ClusterState;
use proptest::prelude::*;
use serde_json::{Value, json};

fn node(index: usize, (cpu, memory, pods, zone, taint, pool): (u32, u32, u32, Option<u8>, u8, u8)) -> Value {
    let name = format!("n{index:02}");
    let mut labels = json!({"kubernetes.io/hostname": name, "pool": format!("p{pool}")});
    if let Some(zone) = zone {
        labels["topology.kubernetes.io/zone"] = format!("z{zone}").into();
    }
    let taints = match taint {
        0 => json!([{"key": "t", "effect": "NoSchedule"}]),
        1 => json!([{"key": "t", "effect": "PreferNoSchedule"}]),
        2 => json!([{"key": "t", "effect": "PreferNoSchedule"}, {"key": "u", "effect": "PreferNoSchedule"}]),
        _ => json!([]),
    };
    json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints},
        "status": {
            "allocatable": {"cpu": format!("{cpu}m"), "memory": format!("{memory}Mi"), "pods": pods.to_string()},
            "images": if pool == 0 { json!([{"names": ["app:v1"], "sizeBytes": 700_000_000}]) } else { json!([]) },
        },
    })
}

fn placed(index: usize, nodes: usize, (cpu, app, anti): (u32, u8, bool)) -> Value {
    let away = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"app": "a0"}}, "topologyKey": "kubernetes.io/hostname"},
    ]}});
    json!({
        "metadata": {"name": format!("e{index}"), "labels": {"app": format!("a{app}")}},
        "spec": {
            "nodeName": format!("n{:02}", index % nodes),
            "containers": [{"name": "c", "resources": {"requests": {"cpu": format!("{cpu}m")}}}],
            "affinity": if anti { away } else { json!({}) },
        },
    })
}

/// Whom a spread counts.
#[derive(Debug, Clone, Copy)]
enum Own {
    Itself,
    Others,
    /// With an empty selector.
    Nobody,
}

#[derive(Debug, Clone, Copy)]
enum Rule {
    None,
    Spread {
        skew: u8,
        zone: bool,
        own: Own,
        min_domains: u8,
    },
    Away {
        zone: bool,
    },
    Near,
    Port,
    Soft,
    Prefer,
    /// A volume made for each clone.
    Volume,
}

fn pod(cpu: u32, memory: u32, tolerates: bool, rule: Rule) -> Value {
    let own = json!({"matchLabels": {"app": "a0"}});
    let key = |zone: bool| if zone { "topology.kubernetes.io/zone" } else { "kubernetes.io/hostname" };
    let mut spec = json!({
        "containers": [{"name": "c", "image": "app:v1", "resources": {"requests": {
            "cpu": format!("{cpu}m"), "memory": format!("{memory}Mi"),
        }}}],
        "tolerations": if tolerates { json!([{"key": "t", "operator": "Exists"}]) } else { json!([]) },
    });
    match rule {
        Rule::None => {}
        Rule::Spread { skew, zone, own, min_domains } => {
            let selector = match own {
                Own::Itself => json!({"matchLabels": {"app": "a0"}}),
                Own::Others => json!({"matchLabels": {"app": "a1"}}),
                Own::Nobody => json!({}),
            };
            spec["topologySpreadConstraints"] = json!([{
                "maxSkew": skew, "topologyKey": key(zone), "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": selector,
                "minDomains": min_domains,
            }]);
        }
        Rule::Away { zone } => {
            spec["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": own, "topologyKey": key(zone)},
            ]}});
        }
        Rule::Near => {
            spec["affinity"] = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": own, "topologyKey": key(true)},
            ]}});
        }
        Rule::Volume => {
            spec["volumes"] = json!([
                {"name": "a", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "makes"}}}},
                {"name": "b", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "makes"}}}},
            ]);
        }
        Rule::Port => spec["containers"][0]["ports"] = json!([{"hostPort": 80, "containerPort": 80}]),
        Rule::Soft => {
            spec["topologySpreadConstraints"] = json!([{
                "maxSkew": 1, "topologyKey": key(true), "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": own,
            }]);
        }
        Rule::Prefer => {
            spec["affinity"] = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 30, "preference": {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["p1"]}]}},
                {"weight": 10, "preference": {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["p2"]}]}},
            ]}});
        }
    }
    json!({"metadata": {"name": "sim", "labels": {"app": "a0"}}, "spec": spec})
}

fn rule() -> impl Strategy<Value = Rule> {
    prop_oneof![
        Just(Rule::None),
        (
            1..4_u8,
            any::<bool>(),
            prop_oneof![Just(Own::Itself), Just(Own::Others), Just(Own::Nobody)],
            1..4_u8
        )
            .prop_map(|(skew, zone, own, min_domains)| Rule::Spread { skew, zone, own, min_domains }),
        any::<bool>().prop_map(|zone| Rule::Away { zone }),
        Just(Rule::Near),
        Just(Rule::Port),
        Just(Rule::Soft),
        Just(Rule::Prefer),
        Just(Rule::Volume),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn every_way_gives_the_same_answer(
        nodes in prop::collection::vec(
            (500..6000_u32, 500..9000_u32, 0..12_u32, prop::option::of(0..3_u8), 0..8_u8, 0..3_u8), 1..12),
        pods in prop::collection::vec((0..900_u32, 0..3_u8, prop::bool::weighted(0.1)), 0..20),
        (cpu, memory, tolerates) in (1..1500_u32, 1..2500_u32, any::<bool>()),
        rule in rule(),
    ) {
        let count = nodes.len();
        let limits = (0..count).step_by(2).map(|index| json!({
            "metadata": {"name": format!("n{index:02}")},
            "spec": {"drivers": [{"name": "d", "allocatable": {"count": index + 1}}]},
        }));
        let snapshot = json!({
            "csiNodes": limits.collect::<Vec<_>>(),
            "storageClasses": [{"metadata": {"name": "makes"}, "provisioner": "d", "volumeBindingMode": "WaitForFirstConsumer"}],
            "nodes": nodes.into_iter().enumerate().map(|(i, n)| node(i, n)).collect::<Vec<_>>(),
            "pods": pods.into_iter().enumerate().map(|(i, p)| placed(i, count, p)).collect::<Vec<_>>(),
        });
        let mut loader = Loader::new();
        loader.document(&snapshot).unwrap();
        let mut cluster = loader.finish().0;
        let written: Pod = serde_json::from_value(pod(cpu, memory, tolerates, rule)).unwrap();
        let pod = Arc::new(cluster.shape(&written).unwrap());
        let profile = Profile::default();
        let start = ClusterState::new(&cluster);
        let run = |plain: bool| {
            let mut state = start.clone();
            let placer = Placer::new(&cluster, &profile, &mut state, Arc::clone(&pod));
            let mut placer = if plain { placer.plain() } else { placer };
            let closed = placer.closed(&state);
            (placer.run(&mut state, None), closed)
        };
        let ((quick, closed), (plain, _)) = (run(false), run(true));
        prop_assert_eq!(&quick, &plain);
        if let Some(closed) = closed {
            prop_assert_eq!(closed.count, quick.len() as u64);
            if let Some(per_node) = closed.per_node {
                let mut counted = vec![0; per_node.len()];
                quick.iter().for_each(|node| counted[*node] += 1);
                prop_assert_eq!(per_node, counted);
            }
        }
        // Nodes that are filled at once are as full as those of one placing after the other.
        let answered = |steps: Steps, wanted: u64| {
            let shapes = vec![Shape { pod: written.clone(), wanted }];
            let question = Ask { shapes, steps, ..Ask::default() };
            let (mut cluster, mut state) = (cluster.clone(), start.clone());
            let answer = ask(&mut cluster, &Profiles::default(), &mut state, &question, &mut |_| true).unwrap();
            let mut answer = serde_json::to_value(answer).unwrap();
            answer.as_object_mut().unwrap().remove("sequence");
            (answer, state.requested.clone(), state.pods.clone())
        };
        for wanted in [1, 3] {
            prop_assert_eq!(answered(Steps::None, wanted), answered(Steps::All, wanted));
        }
    }
}
