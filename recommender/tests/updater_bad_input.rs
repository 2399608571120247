//! Suite `unit`: pods that cannot be brought to what is recommended, or that others change, too: nothing is done to them, over and over again, and
//! each state is told.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use crate::common;

use common::apiserver::{ApiServer, Fate};
use common::pods::{
    PODS, at_stage, cluster, cpu, passes, pod, policy, policy_of, refused, resizes, started, webhook,
};
use common::{Running, http};
use serde_json::{Value, json};

type Change = fn(&ApiServer);
/// What it is, what is different, how the policy updates, the CPU that it asks for, and why the pods are left alone.
type Row = (&'static str, Change, Value, &'static str, &'static str);

fn changed(api: &ApiServer, name: &str, change: impl Fn(&mut Value)) {
    let mut object = pod(name);
    change(&mut object);
    api.put(object);
}

/// All writes of pods.
fn writes(api: &ApiServer) -> usize {
    api.asked_for("/pods/").iter().filter(|asked| !asked.starts_with("GET")).count()
}

/// How many are left alone for a reason, by the metrics.
async fn counted(running: &Running, reason: &str) -> String {
    let (_, metrics) = http(running.http, "GET", "/metrics", "").await;
    let of = format!("evenkeel_recommender_updater_left_alone{{reason=\"{reason}\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&of)).unwrap_or_default().to_owned()
}

fn autoscaler(api: &ApiServer) {
    api.put(json!({
        "kind": "VerticalPodAutoscaler", "apiVersion": "autoscaling.k8s.io/v1", "metadata": { "name": "w0", "namespace": "shop" },
        "spec": { "targetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "w0" } },
    }));
}

fn rolling_out(api: &ApiServer) {
    changed(api, "w0-y", |pod| pod["metadata"]["ownerReferences"][0]["name"] = "w0-b".into());
    let mut set = api.object("/apis/apps/v1/replicasets", "shop", "w0-a").unwrap();
    set["metadata"] =
        json!({ "name": "w0-b", "namespace": "shop", "ownerReferences": set["metadata"]["ownerReferences"] });
    api.put(set);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_is_left_alone_for_as_long_as_it_cannot_and_told() {
    let always = || json!({ "evict": "always" });
    let table: [Row; 5] = [
        ("an updater beside this one", autoscaler, json!({}), "300m", "OtherUpdater"),
        ("more than any node has", |_| {}, always(), "64", "NoRoom"),
        ("a roll-out in the middle", rolling_out, always(), "300m", "Rollout"),
        (
            "pods that never become ready",
            |api| {
                for name in ["w0-x", "w0-y"] {
                    changed(api, name, |pod| pod["status"]["conditions"][0]["status"] = "False".into());
                }
            },
            always(),
            "300m",
            "NotReady",
        ),
        (
            "made tomorrow, by the clock of the API server",
            |api| {
                for name in ["w0-x", "w0-y"] {
                    changed(api, name, |pod| {
                        pod["metadata"]["creationTimestamp"] = "2100-01-01T00:00:00Z".into();
                    });
                }
            },
            json!({ "minAgeSeconds": 60, "evict": "always" }),
            "300m",
            "TooYoung",
        ),
    ];
    for (what, change, updates, cpu, reason) in table {
        let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
        cluster(&api, &["w0-x", "w0-y"]);
        webhook(&api);
        change(&api);
        let (running, ..) = started(dir.path(), &api, |_| {}).await;
        let bounds =
            json!({ "cpu": { "min": cpu, "max": cpu }, "memory": { "min": "100Mi", "max": "100Mi" } });
        policy_of(&running, updates, bounds).await;
        let told = refused(&running, reason).await;
        passes(&running, 5).await;
        assert_eq!((writes(&api), api.asked_for("/eviction").len()), (0, 0), "{what}: {told}");
        assert!(counted(&running, reason).await.parse::<u64>().unwrap_or(0) > 0, "{what}: {told}");
        running.stop().await;
    }
}

/// A quota forbids the raise, and the agent does not know what containers request: the recommendation is not lowered to what the quota has left,
/// and the raise has no room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_that_forbids_the_raise_is_kept() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    cluster(&api, &["w0-x", "w0-y"]);
    let quota = |hard: &str| {
        json!({
            "kind": "ResourceQuota", "apiVersion": "v1", "metadata": { "name": "q", "namespace": "shop" },
            "spec": { "hard": { "requests.cpu": hard } },
            "status": { "hard": { "requests.cpu": hard }, "used": { "requests.cpu": "200m" } },
        })
    };
    api.put(quota("250m"));
    // Nothing is changed before it is known what quotas there are.
    api.refuses("/resourcequotas", 500);
    let (running, ..) = started(dir.path(), &api, |_| {}).await;
    policy(&running, json!({})).await;
    let told = refused(&running, "NoRoom").await;
    assert!(told["why"].as_str().unwrap().contains("quota q has 50 of requests.cpu left"), "{told}");
    passes(&running, 10).await;
    assert_eq!((cpu(&api, "w0-x"), cpu(&api, "w0-y")), (json!("100m"), json!("100m")));
    api.put(quota("2"));
    at_stage(&api, "w0-x", "Done").await;
    at_stage(&api, "w0-y", "Done").await;
    running.stop().await;
}

/// Two that share no Lease see the same pods: of two notes one is written, and who is second finds the pod another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_updaters_without_a_lease_do_nothing_twice() {
    let (one, other, api) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), ApiServer::start().await);
    let names = ["w0-x", "w0-y", "w0-z", "w0-v"];
    cluster(&api, &names);
    let (first, ..) = started(one.path(), &api, |_| {}).await;
    let (second, ..) = started(other.path(), &api, |_| {}).await;
    for running in [&first, &second] {
        policy(running, json!({ "maxUnavailable": 4 })).await;
    }
    for name in names {
        at_stage(&api, name, "Done").await;
    }
    for running in [&first, &second] {
        passes(running, 5).await;
    }
    let before = writes(&api);
    for running in [&first, &second] {
        passes(running, 5).await;
    }
    assert_eq!(writes(&api), before, "both are at rest");
    for name in names {
        let pod = api.object(PODS, "shop", name).unwrap();
        assert_eq!((&pod["metadata"]["generation"], cpu(&api, name)), (&json!(2), json!("300m")), "{name}");
    }
    first.stop().await;
    second.stop().await;
}

/// Who led before had a clock that is a day ahead: what it noted is gone on with, and nothing is begun again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_note_from_tomorrow_is_brought_to_its_end() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    cluster(&api, &["w0-x"]);
    api.fate("shop", "w0-x", Some(Fate::Silent));
    let sizes = |cpu: &str| json!({ "main": { "cpu": cpu, "memory": "100Mi/200Mi" } });
    let note = json!({
        "stage": "Asked", "at": 4_102_444_800_u64, "original": sizes("100m/-"), "before": sizes("100m/-"), "target": sizes("300m/-"),
    });
    changed(&api, "w0-x", |pod| {
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "300m".into();
        let noted = json!({ "type": "evenkeel.dev/Resize", "status": "True", "reason": "Asked", "message": note.to_string() });
        pod["status"]["conditions"].as_array_mut().unwrap().push(noted);
    });
    let (running, ..) = started(dir.path(), &api, |_| {}).await;
    policy(&running, json!({})).await;
    refused(&running, "UnderWay").await;
    passes(&running, 5).await;
    assert_eq!((writes(&api), resizes(&api)), (0, 0));
    api.fate("shop", "w0-x", None);
    at_stage(&api, "w0-x", "Done").await;
    passes(&running, 3).await;
    assert_eq!((resizes(&api), cpu(&api, "w0-x")), (0, json!("300m")));
    running.stop().await;
}
