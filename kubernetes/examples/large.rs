//! A cluster of the size that Kubernetes promises (5,000 nodes, 150,000 pods), followed: what it costs. By hand:
//!
//!     cargo run --release -p evenkeel-kubernetes --example large
//!
//! The API server is another process, so that memory is that of who follows. `EVENKEEL_PODS` changes the size,
//! `EVENKEEL_ASKS` how often a question is asked.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a measurement says by panicking what is wrong")]

#[path = "../tests/apiserver/mod.rs"]
mod apiserver;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use apiserver::ApiServer;
use apiserver::recorded::body;
use evenkeel_capacity::load::Manifest;
use evenkeel_capacity::question::{CapacityQuestion, Snapshot};
use evenkeel_kubernetes::{ApiSource, ClusterView, KindStatus, Pace, WatchState, Watching};
use serde_json::json;

/// Set for the process that is the API server.
const SERVES: &str = "EVENKEEL_LARGE_SERVES";
const PODS_OF_SET: usize = 30;
/// Changes a second.
const RATE: usize = 1000;
const SECONDS: usize = 10;

fn pods() -> usize {
    std::env::var("EVENKEEL_PODS").map_or(150_000, |pods| pods.parse().unwrap())
}

fn node_of(pod: usize) -> usize {
    pod % (pods() / PODS_OF_SET)
}

/// A real pod's text (`managedFields` and all) with places to fill in.
fn template() -> String {
    let mut pod = body("pods", "list of a node's pods")["items"][0].clone();
    let metadata = &mut pod["metadata"];
    (metadata["name"], metadata["namespace"]) = ("NAME".into(), "NAMESPACE".into());
    metadata["uid"] = "00000000-0000-4000-8000-UID".into();
    metadata["ownerReferences"][0]["name"] = "OWNER".into();
    pod["spec"]["nodeName"] = "NODE".into();
    pod["status"]["startTime"] = "2026-11-21T01:42:14Z".into();
    pod.to_string()
}

fn names(pod: usize) -> (String, String, String) {
    let set = pod / PODS_OF_SET;
    (
        format!("ns-{:04}", set % 500),
        format!("web-{set:05}-5d9c7b6f4"),
        format!("web-{set:05}-5d9c7b6f4-{pod:06}"),
    )
}

fn pod(template: &str, at: usize) -> ((String, String), String) {
    let (namespace, owner, name) = names(at);
    let text = template
        .replace("\"NAME\"", &format!("{name:?}"))
        .replace("NAMESPACE", &namespace)
        .replace("OWNER", &owner)
        .replace("\"NODE\"", &format!("\"node-{:05}\"", node_of(at)))
        .replace("-UID", &format!("-{at:012x}"));
    ((namespace, name), text)
}

async fn serve() {
    let api = ApiServer::start().await;
    let template = template();
    api.fill("/api/v1/pods", (0..pods()).map(|at| pod(&template, at)));
    let mut node = body("objects", "Node: the real one");
    for name in ["allocatable", "capacity"] {
        node["status"][name] = json!({ "cpu": "64", "memory": "256Gi", "pods": "110" });
    }
    let nodes = (0..pods() / PODS_OF_SET).map(|at| {
        let name = format!("node-{at:05}");
        node["metadata"]["name"] = name.clone().into();
        node["metadata"]["labels"]["kubernetes.io/hostname"] = name.clone().into();
        ((String::new(), name), node.to_string())
    });
    api.fill("/api/v1/nodes", nodes.collect::<Vec<_>>().into_iter());
    let sets = (0..pods() / PODS_OF_SET).map(|set| {
        let (namespace, name, _) = names(set * PODS_OF_SET);
        let owner = json!([{ "apiVersion": "apps/v1", "kind": "Deployment", "name": format!("web-{set:05}"), "controller": true }]);
        let metadata = json!({ "name": name, "namespace": namespace, "ownerReferences": owner });
        let object = json!({ "metadata": metadata, "spec": { "selector": { "matchLabels": { "app": "web" } } } });
        ((namespace, name), object.to_string())
    });
    api.fill("/apis/apps/v1/replicasets", sets);
    let dir = tempfile::tempdir().unwrap();
    println!("READY {}", api.kubeconfig(dir.path()).display());
    let mut lines =
        tokio::task::spawn_blocking(|| std::io::stdin().lines().map_while(Result::ok).collect::<Vec<_>>());
    // Changes go on until the end of the input: a file says when.
    let wanted = dir.path().join("change");
    let mut tick = tokio::time::interval(Duration::from_millis(10));
    let mut at = 0;
    loop {
        tokio::select! {
            _ = &mut lines => return,
            _ = tick.tick() => {}
        }
        if dir.path().join("forget").exists() {
            api.storm(20, 410, None);
            fs::remove_file(dir.path().join("forget")).unwrap();
        }
        for _ in 0..if wanted.exists() { RATE / 100 } else { 0 } {
            at = (at + 7919) % pods();
            api.put_at("/api/v1/pods", serde_json::from_str(&pod(&template, at).1).unwrap());
        }
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    match std::env::var_os(SERVES) {
        Some(_) => serve().await,
        None => follow().await,
    }
}

/// Peak of memory, MiB, and CPU seconds of this process.
fn used() -> (u64, f64) {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").trim().parse().unwrap();
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    (peak / 1024, ticks / 100.0)
}

fn status(watching: &Watching, kind: &str) -> KindStatus {
    watching.status().into_iter().find(|status| status.kind.name == kind).unwrap()
}

async fn until(what: &str, is: impl Fn() -> bool) -> Duration {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < Duration::from_secs(1200), "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    began.elapsed()
}

/// How often a question is asked again.
fn asks() -> usize {
    std::env::var("EVENKEEL_ASKS").map_or(3, |asks| asks.parse().unwrap())
}

/// CPU time of this thread, ms.
fn spent() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1e6
}

/// How many fit, and the CPU time that making the cluster ready took, and the answer, ms.
fn asked(view: &ClusterView) -> (u64, String) {
    let began = spent();
    let live = view.live();
    let ready = spent();
    let mut manifest = Manifest::default();
    let requests = json!({ "cpu": "500m", "memory": "1Gi" });
    let containers = json!([{ "name": "c", "resources": { "requests": requests } }]);
    manifest
        .take(&json!({ "kind": "Pod", "metadata": { "name": "x" }, "spec": { "containers": containers } }))
        .unwrap();
    let mut question = CapacityQuestion::default();
    question.asks(manifest);
    let snapshot = Snapshot { cluster: live.cluster, report: live.report };
    let (whole, _) = question.answer(snapshot, None, &mut |_| true).unwrap();
    let answered = spent();
    (whole.answer.count, format!("{:.1} + {:.1} ms", ready - began, answered - ready))
}

async fn follow() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .env(SERVES, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let ready = tokio::task::spawn_blocking(move || {
        let mut lines = lines;
        lines.find_map(|line| line.split_once("READY ").map(|(_, path)| PathBuf::from(path))).unwrap()
    });
    let kubeconfig = ready.await.unwrap();
    let dir = kubeconfig.parent().unwrap().to_owned();
    let source = ApiSource { kubeconfig: Some(kubeconfig), context: None, patience: Duration::from_secs(30) };
    let (before, cpu) = used();
    let pace = Pace { watch: Duration::from_secs(15), ..Pace::default() };
    let watching = Watching::start(&source, pace).await.unwrap();
    let synced = until("the first sync", || watching.status().iter().all(|s| s.is_known)).await;
    let (peak, after) = used();
    println!(
        "first sync of {} pods: {synced:.1?}, {:.1} CPU-s, peak {peak} MiB (before {before})",
        pods(),
        after - cpu
    );
    let began = spent();
    watching.view().keep_ready();
    println!("the simulator's cluster is made of it: {:.1} ms", spent() - began);
    let (count, first) = asked(watching.view());
    let more: Vec<String> = (0..asks()).map(|_| asked(watching.view()).1).collect();
    println!(
        "a capacity question (making ready + answering, CPU): {count} fit; {first} the first time, then {}",
        more.join(", ")
    );
    println!("peak {} MiB", used().0);

    fs::write(dir.join("change"), "").unwrap();
    let changes = || status(&watching, "Pod").counts.changes;
    until("changes", || changes() > 0).await;
    let ((_, cpu), began, from) = (used(), Instant::now(), changes());
    // As the recommender does it.
    while began.elapsed() < Duration::from_secs(SECONDS as u64) {
        tokio::time::sleep(Duration::from_millis(500)).await;
        watching.view().keep_ready();
    }
    let rate = (changes() - from) as f64 / began.elapsed().as_secs_f64();
    let share = (used().1 - cpu) / began.elapsed().as_secs_f64();
    println!("{rate:.0} changes/s: {:.1} % of a core", share * 100.0);
    tokio::time::sleep(Duration::from_millis(500)).await;
    println!("a capacity question after half a second of changes: {}", asked(watching.view()).1);
    println!("the next one among changes: {}", asked(watching.view()).1);
    fs::remove_file(dir.join("change")).unwrap();

    let lists = status(&watching, "Pod").counts.lists;
    // The next watch is told that its version is gone.
    fs::write(dir.join("forget"), "").unwrap();
    until("410", || status(&watching, "Pod").state != WatchState::Watching).await;
    let relisted = until("the new list", || status(&watching, "Pod").counts.lists > lists).await;
    let (peak, _) = used();
    println!("relist: {relisted:.1?}, peak {peak} MiB");
    // The end of its input is its end.
    drop(child.stdin.take());
    child.wait().unwrap();
    assert!(synced < Duration::from_secs(30) || cfg!(debug_assertions), "first sync {synced:?}");
    assert!(peak < 1536, "{peak} MiB");
}
