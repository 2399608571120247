//! Owns the recommendations that are written into objects of the followed Kubernetes cluster (`kubernetes.recommend`): whose pods an object
//! means (`find`), what is recommended to them (`answer`), which policies Evenkeel's own objects are (`policies`), and when a status is written
//! (`write`).
//!
//! Each pass over all workloads, and each change of an object, is followed by a round: what each object should say is made anew from what is
//! known, and what differs from what it says is written. Nothing is remembered that the objects themselves do not hold, but when each was written.
//! Not owned: following, the form of a status, and the requests (`evenkeel_kubernetes::objects`); the rules.

mod answer;
mod checkpoints;
mod find;
pub(crate) mod policies;
mod write;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use evenkeel_kubernetes::objects::{
    AUTOSCALERS, Asking, Autoscaler, Checkpoint, KINDS, NAME, OWN, Targets, status,
};
use evenkeel_kubernetes::{ApiKind, ConnectError, KindStatus, Pace, WatchState};
use jiff::Timestamp;
use tokio::sync::watch;
use tracing::{debug, warn};

use crate::api::Context;
use crate::config::KubernetesSection;
use crate::followed::{self, Followed};
use crate::serve::ended;
use checkpoints::Checkpoints;
use write::{StatusWriter, TargetStatus};

/// The least time from the end of a round to the next.
const LEAST: Duration = Duration::from_secs(1);
/// A round is made after this time even if nothing happened: what was refused is tried again then.
const MOST: Duration = Duration::from_secs(15);

/// Objects that ask for recommendations.
#[derive(Debug)]
pub(crate) struct RecommendedObjects {
    asking: Asking,
    targets: Targets,
    /// What the last round that wrote something, or failed to, was told, and of which object.
    refused: Mutex<Option<StatusRefusal>>,
    /// What the definition of Evenkeel's own objects does not keep.
    dropped: Mutex<Option<String>>,
    checkpoints: Checkpoints,
    asked: AtomicU64,
    waiting: AtomicU64,
    writes: AtomicU64,
    conflicts: AtomicU64,
    failures: AtomicU64,
    checkpoint_writes: AtomicU64,
}

/// Why a status was not written.
#[derive(Debug, Clone, PartialEq, Eq)]
struct StatusRefusal {
    uid: String,
    why: String,
}

/// What was done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct StatusCounts {
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
    /// Checkpoints written.
    pub(crate) checkpoint_writes: u64,
}

impl RecommendedObjects {
    /// Begins to follow them; nothing where none are to be written to.
    ///
    /// # Errors
    /// When it is not told where the API server is, or credentials cannot be used.
    pub(crate) async fn open(section: &KubernetesSection) -> Result<Option<Arc<Self>>, ConnectError> {
        if !section.recommend {
            return Ok(None);
        }
        let asking = Asking::start(&section.source(), Pace::default(), &KINDS).await?;
        let (asked, waiting, writes, conflicts, failures, checkpoint_writes) = Default::default();
        let (targets, checkpoints, refused, dropped) = Default::default();
        Ok(Some(Arc::new(Self {
            asking,
            targets,
            refused,
            dropped,
            checkpoints,
            asked,
            waiting,
            writes,
            conflicts,
            failures,
            checkpoint_writes,
        })))
    }

    /// How it stands with each kind.
    pub(crate) fn status(&self) -> Vec<KindStatus> {
        self.asking.status()
    }

    /// What was done so far.
    pub(crate) fn counts(&self) -> StatusCounts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        StatusCounts {
            asking: read(&self.asked),
            waiting: read(&self.waiting),
            writes: read(&self.writes),
            conflicts: read(&self.conflicts),
            failures: read(&self.failures),
            checkpoint_writes: read(&self.checkpoint_writes),
        }
    }

    /// What is wrong: kinds that are not followed, or what is not written.
    pub(crate) fn trouble(&self) -> Option<String> {
        let status = self.status();
        // That the Vertical Pod Autoscaler is not installed is no trouble.
        let lacks = status.iter().any(|status| *status.kind == *OWN && status.state == WatchState::Absent);
        let absent = lacks.then(|| {
            "the cluster has no evenkeel.dev/v1 VerticalPodAutoscaler; apply the definition (crd.yaml), which is asked for again twice a minute"
                .to_owned()
        });
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let told = followed::trouble(&status, true).into_iter().chain(refused.map(|refused| refused.why));
        let unread = self.checkpoints.trouble();
        let all: Vec<String> = absent.into_iter().chain(told).chain(dropped).chain(unread).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    fn refused(&self, why: Option<StatusRefusal>) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(StatusRefusal { why, .. }) = why.as_ref().filter(|why| refused.as_ref() != Some(why)) {
            warn!(why, "a recommendation was not written into its object");
        }
        *refused = why;
    }

    /// A status of Evenkeel's own objects was written: whether all of it is kept.
    fn dropped(&self, what: Option<String>) {
        let mut dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(what) = what.as_ref().filter(|what| dropped.as_ref() != Some(what)) {
            warn!(what, "the definition of evenkeel.dev objects is another one");
        }
        *dropped = what;
    }

    /// What was refused of an object that is gone is no trouble any more.
    fn forget_others(&self, there: &[&Autoscaler]) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.take_if(|refused| !there.iter().any(|object| object.metadata.uid == refused.uid));
    }

    /// Whether all objects of a kind are known.
    fn knows(&self, kind: &'static ApiKind) -> bool {
        self.status().iter().any(|status| *status.kind == *kind && status.is_known)
    }
}

/// Writes recommendations until the process ends.
pub(crate) async fn run(context: Context, stopped: watch::Receiver<bool>) {
    let (objects, followed) = match (context.readiness.objects(), context.readiness.followed()) {
        (Some(objects), Some(followed)) => (Arc::clone(objects), Arc::clone(followed)),
        _ => return,
    };
    let (mut passes, mut changes) = (context.stored.watch(), objects.asking.kept().changes());
    let mut writer = StatusWriter::default();
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
async fn round(
    objects: &RecommendedObjects,
    followed: &Followed,
    context: &Context,
    writer: &mut StatusWriter,
) {
    let kept = objects.asking.kept();
    let alive = |mut all: Vec<Arc<Autoscaler>>| {
        all.retain(|object| object.metadata.deletion_timestamp.is_none());
        all
    };
    let (all, own) = (alive(kept.of(AUTOSCALERS, NAME)), alive(kept.all(OWN)));
    objects.asked.store((all.len() + own.len()) as u64, Ordering::Relaxed);
    let there: Vec<&Autoscaler> = all.iter().chain(&own).map(|object| &**object).collect();
    writer.forget_others(&there);
    objects.forget_others(&there);
    // Before it is known which pods there are, every object would be told that there is nothing.
    let Some(view) = followed.grouped() else { return };
    let own = policies::read(own, view, &objects.targets, objects.asking.api(), context).await;
    // Before they were listed, those of the run before hold.
    if objects.knows(OWN) {
        let valid = own.iter().filter_map(|read| read.policy.as_ref().ok()).cloned();
        context.policies.replace_of_cluster(valid.collect());
    }
    // Nothing is told before the history was read back, either.
    let is_early = !context.readiness.answers() || context.stored.passed().0 == 0;
    // Another one writes.
    if !context.readiness.leading().leads()
        || is_early
        || writer.is_pausing()
        || all.is_empty() && own.is_empty()
    {
        return;
    }
    let api = objects.asking.api();
    objects.checkpoints.read(&all, api).await;
    let mut means = find::all(&all, view, &objects.targets, api).await;
    // One whose checkpoints are not known yet goes on to say what it says.
    means.retain_mut(|means| {
        let known = objects.checkpoints.of(&means.object);
        known.map(|known| means.known = known).is_some()
    });
    let due = objects.checkpoints.due(means.iter().map(|means| &means.object));
    let (cluster, asking) = (followed.cluster().to_owned(), context.clone());
    let answered = tokio::task::spawn_blocking(move || answer::all(&asking, &cluster, means, &due));
    let Ok(answered) = answered.await else { return };
    let at = i64::try_from(context.engine.now_usec() / 1_000_000)
        .ok()
        .and_then(|at| Timestamp::from_second(at).ok());
    let now = at.unwrap_or_default().to_string();
    let mut wanted = Vec::new();
    let mut exports = Vec::new();
    for answer::Answered { object, found, checkpoints } in answered {
        exports.push((Arc::clone(&object), checkpoints));
        let object = writer.present(object);
        let status = status(&object, &found, &now);
        wanted.push(TargetStatus { kind: AUTOSCALERS, object, status });
    }
    for read in &own {
        let object = writer.present(Arc::clone(&read.object));
        let status = policies::status(read, &object, context, &now);
        wanted.extend(status.map(|status| TargetStatus { kind: OWN, object, status }));
    }
    wanted.retain(|wanted| writer.differs(&wanted.object, &wanted.status));
    if !context.readiness.leading().leads() {
        return;
    }
    writer.write(objects, wanted).await;
    for (object, checkpoints) in exports.iter().filter(|(_, checkpoints)| !checkpoints.is_empty()) {
        if writer.is_pausing()
            || !context.readiness.leading().leads()
            || !export(objects, object, checkpoints).await
        {
            return;
        }
    }
}

/// Writes an object's checkpoints; whether others may be written now.
async fn export(objects: &RecommendedObjects, object: &Autoscaler, checkpoints: &[Checkpoint]) -> bool {
    match objects.checkpoints.write(object, checkpoints, objects.asking.api()).await {
        Ok(written) => {
            objects.checkpoint_writes.fetch_add(written as u64, Ordering::Relaxed);
            true
        }
        Err(error) => {
            debug!(%error, "checkpoints were not written, and are in the next round");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use evenkeel_kubernetes::objects::KINDS;
    use evenkeel_model::yaml::{self, YamlBounds};
    use serde_json::Value;

    /// The role that is shipped follows every kind, writes statuses, reads controllers, and allows nothing else.
    #[test]
    fn the_shipped_role_may_write_statuses_and_no_more() {
        let text = include_str!("../../../packaging/kubernetes/base/objects.yaml");
        let objects: Vec<Value> = yaml::documents(text, YamlBounds { documents: 20, nodes: 10_000 }).unwrap();
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
        let checkpoints = "autoscaling.k8s.io/verticalpodautoscalercheckpoints";
        wanted.extend(["list", "get", "create", "update"].map(|verb| format!("{verb} {checkpoints}")));
        assert_eq!(allowed, wanted);
    }
}
