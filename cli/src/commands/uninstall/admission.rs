//! What stands in the way of others' pods: what API servers call or apply when a pod is made goes first, then pods that wait for a gate of ours
//! are freed.

use serde_json::{Value, json};

use super::objects::{ADMISSION, OwnedKind, POD, is_ours, name};
use super::{StepResult, UninstallArgs, UninstallStep};
use crate::cluster::ApiConnection;
use crate::failure::Failure;

/// The gate, and the label and annotation of pods that have it (`evenkeel_webhook::gate`).
const GATE: &str = "evenkeel.dev/policy";
const LABEL: &str = "evenkeel.dev/gated";
const ANNOTATION: &str = "evenkeel.dev/placeholders";

/// Takes both away, and says how each ended.
///
/// # Errors
/// When the API server refuses a question; where nodes alone are restored, what may not be seen is left.
pub(super) fn remove(
    cluster: &mut ApiConnection,
    args: &UninstallArgs,
) -> Result<Vec<UninstallStep>, Failure> {
    let mut steps = Vec::new();
    for kind in &ADMISSION {
        for object in seen(cluster, args, &kind.path(""), kind, &mut steps)? {
            if is_ours(kind, &object) {
                let path = kind.one("", name(&object));
                let delete = |cluster: &mut ApiConnection| cluster.delete(&path).map(|_| ());
                steps.push(done(cluster, args, "delete", kind.shown("", name(&object)), delete));
            }
        }
    }
    let gated = format!("/api/v1/pods?labelSelector={LABEL}%3Dtrue");
    for pod in seen(cluster, args, &gated, &POD, &mut steps)? {
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        let (path, patch) = (POD.one(namespace, name(&pod)), lifted(&pod));
        let lift = |cluster: &mut ApiConnection| cluster.merge(&path, &patch).map(|_| ());
        steps.push(done(cluster, args, "free", POD.shown(namespace, name(&pod)), lift));
    }
    Ok(steps)
}

fn seen(
    cluster: &mut ApiConnection,
    args: &UninstallArgs,
    path: &str,
    kind: &OwnedKind,
    steps: &mut Vec<UninstallStep>,
) -> Result<Vec<Value>, Failure> {
    match cluster.all(path) {
        Err(failure) if args.nodes_only => {
            steps.push(
                UninstallStep::new("keep", kind.shown("", "all"), StepResult::Left).because(failure.cause()),
            );
            Ok(Vec::new())
        }
        other => other,
    }
}

fn done(
    cluster: &mut ApiConnection,
    args: &UninstallArgs,
    action: &'static str,
    shown: String,
    act: impl FnOnce(&mut ApiConnection) -> Result<(), Failure>,
) -> UninstallStep {
    if !args.yes {
        return UninstallStep::new(action, shown, StepResult::WouldDo);
    }
    match act(cluster) {
        Ok(()) => UninstallStep::new(action, shown, StepResult::Done),
        Err(failure) => UninstallStep::new(action, shown, StepResult::Failed).because(failure.cause()),
    }
}

/// What frees a pod: other gates stay.
fn lifted(pod: &Value) -> Value {
    let gates = pod["spec"]["schedulingGates"].as_array();
    let others: Vec<&Value> = gates.into_iter().flatten().filter(|gate| gate["name"] != GATE).collect();
    json!({
        "metadata": { "labels": { LABEL: null }, "annotations": { ANNOTATION: null } },
        "spec": { "schedulingGates": others },
    })
}
