//! Where containers come from. Each source is a task that sends complete snapshots of what it sees.
//!
//! Owned here: reading manifests, the CRI and cgroup names into [`Workload`](evenkeel_model::workload::Workload)s.
//! Not owned: merging sources, exclusion by configuration, anything about cgroup files. A source never writes.

mod annotations;
pub(crate) mod cri;
pub(crate) mod manifests;
pub(crate) mod names;
mod slices;
pub(crate) mod systemd;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_model::workload::Workload;
use evenkeel_proto::convert::command_hash;

/// What is as it was stays the same one, so that a container is in memory once however many hold it.
fn shared(before: Option<&[Arc<Workload>]>, now: Vec<Workload>) -> Vec<Arc<Workload>> {
    let known: HashMap<&str, &Arc<Workload>> =
        before.unwrap_or_default().iter().map(|workload| (workload.id.as_str(), workload)).collect();
    let share = |workload: Workload| match known.get(workload.id.as_str()) {
        Some(same) if ***same == workload => Arc::clone(same),
        _ => Arc::new(workload),
    };
    now.into_iter().map(share).collect()
}

/// Does blocking work; a panic in it is one of the source, which is started again, and never an empty answer.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime is ending, and this task with it.
        Err(_) => std::future::pending().await,
    }
}

/// Waits until the cgroup tree changed or the period is over, and then a little longer, so that a burst of
/// changes costs one listing.
async fn wait(notified: impl Future<Output = ()>, period: Duration) {
    if tokio::time::timeout(period, notified).await.is_ok() {
        tokio::time::sleep(SETTLE).await;
    }
}

/// A runtime makes a container's cgroup shortly before it reports it as running: 25 to 115 ms on containerd 1.6.
/// A tenth of that is enough to gather the directories of one container.
const SETTLE: Duration = Duration::from_millis(10);
