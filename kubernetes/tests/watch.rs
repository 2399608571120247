//! Suite `unit`: a cluster that is followed over TLS. What changes is seen once, whatever the API server does meanwhile: it ends watches,
//! forgets versions, asks for patience, fails, and falls silent.

use std::future::Future;
use std::time::{Duration, Instant};

use crate::apiserver::recorded::{body, exchanges};
use crate::apiserver::{ApiServer, Mood};
use evenkeel_kubernetes::{ApiSource, KINDS, KindStatus, Pace, WatchCounts, WatchState, Watching};
use serde_json::{Value, json};

/// Pauses so short that a test may wait for them.
fn quick() -> Pace {
    Pace {
        page: 2,
        least: Duration::from_millis(20),
        most: Duration::from_millis(100),
        watch: Duration::from_secs(30),
        answer: Duration::from_secs(5),
    }
}

struct Cluster {
    api: ApiServer,
    watching: Watching,
    _dir: tempfile::TempDir,
}

impl Cluster {
    async fn follow(api: ApiServer, pace: Pace) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = Some(api.kubeconfig(dir.path()));
        let source = ApiSource { kubeconfig, context: None, patience: Duration::from_secs(5) };
        let watching = Watching::start(&source, pace).await.unwrap();
        Self { api, watching, _dir: dir }
    }

    async fn known(api: ApiServer, pace: Pace) -> Self {
        let cluster = Self::follow(api, pace).await;
        until("all kinds known", || async { cluster.all(|s| s.is_known && s.state == WatchState::Watching) })
            .await;
        cluster
    }

    fn all(&self, of: impl Fn(&KindStatus) -> bool) -> bool {
        self.watching.status().iter().all(of)
    }

    fn status(&self, kind: &str) -> KindStatus {
        self.watching.status().into_iter().find(|status| status.kind.name == kind).unwrap()
    }

    fn sum(&self, of: impl Fn(&WatchCounts) -> u64) -> u64 {
        self.watching.status().iter().map(|status| of(&status.counts)).sum()
    }

    fn workload(&self, pod: &str, uid: &str) -> Option<String> {
        self.watching.view().workload("shop", pod, uid)
    }

    fn placed(&self) -> usize {
        self.watching.view().live().report.counts.placed
    }
}

/// Waits for a state.
async fn until<F: Future<Output = bool>>(what: &str, mut is: impl FnMut() -> F) {
    let began = Instant::now();
    while !is().await {
        assert!(began.elapsed() < Duration::from_secs(60), "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn node(name: &str) -> Value {
    let size = json!({ "cpu": "4", "memory": "8Gi", "pods": "110" });
    json!({
        "kind": "Node", "apiVersion": "v1", "metadata": { "name": name },
        "spec": {}, "status": { "allocatable": size, "somethingNew": [1] },
    })
}

fn replica_set(deployment: &str, hash: &str) -> Value {
    let owner = json!([{ "apiVersion": "apps/v1", "kind": "Deployment", "name": deployment, "uid": "d", "controller": true }]);
    json!({
        "kind": "ReplicaSet", "apiVersion": "apps/v1",
        "metadata": { "name": format!("{deployment}-{hash}"), "namespace": "shop", "ownerReferences": owner },
        "spec": { "selector": { "matchLabels": { "app": deployment } } },
    })
}

fn pod(name: &str, owner: (&str, &str), node: &str) -> Value {
    let owner =
        json!([{ "apiVersion": "v1", "kind": owner.0, "name": owner.1, "uid": "o", "controller": true }]);
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": { "name": name, "namespace": "shop", "uid": format!("uid-{name}"), "ownerReferences": owner },
        "spec": { "nodeName": node, "containers": [{ "name": "main", "resources": { "requests": { "cpu": "100m" } } }] },
        "status": { "phase": "Running" },
    })
}

async fn started() -> ApiServer {
    let api = ApiServer::start().await;
    api.put(node("n1"));
    api.put(replica_set("web", "a"));
    for name in ["web-a-1", "web-a-2", "web-a-3", "web-a-4", "web-a-5"] {
        api.put(pod(name, ("ReplicaSet", "web-a"), "n1"));
    }
    api
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_listed_in_pages_and_followed() {
    let cluster = Cluster::known(started().await, quick()).await;
    let api = &cluster.api;
    assert_eq!(cluster.status("Pod").objects, 5);
    let pages = api.asked_for("/api/v1/pods?limit=2");
    assert_eq!(pages.len(), 3, "{pages:?}");
    assert_eq!(cluster.workload("web-a-1", "uid-web-a-1").as_deref(), Some("deployment/web"));
    assert_eq!(cluster.workload("web-a-1", "uid-of-another"), None);
    assert_eq!(cluster.placed(), 5);

    // A rollout: the name stays.
    api.put(replica_set("web", "b"));
    api.put(pod("web-b-1", ("ReplicaSet", "web-b"), "n1"));
    api.delete("/api/v1/pods", "shop", "web-a-1");
    until("the rollout", || async { cluster.workload("web-a-1", "uid-web-a-1").is_none() }).await;
    until("the set", || async {
        cluster.workload("web-b-1", "uid-web-b-1").as_deref() == Some("deployment/web")
    })
    .await;

    // Of jobs only who made them is asked for.
    let owner = json!([{ "apiVersion": "batch/v1", "kind": "CronJob", "name": "night", "uid": "c", "controller": true }]);
    api.put(json!({
        "kind": "Job", "apiVersion": "batch/v1",
        "metadata": { "name": "night-1", "namespace": "shop", "ownerReferences": owner }, "spec": {},
    }));
    api.put(pod("night-1-x", ("Job", "night-1"), "n1"));
    api.put(pod("daemon-x", ("DaemonSet", "daemon"), "n1"));
    until("the job", || async {
        cluster.workload("night-1-x", "uid-night-1-x").as_deref() == Some("cronjob/night")
    })
    .await;
    until("the daemon", || async {
        cluster.workload("daemon-x", "uid-daemon-x").as_deref() == Some("daemonset/daemon")
    })
    .await;
    assert_eq!(cluster.sum(|counts| counts.lists), KINDS.len() as u64, "nothing is listed twice");
    assert_eq!(
        (cluster.sum(|c| c.failures), cluster.sum(|c| c.unreadable), cluster.sum(|c| c.expired)),
        (0, 0, 0)
    );
    assert!(cluster.status("Pod").heard_ago().is_some());
}

/// Watches of 10 ms: with pauses of 20 ms at least, at most 50 of a kind in a second, and nothing is lost between them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_that_end_at_once_lose_nothing_and_do_not_run_hot() {
    let api = started().await;
    api.watches_last(Some(Duration::from_millis(10)));
    let cluster = Cluster::known(api, quick()).await;
    let began = Instant::now();
    for round in 0..20 {
        let name = format!("more-{round}");
        cluster.api.put(pod(&name, ("StatefulSet", "more"), "n1"));
        until(&name, || async { cluster.workload(&name, &format!("uid-{name}")).is_some() }).await;
    }
    let watches = cluster.api.asked_for("/api/v1/pods?watch=true").len() as u128;
    let most = began.elapsed().as_millis() / 20 + 5 + watches / 5;
    assert!(watches > 5 && watches <= most + 20, "{watches} watches in {:?}", began.elapsed());
    assert_eq!(
        cluster.sum(|counts| counts.lists),
        KINDS.len() as u64,
        "each goes on where the last one ended"
    );
    // A change is counted once it is known.
    until("20 changes", || async { cluster.status("Pod").counts.changes == 20 }).await;
    assert!(cluster.status("Pod").counts.bookmarks > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_that_is_gone_is_listed_anew_and_what_went_meanwhile_is_gone() {
    let api = started().await;
    api.watches_last(Some(Duration::from_millis(10)));
    let cluster = Cluster::known(api, quick()).await;
    cluster.api.is(Mood::Fails(500));
    until("failing", || async { cluster.all(|status| status.state == WatchState::Failing) }).await;
    assert_eq!(
        cluster.workload("web-a-2", "uid-web-a-2").as_deref(),
        Some("deployment/web"),
        "what is known stays"
    );
    // While it is away, one goes, one comes, and the versions between are forgotten.
    cluster.api.delete("/api/v1/pods", "shop", "web-a-2");
    cluster.api.put(pod("web-a-9", ("ReplicaSet", "web-a"), "n1"));
    cluster.api.compact();
    cluster.api.is(Mood::Well);
    until("the new list", || async {
        cluster.workload("web-a-2", "uid-web-a-2").is_none()
            && cluster.workload("web-a-9", "uid-web-a-9").is_some()
    })
    .await;
    let pods = cluster.status("Pod");
    assert!(pods.counts.expired >= 1 && pods.counts.lists >= 2, "{pods:?}");
    assert_eq!(cluster.placed(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storms_pass_and_each_is_told() {
    let api = started().await;
    // Each kind is refused about twice, in one way after the other.
    api.storm(15, 429, Some(0));
    api.storm(15, 500, None);
    api.storm(10, 410, None);
    let cluster = Cluster::known(api, quick()).await;
    assert_eq!(cluster.api.storm_left(), 0);
    let seen = (cluster.sum(|c| c.throttled), cluster.sum(|c| c.failures), cluster.sum(|c| c.expired));
    assert_eq!(seen, (15, 15, 10));
    assert_eq!(cluster.placed(), 5);
    assert!(cluster.all(|status| status.trouble.is_none()), "what is over is not told");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_after_is_obeyed() {
    let api = started().await;
    api.storm(1, 429, Some(1));
    let began = Instant::now();
    let cluster = Cluster::known(api, quick()).await;
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(cluster.sum(|counts| counts.throttled), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_that_may_not_be_seen_costs_the_others_nothing() {
    let api = started().await;
    api.forbid("limitranges", true);
    let cluster = Cluster::follow(api, quick()).await;
    until("pods", || async { cluster.status("Pod").state == WatchState::Watching }).await;
    until("refused", || async { cluster.status("LimitRange").state == WatchState::Forbidden }).await;
    let trouble = cluster.status("LimitRange").trouble.unwrap();
    let want = "status 403: limitranges is forbidden: User \"recommender\" cannot list resource \"limitranges\" in API group \"\" at \
                the cluster scope";
    assert_eq!(trouble, want);
    assert!(!cluster.status("LimitRange").is_known);
    cluster.api.forbid("limitranges", false);
    until("allowed", || async { cluster.status("LimitRange").is_known }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_understood_is_counted_and_stays_as_it_was() {
    let cluster = Cluster::known(started().await, quick()).await;
    let mut broken = pod("web-a-1", ("ReplicaSet", "web-a"), "n1");
    broken["spec"]["containers"] = json!("none");
    cluster.api.put(broken);
    until("counted", || async { cluster.status("Pod").counts.unreadable == 1 }).await;
    assert_eq!(cluster.workload("web-a-1", "uid-web-a-1").as_deref(), Some("deployment/web"));
    // A later list has it, too: it is still there.
    cluster.api.watches_last(Some(Duration::from_millis(1)));
    cluster.api.put(pod("web-a-6", ("ReplicaSet", "web-a"), "n1"));
    until("the watch goes on", || async { cluster.workload("web-a-6", "uid-web-a-6").is_some() }).await;
    assert!(cluster.status("Pod").trouble.is_none_or(|trouble| trouble.contains("Pod")));
}

/// A real kubelet's pods, from the list through everything that the watch of them told: the same pods are left as were there at the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_recorded_watch_is_followed_to_its_end() {
    let api = ApiServer::start().await;
    let list = body("pods", "list of a node's pods");
    for item in list["items"].as_array().unwrap() {
        api.put_at("/api/v1/pods", item.clone());
    }
    api.put_at("/api/v1/nodes", body("objects", "Node: the real one"));
    let cluster = Cluster::known(api, quick()).await;
    let all = exchanges("pods");
    let main = all.iter().find(|exchange| exchange["note"].as_str().unwrap().starts_with("MAIN")).unwrap();
    let (mut there, mut ended) = (list["items"].as_array().unwrap().len(), std::collections::BTreeMap::new());
    for event in main["response"]["stream"].as_array().unwrap().iter().map(|part| &part["event"]) {
        let object = event["object"].clone();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        match event["type"].as_str().unwrap() {
            "DELETED" => {
                cluster.api.delete("/api/v1/pods", "rec", &name);
                there -= 1;
                ended.remove(&name);
            }
            kind => {
                there += usize::from(kind == "ADDED");
                let phase = object["status"]["phase"].as_str().unwrap();
                ended.insert(name, matches!(phase, "Succeeded" | "Failed"));
                cluster.api.put_at("/api/v1/pods", object);
            }
        }
    }
    let changes = main["response"]["stream"].as_array().unwrap().len() as u64;
    until("all changes", || async { cluster.status("Pod").counts.changes == changes }).await;
    assert_eq!(cluster.status("Pod").counts.unreadable, 0);
    assert_eq!(cluster.status("Pod").objects, there);
    let counts = cluster.watching.view().live().report.counts;
    assert_eq!(counts.nodes, 1);
    assert_eq!((counts.ended, counts.placed), (ended.values().filter(|e| **e).count(), there - counts.ended));
    assert!(counts.ended >= 1);
}
