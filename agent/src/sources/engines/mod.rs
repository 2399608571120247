//! The `names` source: containers of Docker and Podman, which have no CRI socket.
//!
//! The kernel says that a container is there, by the name of its cgroup ([`tree`]); the engine's API says who it is and
//! what it was told ([`api`], [`record`]). So an engine's word counts for containers that are there alone, and one that
//! hangs, fails or lies costs nobody else anything. What such a container asked for is not known from its cgroup: until
//! its engine answers, or a manifest names it (`docker://NAME`), it is sampled and never written.

pub(crate) mod api;
mod record;
pub(super) mod tree;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_enforce::shared::{SourceProblem, SourceUpdate, UpdateSender};
use evenkeel_model::workload::{SourceKind, Workload};
use futures::future::select_all;
use tokio::time::sleep_until;

use super::answers::RuntimeAnswers;
use super::reach::Reach;
use super::{SETTLE, Terms, due};
use crate::shared::Rescan;
use record::ContainerInspect;
pub(in crate::sources) use record::{MAX_IMAGE, bounded};
use tree::Named;

/// Walking again without being asked: a safety net behind the kernel's events.
const PERIOD: Duration = Duration::from_secs(30);
/// Shortest time between two walks, as a multiple of what one takes, and its bound.
const REST: (u32, Duration) = (20, Duration::from_millis(500));
/// How long a snapshot waits for answers about new containers: the first one, and later ones.
const PATIENCE: (Duration, Duration) = (Duration::from_secs(3), Duration::from_millis(250));

/// What the source is given.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    /// Sockets of Docker and Podman; `None` where engines are not asked.
    pub sockets: Option<[PathBuf; 2]>,
    /// What their words are held against.
    pub terms: Terms,
    /// The hierarchies to walk: the memory controller's and, where it is another, cgroup v2's.
    pub roots: Vec<PathBuf>,
    /// How the sockets are reached.
    pub reach: Reach,
}

/// Follows the containers of both engines until the agent ends.
pub(crate) async fn run(setup: Setup, updates: UpdateSender, rescan: Rescan) {
    let Setup { sockets, terms, roots, reach } = setup;
    let engine =
        |name, socket| Engine { name, socket, reach: reach.clone(), answers: RuntimeAnswers::default() };
    let engines = match sockets {
        Some([docker, podman]) => vec![engine(tree::DOCKER, docker), engine(tree::PODMAN, podman)],
        None => Vec::new(),
    };
    let found = (Vec::new(), None);
    let mut source = Engines { engines, terms, roots, updates, rescan, found, is_whole: false, last: None };
    source.follow().await;
}

/// One engine and what it said.
struct Engine {
    name: &'static str,
    socket: PathBuf,
    reach: Reach,
    answers: RuntimeAnswers<ContainerInspect>,
}

impl Engine {
    /// Why its socket is not asked; who does not see it finds out when it asks.
    fn unusable(&self) -> Option<String> {
        if self.reach.is_here() { api::unusable(&self.socket) } else { None }
    }

    /// Why it cannot be asked about the containers that are there.
    fn trouble(&self) -> Option<SourceProblem> {
        let why = self.unusable()?;
        let Self { name, socket, .. } = self;
        Some(SourceProblem {
            what: format!("ask {name} about its containers"),
            where_: socket.display().to_string(),
            why,
            remedy: format!(
                "start {name}.socket, or set sources.engines.{name}; until then what it said before stays in force, and \
                 new containers are managed where a manifest names them"
            ),
        })
    }
}

struct Engines {
    engines: Vec<Engine>,
    terms: Terms,
    roots: Vec<PathBuf>,
    updates: UpdateSender,
    rescan: Rescan,
    /// What the last whole walk found, and what is wrong with the last one.
    found: (Vec<Named>, Option<SourceProblem>),
    /// The last walk saw all.
    is_whole: bool,
    last: Option<(Vec<Arc<Workload>>, Vec<SourceProblem>)>,
}

impl Engines {
    async fn follow(&mut self) {
        let mut walk_at = Instant::now();
        let mut earliest = walk_at;
        let mut send_at = None;
        let bell = self.rescan.clone();
        let mut rung = Box::pin(bell.notified());
        loop {
            let mut ask = true;
            tokio::select! {
                () = &mut rung => {
                    rung.set(bell.notified());
                    walk_at = walk_at.min(earliest.max(Instant::now() + SETTLE));
                }
                () = sleep_until(walk_at.into()) => {
                    let began = Instant::now();
                    self.walk().await;
                    let now = Instant::now();
                    earliest = now + ((now - began) * REST.0).min(REST.1);
                    walk_at = now + PERIOD;
                    let patience = if self.last.is_none() { PATIENCE.0 } else { PATIENCE.1 };
                    send_at = send_at.or(Some(now + patience));
                }
                short = next(&mut self.engines) => {
                    ask = short;
                    send_at = send_at.or(Some(Instant::now() + PATIENCE.1));
                }
                () = due(send_at) => {}
            }
            let now = Instant::now();
            if ask {
                self.ask(now);
            }
            if send_at.is_some_and(|at| at <= now || !self.has_news_open()) {
                send_at = None;
                self.send();
            }
        }
    }

    /// Looks who is there. Where that cannot be seen, who was there stays.
    async fn walk(&mut self) {
        let known: HashSet<String> = self.found.0.iter().map(|named| named.id.clone()).collect();
        let roots = self.roots.clone();
        match super::blocking(move || tree::find(&roots, &known)).await {
            Ok(found) => (self.found, self.is_whole) = (found, true),
            Err(error) => (self.found.1, self.is_whole) = (Some(tree::unseen(&error)), false),
        }
        for engine in &mut self.engines {
            let ids: HashSet<&str> = of(engine.name, &self.found.0).map(|named| named.id.as_str()).collect();
            engine.answers.keep(|id| ids.contains(id));
        }
    }

    fn ask(&mut self, now: Instant) {
        for engine in &mut self.engines {
            if engine.unusable().is_some() {
                continue;
            }
            for named in of(engine.name, &self.found.0) {
                engine.answers.ask(&named.id, &self.rescan, now, || {
                    let (socket, reach, named) = (engine.socket.clone(), engine.reach.clone(), named.clone());
                    Box::pin(async move {
                        let answer = api::inspect(socket, reach, named.id.clone()).await?;
                        ContainerInspect::read(&named, &answer).map_err(super::answers::DetailsError::Strange)
                    })
                });
            }
        }
    }

    /// Somebody new is being asked about.
    fn has_news_open(&self) -> bool {
        self.engines.iter().any(|engine| {
            let ids = of(engine.name, &self.found.0).map(|named| named.id.as_str());
            engine.unusable().is_none() && engine.answers.has_news_open(ids)
        })
    }

    fn send(&mut self) {
        let mut problems: Vec<SourceProblem> = self.found.1.iter().cloned().collect();
        let mut workloads = Vec::new();
        for named in &self.found.0 {
            let engine = self.engines.iter().find(|engine| engine.name == named.engine);
            let (record, problem) = engine.map_or((None, None), |engine| engine.answers.of(&named.id));
            problems.extend(problem.cloned());
            workloads.push(record::workload(named, record, &self.terms, &mut problems));
        }
        let troubled = self.engines.iter().filter(|engine| of(engine.name, &self.found.0).next().is_some());
        problems.extend(troubled.filter_map(Engine::trouble));
        let problems = told_once(problems);
        let workloads = super::shared(self.last.as_ref().map(|(w, _)| w.as_slice()), workloads);
        if self.last.as_ref().is_some_and(|(w, p)| *w == workloads && *p == problems) {
            return;
        }
        let update = SourceUpdate {
            source: SourceKind::Names,
            address: self.roots.first().map_or_else(String::new, |root| root.display().to_string()),
            workloads: workloads.clone(),
            problems: problems.clone(),
            healthy: self.is_whole,
        };
        self.last = self.updates.send(update).is_ok().then_some((workloads, problems));
    }
}

/// Those of one engine.
fn of<'a>(engine: &'a str, found: &'a [Named]) -> impl Iterator<Item = &'a Named> {
    found.iter().filter(move |named| named.engine == engine)
}

/// Waits for the next answer of any engine; whether somebody was not asked about for want of room.
async fn next(engines: &mut [Engine]) -> bool {
    if engines.is_empty() {
        return std::future::pending().await;
    }
    let answers = engines.iter_mut().map(|engine| {
        Box::pin(async move {
            engine.answers.next().await;
            engine.answers.take_short()
        })
    });
    select_all(answers).await.0
}

/// What is wrong with many containers for one reason is told once, or an engine that is down would fill the log.
fn told_once(mut problems: Vec<SourceProblem>) -> Vec<SourceProblem> {
    problems.sort_unstable();
    problems.dedup();
    let same =
        |a: &SourceProblem, b: &SourceProblem| (&a.what, &a.why, &a.remedy) == (&b.what, &b.why, &b.remedy);
    let all = problems.clone();
    problems.dedup_by(|b, a| same(a, b));
    for problem in &mut problems {
        if all.iter().filter(|other| same(problem, other)).count() > 1 {
            problem.where_ = "several containers".into();
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_reason_is_told_once() {
        let problem = |where_: &str, why: &str| SourceProblem {
            what: "ask".into(),
            where_: where_.into(),
            why: why.into(),
            remedy: String::new(),
        };
        let told = told_once(vec![
            problem("b", "down"),
            problem("a", "down"),
            problem("a", "down"),
            problem("c", "odd"),
        ]);
        assert_eq!(told, [problem("several containers", "down"), problem("c", "odd")]);
    }
}
