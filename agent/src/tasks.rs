//! The asynchronous part of the agent: sources, what is served, and keeping the other processes where there are any; until the agent stops.
//!
//! Owned here: starting these, and starting again those that panic. Not owned: what a task does, threads and their order ([`crate::run`]).

mod source;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use evenkeel_border::order::{Follow, Units};
use evenkeel_enforce::decisions::Draft;
use evenkeel_enforce::shared::{Heartbeat, UpdateSender};
use evenkeel_model::decision::{DecisionKind, DecisionResult};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::config::Config;
use crate::config::sections::{self, parts::PartsMode};
use crate::outward::Gate;
use crate::parts::activation::Border;
use crate::parts::followed::{Followed, Known};
use crate::parts::keeper::{Heard, PartSupervisor};
use crate::parts::read::Reading;
use crate::parts::served::NetworkWork;
use crate::parts::starter::{Logging, Starter};
use crate::parts::{Given, Part};
use crate::shared::Context;
use crate::sources::manifests::Parser;
use crate::sources::systemd::is_wanted;
use crate::{panics, serve};
pub(crate) use source::{Others, SourceOutlets, start_sources};

/// Time for open calls to end.
const DRAIN_CALLS: Duration = Duration::from_secs(2);

/// How the other processes begin.
enum Begins {
    /// One of ours starts them.
    Starter(Starter),
    /// A service manager does; they connect here.
    Units {
        network: Border,
        runtime: Border,
        /// Where there is something to read.
        reader: Option<Border>,
    },
}

/// What begins the other processes, where there are any, and the ways to them.
pub(crate) struct Apart {
    begins: Begins,
    given: Given,
    /// To the network's part.
    pub(crate) network: Gate,
    /// To the runtime's part.
    pub(crate) runtime: Gate,
    /// To the reader, where there is something to read.
    reader: Option<Gate>,
}

impl Apart {
    /// Must be called before capabilities are dropped and threads start. Starts nothing where a service manager handed over where parts
    /// connect.
    ///
    /// # Errors
    /// When the rights for it are missing, or not each part can connect.
    pub(crate) fn start(
        config: &Config,
        logging: &Logging,
        mut borders: BTreeMap<Part, Border>,
    ) -> anyhow::Result<Self> {
        let given = Given {
            network_uid: config.parts.network_uid,
            runtime_uid: config.parts.runtime_uid,
            reader_uid: config.parts.reader_uid,
            readable: vec![config.enforce.roots.cgroup.clone()],
            border: None,
            allow_unconfined: config.parts.allow_unconfined,
        };
        let is_read = config.sources.manifests.is_some() || is_wanted(&config.sources.systemd);
        let begins = if borders.is_empty() {
            Begins::Starter(Starter::start(&given, logging)?)
        } else {
            let mut of = |part: Part| {
                let lack = "the service manager handed over no socket of the part";
                borders.remove(&part).with_context(|| format!("{lack} {}", part.name()))
            };
            Begins::Units {
                network: of(Part::Network)?,
                runtime: of(Part::Runtime)?,
                reader: is_read.then(|| of(Part::Reader)).transpose()?,
            }
        };
        Ok(Self {
            begins,
            given,
            network: Gate::default(),
            runtime: Gate::default(),
            reader: is_read.then(Gate::default),
        })
    }

    /// What the parts are told on their command lines.
    pub(crate) const fn given(&self) -> &Given {
        &self.given
    }
}

/// The asynchronous part: sources, the service, metrics; until the agent stops.
pub(crate) async fn serve_all(
    agent: Arc<serve::Agent>,
    listener: std::os::unix::net::UnixListener,
    types: String,
    apart: Option<Apart>,
    found: SourceOutlets,
    stopped: watch::Receiver<bool>,
    beat: &Heartbeat,
) {
    let others = apart.as_ref().map_or_else(Others::default, |apart| Others {
        runtimes: true,
        manifests: apart.reader.clone().map(|gate| Parser::There(gate, types.clone().into())),
        units: true,
    });
    start_sources(&agent.context, &found, others);
    let kept = tokio::spawn(Arc::clone(&agent.context.pods).keep(stopped.clone()));
    let until = |mut stopped: watch::Receiver<bool>| async move {
        // An error means that the sender is gone, which is the end too.
        let _ = stopped.wait_for(|stop| *stop).await;
    };
    let local = serve::Local::new(Arc::clone(&agent));
    let mut serving = JoinSet::new();
    match apart {
        Some(apart) => {
            let served = NetworkWork { gate: apart.network, local, socket: listener, types };
            let followed = Followed {
                gate: apart.runtime,
                follow: to_follow(&agent.context, &found.cgroup_roots),
                updates: found.updates.clone(),
                rescan: found.rescan.clone(),
                pods: Arc::clone(&agent.context.pods),
                cgroups: agent.context.config.parts.runtime_cgroups.clone().into(),
                known: Known::default(),
            };
            let units = &agent.context.config.sources.systemd;
            let units = is_wanted(units).then(|| (to_list(units), found.updates.clone()));
            let reading = apart.reader.map(|gate| (gate, units));
            let keeping = keep(apart.begins, served, followed, reading, Arc::clone(&agent), stopped.clone());
            serving.spawn(logged("parts", keeping));
        }
        None => serve_here(&agent, local, listener, &stopped, &mut serving),
    }
    let mut every = tokio::time::interval(Duration::from_secs(1));
    let end = until(stopped);
    tokio::pin!(end);
    let (mut panicked, mut looking) = (0, None::<tokio::task::JoinHandle<()>>);
    loop {
        tokio::select! {
            () = &mut end => break,
            Some(_) = serving.join_next(), if agent.context.config.parts.mode == PartsMode::ThreeProcesses => {
                // Without what starts the parts nothing but a new start helps: the thread ends, and so does the agent.
                break;
            }
            _ = every.tick() => {
                beat.beat();
                show_panics(&agent, &mut panicked);
                let context = Arc::clone(&agent.context);
                // The disk may be slow: where it is, one look waits for the one before.
                if looking.as_ref().is_none_or(tokio::task::JoinHandle::is_finished) {
                    looking = Some(tokio::task::spawn_blocking(move || context.trust.look()));
                }
            }
        }
    }
    // A watching client never ends by itself.
    let _ = tokio::time::timeout(DRAIN_CALLS, async { while serving.join_next().await.is_some() {} }).await;
    // The disk may be slow.
    let _ = tokio::time::timeout(DRAIN_CALLS, kept).await;
}

/// What the reader is asked by, and the units it lists, where it does, with where what it finds goes.
type Readings = (Gate, Option<(Units, UpdateSender)>);

/// Keeps all parts running; ends with the process that starts them.
async fn keep(
    begins: Begins,
    served: NetworkWork,
    followed: Followed,
    reading: Option<Readings>,
    agent: Arc<serve::Agent>,
    stopped: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let (network, runtime, reader, starter) = match begins {
        Begins::Starter(starter) => {
            let mut heard = Heard::of(starter)?;
            let starter = heard.starter();
            let mut of = |part| heard.take(part);
            (of(Part::Network)?, of(Part::Runtime)?, Some(of(Part::Reader)?), Some(starter))
        }
        Begins::Units { network, runtime, reader } => (
            PartSupervisor::at(network)?,
            PartSupervisor::at(runtime)?,
            reader.map(PartSupervisor::at).transpose()?,
            None,
        ),
    };
    let network = network.keep(served, Arc::clone(&agent), stopped.clone());
    let runtime = runtime.keep(followed, Arc::clone(&agent), stopped.clone());
    let reader = async {
        match (reading, reader) {
            (Some((gate, units)), Some(reader)) => {
                let reading = Reading { gate, units, starter, known: Arc::default() };
                reader.keep(reading, agent, stopped).await
            }
            _ => Ok(()),
        }
    };
    tokio::try_join!(network, runtime, reader).map(|_| ())
}

/// What the reader is to list.
fn to_list(units: &sections::systemd::Units) -> Units {
    Units { slices: units.slices.clone(), is_named: units.enabled == sections::systemd::Enabled::Yes }
}

/// What the runtime's part is to follow.
fn to_follow(context: &Context, cgroup_roots: &[PathBuf]) -> Follow {
    let shown = |path: &PathBuf| path.display().to_string();
    let sources = &context.config.sources;
    Follow {
        cri: sources.cri.iter().map(shown).collect(),
        engines: sources.engines.as_ref().map(|[docker, podman]| (shown(docker), shown(podman))),
        roots: cgroup_roots.iter().map(shown).collect(),
        capacity: context.enforce.facts.memory_bytes.get(),
        trusted: context.config.enforce.manage.trust_annotations.clone(),
    }
}

/// Serves every address from this process.
fn serve_here(
    agent: &Arc<serve::Agent>,
    local: serve::Local,
    listener: std::os::unix::net::UnixListener,
    stopped: &watch::Receiver<bool>,
    serving: &mut JoinSet<()>,
) {
    let (config, trust) = (&agent.context.config, &agent.context.trust);
    let until = |mut stopped: watch::Receiver<bool>| async move {
        // An error means that the sender is gone, which is the end too.
        let _ = stopped.wait_for(|stop| *stop).await;
    };
    let rules = &config.trust;
    let at = |address, guard, tls| serve::Listening { address, door: serve::Door::of(rules, guard), tls };
    let (answers, types) = (serve::Answers::Here(local), Arc::clone(&config.types));
    let unix = serve::serve_unix(answers.clone(), Arc::clone(&types), listener, until(stopped.clone()));
    serving.spawn(logged("serve.socket", unix));
    if let Some(address) = config.serve.address {
        let at = at(address, &rules.service, trust.tls());
        let tcp = serve::serve_tcp(answers.clone(), types, at, until(stopped.clone()));
        serving.spawn(logged("serve.address", tcp));
    }
    // Nobody waits for the end of these.
    if let Some(address) = config.serve.metrics {
        let at = at(address, &rules.metrics, trust.tls().filter(|_| rules.metrics.tls));
        tokio::spawn(logged("serve.metrics", serve::metrics::serve(answers.clone(), at)));
    }
    if let Some(address) = config.serve.dashboard {
        let at = at(address, &rules.service, trust.tls());
        tokio::spawn(logged("serve.dashboard", serve::pages::serve(answers, at)));
    }
}

/// Puts panics where people look: into status and among the decisions.
fn show_panics(agent: &serve::Agent, told: &mut u64) {
    let count = panics::count();
    if count == *told {
        return;
    }
    *told = count;
    if let Some(knob) = panics::shown() {
        let reason = format!("a defect of the agent: {}", knob.why);
        agent.board.show_knob(knob);
        let draft = Draft::node(DecisionKind::Agent, reason).result(DecisionResult::Failed);
        agent.decisions.record(draft, &agent.context.enforce.stats);
    }
}

async fn logged(what: &'static str, task: impl Future<Output = anyhow::Result<()>>) {
    if let Err(error) = task.await {
        tracing::error!(what, error = format!("{error:#}"), "not served; everything else goes on");
    }
}
