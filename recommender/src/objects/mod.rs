//! Owns the recommendations that are written into objects of the followed Kubernetes cluster (`kubernetes.recommend`): whose pods an object
//! means (`find`), what is recommended to them (`answer`), and when its status is written (`write`).
//!
//! Each pass over all workloads, and each change of an object, is followed by a round: what each object should say is made anew from what is
//! known, and what differs from what it says is written. Nothing is remembered that the objects themselves do not hold, but when each was written.
//! Not owned: following, the form of a status, and the requests (`evenkeel_kubernetes::objects`); the rules.

mod answer;
mod find;
mod write;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use evenkeel_kubernetes::objects::{AUTOSCALERS, Asking, Autoscaler, Found, NAME, Targets, status};
use evenkeel_kubernetes::{ConnectError, KindStatus, Pace, State};
use jiff::Timestamp;
use tokio::sync::watch;
use tracing::warn;

use crate::api::Context;
use crate::config::KubernetesSection;
use crate::followed::{self, Followed};
use crate::serve::ended;
use write::{Wanted, Writer};

/// The least time from the end of a round to the next.
const LEAST: Duration = Duration::from_secs(1);
/// A round is made after this time even if nothing happened: what was refused is tried again then.
const MOST: Duration = Duration::from_secs(15);

/// Objects that ask for recommendations.
#[derive(Debug)]
pub(crate) struct Objects {
    asking: Asking,
    targets: Targets,
    /// What the last round that wrote something, or failed to, was told.
    refused: Mutex<Option<String>>,
    asked: AtomicU64,
    waiting: AtomicU64,
    writes: AtomicU64,
    conflicts: AtomicU64,
    failures: AtomicU64,
}

/// What was done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Objects that ask for a recommendation.
    pub(crate) asking: u64,
    /// Those whose status is to be written.
    pub(crate) waiting: u64,
    /// Statuses written.
    pub(crate) writes: u64,
    /// Those of objects that had changed.
    pub(crate) conflicts: u64,
    /// Those refused otherwise.
    pub(crate) failures: u64,
}

impl Objects {
    /// Begins to follow them; nothing where none are to be written to.
    ///
    /// # Errors
    /// When it is not told where the API server is, or credentials cannot be used.
    pub(crate) async fn open(section: &KubernetesSection) -> Result<Option<Arc<Self>>, ConnectError> {
        if !section.recommend {
            return Ok(None);
        }
        let asking = Asking::start(&section.source(), Pace::default()).await?;
        let (asked, waiting, writes, conflicts, failures) = Default::default();
        let (targets, refused) = (Targets::default(), Mutex::new(None));
        Ok(Some(Arc::new(Self { asking, targets, refused, asked, waiting, writes, conflicts, failures })))
    }

    /// How it stands with each kind.
    pub(crate) fn status(&self) -> Vec<KindStatus> {
        self.asking.status()
    }

    /// What was done so far.
    pub(crate) fn counts(&self) -> Counts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts {
            asking: read(&self.asked),
            waiting: read(&self.waiting),
            writes: read(&self.writes),
            conflicts: read(&self.conflicts),
            failures: read(&self.failures),
        }
    }

    /// What is wrong: kinds that are not followed, or what is not written.
    pub(crate) fn trouble(&self) -> Option<String> {
        let status = self.status();
        let nothing = "the cluster has none of the kinds that recommendations are written into; apply their definitions";
        let absent = status.iter().all(|status| status.state == State::Absent).then(|| nothing.to_owned());
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let all: Vec<String> =
            absent.into_iter().chain(followed::trouble(&status, true)).chain(refused).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    fn refused(&self, why: Option<String>) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(why) = why.as_ref().filter(|why| refused.as_ref() != Some(why)) {
            warn!(why, "a recommendation was not written into its object");
        }
        *refused = why;
    }
}

/// Writes recommendations until the process ends.
pub(crate) async fn run(context: Context, stopped: watch::Receiver<bool>) {
    let (objects, followed) = match (context.readiness.objects(), context.readiness.followed()) {
        (Some(objects), Some(followed)) => (Arc::clone(objects), Arc::clone(followed)),
        _ => return,
    };
    let (mut passes, mut changes) = (context.stored.watch(), objects.asking.kept().changes());
    let mut writer = Writer::default();
    let rounds = async {
        loop {
            // An error means that what tells is gone, which is the end too.
            tokio::select! {
                passed = passes.changed() => if passed.is_err() { return },
                changed = changes.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(MOST) => {}
            }
            round(&objects, &followed, &context, &mut writer).await;
            tokio::time::sleep(LEAST).await;
        }
    };
    tokio::select! { () = rounds => {}, () = ended(stopped) => {} }
}

/// Says what each object should say, and writes what differs.
async fn round(objects: &Objects, followed: &Followed, context: &Context, writer: &mut Writer) {
    let all = objects.asking.kept().of(AUTOSCALERS, NAME);
    let all: Vec<Arc<Autoscaler>> =
        all.into_iter().filter(|o| o.metadata.deletion_timestamp.is_none()).collect();
    objects.asked.store(all.len() as u64, Ordering::Relaxed);
    writer.forget_others(&all);
    // Before the history was read back, and before it is known which pods there are, every object would be told that there is nothing.
    let Some(view) = followed.grouped().filter(|_| !all.is_empty() && context.readiness.answers()) else {
        return;
    };
    if context.stored.passed().0 == 0 || writer.is_pausing() {
        return;
    }
    let means = find::all(&all, view, &objects.targets, objects.asking.api()).await;
    let (cluster, asking) = (followed.cluster().to_owned(), context.clone());
    let answered = tokio::task::spawn_blocking(move || answer::all(&asking, &cluster, means));
    let Ok(answered) = answered.await else { return };
    let at = i64::try_from(context.engine.now_usec() / 1_000_000)
        .ok()
        .and_then(|at| Timestamp::from_second(at).ok());
    let now = at.unwrap_or_default().to_string();
    let wanted =
        answered.into_iter().filter_map(|(object, found)| wanted(writer, object, &found, &now)).collect();
    writer.write(objects, wanted).await;
}

/// What an object should say, where it says something else.
fn wanted(writer: &Writer, object: Arc<Autoscaler>, found: &Found, now: &str) -> Option<Wanted> {
    let object = writer.present(object);
    let status = status(&object, found, now);
    writer.differs(&object, &status).then_some(Wanted { object, status })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use evenkeel_kubernetes::objects::KINDS;
    use evenkeel_model::yaml::{self, Bounds};
    use serde_json::Value;

    /// The role that is shipped follows every kind, writes statuses, reads controllers, and allows nothing else.
    #[test]
    fn the_shipped_role_may_write_statuses_and_no_more() {
        let text = include_str!("../../../packaging/kubernetes/base/objects.yaml");
        let objects: Vec<Value> = yaml::documents(text, Bounds { documents: 20, nodes: 10_000 }).unwrap();
        let role = objects.iter().find(|object| object["kind"] == "ClusterRole").unwrap();
        let texts = |value: &Value| -> Vec<String> {
            value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
        };
        let mut allowed = BTreeSet::new();
        for rule in role["rules"].as_array().unwrap() {
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    let verbs = texts(&rule["verbs"]);
                    allowed.extend(verbs.iter().map(|verb| format!("{verb} {group}/{resource}")));
                }
            }
        }
        let mut wanted: BTreeSet<String> = ["*/*/scale", "apps/daemonsets", "batch/jobs", "batch/cronjobs"]
            .map(|what| format!("get {what}"))
            .into();
        for kind in &KINDS {
            let parts: Vec<&str> = kind.path.split('/').collect();
            let resource = format!("{}/{}", parts[2], parts[4]);
            wanted.extend(["list", "watch"].map(|verb| format!("{verb} {resource}")));
            wanted.insert(format!("patch {resource}/status"));
        }
        assert_eq!(allowed, wanted);
    }
}
