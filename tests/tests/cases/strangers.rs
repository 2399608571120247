//! Strangers read what is recommended where they are used to look: kubectl and Python's client of Kubernetes, at the API server of the tests.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use evenkeel_tests::product::{RecommenderSetup, directory};
use evenkeel_tests::{debian13, machine, places, require, wait};
use serde_json::{Value, json};

use super::apiserver::ApiServer;

const MISSING: &str = "no Python with the client kubernetes; scripts/test host installs it below target";
/// Reads the objects of both kinds, and the nodes, with the client's own types.
const READER: &str = "
import json, sys
from kubernetes import client, config
config.load_kube_config(sys.argv[1])
custom = client.CustomObjectsApi()
read = lambda group: custom.get_namespaced_custom_object(group, 'v1', 'default', 'verticalpodautoscalers', 'web')
nodes = [node.metadata.name for node in client.CoreV1Api().list_node().items]
print(json.dumps({'vpa': read('autoscaling.k8s.io'), 'own': read('evenkeel.dev'), 'nodes': nodes}))
";

fn python() -> Result<Option<PathBuf>> {
    let python = places::cache("python")?.join("bin/python");
    let works = Command::new(&python).args(["-c", "import kubernetes"]).output();
    Ok(works.is_ok_and(|output| output.status.success()).then_some(python))
}

/// Status of a condition, as an object says it.
fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    let all = object["status"]["conditions"].as_array()?;
    all.iter().find(|one| one["type"] == kind)?["status"].as_str()
}

/// kubectl, with nothing of the caller's own configuration; what it keeps of the API server lies beside the kubeconfig.
fn kubectl(program: &Path, kubeconfig: &Path, words: &[&str]) -> Result<String> {
    let home = kubeconfig.parent().context("a kubeconfig without a directory")?;
    let mut command = Command::new(program);
    command.arg("--kubeconfig").arg(kubeconfig).args(words).env_remove("KUBECONFIG").env("HOME", home);
    machine::run(&mut command)
}

#[test]
fn strangers_read_what_is_recommended() -> Result<()> {
    let python = python()?;
    require!(python.is_some(), MISSING);
    let programs = debian13::programs_of("kubectl");
    let why_not = programs.as_ref().err().map(|error| format!("{error:#}"));
    require!(why_not.is_none(), why_not.unwrap_or_default());
    let (python, program) = (python.context(MISSING)?, programs?.join("kubectl"));
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let api = tokio.block_on(ApiServer::start());
    let directory = directory()?;
    let kubeconfig = api.kubeconfig(directory.path());
    let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" });
    let put = |version: &str, kind: &str, name: &str, spec: &Value| {
        let metadata = json!({ "name": name, "namespace": "default", "generation": 1 });
        api.put(json!({ "apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec }));
    };
    api.put(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "node-a" } }));
    put("apps/v1", "Deployment", "web", &json!({ "selector": { "matchLabels": { "app": "web" } } }));
    let asked = json!({ "targetRef": target, "recommenders": [{ "name": "evenkeel" }], "updatePolicy": { "updateMode": "Off" } });
    put("autoscaling.k8s.io/v1", "VerticalPodAutoscaler", "web", &asked);
    put("evenkeel.dev/v1", "VerticalPodAutoscaler", "web", &json!({ "targetRef": target }));
    let recommender = RecommenderSetup::new(directory.path())?
        .set("kubernetes.view", "true")
        .set("kubernetes.recommend", "true")
        .set("kubernetes.cluster", "\"test\"")
        .set("kubernetes.kubeconfig", &format!("{:?}", kubeconfig.display().to_string()))
        .start()?;

    // No pod runs, which is said.
    let said = wait::until("both objects to be told", wait::PATIENCE, || {
        let read = machine::run(Command::new(&python).args(["-c", READER]).arg(&kubeconfig))?;
        let read: Value = serde_json::from_str(&read)?;
        let is_told = |kind: &str| condition(&read[kind], "RecommendationProvided").is_some();
        Ok((is_told("vpa") && is_told("own")).then_some(read))
    })?;
    ensure!(said["nodes"] == json!(["node-a"]), "{said}");
    for kind in ["verticalpodautoscalers.autoscaling.k8s.io", "verticalpodautoscalers.evenkeel.dev"] {
        let one = kubectl(&program, &kubeconfig, &["get", kind, "web", "-o", "json"])?;
        let one: Value = serde_json::from_str(&one)?;
        ensure!(condition(&one, "RecommendationProvided") == Some("False"), "{one}");
        let jsonpath = "jsonpath={.items[*].metadata.name}";
        ensure!(kubectl(&program, &kubeconfig, &["get", kind, "-A", "-o", jsonpath])? == "web", "{kind}");
    }
    recommender.stop()
}
