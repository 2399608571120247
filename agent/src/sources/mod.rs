//! Where containers come from. Each source is a task that sends complete snapshots of what it sees.
//!
//! Owned here: reading manifests, the CRI, engines and units into [`Workload`](evenkeel_model::workload::Workload)s.
//! Not owned: merging sources, exclusion by configuration, anything about cgroup files. A source never writes.

mod annotations;
mod answers;
pub(crate) mod cri;
pub(crate) mod engines;
pub(crate) mod manifests;
pub(crate) mod reach;
mod slices;
pub(crate) mod systemd;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_model::units::Bytes;
use evenkeel_model::workload::{PodRef, Workload};
use evenkeel_proto::convert::command_hash;
use nix::errno::Errno;
use nix::fcntl::OFlag;

/// What the words of a runtime and of its containers are held against.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    /// Memory of the machine, for inverting scores.
    pub capacity: Bytes,
    /// Namespaces whose annotations may go above what the runtime says.
    pub trusted: Vec<String>,
}

impl Terms {
    fn trusts(&self, pod: &PodRef) -> bool {
        self.trusted.contains(&pod.namespace)
    }
}

/// What is as it was stays the same one, so that a container is in memory once however many hold it.
pub(crate) fn shared(before: Option<&[Arc<Workload>]>, now: Vec<Workload>) -> Vec<Arc<Workload>> {
    same(before, now.into_iter().map(Arc::new).collect())
}

/// The same of what is held already.
fn same(before: Option<&[Arc<Workload>]>, now: Vec<Arc<Workload>>) -> Vec<Arc<Workload>> {
    let known: HashMap<&str, &Arc<Workload>> =
        before.unwrap_or_default().iter().map(|workload| (workload.id.as_str(), workload)).collect();
    let share = |workload: Arc<Workload>| match known.get(workload.id.as_str()) {
        Some(same) if **same == workload => Arc::clone(same),
        _ => workload,
    };
    let mut shared: Vec<_> = now.into_iter().map(share).collect();
    // Collected in place, it would keep the room of whole workloads.
    shared.shrink_to_fit();
    shared
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

/// Opens a file that people write. A pipe in its place is not waited for until somebody writes to it.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)
}

/// What to do where too many files are open; nothing for another error.
fn descriptors(error: &io::Error) -> Option<&'static str> {
    evenkeel_host::error::descriptors(Errno::from_raw(error.raw_os_error()?))
}

/// Waits until a time; for ever without one.
async fn due(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
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
