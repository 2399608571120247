//! Suite `unit`: two recommenders that share a Lease are fed by one agent and answer alike; one acts, and when it is killed or ends the other
//! one does, without a second that is lost or a question that nobody answers.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use crate::common;
#[path = "pair/program.rs"]
mod program;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::apiserver::ApiServer;
use common::{Agent, At, http, until};
use evenkeel_proto::v1;
use evenkeel_proto::v1::recommender_service_client::RecommenderServiceClient;
use program::{LEASES, Program, Stream};
use serde_json::{Value, json};

const OWN: &str = "/apis/evenkeel.dev/v1/verticalpodautoscalers";

/// A Deployment of a pod on the agent's node.
fn deployment(api: &ApiServer, slot: usize) {
    let name = format!("w{slot}");
    let labels = json!({ "app": name });
    let selector = json!({ "selector": { "matchLabels": labels } });
    let owner = |kind: &str, name: &str| json!([{ "apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "o", "controller": true }]);
    let metadata = |name: &str, owner: Value| json!({ "name": name, "namespace": "shop", "labels": labels, "ownerReferences": owner });
    let set = format!("{name}-a");
    api.put(json!({ "kind": "Deployment", "apiVersion": "apps/v1", "metadata": metadata(&name, Value::Null), "spec": selector }));
    api.put(json!({ "kind": "ReplicaSet", "apiVersion": "apps/v1", "metadata": metadata(&set, owner("Deployment", &name)), "spec": selector }));
    api.put(json!({
        "kind": "Pod", "apiVersion": "v1", "metadata": metadata(&format!("{name}-x"), owner("ReplicaSet", &set)),
        "spec": { "nodeName": "node-1", "containers": [{ "name": "main" }] }, "status": { "phase": "Running" },
    }));
}

/// An object that asks for a recommendation.
fn asks(api: &ApiServer, name: &str) {
    api.put(json!({
        "kind": "VerticalPodAutoscaler", "apiVersion": "evenkeel.dev/v1",
        "metadata": { "name": name, "namespace": "shop", "generation": 1 },
        "spec": { "targetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": name } },
    }));
}

/// Waits for what is recommended in its status.
async fn answered(api: &ApiServer, name: &str) -> Value {
    until(|| async {
        let object = api.object(OWN, "shop", name)?;
        let found = &object["status"]["recommendation"]["containers"];
        found.as_array().filter(|all| !all.is_empty()).map(|_| found.clone())
    })
    .await
}

/// The two, and what the agent measured of them.
struct Pair {
    api: ApiServer,
    dir: tempfile::TempDir,
    both: [Program; 2],
    streams: [Stream; 2],
    agent: Agent,
    spool: Vec<v1::Frame>,
}

impl Pair {
    async fn start() -> Self {
        let (api, dir) = (ApiServer::start().await, tempfile::tempdir().unwrap());
        (0..2).for_each(|slot| deployment(&api, slot));
        let first = Program::start(&dir.path().join("0"), &api).await;
        first.leads(true).await;
        let second = Program::start(&dir.path().join("1"), &api).await;
        second.leads(false).await;
        let mut agent = Agent::new(1, &["web:1", "db:1"]);
        agent.use_at = Some(|slot, time| {
            let turn = time / 1_000_000 % 7;
            (100 + 50 * slot as u64 + turn, (64 + turn) << 20)
        });
        let streams = [Stream::new(), Stream::new()];
        Self { api, dir, both: [first, second], streams, agent, spool: Vec::new() }
    }

    /// Some seconds more, to whoever is there.
    async fn measure(&mut self, seconds: usize) {
        self.spool.extend(self.agent.measure(seconds));
        for (stream, program) in self.streams.iter_mut().zip(&self.both) {
            stream.go_on(&self.agent, &self.spool, program.at).await;
        }
    }

    /// Goes on measuring until something is so.
    async fn measure_until(&mut self, what: &str, is_so: impl AsyncFn(&Self) -> bool) {
        let waited = async {
            while !is_so(self).await {
                // Not far into what is to come.
                let seconds = usize::from(self.spool.len() < 1_500);
                self.measure(seconds).await;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(120), waited).await.unwrap_or_else(|_| panic!("{what}"));
    }

    /// Everything is with both.
    async fn settle(&mut self) {
        let settled = async {
            while !self.streams.iter().all(|stream| stream.has(&self.spool)) {
                for (stream, program) in self.streams.iter_mut().zip(&self.both) {
                    stream.go_on(&self.agent, &self.spool, program.at).await;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(120), settled).await.expect("everything arrives");
    }

    /// Nothing was lost on the way to either, nothing counted twice, and both say the same.
    async fn is_equal(&self) {
        let seconds = self.spool.len() as u64;
        for program in &self.both {
            until(|| async { program.metric("frames_total").await.filter(|frames| *frames == seconds) })
                .await;
            assert_eq!(program.metric("lost_frames_total").await, Some(0));
            assert_eq!(program.metric("samples_total").await, Some(2 * seconds));
        }
        let same = until(|| async {
            let (one, other) = (self.both[0].recommends().await, self.both[1].recommends().await);
            (one == other && one.len() == 4).then_some(one)
        })
        .await;
        assert!(same.iter().all(|one| one["request"].is_u64()), "{same:?}");
        let until = self.agent.time_usec / 1_000_000;
        for resource in ["cpu", "memory"] {
            let span = format!("fromSeconds={}&toSeconds={until}", until - seconds);
            let path = format!("/api/v1/usage/series?namespace=shop&resource={resource}&{span}");
            let one = http(self.both[0].at, "GET", &path, "").await;
            assert!(one.0 == 200 && one.1.contains("w1"), "{one:?}");
            assert_eq!(one, http(self.both[1].at, "GET", &path, "").await);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_killed_under_load_is_followed_by_one_that_knows_all_it_knew() {
    let mut pair = Pair::start().await;
    asks(&pair.api, "w0");
    pair.measure(120).await;
    answered(&pair.api, "w0").await;
    pair.settle().await;
    pair.is_equal().await;
    let (leads, follows) =
        (pair.streams[0].leading.clone().unwrap(), pair.streams[1].leading.clone().unwrap());
    assert_eq!((leads.leads, follows.leads, leads.term), (true, false, 1));

    // The follower takes no changes, and says who does; what reads is answered.
    let policy = json!({"apiVersion": "evenkeel.dev/v1", "kind": "Policy",
        "metadata": {"name": "p", "namespace": "shop"}, "spec": {"target": {"matchLabels": {"app": "w0"}}}});
    let [first, second] = &pair.both;
    let (status, text) = http(second.at, "POST", "/api/v1/policies", &policy.to_string()).await;
    assert_eq!(status, 409, "{text}");
    assert!(text.contains("stands by") && text.contains(&leads.leader), "{text}");
    let panic = v1::SetPanicRequest { on: true, reason: "drill".into(), revert: false };
    let set = |at: At| {
        let panic = panic.clone();
        async move { RecommenderServiceClient::connect(at.to_string()).await.unwrap().set_panic(panic).await }
    };
    let refused = set(second.at).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition, "{refused}");
    assert!(refused.message().contains(&leads.leader), "{refused}");
    let (_, told) = http(second.at, "GET", "/readyz?verbose", "").await;
    assert!(told.contains("[+]lease: ok"), "{told}");
    // The panic switch is set at the leader, and holds with both.
    set(first.at).await.unwrap();
    until(|| async { second.metric("panic").await.filter(|panic| *panic == 1) }).await;

    pair.both[0].kill();
    asks(&pair.api, "w1");
    pair.measure_until("the other one leads", async |pair| pair.both[1].metric("leads").await == Some(1))
        .await;
    answered(&pair.api, "w1").await;
    pair.measure_until("agents hear of it", async |pair| {
        pair.streams[1].leading.as_ref().is_some_and(|leading| leading.leads && leading.term == 2)
    })
    .await;
    assert_eq!(pair.both[1].metric("panic").await, Some(1), "it is not lifted by a failover");

    // The old leader comes back with what it has, and gets what it missed.
    pair.both[0].start_again().await;
    pair.both[0].leads(false).await;
    pair.settle().await;
    pair.is_equal().await;
    assert_eq!(pair.both[1].metric("leads").await, Some(1));
    assert!(!pair.streams[0].leading.as_ref().unwrap().leads);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_of_the_pair_leaves_no_question_unanswered_and_loses_nothing() {
    let mut pair = Pair::start().await;
    pair.measure(120).await;
    // Who reads asks one, and the other where that does not answer.
    let (stop, asked, unanswered) =
        (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let ats = [pair.both[0].at, pair.both[1].at];
    let reader = tokio::spawn({
        let (stop, asked, unanswered) = (Arc::clone(&stop), Arc::clone(&asked), Arc::clone(&unanswered));
        async move {
            while !stop.load(Ordering::Relaxed) {
                let mut is_answered = false;
                for at in ats {
                    is_answered = is_answered || is_ready(at).await;
                }
                asked.fetch_add(1, Ordering::Relaxed);
                unanswered.fetch_add(u64::from(!is_answered), Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    });
    for (at, other) in [(0, 1), (1, 0)] {
        pair.both[at].terminate();
        pair.measure_until("the other one leads", async |pair| {
            pair.both[other].metric("leads").await == Some(1)
        })
        .await;
        pair.both[at].ended().await;
        pair.both[at].start_again().await;
        pair.both[at].leads(false).await;
        pair.settle().await;
    }
    stop.store(true, Ordering::Relaxed);
    reader.await.unwrap();
    assert!(asked.load(Ordering::Relaxed) > 20);
    assert_eq!(unanswered.load(Ordering::Relaxed), 0, "of {}", asked.load(Ordering::Relaxed));
    pair.is_equal().await;
    let lease = pair.api.object(LEASES, "evenkeel", "evenkeel-recommender").unwrap();
    assert_eq!(lease["spec"]["leaseTransitions"], 3, "each took it once: {lease}");
    drop(pair.dir);
}

/// Whether a recommender answers what it recommends.
async fn is_ready(at: At) -> bool {
    let Ok(stream) = at.connect().await else { return false };
    let asked = common::http_on(stream, "GET", "/api/v1/recommendations", "", "");
    tokio::time::timeout(Duration::from_secs(10), asked).await.is_ok_and(|(status, _)| status == 200)
}
