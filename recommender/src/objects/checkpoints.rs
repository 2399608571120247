//! Owns the checkpoints of the Vertical Pod Autoscaler's recommender beside objects that ask for recommendations: read when an object is seen
//! for the first time, so that who changes to Evenkeel goes on from what is known; written from the own history once an hour, so that who
//! changes back does, too. The own store is the truth: a checkpoint speaks where it knows less than two days.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use evenkeel_kubernetes::ApiServer;
use evenkeel_kubernetes::objects::{ApiError, Autoscaler, Checkpoint, CheckpointHistogram, CheckpointStatus};
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::vpa::{Estimator, Saved, SavedHistogram};
use jiff::Timestamp;
use tracing::debug;

use crate::recommend::advice::index;

/// How often one is written.
const EVERY: Duration = Duration::from_secs(3600);
/// Objects whose checkpoints are written in a round: the past of each is read whole for it.
const IN_A_ROUND: usize = 5;
/// Namespaces that are listed in a round.
const LISTED: usize = 20;
/// How long a namespace is left alone whose checkpoints may not be read or written, or that has none.
const REFUSED: Duration = Duration::from_secs(600);

/// What is known of both resources of a container: CPU, then memory.
pub(super) type Known = [Saved; 2];

/// By container.
pub(super) type OfObject = Arc<BTreeMap<String, Known>>;

/// What is remembered of an object.
#[derive(Debug)]
struct ObjectCheckpoints {
    known: OfObject,
    /// They could be read.
    is_read: bool,
    written: Option<Instant>,
}

/// Checkpoints of the objects that are there, by uid.
#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    of: Mutex<HashMap<String, ObjectCheckpoints>>,
    /// When namespaces may be asked about again.
    not_before: Mutex<HashMap<String, Instant>>,
    /// Why some could not be read.
    unread: Mutex<Option<String>>,
}

impl Checkpoints {
    fn entries(&self) -> std::sync::MutexGuard<'_, HashMap<String, ObjectCheckpoints>> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pauses(&self) -> std::sync::MutexGuard<'_, HashMap<String, Instant>> {
        self.not_before.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why some are not read.
    pub(super) fn trouble(&self) -> Option<String> {
        let is_read = self.entries().values().all(|entry| entry.is_read);
        self.unread.lock().unwrap_or_else(PoisonError::into_inner).clone().filter(|_| !is_read)
    }

    /// Reads those of objects that are new, and again those that could not be read.
    pub(super) async fn read(&self, all: &[Arc<Autoscaler>], api: &ApiServer) {
        let now = Instant::now();
        {
            let there: BTreeSet<&str> = all.iter().map(|object| object.metadata.uid.as_str()).collect();
            self.entries().retain(|uid, _| there.contains(uid.as_str()));
            self.pauses().retain(|_, until| *until > now);
        }
        let new = |object: &&Arc<Autoscaler>| {
            self.entries().get(&object.metadata.uid).is_none_or(|entry| !entry.is_read)
        };
        let namespaces: BTreeSet<&str> =
            all.iter().filter(new).map(|object| object.metadata.namespace.as_str()).collect();
        let open: Vec<&str> =
            namespaces.into_iter().filter(|one| !self.pauses().contains_key(*one)).take(LISTED).collect();
        for namespace in open {
            let (found, is_read) = match api.checkpoints(namespace).await {
                Ok(found) => (found, true),
                // Nobody has ever written one.
                Err(ApiError::Absent(_)) => (Vec::new(), true),
                Err(ApiError::Forbidden(why)) => {
                    let why = format!("checkpoints of {namespace} are not read: {why}");
                    *self.unread.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
                    self.pauses().insert(namespace.to_owned(), now + REFUSED);
                    (Vec::new(), false)
                }
                Err(error) => {
                    debug!(%error, namespace, "checkpoints were not read, and are asked for again");
                    break;
                }
            };
            for object in all.iter().filter(|object| object.metadata.namespace == namespace).filter(new) {
                let own = found.iter().filter(|one| one.autoscaler == object.metadata.name);
                let known = own.map(|one| (one.container.clone(), known(&one.status))).collect();
                let entry = ObjectCheckpoints { known: Arc::new(known), is_read, written: None };
                self.entries().insert(object.metadata.uid.clone(), entry);
            }
        }
        // Where they may not be read, nothing is known of objects that were made since; they are told what the own store knows.
        for object in all.iter().filter(|object| self.pauses().contains_key(&object.metadata.namespace)) {
            let unread = || ObjectCheckpoints { known: Arc::default(), is_read: false, written: None };
            self.entries().entry(object.metadata.uid.clone()).or_insert_with(unread);
        }
    }

    /// What is known of an object; nothing before its checkpoints were read.
    pub(super) fn of(&self, object: &Autoscaler) -> Option<OfObject> {
        self.entries().get(&object.metadata.uid).map(|entry| Arc::clone(&entry.known))
    }

    /// Objects whose checkpoints are to be written now, longest unwritten first.
    pub(super) fn due<'a>(&self, all: impl Iterator<Item = &'a Arc<Autoscaler>>) -> BTreeSet<String> {
        let (entries, pauses) = (self.entries(), self.pauses());
        let written = |object: &Arc<Autoscaler>| entries.get(&object.metadata.uid).map(|entry| entry.written);
        let is_old = |at: Option<Instant>| at.is_none_or(|at| at.elapsed() >= EVERY);
        let mut due: Vec<(Option<Instant>, String)> = all
            .filter(|object| !pauses.contains_key(&object.metadata.namespace))
            .filter_map(|object| Some((written(object)?, object.metadata.uid.clone())))
            .filter(|(at, _)| is_old(*at))
            .collect();
        due.sort();
        due.into_iter().take(IN_A_ROUND).map(|(_, uid)| uid).collect()
    }

    /// Writes those of an object.
    ///
    /// # Errors
    /// Why nothing more should be asked now.
    pub(super) async fn write(
        &self,
        object: &Autoscaler,
        all: &[Checkpoint],
        api: &ApiServer,
    ) -> Result<usize, ApiError> {
        let mut written = 0;
        for checkpoint in all {
            match api.write_checkpoint(object, checkpoint).await {
                Ok(()) => written += 1,
                // Another one wrote it meanwhile: then it is written the next time.
                Err(ApiError::Conflict(_)) => {}
                Err(error @ (ApiError::Later(..) | ApiError::Silent(_))) => return Err(error),
                Err(error) => {
                    debug!(%error, name = checkpoint.name(), "a checkpoint was not written");
                    self.pauses().insert(object.metadata.namespace.clone(), Instant::now() + REFUSED);
                    break;
                }
            }
        }
        if let Some(entry) = self.entries().get_mut(&object.metadata.uid) {
            entry.written = Some(Instant::now());
        }
        Ok(written)
    }
}

fn millis(text: Option<&String>) -> Option<u64> {
    let at: Timestamp = text?.parse().ok()?;
    u64::try_from(at.as_millisecond()).ok()
}

/// Whole seconds, as they are written.
fn text(ms: u64) -> Option<String> {
    let at = Timestamp::from_second(i64::try_from(ms / 1_000).ok()?).ok()?;
    Some(at.to_string())
}

fn known(status: &CheckpointStatus) -> Known {
    let span = millis(status.first_sample_start.as_ref()).zip(millis(status.last_sample_start.as_ref()));
    let saved = |histogram: &CheckpointHistogram| Saved {
        histogram: SavedHistogram {
            reference_ms: millis(histogram.reference_timestamp.as_ref()).unwrap_or_default(),
            weights: histogram.bucket_weights.clone(),
            total: histogram.total_weight,
        },
        span_ms: span,
        samples: status.total_samples_count,
    };
    [saved(&status.cpu_histogram), saved(&status.memory_histogram)]
}

/// The checkpoint of a container at a time.
pub(super) fn checkpoint(
    object: &Autoscaler,
    container: &str,
    of: &[Estimator; 2],
    now_ms: u64,
) -> Checkpoint {
    let histogram = |resource: Resource| {
        let Saved { histogram, .. } = of[index(resource)].saved(now_ms);
        CheckpointHistogram {
            bucket_weights: histogram.weights,
            reference_timestamp: text(histogram.reference_ms),
            total_weight: histogram.total,
        }
    };
    let cpu = of[index(Resource::Cpu)].saved(now_ms);
    let at = |of: fn((u64, u64)) -> u64| cpu.span_ms.map(of).and_then(text);
    let status = CheckpointStatus {
        cpu_histogram: histogram(Resource::Cpu),
        memory_histogram: histogram(Resource::Memory),
        first_sample_start: at(|span| span.0),
        last_sample_start: at(|span| span.1),
        last_update_time: text(now_ms),
        total_samples_count: cpu.samples,
    };
    Checkpoint { autoscaler: object.metadata.name.clone(), container: container.to_owned(), status }
}

#[cfg(test)]
mod tests {
    use evenkeel_rightsizing::vpa::VpaParams;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let object = json!({ "metadata": { "name": "web", "namespace": "shop", "uid": "u" }, "spec": {} });
        let object = Autoscaler::read(object.to_string().as_bytes()).unwrap();
        let start = 1_767_225_600_000u64;
        let estimators = Resource::ALL.map(|resource| {
            let mut estimator = Estimator::new(VpaParams::default(), resource);
            (0..2_000u64).for_each(|minute| estimator.sample(start + minute * 60_000, 300_000_000 + minute));
            estimator
        });
        let now_ms = start + 2_000 * 60_000;
        let written = checkpoint(&object, "main", &estimators, now_ms);
        assert_eq!((written.name().as_str(), written.status.total_samples_count), ("web-main", 2_000));
        assert_eq!(written.status.first_sample_start.as_deref(), Some("2026-01-01T00:00:00Z"));
        let again = known(&written.status);
        for resource in Resource::ALL {
            let after = Estimator::of_saved(VpaParams::default(), resource, &again[index(resource)]);
            assert_eq!(after.answer(None).samples, 2_000);
            // The day that is not over is not in it.
            let request = after.answer(None).request.unwrap();
            assert_eq!(request, estimators[index(resource)].answer(None).request.unwrap(), "{resource:?}");
        }
    }
}
