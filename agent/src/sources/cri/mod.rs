//! The `cri` source: containers and sandboxes of containerd or CRI-O, over the runtime's socket.
//!
//! Owned here: connecting, listing, and sending what is known. When to list is the [`schedule`]'s, what single
//! containers say is that of [`answers`](super::answers), and the meaning of it is [`convert`]'s. The source makes reading calls alone. It
//! fails when a list call fails; a container that cannot be asked about is that container's problem.

mod client;
mod convert;
mod info;
mod required;
#[cfg(test)]
mod required_tests;
mod schedule;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_enforce::shared::{SourceProblem, SourceUpdate, UpdateSender};
use evenkeel_model::workload::{SourceKind, Workload};
use tokio::time::sleep_until;

use super::answers::RuntimeAnswers;
use super::reach::Reach;
use super::{Terms, due};
use crate::pods::Pods;
use crate::shared::Rescan;
use client::{Client, CriError};
pub(crate) use client::{Stopped, stop_sandbox};
use info::Details;
use schedule::Schedule;

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

/// First and longest wait before connecting again.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// Longest name of a pod, namespace or container, and longest id: Kubernetes has 253 bytes, the kernel 255.
const MAX_NAME: usize = 255;
/// How long a snapshot waits for answers about new containers: the first one, which whoever looks once relies on, and
/// later ones. What is answered afterwards is sent then.
const PATIENCE: (Duration, Duration) = (Duration::from_secs(3), Duration::from_millis(250));

/// What one runtime's source is given.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    /// The runtime's socket.
    pub socket: PathBuf,
    /// What its words are held against.
    pub terms: Terms,
    /// What the API server says of its pods.
    pub pods: Arc<Pods>,
    /// How it is reached.
    pub reach: Reach,
}

/// Follows one runtime until the agent ends.
pub(crate) async fn run(setup: Setup, updates: UpdateSender, rescan: Rescan) {
    let Setup { socket, terms, pods, reach } = setup;
    let mut source =
        Cri { socket, terms, pods, reach, updates, rescan, answers: RuntimeAnswers::default(), last: None };
    let mut pause = RECONNECT.0;
    loop {
        let error = source.follow(&mut pause).await;
        source.answers.drop_open();
        source.report_failure(&error);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RECONNECT.1);
    }
}

struct Cri {
    socket: PathBuf,
    terms: Terms,
    pods: Arc<Pods>,
    reach: Reach,
    updates: UpdateSender,
    rescan: Rescan,
    answers: RuntimeAnswers<Details>,
    last: Option<(Vec<Arc<Workload>>, Vec<SourceProblem>)>,
}

/// One listing: ready sandboxes by id, and running containers.
#[derive(Default)]
struct Listing {
    sandboxes: HashMap<String, v1::PodSandbox>,
    containers: Vec<v1::Container>,
    /// What was left out.
    problems: Vec<SourceProblem>,
}

impl Listing {
    /// What a runtime lists, without what has longer names than the kernel and Kubernetes have: they would stand in every
    /// frame, page of metrics and line of status.
    fn of(mut sandboxes: HashMap<String, v1::PodSandbox>, mut containers: Vec<v1::Container>) -> Self {
        let mut problems = Vec::new();
        let mut is_kept = |what: &str, names: &[&str]| {
            let longest = names.iter().map(|name| name.len()).max().unwrap_or(0);
            let kept = longest <= MAX_NAME;
            if !kept {
                problems.push(SourceProblem {
                    what: format!("take in a {what}"),
                    where_: format!("{what} {}", names[0].chars().take(64).collect::<String>()),
                    why: format!("a name of it has {longest} bytes, over {MAX_NAME}"),
                    remedy: "give it a shorter name; until then it is left alone".into(),
                });
            }
            kept
        };
        sandboxes.retain(|id, sandbox| {
            let of = sandbox.metadata.as_ref();
            let names = of.map_or([""; 3], |m| [m.name.as_str(), &m.namespace, &m.uid]);
            is_kept("pod", &[id.as_str(), names[0], names[1], names[2]])
        });
        containers.retain(|container| {
            let name = container.metadata.as_ref().map_or("", |m| m.name.as_str());
            is_kept("container", &[container.id.as_str(), name, convert::label_name(container)])
        });
        Self { sandboxes, containers, problems }
    }

    fn ids(&self) -> impl Iterator<Item = &str> {
        let containers = self.containers.iter().map(|container| container.id.as_str());
        self.sandboxes.keys().map(String::as_str).chain(containers)
    }
}

impl Cri {
    /// Connects and lists until something fails.
    async fn follow(&mut self, pause: &mut Duration) -> CriError {
        let mut client = match Client::connect(&self.socket, &self.reach).await {
            Ok(client) => client,
            Err(error) => return error,
        };
        *pause = RECONNECT.0;
        tracing::info!(socket = %self.socket.display(), runtime = client.runtime(), "following container runtime");
        let mut events = client.events();
        let mut schedule = Schedule::new(Instant::now());
        let mut listing = Listing::default();
        // When what is known is sent though answers are missing; `None` while there is nothing new.
        let mut send_at = None;
        let bell = self.rescan.clone();
        let mut rung = Box::pin(bell.notified());
        let (mut told, mut is_listed) = (self.pods.changes(), false);
        loop {
            let mut ask = true;
            tokio::select! {
                () = &mut rung => {
                    rung.set(bell.notified());
                    schedule.changed(Instant::now());
                }
                alive = events.next() => {
                    if alive { schedule.changed(Instant::now()) } else { events.give_up() }
                }
                () = sleep_until(schedule.next().into()) => {
                    let began = Instant::now();
                    listing = match client.list().await {
                        Ok((sandboxes, containers)) => Listing::of(sandboxes, containers),
                        Err(error) => return error,
                    };
                    schedule.listed(Instant::now(), began.elapsed());
                    is_listed = true;
                    self.forget_all_but(&listing);
                    let patience = if self.last.is_none() { PATIENCE.0 } else { PATIENCE.1 };
                    send_at = send_at.or(Some(Instant::now() + patience));
                }
                () = self.answers.next() => {
                    ask = self.answers.take_short();
                    send_at = send_at.or(Some(Instant::now() + PATIENCE.1));
                }
                // Before the first snapshot of this connection is sent, it follows what is told anyway.
                Ok(()) = told.changed(), if is_listed && self.last.is_some() => {
                    send_at = Some(Instant::now());
                }
                () = due(send_at) => {}
            }
            let now = Instant::now();
            if ask {
                self.ask(&client, &listing, now);
            }
            let is_due = send_at.is_some_and(|at| at <= now || !self.answers.has_news_open(listing.ids()));
            if is_due {
                send_at = None;
                self.send_known(&listing);
            }
        }
    }

    fn forget_all_but(&mut self, listing: &Listing) {
        let containers: std::collections::HashSet<&str> =
            listing.containers.iter().map(|container| container.id.as_str()).collect();
        self.answers.keep(|id| listing.sandboxes.contains_key(id) || containers.contains(id));
    }

    fn ask(&mut self, client: &Client, listing: &Listing, now: Instant) {
        let sandboxes = listing.sandboxes.keys().map(|id| (id, true));
        let containers = listing.containers.iter().map(|container| (&container.id, false));
        for (id, is_sandbox) in sandboxes.chain(containers) {
            self.answers.ask(id, &self.rescan, now, || {
                let (client, id) = (client.clone(), id.clone());
                Box::pin(async move { client.details(&id, is_sandbox).await })
            });
        }
    }

    fn send_known(&mut self, listing: &Listing) {
        let mut workloads = Vec::new();
        let mut problems = listing.problems.clone();
        for sandbox in listing.sandboxes.values() {
            let (details, problem) = self.answers.of(&sandbox.id);
            problems.extend(problem.cloned());
            workloads.extend(details.map(|details| convert::sandbox(sandbox, details, &self.terms)));
        }
        let mut of_pod: HashMap<&str, Vec<(&v1::Container, &Details)>> = HashMap::new();
        for container in &listing.containers {
            let Some(sandbox) = listing.sandboxes.get(&container.pod_sandbox_id) else { continue };
            let (details, problem) = self.answers.of(&container.id);
            problems.extend(problem.cloned());
            if let Some(details) = details {
                of_pod.entry(&sandbox.id).or_default().push((container, details));
            }
        }
        let said = self.pods.by_uid();
        for (sandbox, containers) in of_pod {
            if let Some(sandbox) = listing.sandboxes.get(sandbox) {
                workloads.extend(convert::pod(sandbox, &containers, &said, &self.terms, &mut problems));
            }
        }
        workloads.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        problems.sort_unstable();
        problems.dedup();
        self.send(workloads, problems);
    }

    fn send(&mut self, workloads: Vec<Workload>, problems: Vec<SourceProblem>) {
        let workloads = super::shared(self.last.as_ref().map(|(w, _)| w.as_slice()), workloads);
        if self.last.as_ref().is_some_and(|(w, p)| *w == workloads && *p == problems) {
            return;
        }
        let update = self.update(workloads.clone(), problems.clone(), true);
        self.pods.found(&update);
        let sent = self.updates.send(update);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_longer_names_than_there_are_is_left_out_and_told() {
        let long = "x".repeat(64 << 10);
        let pod = |name: &str| v1::PodSandbox {
            metadata: Some(v1::PodSandboxMetadata { name: name.to_owned(), ..Default::default() }),
            ..Default::default()
        };
        let container = |id: &str, name: &str| v1::Container {
            id: id.to_owned(),
            metadata: Some(v1::ContainerMetadata { name: name.to_owned(), ..Default::default() }),
            ..Default::default()
        };
        let sandboxes = [("a".to_owned(), pod("a")), ("b".to_owned(), pod(&long)), (long.clone(), pod("c"))];
        let containers = vec![container("c1", "main"), container("c2", &long), container(&long, "main")];
        let listing = Listing::of(sandboxes.into(), containers);
        assert_eq!(listing.ids().collect::<Vec<_>>(), ["a", "c1"]);
        assert_eq!(listing.problems.len(), 4);
        for problem in &listing.problems {
            assert!(problem.why == "a name of it has 65536 bytes, over 255", "{problem:?}");
            assert!(problem.where_.len() < 80, "{problem:?}");
        }
    }
}
