//! The one object the demonstration ends with.

use std::collections::BTreeMap;

use anyhow::Result;
use evenkeel_proto::v1::{ContainerStatus, ContainerUsage, ConvergeState, KnobStatus, KnobValue, QosClass};
use serde_json::{Value, json};

use crate::ask::Asking;
use crate::house::House;
use crate::workloads::ROLES;

/// Asks both daemons and the kernel, and puts the answers together.
pub(crate) fn gather(house: &House, asking: &mut Asking) -> Result<Value> {
    let status = asking.status()?;
    let usage: BTreeMap<String, ContainerUsage> =
        asking.usage()?.into_iter().filter_map(|u| Some((u.identity.as_ref()?.id.clone(), u))).collect();
    let recommendations = asking.recommendations()?;
    let records = asking.records()?;
    let mut containers = Vec::new();
    for role in &ROLES {
        let found = status.containers.iter().find(|c| {
            c.identity
                .as_ref()
                .is_some_and(|i| i.namespace == "demo" && i.pod == role.pod && i.container == "main")
        });
        let Some(container) = found else { continue };
        let resource = |name: &str| recommendations.get(&(role.pod.to_string(), name.to_string()));
        let samples = records.get(role.pod).and_then(|r| r.usage.get("memory")).map_or(0, |s| s.count);
        let mut entry = of_container(container, &usage);
        entry["oomScoreAdj"]["actual"] = json!(house.score(role.pod));
        entry["samples"] = json!(samples);
        entry["recommendation"] = json!({
            "cpu": resource("cpu").and_then(|r| r.request),
            "memory": resource("memory").and_then(|r| r.request),
            "rule": resource("cpu").map(|r| r.rule.clone()),
            "tier": resource("cpu").map(|r| r.tier.clone()),
            "samples": resource("cpu").map(|r| r.samples),
        });
        containers.push(entry);
    }
    let knob = |k: &KnobStatus| json!({"knob": k.name, "why": k.why, "remedy": k.remedy});
    let knobs = |denied: bool| -> Vec<Value> {
        status.knobs.iter().filter(|k| k.state != "off" && (k.state != "ok") == denied).map(knob).collect()
    };
    let stream = status.stream.unwrap_or_default();
    Ok(json!({
        "node": status.node,
        "allowed": knobs(false),
        "denied": knobs(true),
        "containers": containers,
        "frames": {"sent": stream.frames_sent, "acknowledged": stream.last_acknowledged},
        "capacity": capacity(asking)?,
    }))
}

fn of_container(container: &ContainerStatus, usage: &BTreeMap<String, ContainerUsage>) -> Value {
    let identity = container.identity.clone().unwrap_or_default();
    let live = usage.get(&identity.id);
    let knob = |name: &str| container.knobs.iter().find(|k| k.name == name);
    let mut entry = json!({
        "pod": identity.pod,
        "container": identity.container,
        "qosClass": class(identity.memory_class),
        "oomScoreAdj": knob("oom_score_adj").map(score),
        "processes": container.processes,
        "usage": {
            "cpuMilli": live.and_then(|u| u.cpu_milli),
            "memoryBytes": live.and_then(|u| u.sample.as_ref()).and_then(|s| s.memory_working_set_bytes),
        },
    });
    for (key, name) in [("cpuShares", "cpu.shares"), ("cpuWeight", "cpu.weight")] {
        if let Some(found) = knob(name) {
            entry[key] =
                json!({"wanted": number(found.wanted.as_deref()), "actual": number(found.actual.as_deref())});
        }
    }
    entry
}

fn score(knob: &KnobValue) -> Value {
    let state = ConvergeState::try_from(knob.state).unwrap_or(ConvergeState::Unspecified);
    let state = state.as_str_name().trim_start_matches("CONVERGE_STATE_").to_lowercase();
    json!({"wanted": number(knob.wanted.as_deref()), "actual": number(knob.actual.as_deref()), "state": state})
}

/// A knob's value as a number where it is one.
fn number(text: Option<&str>) -> Value {
    text.map_or(Value::Null, |t| t.parse::<i64>().map_or_else(|_| json!(t), |n| json!(n)))
}

fn class(class: i32) -> Value {
    match QosClass::try_from(class) {
        Ok(QosClass::BestEffort) => json!("BestEffort"),
        Ok(QosClass::Burstable) => json!("Burstable"),
        Ok(QosClass::Guaranteed) => json!("Guaranteed"),
        _ => Value::Null,
    }
}

/// How many more of the Burstable pod fit on this node.
fn capacity(asking: &mut Asking) -> Result<Value> {
    let role = &ROLES[1];
    let answer = asking.capacity(&role.manifest(&json!({})).to_string())?;
    Ok(json!({
        "pod": role.pod,
        "count": answer.count,
        "perNode": answer.per_node,
        "stop": answer.stop,
        "message": answer.message,
        "bounds": answer.bounds,
        "binding": answer.binding,
    }))
}
