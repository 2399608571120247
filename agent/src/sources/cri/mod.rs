//! The `cri` source: containers and sandboxes of containerd or CRI-O, over the runtime's socket.
//!
//! Owned here: connecting, listing, waking on the runtime's events where it has them, and caching what is asked
//! once per container. Not owned: the meaning of what a runtime says ([`convert`]). Only reading calls are made.

mod client;
mod convert;
mod info;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_model::units::Bytes;
use evenkeel_model::workload::{SourceKind, Workload};

use crate::shared::{Rescan, SourceProblem, SourceUpdate, UpdateSender};
use client::{Client, CriError};

/// The messages of `proto/cri.proto`.
pub(crate) mod v1 {
    #![allow(missing_docs, unreachable_pub, unused_qualifications, dead_code)]
    #![allow(
        clippy::all,
        clippy::unwrap_used,
        clippy::wildcard_imports,
        clippy::semicolon_if_nothing_returned
    )]
    tonic::include_proto!("runtime.v1");
}

/// Listing without being woken; one listing costs the runtime under a millisecond (containerd 1.6).
const LIST_PERIOD: Duration = Duration::from_secs(5);
/// Asking a known container again: its resources may have been updated in place, which no event tells.
const STATUS_PERIOD: Duration = Duration::from_secs(60);
/// First and longest wait before connecting again.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// Follows one runtime until the agent ends. `capacity` is the machine's memory, for inverting scores.
pub(crate) async fn run(socket: PathBuf, capacity: Bytes, updates: UpdateSender, rescan: Rescan) {
    let mut source =
        Cri { socket, capacity, updates, rescan: rescan.clone(), known: HashMap::new(), last: None };
    let mut pause = RECONNECT.0;
    loop {
        let error = source.follow(&rescan, &mut pause).await;
        source.report_failure(&error);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RECONNECT.1);
    }
}

struct Cri {
    socket: PathBuf,
    capacity: Bytes,
    updates: UpdateSender,
    rescan: Rescan,
    /// What was asked once per container or sandbox, by runtime id.
    known: HashMap<String, Known>,
    last: Option<(Vec<Arc<Workload>>, Vec<SourceProblem>)>,
}

struct Known {
    asked: Instant,
    details: Result<info::Details, SourceProblem>,
}

impl Cri {
    /// Connects and lists until something fails.
    async fn follow(&mut self, rescan: &Rescan, pause: &mut Duration) -> CriError {
        let mut client = match Client::connect(&self.socket).await {
            Ok(client) => client,
            Err(error) => return error,
        };
        *pause = RECONNECT.0;
        tracing::info!(socket = %self.socket.display(), runtime = client.runtime(), "following container runtime");
        let mut events = client.events();
        loop {
            let notified = rescan.notified();
            if let Err(error) = self.list(&mut client).await {
                return error;
            }
            tokio::select! {
                () = super::wait(notified, LIST_PERIOD) => {}
                alive = events.next() => if !alive { events.give_up(); },
            }
        }
    }

    async fn list(&mut self, client: &mut Client) -> Result<(), CriError> {
        let (sandboxes, containers) = client.list().await?;
        let mut workloads = Vec::new();
        let mut problems = Vec::new();
        let now = Instant::now();
        self.known.retain(|id, _| sandboxes.contains_key(id) || containers.iter().any(|c| &c.id == id));
        for sandbox in sandboxes.values() {
            let details = self.details(client, &sandbox.id, true, now).await?;
            match details.and_then(|d| convert::sandbox(sandbox, d)) {
                Ok(workload) => workloads.push(workload),
                Err(problem) => problems.push(problem),
            }
        }
        let mut of_pod: HashMap<&str, Vec<Workload>> = HashMap::new();
        for container in &containers {
            let Some(sandbox) = sandboxes.get(&container.pod_sandbox_id) else { continue };
            let capacity = self.capacity;
            let details = self.details(client, &container.id, false, now).await?;
            match details.and_then(|d| convert::container(container, sandbox, d, capacity, &mut problems)) {
                Ok(workload) => of_pod.entry(&sandbox.id).or_default().push(workload),
                Err(problem) => problems.push(problem),
            }
        }
        workloads.extend(of_pod.into_values().flat_map(convert::with_pod_facts));
        workloads.sort_by(|a, b| a.id.cmp(&b.id));
        problems.sort();
        problems.dedup();
        self.send(workloads, problems);
        Ok(())
    }

    /// What the runtime says of one container or sandbox, asked at most once per period. A container that ended
    /// between two calls is a problem of its own and nothing more.
    async fn details(
        &mut self,
        client: &mut Client,
        id: &str,
        sandbox: bool,
        now: Instant,
    ) -> Result<Result<&info::Details, SourceProblem>, CriError> {
        let fresh = self.known.get(id).is_some_and(|k| {
            now.duration_since(k.asked) < STATUS_PERIOD && !self.rescan.asked_since(id, k.asked)
        });
        if !fresh {
            let details = match client.details(id, sandbox).await {
                Ok(details) => details,
                Err(CriError::Gone { id }) => Err(convert::gone(&id)),
                Err(error) => return Err(error),
            };
            self.known.insert(id.to_owned(), Known { asked: now, details });
        }
        match self.known.get(id).map(|k| k.details.as_ref()) {
            Some(Ok(details)) => Ok(Ok(details)),
            Some(Err(problem)) => Ok(Err(problem.clone())),
            None => Ok(Err(convert::gone(id))),
        }
    }

    fn send(&mut self, workloads: Vec<Workload>, problems: Vec<SourceProblem>) {
        let workloads = super::shared(self.last.as_ref().map(|(w, _)| w.as_slice()), workloads);
        if self.last.as_ref().is_some_and(|(w, p)| *w == workloads && *p == problems) {
            return;
        }
        let sent = self.updates.send(self.update(workloads.clone(), problems.clone(), true));
        self.last = sent.is_ok().then_some((workloads, problems));
    }

    /// The runtime cannot be asked: what was last seen stays, marked as such.
    fn report_failure(&mut self, error: &CriError) {
        tracing::warn!(socket = %self.socket.display(), %error, "container runtime lost; trying again");
        let workloads = self.last.take().map_or_else(Vec::new, |(workloads, _)| workloads);
        let problem = error.problem(&self.socket);
        let sent = self.updates.send(self.update(workloads.clone(), vec![problem.clone()], false));
        if sent.is_ok() {
            self.last = Some((workloads, vec![problem]));
        }
    }

    fn update(
        &self,
        workloads: Vec<Arc<Workload>>,
        problems: Vec<SourceProblem>,
        healthy: bool,
    ) -> SourceUpdate {
        let address = self.socket.display().to_string();
        SourceUpdate { source: SourceKind::Cri, address, workloads, problems, healthy }
    }
}
