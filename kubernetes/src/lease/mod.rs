//! Who of several leads, by a Lease (`coordination.k8s.io/v1`): taken when nobody holds it, renewed while it is held, given back at the end.
//!
//! Owned here: the requests, and whether this process leads. What follows from a record is `record`'s. Whoever leads stops by itself when it
//! could not renew the Lease for a while, which is sooner than others may take it; a process that was stopped and goes on sees by its own
//! clock that its time is over before it does anything. The number of times that the Lease changed hands is a term: what an old leader
//! said has a lower one.

mod record;

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::connect::ApiServer;
use crate::kinds::ApiKind;
use crate::objects::{ApiError, collection, place};
pub use record::Times;
use record::{LeaseRecord, Observed, held};

/// The kind.
static LEASES: &ApiKind =
    &ApiKind { name: "Lease", path: "/apis/coordination.k8s.io/v1/leases", metadata_only: false };
/// How long giving the Lease back may take.
const GIVING_BACK: Duration = Duration::from_secs(3);

/// Which Lease, and for whom.
#[derive(Debug, Clone)]
pub struct LeaseCandidate {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Who would hold it: another one for each run of a process, so that one that starts again is not taken for the run before.
    pub identity: String,
    /// Annotation with what a leader leaves to others.
    pub note: &'static str,
    /// How long it lasts.
    pub times: Times,
}

/// How it stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leadership {
    /// This process leads.
    pub leads: bool,
    /// Who holds the Lease; empty where nobody does, or nothing is known.
    pub leader: String,
    /// How often it has changed hands.
    pub term: u64,
    /// What the leader left beside it.
    pub note: Option<String>,
    /// Why the Lease is not had, or not known.
    pub trouble: Option<String>,
}

impl ApiServer {
    /// When a Lease of another program was renewed last, as it is written there (RFC 3339); nothing where it never was.
    ///
    /// # Errors
    /// [`ApiError`]: also where there is none.
    pub async fn lease_renewed(&self, namespace: &str, name: &str) -> Result<Option<String>, ApiError> {
        let lease = self.read(&place(LEASES, namespace, name)).await?;
        Ok(lease["spec"]["renewTime"].as_str().map(str::to_owned))
    }
}

/// A process that leads when nobody else does.
pub struct Election {
    shared: Arc<ElectionState>,
    stop: watch::Sender<bool>,
    work: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election").field("standing", &*self.shared.standing.borrow()).finish_non_exhaustive()
    }
}

struct ElectionState {
    standing: watch::Sender<Leadership>,
    /// Until when this process leads without another renewal.
    until: Mutex<Option<Instant>>,
    note: Mutex<Option<String>>,
}

impl ElectionState {
    fn until(&self) -> MutexGuard<'_, Option<Instant>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the last renewal still holds.
    fn is_in_time(&self) -> bool {
        self.until().is_some_and(|until| Instant::now() < until)
    }

    fn note(&self) -> MutexGuard<'_, Option<String>> {
        self.note.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Election {
    /// Begins to look. `clock` gives the time that is written, RFC 3339 with six digits of a second, as the API takes no other; never the same
    /// twice, since an update that changes nothing is none.
    #[must_use]
    pub fn start(
        api: ApiServer,
        candidate: LeaseCandidate,
        clock: impl Fn() -> String + Send + Sync + 'static,
    ) -> Self {
        let (standing, note) = (watch::Sender::new(Leadership::default()), Mutex::new(None));
        let shared = Arc::new(ElectionState { standing, until: Mutex::new(None), note });
        let stop = watch::Sender::new(false);
        let contender = Contender {
            api,
            candidate,
            clock: Box::new(clock),
            shared: Arc::clone(&shared),
            observed: Observed::default(),
            object: None,
            random: RandomState::new(),
        };
        let work = tokio::spawn(contender.run(stop.subscribe()));
        Self { shared, stop, work: Mutex::new(Some(work)) }
    }

    /// Whether this process leads now: not before its term is told, too, since what it does is taken by that term.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.shared.standing.borrow().leads && self.shared.is_in_time()
    }

    /// How it stands.
    #[must_use]
    pub fn standing(&self) -> Leadership {
        let standing = self.shared.standing.borrow().clone();
        Leadership { leads: standing.leads && self.shared.is_in_time(), ..standing }
    }

    /// Changes when it stands otherwise.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<Leadership> {
        self.shared.standing.subscribe()
    }

    /// What is left to others from the next renewal on, while this process leads; without, what is there is left alone.
    pub fn leave(&self, note: Option<String>) {
        *self.shared.note() = note;
    }

    /// Leads no more, and gives the Lease back, so that another one takes it at its next look.
    pub async fn step_down(&self) {
        *self.shared.until() = None;
        self.stop.send_replace(true);
        let work = self.work.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(work) = work {
            // It runs out by itself where it cannot be given back.
            let _given_up = tokio::time::timeout(GIVING_BACK, work).await;
        }
    }
}

impl Drop for Election {
    /// As if the process had ended.
    fn drop(&mut self) {
        if let Some(work) = self.work.lock().unwrap_or_else(PoisonError::into_inner).take() {
            work.abort();
        }
    }
}

/// The task behind it.
struct Contender {
    api: ApiServer,
    candidate: LeaseCandidate,
    clock: Box<dyn Fn() -> String + Send + Sync>,
    shared: Arc<ElectionState>,
    observed: Observed,
    /// The object as it was read or written last.
    object: Option<Value>,
    random: RandomState,
}

impl Contender {
    async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut round = 0_u64;
        loop {
            let trouble = tokio::select! {
                looked = self.look() => looked.err(),
                _ = stop.wait_for(|stop| *stop) => break,
            };
            self.tell(trouble.map(|refused| self.remedied(&refused)));
            round += 1;
            // Not both at the same time, again and again.
            let part = self.random.hash_one(round) % 1_000;
            let wait = self.candidate.times.retry.mul_f64(1.0 + part as f64 / 5_000.0);
            let over = self.shared.until().map(|until| until.saturating_duration_since(Instant::now()));
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = tokio::time::sleep(over.unwrap_or(Duration::MAX)), if over.is_some() => {
                    *self.shared.until() = None;
                    let trouble = self.shared.standing.borrow().trouble.clone();
                    self.tell(trouble);
                }
                _ = stop.wait_for(|stop| *stop) => break,
            }
        }
        self.give_back().await;
    }

    /// Renews the Lease, or takes it where it is free.
    async fn look(&mut self) -> Result<(), ApiError> {
        if self.is_mine()
            && let Some(object) = self.object.clone()
        {
            match self.hold(object).await {
                // Somebody else changed it: what it says is to be read.
                Err(ApiError::Conflict(_) | ApiError::Absent(_)) => {}
                other => return other,
            }
        }
        let began = Instant::now();
        match self.api.read(&self.place()).await {
            Ok(object) => self.observe(object, began),
            // Somebody deleted it: its holder does not know that yet.
            Err(ApiError::Absent(_))
                if !self.is_mine() && !self.observed.is_free(&self.candidate.times, began) =>
            {
                return Ok(());
            }
            Err(ApiError::Absent(_)) => return self.make().await,
            Err(refused) => return Err(refused),
        }
        if self.is_mine() || self.observed.is_free(&self.candidate.times, began) {
            let object = self.object.clone().unwrap_or_default();
            return match self.hold(object).await {
                Err(ApiError::Conflict(_)) => Ok(()),
                other => other,
            };
        }
        Ok(())
    }

    /// Writes the Lease as held by this process, in the version that was read.
    async fn hold(&mut self, object: Value) -> Result<(), ApiError> {
        let transitions = self.observed.record.transitions + u64::from(!self.is_mine());
        let began = Instant::now();
        let wanted = self.wanted(object, transitions);
        let written = self.send(Method::PUT, &self.place(), &wanted).await?;
        self.observe(written, began);
        self.lead(began);
        Ok(())
    }

    /// Makes the Lease where there is none.
    async fn make(&mut self) -> Result<(), ApiError> {
        let LeaseCandidate { namespace, name, .. } = &self.candidate;
        let object = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "namespace": namespace, "name": name },
        });
        let began = Instant::now();
        // Above every term that is known of one that was deleted.
        let wanted = self.wanted(object, self.observed.record.transitions + 1);
        match self.send(Method::POST, &collection(LEASES, namespace), &wanted).await {
            Ok(made) => {
                self.observe(made, began);
                self.lead(began);
                Ok(())
            }
            Err(ApiError::Conflict(_)) => Ok(()),
            Err(refused) => Err(refused),
        }
    }

    fn wanted(&self, object: Value, transitions: u64) -> Value {
        let LeaseCandidate { identity, note, times, .. } = &self.candidate;
        let text = self.shared.note().clone();
        held(object, identity, times, transitions, note, text.as_deref(), &(self.clock)())
    }

    async fn send(&self, method: Method, path: &str, object: &Value) -> Result<Value, ApiError> {
        self.api.send(method, path, "application/json", Some(object)).await
    }

    fn place(&self) -> String {
        place(LEASES, &self.candidate.namespace, &self.candidate.name)
    }

    fn is_mine(&self) -> bool {
        self.observed.record.holder == self.candidate.identity
    }

    fn observe(&mut self, object: Value, at: Instant) {
        self.observed.take(LeaseRecord::of(&object, self.candidate.note), at);
        self.object = Some(object);
        if !self.is_mine() {
            *self.shared.until() = None;
            // Whoever leads says other things by now.
            *self.shared.note() = None;
        }
    }

    /// The time counts from before the request: the API server may have written it at once.
    fn lead(&self, began: Instant) {
        *self.shared.until() = Some(began + self.candidate.times.renew_within);
    }

    fn tell(&self, trouble: Option<String>) {
        let LeaseRecord { holder, transitions, note, .. } = &self.observed.record;
        let new = Leadership {
            leads: self.shared.is_in_time(),
            leader: holder.clone(),
            term: *transitions,
            note: self.object.is_some().then(|| note.clone()),
            trouble,
        };
        self.shared.standing.send_if_modified(|known| {
            let differs = *known != new;
            *known = new;
            differs
        });
    }

    fn remedied(&self, refused: &ApiError) -> String {
        let LeaseCandidate { namespace, name, .. } = &self.candidate;
        let remedy = match refused {
            ApiError::Forbidden(_) => "; allow get and update on it, and create where it is not there",
            _ => "",
        };
        format!("Lease {namespace}/{name}: {refused}{remedy}")
    }

    async fn give_back(mut self) {
        *self.shared.until() = None;
        // A request may have been cut off whose answer nobody read.
        let known = match self.api.read(&self.place()).await {
            Ok(object) => object,
            Err(_) => return self.tell(None),
        };
        self.observe(known, Instant::now());
        if self.is_mine()
            && let Some(object) = self.object.take()
        {
            let LeaseCandidate { note, times, .. } = &self.candidate;
            let text = self.shared.note().clone();
            let transitions = self.observed.record.transitions;
            let back = held(object, "", times, transitions, note, text.as_deref(), &(self.clock)());
            if let Ok(written) = self.send(Method::PUT, &self.place(), &back).await {
                self.observe(written, Instant::now());
            }
        }
        self.tell(None);
    }
}
