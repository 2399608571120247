//! Suite `unit`: resizes and evictions over TLS, and how the fixture API server refuses them: in the words of the recorded one (1.36).

use std::time::Duration;

use crate::apiserver::{ApiServer as Fixture, Fate};
use evenkeel_kubernetes::objects::ApiError;
use evenkeel_kubernetes::{ApiServer, ApiSource, PodAt, RESIZE};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/pods";

fn pod(name: &str, resources: &Value) -> Value {
    json!({
        "kind": "Pod", "apiVersion": "v1", "metadata": { "name": name, "namespace": "rec", "labels": { "app": name } },
        "spec": { "containers": [{ "name": "main", "resources": resources }] },
        "status": {
            "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }],
            "containerStatuses": [{ "name": "main", "allocatedResources": resources["requests"] }],
        },
    })
}

async fn client(fixture: &Fixture, dir: &std::path::Path) -> ApiServer {
    let kubeconfig = Some(fixture.kubeconfig(dir));
    ApiServer::at(&ApiSource { kubeconfig, context: None, patience: Duration::from_secs(30) }).await.unwrap()
}

/// Uid and version of a pod as it is.
fn now(fixture: &Fixture, name: &str) -> (String, String) {
    let metadata = fixture.object(PODS, "rec", name).unwrap()["metadata"].clone();
    let text = |field: &str| metadata[field].as_str().unwrap().to_owned();
    (text("uid"), text("resourceVersion"))
}

fn spec(resources: &Value) -> Value {
    json!({ "containers": [{ "name": "main", "resources": resources }] })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resizes_are_taken_and_refused_as_recorded() {
    let (dir, fixture) = (tempfile::tempdir().unwrap(), Fixture::start().await);
    let api = client(&fixture, dir.path()).await;
    let equal = json!({ "cpu": "50m", "memory": "24Mi" });
    fixture.put(pod("rz-g", &json!({ "requests": equal, "limits": equal })));
    fixture.put(pod("rz-be", &json!({})));
    fixture.put(pod("rz-b", &json!({ "requests": { "cpu": "100m" }, "limits": { "cpu": "300m" } })));
    for (name, resources, words) in [
        (
            "rz-g",
            json!({ "requests": { "cpu": "20m" } }),
            "spec: Invalid value: \"Guaranteed\": Pod QOS Class may not change as a result of resizing",
        ),
        (
            "rz-be",
            json!({ "requests": { "cpu": "20m" } }),
            "spec: Invalid value: \"BestEffort\": Pod QOS Class may not change as a result of resizing",
        ),
        (
            "rz-b",
            json!({ "limits": { "cpu": null } }),
            "resources.limits: Forbidden: resource limits cannot be removed",
        ),
        (
            "rz-b",
            json!({ "requests": { "ephemeral-storage": "1Gi" } }),
            "spec: Forbidden: only cpu and memory resources are mutable",
        ),
    ] {
        let (uid, version) = now(&fixture, name);
        let at = PodAt { namespace: "rec", name, uid: &uid, version: &version };
        match api.resize(at, &spec(&resources)).await {
            Err(ApiError::Wrong(told)) => assert!(told.contains(words) && told.contains("422"), "{told}"),
            other => panic!("{name}: {other:?}"),
        }
    }
    // Request and limit together.
    let (uid, version) = now(&fixture, "rz-g");
    let at = PodAt { namespace: "rec", name: "rz-g", uid: &uid, version: &version };
    let more = json!({ "requests": { "cpu": "300m" }, "limits": { "cpu": "300m" } });
    api.resize(at, &spec(&more)).await.unwrap();
    let resized = fixture.object(PODS, "rec", "rz-g").unwrap();
    let whole = json!({ "cpu": "300m", "memory": "24Mi" });
    assert_eq!(resized["spec"]["containers"][0]["resources"], json!({ "requests": whole, "limits": whole }));
    assert_eq!(resized["status"]["containerStatuses"][0]["allocatedResources"], whole);
    // The version is another one by now; and another pod has the name.
    assert!(
        matches!(api.resize(at, &spec(&more)).await, Err(ApiError::Conflict(told)) if told.contains("the object has been modified"))
    );
    let other = PodAt { uid: "00000000-0000-0000-0000-000000000000", ..at };
    assert!(
        matches!(api.resize(other, &spec(&more)).await, Err(ApiError::Wrong(told)) if told.contains("field is immutable"))
    );
    let gone = PodAt { name: "no-such-pod", ..at };
    assert!(
        matches!(api.resize(gone, &spec(&more)).await, Err(ApiError::Absent(told)) if told.contains("\"no-such-pod\" not found"))
    );
    // The node has no room, and then it has.
    fixture.fate("rec", "rz-b", Some(Fate::Deferred));
    let (uid, version) = now(&fixture, "rz-b");
    let at = PodAt { namespace: "rec", name: "rz-b", uid: &uid, version: &version };
    api.resize(at, &spec(&json!({ "requests": { "cpu": "200m" } }))).await.unwrap();
    let pending = || {
        let pod = fixture.object(PODS, "rec", "rz-b").unwrap();
        let all = pod["status"]["conditions"].as_array().unwrap().clone();
        all.into_iter().find(|of| of["type"] == "PodResizePending").map(|of| of["reason"].clone())
    };
    assert_eq!(pending(), Some(json!("Deferred")));
    fixture.fate("rec", "rz-b", None);
    assert_eq!(pending(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_note_is_written_beside_other_conditions_into_one_version() {
    let (dir, fixture) = (tempfile::tempdir().unwrap(), Fixture::start().await);
    let api = client(&fixture, dir.path()).await;
    fixture.put(pod("web", &json!({})));
    let (uid, version) = now(&fixture, "web");
    let at = PodAt { namespace: "rec", name: "web", uid: &uid, version: &version };
    let new = api.note_resize(at, "Asked", "{}", "2026-11-21T00:00:00Z").await.unwrap();
    assert_eq!(new, now(&fixture, "web").1);
    let conditions = fixture.object(PODS, "rec", "web").unwrap()["status"]["conditions"].clone();
    let kinds: Vec<&str> =
        conditions.as_array().unwrap().iter().filter_map(|of| of["type"].as_str()).collect();
    assert_eq!(kinds, ["Ready", RESIZE]);
    assert!(matches!(
        api.note_resize(at, "Done", "{}", "2026-11-21T00:00:01Z").await,
        Err(ApiError::Conflict(_))
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evictions_are_taken_and_refused_as_recorded() {
    let (dir, fixture) = (tempfile::tempdir().unwrap(), Fixture::start().await);
    let api = client(&fixture, dir.path()).await;
    for name in ["free", "one", "two", "twice"] {
        fixture.put(pod(name, &json!({})));
    }
    let budget = |name: &str, app: &str, allowed: u64| {
        fixture.put(json!({
            "kind": "PodDisruptionBudget", "apiVersion": "policy/v1", "metadata": { "name": name, "namespace": "rec" },
            "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": app } } },
            "status": { "disruptionsAllowed": allowed, "desiredHealthy": 1, "currentHealthy": 1 },
        }));
    };
    budget("one", "one", 0);
    budget("two", "two", 1);
    budget("twice-a", "twice", 1);
    budget("twice-b", "twice", 1);
    let evict =
        async |name: &str, uid: &str| api.evict(PodAt { namespace: "rec", name, uid, version: "" }).await;
    let uid = |name: &str| now(&fixture, name).0;
    evict("free", &uid("free")).await.unwrap();
    let pod = fixture.object(PODS, "rec", "free").unwrap();
    assert!(pod["metadata"]["deletionTimestamp"].is_string(), "{pod}");
    let kinds: Vec<Value> =
        pod["status"]["conditions"].as_array().unwrap().iter().map(|of| of["reason"].clone()).collect();
    assert!(kinds.contains(&json!("EvictionByEvictionAPI")), "{kinds:?}");
    evict("two", &uid("two")).await.unwrap();
    let words = "Cannot evict pod as it would violate the pod's disruption budget.";
    // Without Retry-After; the wrong uid is not looked at before.
    for uid in [uid("one"), "00000000-0000-0000-0000-000000000000".to_owned()] {
        assert!(matches!(evict("one", &uid).await, Err(ApiError::Later(told, None)) if told.contains(words)));
    }
    let several = "more than one PodDisruptionBudget";
    assert!(
        matches!(evict("twice", &uid("twice")).await, Err(ApiError::Later(told, None)) if told.contains(several))
    );
    budget("one", "one", 1);
    let other = evict("one", "00000000-0000-0000-0000-000000000000").await;
    assert!(
        matches!(other, Err(ApiError::Conflict(told)) if told.contains("does not match the UID in record"))
    );
    assert!(
        matches!(evict("absent", "u").await, Err(ApiError::Absent(told)) if told.contains("pods \"absent\" not found"))
    );
}
