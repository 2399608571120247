//! Suite `unit`: who leads by a Lease, against an API server over TLS that is cut off, refuses, and is slow.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::apiserver::{ApiServer, Mood};
use evenkeel_kubernetes::lease::{Election, LeaseCandidate, Times};
use evenkeel_kubernetes::{ApiServer as Client, ApiSource};
use serde_json::{Value, json};

const LEASES: &str = "/apis/coordination.k8s.io/v1/leases";
const NOTE: &str = "evenkeel.dev/note";
/// As those of the product, a fifteenth as long.
const TIMES: Times = Times {
    lasts: Duration::from_millis(1_000),
    renew_within: Duration::from_millis(660),
    retry: Duration::from_millis(130),
};

/// A cluster with a Lease that several contend for.
struct Cluster {
    /// The API server as all see it, and as one sees it that is cut off.
    api: ApiServer,
    dir: tempfile::TempDir,
}

impl Cluster {
    async fn start() -> Self {
        Self { api: ApiServer::start().await, dir: tempfile::tempdir().unwrap() }
    }

    /// A contender whose clock says `year`.
    async fn contender(&self, identity: &str, year: u32) -> Election {
        let source = ApiSource {
            kubeconfig: Some(self.api.kubeconfig(self.dir.path())),
            context: None,
            patience: Duration::from_millis(300),
        };
        let candidate = LeaseCandidate {
            namespace: "evenkeel".into(),
            name: "evenkeel-recommender".into(),
            identity: identity.into(),
            note: NOTE,
            times: TIMES,
        };
        let ticks = AtomicU64::new(0);
        // An update that changes nothing is none, so each time is another one.
        let clock = move || format!("{year}-01-01T00:00:00.{:06}Z", ticks.fetch_add(1, Ordering::Relaxed));
        Election::start(Client::at(&source).await.unwrap(), candidate, clock)
    }

    fn lease(&self) -> Value {
        self.api.object(LEASES, "evenkeel", "evenkeel-recommender").unwrap_or_default()
    }

    fn holder(&self) -> String {
        self.lease()["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }

    /// Whoever takes the Lease without being one of ours.
    fn stolen_by(&self, who: &str) {
        let mut lease = self.lease();
        lease["spec"]["holderIdentity"] = who.into();
        lease["spec"]["leaseTransitions"] = (lease["spec"]["leaseTransitions"].as_u64().unwrap() + 1).into();
        lease["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        self.api.put(lease);
    }
}

async fn until<F: Future<Output = bool>>(what: &str, reached: impl Fn() -> F) {
    let wait = async {
        while !reached().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait).await.unwrap_or_else(|_| panic!("{what}"));
}

async fn leads(one: &Election) {
    until("it leads", || async { one.leads() }).await;
}

/// Looks all the time that no two lead at once.
struct Watch {
    stop: Arc<AtomicBool>,
    both: Arc<Mutex<Vec<Instant>>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Watch {
    fn of(all: &[Arc<Election>]) -> Self {
        let (all, stop, both) = (all.to_vec(), Arc::new(AtomicBool::new(false)), Arc::default());
        let (stopped, seen): (Arc<AtomicBool>, Arc<Mutex<Vec<Instant>>>) =
            (Arc::clone(&stop), Arc::clone(&both));
        let look = move || {
            while !stopped.load(Ordering::Relaxed) {
                let looked = Instant::now();
                let leads = all.iter().filter(|one| one.leads()).count();
                // A look that was held up says nothing: each was asked at another time.
                if leads > 1 && looked.elapsed() < (TIMES.lasts - TIMES.renew_within) / 2 {
                    seen.lock().unwrap().push(looked);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        Self { stop, both, thread: Some(std::thread::spawn(look)) }
    }

    fn end(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
        assert_eq!(*self.both.lock().unwrap(), Vec::<Instant>::new(), "two lead at the same time");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_leads_and_the_other_takes_over_when_it_is_killed() {
    let cluster = Cluster::start().await;
    let first = Arc::new(cluster.contender("first", 2026).await);
    leads(&first).await;
    let second = Arc::new(cluster.contender("second", 2026).await);
    until("both know who leads", || async { second.standing().leader == "first" }).await;
    assert_eq!((second.leads(), second.standing().term, first.standing().term), (false, 1, 1));
    let changes = second.changes();
    // A kill: nothing is given back. Both handles are gone, so that its task ends as a process does.
    drop(first);
    leads(&second).await;
    assert_eq!(second.standing().term, 2);
    assert!(changes.has_changed().unwrap());
    // It starts again, as another run, and follows.
    let again = Arc::new(cluster.contender("first-again", 2026).await);
    let watch = Watch::of(&[Arc::clone(&again), Arc::clone(&second)]);
    until("it knows", || async { again.standing().leader == "second" }).await;
    assert!(!again.leads() && second.leads());
    watch.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_ends_gives_the_lease_back() {
    let cluster = Cluster::start().await;
    let (first, second) = (cluster.contender("first", 2026).await, cluster.contender("second", 2026).await);
    let (first, second) = (Arc::new(first), Arc::new(second));
    until("one leads", || async { first.leads() || second.leads() }).await;
    let (leader, other) = if first.leads() { (first, second) } else { (second, first) };
    until("the other knows", || async { !other.standing().leader.is_empty() }).await;
    let watch = Watch::of(&[Arc::clone(&leader), Arc::clone(&other)]);
    leader.step_down().await;
    assert!(!leader.leads());
    assert!(matches!(cluster.holder().as_str(), "" | "first" | "second"));
    leads(&other).await;
    assert_eq!(other.standing().term, 2);
    watch.end();
    // A second time there is nothing to give back, and the other one's is not taken.
    leader.step_down().await;
    assert!(other.leads() && cluster.holder() == other.standing().leader);
}

/// An old leader comes back, with the Lease as it knew it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_leader_that_was_cut_off_stops_by_itself_and_follows_when_it_is_back() {
    let cluster = Cluster::start().await;
    let first = Arc::new(cluster.contender("first", 2026).await);
    leads(&first).await;
    cluster.api.is(Mood::Silent);
    until("it stops by itself", || async { !first.leads() }).await;
    until("it says why", || async { first.standing().trouble.is_some() }).await;
    assert_eq!(cluster.holder(), "first", "nobody has taken it from it");
    cluster.stolen_by("other");
    cluster.api.is(Mood::Well);
    until("it follows", || async { first.standing().leader == "other" }).await;
    assert!(!first.leads());
    until("all is well", || async { first.standing().trouble.is_none() }).await;
    // The other one is never heard of again.
    leads(&first).await;
    assert_eq!(first.standing().term, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storms_of_conflicts_and_refusals_leave_one_leader_at_most() {
    let cluster = Cluster::start().await;
    let mut all = Vec::new();
    for name in ["a", "b", "c"] {
        all.push(Arc::new(cluster.contender(name, 2026).await));
    }
    let watch = Watch::of(&all);
    let one_leads = || async { all.iter().any(|one| one.leads()) };
    until("one leads", one_leads).await;
    for (status, after) in [(409, None), (429, Some(1)), (500, None), (503, None)] {
        cluster.api.write_storm(12, status, after);
        until("the storm is over", || async { cluster.api.write_storm_left() == 0 }).await;
        until("one leads again", one_leads).await;
    }
    // Somebody edits the object at every renewal.
    for round in 0..30 {
        let mut lease = cluster.lease();
        lease["metadata"]["labels"] = json!({ "round": round.to_string() });
        lease["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        cluster.api.put(lease);
        tokio::time::sleep(Duration::from_millis(15)).await;
    }
    until("one leads still", one_leads).await;
    assert!(!cluster.lease()["metadata"]["labels"]["round"].is_null(), "what others wrote stays");
    // Taken away in the middle of it: known terms are not given twice.
    let term = all.iter().map(|one| one.standing().term).max().unwrap();
    cluster.api.delete(LEASES, "evenkeel", "evenkeel-recommender");
    until("one leads after the Lease is gone", || async {
        all.iter().any(|one| one.leads() && one.standing().term > term)
    })
    .await;
    watch.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_that_differ_change_nothing() {
    let cluster = Cluster::start().await;
    let first = Arc::new(cluster.contender("behind", 1970).await);
    leads(&first).await;
    let second = Arc::new(cluster.contender("ahead", 2199).await);
    let watch = Watch::of(&[Arc::clone(&first), Arc::clone(&second)]);
    // Longer than the Lease lasts, by the object's own times a century and a half past its end.
    let mut seen = BTreeMap::new();
    let since = Instant::now();
    while since.elapsed() < TIMES.lasts * 3 {
        *seen.entry(cluster.holder()).or_insert(0) += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!second.leads() || !first.leads());
    watch.end();
    // On a machine that was held up the first may lose it; it never moves for the clocks' sake.
    assert!(!seen.contains_key(""), "{seen:?}");
    drop(first);
    leads(&second).await;
    assert!(cluster.lease()["spec"]["renewTime"].as_str().unwrap().starts_with("2199-"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_leader_leaves_is_read_by_the_others() {
    let cluster = Cluster::start().await;
    // As the chart makes it.
    cluster.api.put(json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "evenkeel-recommender", "namespace": "evenkeel", "annotations": { NOTE: "before" } },
    }));
    let first = Arc::new(cluster.contender("first", 2026).await);
    leads(&first).await;
    until("it reads what was there", || async { first.standing().note.as_deref() == Some("before") }).await;
    let second = cluster.contender("second", 2026).await;
    first.leave(Some("panic".into()));
    until("the other reads it", || async { second.standing().note.as_deref() == Some("panic") }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_is_told_what_to_allow() {
    let cluster = Cluster::start().await;
    cluster.api.forbid("leases", true);
    let one = cluster.contender("one", 2026).await;
    until("it says so", || async { one.standing().trouble.is_some() }).await;
    let trouble = one.standing().trouble.unwrap();
    assert!(
        trouble.contains("evenkeel/evenkeel-recommender") && trouble.contains("allow get and update"),
        "{trouble}"
    );
    assert!(!one.leads());
    cluster.api.forbid("leases", false);
    leads(&one).await;
}
