//! `evenkeel uninstall --kubernetes` against an API server with everything of the kustomize base, beside objects of others: what is listed
//! before the installation is what is listed after its end.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::apiserver::ApiServer;
use crate::common::{Run, run};
use evenkeel_model::yaml::{self, YamlBounds};
use serde_json::{Value, json};

/// What is there, without what the API server itself counts.
type Listing = BTreeMap<(String, String, String), Value>;

/// What becomes of a pod that restores, by its node.
type Ends = fn(&str) -> Value;

const WELL: Ends = |_| json!({ "phase": "Succeeded" });

/// A cluster of two nodes.
struct Cluster {
    server: ApiServer,
    config: PathBuf,
    _dir: tempfile::TempDir,
    ends: Arc<AtomicBool>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

fn node(name: &str, ready: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": name },
        "status": { "conditions": [{ "type": "DiskPressure", "status": "False" }, { "type": "Ready", "status": ready }] },
    })
}

impl Cluster {
    /// With objects of others alone.
    async fn of_others() -> Self {
        let server = ApiServer::start().await;
        let dir = tempfile::tempdir().unwrap();
        let config = server.kubeconfig(dir.path());
        for object in [
            node("n1", "True"),
            node("n2.example", "True"),
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop" } }),
            json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web", "namespace": "shop" } }),
            json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web-1", "namespace": "shop" }, "spec": { "nodeName": "n1" } }),
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "evenkeel-notes", "namespace": "shop" } }),
            json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "view" } }),
            json!({ "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": "web" } }),
        ] {
            server.put(object);
        }
        Self { server, config, _dir: dir, ends: Arc::default() }
    }

    /// Installs the base, as kubectl does, and lets agents run.
    fn install(&self) {
        let base = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/kubernetes/base");
        for file in std::fs::read_dir(base).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            let objects: Vec<Value> =
                yaml::documents(&text, YamlBounds { documents: 100, nodes: 100_000 }).unwrap();
            for object in objects.into_iter().filter(|object| object["kind"] != "Kustomization") {
                self.server.put(object);
            }
        }
        // Made on the way: by ca kubernetes, by the recommender, by Kubernetes.
        let labels = json!({ "app.kubernetes.io/part-of": "evenkeel" });
        let own = |api: &str, kind: &str, name: &str, labels: &Value| {
            let metadata = json!({ "name": name, "namespace": "evenkeel", "labels": labels });
            self.server.put(json!({ "apiVersion": api, "kind": kind, "metadata": metadata }));
        };
        own("v1", "Secret", "evenkeel-recommender-tls", &labels);
        own("v1", "ConfigMap", "evenkeel-ca", &labels);
        own("coordination.k8s.io/v1", "Lease", "evenkeel-recommender", &Value::Null);
        for node in ["n1", "n2.example"] {
            self.server.put(json!({
                "apiVersion": "v1", "kind": "Pod", "spec": { "nodeName": node },
                "metadata": { "name": format!("evenkeel-agent-{node}"), "namespace": "evenkeel", "labels": {
                    "app.kubernetes.io/name": "evenkeel-agent", "app.kubernetes.io/part-of": "evenkeel",
                } },
            }));
        }
    }

    /// Plays controller and kubelets: agents end when no node meets their selector, pods that restore end so.
    fn works(&self, ends: Ends) {
        let (server, stop) = (self.server.clone(), Arc::clone(&self.ends));
        tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let all = server.everything();
                let sets = all.iter().filter(|((at, ..), _)| at == "/apis/apps/v1/daemonsets");
                let nowhere = |set: &Value| {
                    set["spec"]["template"]["spec"]["nodeSelector"].get("evenkeel.dev/uninstalled").is_some()
                };
                let is_nowhere = sets.clone().count() > 0 && sets.clone().all(|(_, set)| nowhere(set));
                for ((at, namespace, name), pod) in &all {
                    let component = &pod["metadata"]["labels"]["app.kubernetes.io/name"];
                    if at == "/api/v1/pods" && component == "evenkeel-agent" && is_nowhere {
                        server.delete(at, namespace, name);
                    } else if at == "/api/v1/pods"
                        && component == "evenkeel-restore"
                        // As it was made: what the API server filled in, and a kubelet has not said anything.
                        && pod["status"]["qosClass"].is_string()
                    {
                        assert!(is_nowhere, "{name} runs beside agents");
                        let mut pod = pod.clone();
                        pod["status"] = ends(pod["spec"]["nodeName"].as_str().unwrap());
                        server.put(pod);
                    }
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
    }

    fn listing(&self) -> Listing {
        self.server.everything()
    }

    async fn uninstall(&self, more: &[&str]) -> Run {
        let config = self.config.to_str().unwrap().to_owned();
        let more: Vec<String> = more.iter().map(|one| (*one).to_owned()).collect();
        let asked = move || {
            let all = ["uninstall", "--kubernetes", "--kubeconfig", &config, "-o", "json"];
            run(&all.into_iter().chain(more.iter().map(String::as_str)).collect::<Vec<_>>())
        };
        tokio::task::spawn_blocking(asked).await.unwrap()
    }
}

fn results(run: &Run, action: &str) -> Vec<(String, String)> {
    let all = run.json();
    let of = all.as_array().unwrap().iter().filter(|step| step["action"] == action);
    of.map(|step| (step["what"].as_str().unwrap().to_owned(), step["result"].as_str().unwrap().to_owned()))
        .collect()
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(what, result)| ((*what).to_owned(), (*result).to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_listed_after_it_is_what_was_listed_before_the_installation() {
    let cluster = Cluster::of_others().await;
    let before = cluster.listing();
    cluster.install();
    cluster.works(WELL);
    let done = cluster.uninstall(&["--yes", "--crds"]).await;
    assert_eq!(done.status, 0, "{done:?}");
    assert_eq!(results(&done, "restore"), pairs(&[("node n1", "done"), ("node n2.example", "done")]));
    assert_eq!(cluster.listing(), before);
    assert_eq!(results(&done, "keep"), []);
    // Again: nothing is there, and nothing is asked to change.
    let changes = || cluster.server.asked_for("").iter().filter(|asked| !asked.starts_with("GET")).count();
    let so_far = changes();
    let again = cluster.uninstall(&["--yes", "--crds"]).await;
    assert_eq!((again.status, changes()), (0, so_far), "{again:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_called_for_new_pods_goes_first_and_gated_pods_are_freed() {
    let cluster = Cluster::of_others().await;
    cluster.install();
    cluster.works(WELL);
    let registration = |name: &str, labels: Value| {
        let metadata = json!({ "name": name, "labels": labels });
        json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": metadata })
    };
    cluster.server.put(registration("evenkeel", json!({ "app.kubernetes.io/part-of": "evenkeel" })));
    cluster.server.put(registration("theirs", json!({})));
    cluster.server.put(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "web-2", "namespace": "shop", "labels": { "evenkeel.dev/gated": "true", "app": "web" },
            "annotations": { "evenkeel.dev/placeholders": "{}", "a": "b" },
        },
        "spec": { "schedulingGates": [{ "name": "evenkeel.dev/policy" }, { "name": "other" }] },
    }));
    // Also where Helm deletes the rest.
    let done = cluster.uninstall(&["--yes", "--nodes-only"]).await;
    assert_eq!(done.status, 0, "{done:?}");
    assert_eq!(results(&done, "delete"), pairs(&[("MutatingWebhookConfiguration evenkeel", "done")]));
    assert_eq!(results(&done, "free"), pairs(&[("Pod shop/web-2", "done")]));
    let first = done.json()[0]["what"].clone();
    assert_eq!(first, "MutatingWebhookConfiguration evenkeel");
    let pod = cluster.server.object("/api/v1/pods", "shop", "web-2").unwrap();
    assert_eq!(pod["spec"]["schedulingGates"], json!([{ "name": "other" }]));
    assert_eq!(
        (&pod["metadata"]["labels"], &pod["metadata"]["annotations"]),
        (&json!({ "app": "web" }), &json!({ "a": "b" }))
    );
    let left = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    assert!(cluster.server.object(left, "", "theirs").is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_yes_nothing_is_changed_and_all_of_it_is_shown() {
    let cluster = Cluster::of_others().await;
    cluster.install();
    let before = cluster.listing();
    let shown = cluster.uninstall(&[]).await;
    assert_eq!(shown.status, 0, "{shown:?}");
    assert_eq!(cluster.listing(), before);
    assert!(cluster.server.asked_for("").iter().all(|asked| asked.starts_with("GET ")));
    let deleted = results(&shown, "delete");
    assert!(deleted.len() > 20 && deleted.iter().all(|(_, result)| result == "would-do"), "{deleted:?}");
    assert_eq!(
        results(&shown, "restore"),
        pairs(&[("node n1", "would-do"), ("node n2.example", "would-do")])
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_end_in_time_is_told_with_what_to_do() {
    let cluster = Cluster::of_others().await;
    cluster.install();
    // Its pods stay what they are.
    cluster.works(|_| json!({ "phase": "Pending" }));
    let over = cluster.uninstall(&["--yes", "--timeout", "2s"]).await;
    assert_eq!(over.status, 1, "{over:?}");
    assert_eq!(results(&over, "restore"), pairs(&[("node n1", "failed"), ("node n2.example", "failed")]));
    let told = ["its pod did not end in time", "run this again", "evenkeel.dev/uninstalled"];
    assert!(told.iter().all(|part| over.out.contains(part)), "{}", over.out);
    let set = ("/apis/apps/v1/daemonsets".to_owned(), "evenkeel".to_owned(), "evenkeel-agent".to_owned());
    assert!(cluster.listing().contains_key(&set));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_not_restored_stops_it_before_anything_is_deleted() {
    let cluster = Cluster::of_others().await;
    cluster.install();
    let failing: Ends = |node| match node {
        "n1" => json!({ "phase": "Succeeded" }),
        _ => json!({ "phase": "Failed", "containerStatuses": [{ "state": { "terminated": {
            "exitCode": 1, "message": "memory.max: failed: 20 MiB are used\n" } } }] }),
    };
    cluster.works(failing);
    let stopped = cluster.uninstall(&["--yes"]).await;
    assert_eq!(stopped.status, 1, "{stopped:?}");
    assert_eq!(results(&stopped, "restore"), pairs(&[("node n1", "done"), ("node n2.example", "failed")]));
    assert!(stopped.out.contains("memory.max: failed: 20 MiB are used"), "{}", stopped.out);
    assert_eq!(results(&stopped, "delete"), []);
    let left = cluster.listing();
    assert!(left.keys().any(|(at, ..)| at == "/apis/apps/v1/deployments"));
    assert!(!left.keys().any(|(at, _, name)| at == "/api/v1/pods" && name.starts_with("evenkeel-restore")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_are_not_ready_are_named_first() {
    let cluster = Cluster::of_others().await;
    cluster.install();
    cluster.works(WELL);
    cluster.server.put(node("n2.example", "Unknown"));
    let before = cluster.listing();
    let stopped = cluster.uninstall(&["--yes"]).await;
    assert_eq!((stopped.status, results(&stopped, "restore")), (1, pairs(&[("node n2.example", "failed")])));
    assert!(stopped.out.contains("--skip-unready"), "{}", stopped.out);
    assert_eq!(cluster.listing(), before);
    let done = cluster.uninstall(&["--yes", "--nodes-only", "--skip-unready"]).await;
    assert_eq!((done.status, results(&done, "delete")), (0, Vec::new()), "{done:?}");
    assert_eq!(results(&done, "restore"), pairs(&[("node n2.example", "left"), ("node n1", "done")]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_go_by_flag_and_others_keep_their_namespace() {
    let cluster = Cluster::of_others().await;
    cluster.install();
    cluster.works(WELL);
    let definition = |name: &str, group: &str| {
        cluster.server.put(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": name }, "spec": { "group": group },
        }))
    };
    definition("verticalpodautoscalers.evenkeel.dev", "evenkeel.dev");
    definition("verticalpodautoscalers.autoscaling.k8s.io", "autoscaling.k8s.io");
    let theirs = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "theirs", "namespace": "evenkeel" } });
    cluster.server.put(theirs);
    let done = cluster.uninstall(&["--yes"]).await;
    assert_eq!(done.status, 0, "{done:?}");
    let kept = pairs(&[
        ("Namespace evenkeel", "left"),
        ("CustomResourceDefinition verticalpodautoscalers.evenkeel.dev", "left"),
    ]);
    assert_eq!(results(&done, "keep"), kept);
    cluster.install();
    cluster.server.delete("/api/v1/secrets", "evenkeel", "theirs");
    let all = cluster.uninstall(&["--yes", "--crds"]).await;
    assert_eq!(all.status, 0, "{all:?}");
    let left = cluster.listing();
    let definitions: Vec<&str> = left
        .keys()
        .filter(|(at, ..)| at.ends_with("customresourcedefinitions"))
        .map(|(.., name)| name.as_str())
        .collect();
    assert_eq!(definitions, ["verticalpodautoscalers.autoscaling.k8s.io"]);
    assert!(!left.keys().any(|(_, namespace, name)| namespace == "evenkeel" || name == "evenkeel"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_helm_made_is_left_to_helm() {
    let cluster = Cluster::of_others().await;
    cluster.install();
    cluster.server.put(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": "evenkeel-agent", "namespace": "evenkeel", "labels": { "app.kubernetes.io/part-of": "evenkeel" },
        "annotations": { "meta.helm.sh/release-name": "keel" } } }));
    let refused = cluster.uninstall(&["--yes"]).await;
    assert_eq!(refused.status, 1, "{refused:?}");
    assert!(refused.err.contains("helm uninstall keel --namespace evenkeel"), "{}", refused.err);
    assert!(cluster.server.asked_for("").iter().all(|asked| asked.starts_with("GET ")));
}
