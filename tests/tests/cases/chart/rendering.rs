//! The base is what comes of the chart, every object is one that an API server takes, and names and labels fit each other.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context, Result};
use evenkeel_tests::chart::{Helm, name, objects};
use evenkeel_tests::{debian13, machine, places, require, strict};
use serde_json::{Value, json};

use super::parts::{NAMESPACE, object, pod, rendered};

#[test]
fn the_base_is_what_the_chart_renders_and_kubectl_builds() -> Result<()> {
    let helm = Helm::find();
    require!(helm.is_ok(), format!("{:#}", helm.unwrap_err()));
    let kubectl = debian13::programs_of("kubectl").map(|at| at.join("kubectl"));
    require!(kubectl.is_ok(), format!("{:#}", kubectl.unwrap_err()));
    let repository = places::repository();
    // Byte by byte, so that nothing is changed by hand in the base.
    machine::run(Command::new(repository.join("scripts/manifests")).arg("--check"))?;
    let folder = repository.join("packaging/kubernetes");
    let built = machine::run(Command::new(kubectl?).arg("kustomize").arg(folder.join("base")))?;
    let values = serde_json::from_slice(&std::fs::read(folder.join("values.json"))?)?;
    let by_name = |all: Vec<Value>| -> BTreeMap<String, Value> {
        all.into_iter().map(|object| (name(&object), object)).collect()
    };
    let chart = by_name(helm?.rendered("evenkeel", &[values])?.remove(0));
    let mut base = by_name(objects(&built)?);
    // The chart has them in a folder of its own, which Helm alone installs.
    base.retain(|name, _| !name.starts_with("CustomResourceDefinition/"));
    assert_eq!(base, chart);
    assert!(base.len() > 15, "{:?}", base.keys());
    Ok(())
}

#[test]
fn every_object_has_the_fields_of_its_kind_and_no_others() -> Result<()> {
    let helm = Helm::find();
    require!(helm.is_ok(), format!("{:#}", helm.unwrap_err()));
    for (values, all) in rendered(&helm?)? {
        for object in &all {
            strict::check(object).with_context(|| format!("{} with {values}", name(object)))?;
            let metadata = &object["metadata"];
            assert_eq!(metadata["labels"]["app.kubernetes.io/part-of"], "evenkeel", "{}", name(object));
            let team = values["labels"].get("team").unwrap_or(&Value::Null);
            assert_eq!(metadata["labels"].get("team").unwrap_or(&Value::Null), team, "{}", name(object));
            if let Some(namespace) = metadata.get("namespace") {
                assert_eq!(namespace, NAMESPACE, "{}", name(object));
            }
        }
        let mut names: Vec<String> = all.iter().map(name).collect();
        names.sort();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count, "two objects of one name with {values}");
    }
    Ok(())
}

/// Whether labels match a selector of `matchLabels` alone.
fn takes(selector: &Value, labels: &Value) -> bool {
    let wanted = selector.as_object();
    wanted.is_some_and(|wanted| !wanted.is_empty() && wanted.iter().all(|(key, value)| labels[key] == *value))
}

#[test]
fn selectors_find_their_pods_and_no_others_and_names_are_there() -> Result<()> {
    let helm = Helm::find();
    require!(helm.is_ok(), format!("{:#}", helm.unwrap_err()));
    for (values, all) in rendered(&helm?)? {
        let pods: Vec<(String, &Value)> =
            all.iter().filter_map(|object| Some((name(object), pod(object)?))).collect();
        for object in &all {
            let spec = &object["spec"];
            let (selector, wanted) = match object["kind"].as_str() {
                Some("DaemonSet" | "Deployment" | "StatefulSet") => {
                    (&spec["selector"]["matchLabels"], vec![name(object)])
                }
                Some(kind @ ("Service" | "PodDisruptionBudget" | "NetworkPolicy")) => {
                    let selector = match kind {
                        "Service" => &spec["selector"],
                        "NetworkPolicy" => &spec["podSelector"]["matchLabels"],
                        _ => &spec["selector"]["matchLabels"],
                    };
                    // Each is named after what it selects; one has the names of single pods.
                    let of = object["metadata"]["name"].as_str().unwrap_or_default();
                    let of = of.strip_suffix("-pair").unwrap_or(of);
                    let is_pair = values["recommender"]["replicas"] == 2 && of == "evenkeel-recommender";
                    let kind = if is_pair { "StatefulSet" } else { "Deployment" };
                    (selector, vec![format!("{kind}/{NAMESPACE}/{of}")])
                }
                _ => continue,
            };
            let found = pods.iter().filter(|(_, pod)| takes(selector, &pod["metadata"]["labels"]));
            let found: Vec<String> = found.map(|(name, _)| name.clone()).collect();
            assert_eq!(found, wanted, "{} with {values}", name(object));
        }
        for (of, pod) in pods {
            for wanted in referred(&pod["spec"], &values) {
                assert!(
                    object(&all, &wanted).is_some(),
                    "{of} names {wanted}, which is not there with {values}"
                );
            }
        }
    }
    Ok(())
}

/// The objects that a pod's volumes, account and priority name and the chart makes with these values.
fn referred(spec: &Value, values: &Value) -> Vec<String> {
    let elsewhere = ["own", "own-ca", "mine", "system-node-critical"];
    let mut found = Vec::new();
    let mut add = |kind: &str, name: &Value| {
        if let Some(name) = name.as_str().filter(|name| !elsewhere.contains(name)) {
            found.push(match kind {
                "PriorityClass" => format!("{kind}/{name}"),
                _ => format!("{kind}/{NAMESPACE}/{name}"),
            });
        }
    };
    add("ServiceAccount", &spec["serviceAccountName"]);
    add("PriorityClass", &spec["priorityClassName"]);
    for volume in spec["volumes"].as_array().into_iter().flatten() {
        add("ConfigMap", &volume["configMap"]["name"]);
        add("PersistentVolumeClaim", &volume["persistentVolumeClaim"]["claimName"]);
        for source in volume["projected"]["sources"].as_array().into_iter().flatten() {
            add("ConfigMap", &source["configMap"]["name"]);
        }
        // Made elsewhere where it is named.
        if values["tls"]["secret"].is_null() {
            add("Secret", &volume["secret"]["secretName"]);
        }
    }
    found
}

#[test]
fn each_node_has_one_agent_and_its_label_says_which() -> Result<()> {
    let helm = Helm::find();
    require!(helm.is_ok(), format!("{:#}", helm.unwrap_err()));
    let modes = ["by-label", "dry-run", "enforce"];
    let values: Vec<Value> = modes.iter().map(|mode| json!({ "agent": { "mode": mode } })).collect();
    let all = helm?.rendered(NAMESPACE, &values)?;
    let nodes = [None, Some("enforce"), Some("other")];
    for ((mode, all), wanted) in modes.iter().zip(all).zip([
        ["dry-run", "enforce", "dry-run"],
        ["dry-run", "dry-run", "dry-run"],
        ["enforce", "enforce", "enforce"],
    ]) {
        let sets: Vec<&Value> = all.iter().filter(|object| object["kind"] == "DaemonSet").collect();
        for (node, wanted) in nodes.iter().zip(wanted) {
            let there = sets.iter().filter(|set| runs_on(&set["spec"]["template"]["spec"], *node));
            let there: Vec<&str> = there.filter_map(|set| mode_of(set)).collect();
            assert_eq!(there, [wanted], "{mode} on a node with the label {node:?}");
        }
    }
    Ok(())
}

/// Whether a pod may run on a node whose label `evenkeel.dev/mode` is this.
fn runs_on(spec: &Value, label: Option<&str>) -> bool {
    let required = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let Some(terms) = required["nodeSelectorTerms"].as_array() else { return true };
    terms.iter().any(|term| {
        term["matchExpressions"].as_array().into_iter().flatten().all(|expression| {
            assert_eq!(expression["key"], "evenkeel.dev/mode");
            let is_among = label.is_some_and(|label| expression["values"] == json!([label]));
            assert!(["In", "NotIn"].iter().any(|known| expression["operator"] == *known), "{expression}");
            is_among == (expression["operator"] == "In")
        })
    })
}

/// The mode that a DaemonSet's agent is started in.
fn mode_of(set: &Value) -> Option<&str> {
    let env = set["spec"]["template"]["spec"]["containers"][0]["env"].as_array()?;
    env.iter().find(|variable| variable["name"] == "EVENKEEL_AGENT_MODE")?["value"].as_str()
}
