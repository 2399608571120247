//! Keeping a part running: it is started, shown to live, given its work, and started again when it ends, falls silent, or sends what it cannot
//! mean.
//!
//! Owned here: that, and what status says of it. Not owned: the work ([`Duty`]). Nothing that a part says is believed: its questions are
//! closed, what it found or was told is judged as before, and what waits of it is bounded. While the network's part is away frames wait in
//! the spool, and clients in the backlog of the socket; while the runtime's is, what it found last stands.

mod heard;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use evenkeel_border::coded::Coded as _;
use evenkeel_border::link::{Bounds, Channel, Ended, Link, Side};
use evenkeel_border::order::Order;
use evenkeel_border::socket;
use evenkeel_enforce::decisions::Draft;
use evenkeel_enforce::shared::lock;
use evenkeel_model::decision::{DecisionKind, DecisionResult};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::Part;
use super::activation::{Border, Entrance};
use super::starter::{Said, Starter};
use crate::serve::Agent;
pub(crate) use heard::Heard;

/// A part shows so often that it lives, and is taken for dead after so long a silence.
const BEAT: Duration = Duration::from_secs(2);
const SILENCE: Duration = Duration::from_secs(20);
/// One that ended is started again after this, twice as long after each that ended soon, at most so long.
const AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// One that ran for so long did not end soon.
const SOON: Duration = Duration::from_secs(60);
/// One whose border is closed ends in this time, or is killed.
const ENDING: Duration = Duration::from_secs(2);

/// What status says of a part.
#[derive(Debug, Clone, Default)]
pub(crate) struct PartState {
    /// Its process, while there is one.
    pub pid: Option<u32>,
    /// How often it was started again.
    pub restarts: u64,
    /// Why it ended last.
    pub ended: Option<String>,
}

/// The states of all parts, shared with who shows them.
pub(crate) type PartsView = Arc<Mutex<BTreeMap<Part, PartState>>>;

/// The work of a part.
pub(crate) trait Duty {
    /// Which part.
    const PART: Part;
    /// What is taken of it, and kept.
    const BOUNDS: Bounds;

    /// Gives a part that has just begun its work; what comes out of the receiver is why it is over.
    ///
    /// # Errors
    /// When descriptors run out.
    fn begin(
        &self,
        link: &Link,
        asks: mpsc::Receiver<Channel>,
        tasks: &mut JoinSet<()>,
    ) -> anyhow::Result<mpsc::Receiver<String>>;

    /// It ended.
    fn end(&self);
}

/// How a part begins.
enum Way {
    /// By order, and what is said of it.
    Starter { starter: Arc<Starter>, said: mpsc::Receiver<Said> },
    /// By itself: a service manager starts it, and sees to its process.
    Unit(Entrance),
}

/// Keeps one part running.
pub(crate) struct PartSupervisor {
    way: Way,
    /// Of the present one.
    pid: Option<u32>,
}

impl PartSupervisor {
    /// Of a part that connects by itself; must be called on an asynchronous runtime.
    ///
    /// # Errors
    /// When descriptors run out.
    pub(crate) fn at(border: Border) -> anyhow::Result<Self> {
        Ok(Self { way: Way::Unit(Entrance::open(border).context("no border to a part")?), pid: None })
    }

    /// The border to one that begins.
    async fn begun(&mut self, agent: &Agent, part: Part) -> anyhow::Result<OwnedFd> {
        self.pid = None;
        match &self.way {
            Way::Starter { starter, .. } => {
                let (ours, theirs) = socket::pair().context("no border to a part")?;
                starter.order(part, &theirs).context("the process that starts the others has ended")?;
                Ok(ours)
            }
            Way::Unit(entrance) => {
                let peer = entrance.part().await.context("no border to a part")?;
                self.heard(agent, part, Said::Started(peer.pid));
                Ok(peer.socket)
            }
        }
    }

    /// The next that is said of it.
    async fn said(&mut self) -> anyhow::Result<Said> {
        match &mut self.way {
            Way::Starter { said, .. } => {
                said.recv().await.context("the process that starts the others has ended")
            }
            Way::Unit(_) => std::future::pending().await,
        }
    }

    /// Keeps it running until the agent stops.
    ///
    /// # Errors
    /// When the process that starts it has ended, or it can connect no more.
    pub(crate) async fn keep<D: Duty>(
        mut self,
        duty: D,
        agent: Arc<Agent>,
        mut stopped: watch::Receiver<bool>,
    ) -> anyhow::Result<()> {
        let mut wait = AGAIN.0;
        loop {
            let ours = tokio::select! {
                _ = stopped.wait_for(|stop| *stop) => return Ok(()),
                begun = self.begun(&agent, D::PART) => begun?,
            };
            let began = Instant::now();
            let (link, asks) = Link::start(ours, Side::First, D::BOUNDS).context("no border to a part")?;
            let mut tasks = JoinSet::new();
            let mut over = duty.begin(&link, asks, &mut tasks)?;
            let mut alive = ending(&mut tasks, alive(link.clone()));
            let (why, has_ended) = loop {
                tokio::select! {
                    _ = stopped.wait_for(|stop| *stop) => {
                        duty.end();
                        link.close("the agent stops");
                        return Ok(());
                    }
                    said = self.said() => {
                        if let Some(why) = self.heard(&agent, D::PART, said?) {
                            break (why, true);
                        }
                    }
                    why = link.gone() => break (why, false),
                    Some(why) = alive.recv() => break (why, false),
                    Some(why) = over.recv() => break (why, false),
                }
            };
            duty.end();
            link.close(&why);
            tasks.abort_all();
            let status = if has_ended { None } else { self.end(D::PART).await };
            let why = status.filter(|status| !status.contains("exit status: 0")).unwrap_or(why);
            wait = if began.elapsed() >= SOON { AGAIN.0 } else { wait };
            tell(&agent, D::PART, &why, wait);
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(AGAIN.1);
        }
    }

    /// Takes note of what the starter says; why the part ended, where it did.
    fn heard(&mut self, agent: &Agent, part: Part, said: Said) -> Option<String> {
        match said {
            Said::Started(pid) => {
                self.pid = Some(pid);
                lock(&agent.parts).entry(part).or_default().pid = Some(pid);
                None
            }
            Said::Failed(why) => Some(format!("it cannot be started: {why}")),
            Said::Ended(pid, status) if Some(pid) == self.pid => Some(status),
            // One before, which was given up.
            Said::Ended(..) => None,
        }
    }

    /// Waits for the end of one whose border is closed, and has it killed where it does not end; its status, where it ended by itself. A service
    /// manager sees to what is a unit, and takes one that hangs for dead by itself.
    async fn end(&mut self, part: Part) -> Option<String> {
        let Way::Starter { starter, said } = &mut self.way else { return None };
        for round in 0..2 {
            let pid = &mut self.pid;
            let ended = async {
                loop {
                    match said.recv().await {
                        Some(Said::Started(number)) => *pid = Some(number),
                        Some(Said::Ended(number, _)) if Some(number) != *pid => {}
                        Some(Said::Ended(_, status)) => return Some(status),
                        Some(Said::Failed(_)) | None => return None,
                    }
                }
            };
            if let Ok(status) = tokio::time::timeout(ENDING, ended).await {
                return status.filter(|_| round == 0);
            }
            // Where there is no starter any more, the loop that called this finds out.
            let _ignored = starter.kill(part);
        }
        None
    }
}

fn tell(agent: &Agent, part: Part, why: &str, wait: Duration) {
    let (is_news, restarts) = {
        let mut view = lock(&agent.parts);
        let state = view.entry(part).or_default();
        let is_news = state.ended.as_deref() != Some(why);
        (state.pid, state.ended) = (None, Some(why.to_owned()));
        state.restarts += 1;
        (is_news, state.restarts)
    };
    let part = part.name();
    tracing::warn!(part, why, restarts, again_in = ?wait, "a part ended; enforcement goes on");
    // The same again and again is one decision.
    if is_news {
        let draft =
            Draft::node(DecisionKind::Agent, format!("the {part} part ended: {why}; it is started again"));
        agent.decisions.record(draft.result(DecisionResult::Failed), &agent.context.enforce.stats);
    }
}

/// Spawns a task, whose end comes out of the receiver.
pub(super) fn ending(
    tasks: &mut JoinSet<()>,
    task: impl Future<Output = String> + Send + 'static,
) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(1);
    tasks.spawn(async move {
        // Nobody waits for it any more.
        let _ignored = sender.send(task.await).await;
    });
    receiver
}

/// Asks whether it lives, until it does not.
async fn alive(link: Link) -> String {
    let beat = async {
        let channel = link.open().await?;
        channel.send(&Order::Alive.message()).await?;
        loop {
            let answered = async {
                channel.send(b"alive").await?;
                channel.receive().await
            };
            if tokio::time::timeout(SILENCE, answered).await.map_err(|_| Ended::Busy)??.as_slice() != b"alive"
            {
                return Ok(());
            }
            tokio::time::sleep(BEAT).await;
        }
    };
    match beat.await {
        Err(Ended::Busy) => format!("it did not show for {} s that it lives", SILENCE.as_secs()),
        Err(ended) => ended.to_string(),
        Ok::<(), Ended>(()) => "it answered what it was not asked".to_owned(),
    }
}
