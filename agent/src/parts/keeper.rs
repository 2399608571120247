//! The enforcing part's side: it has the network's part started, answers it, and has it started again when it ends, falls silent, or sends
//! what it cannot mean.
//!
//! Owned here: that part's life and what status says of it. Nothing of it is believed: its questions are closed and change nothing, what a
//! recommender said through it is judged as before ([`crate::report`], [`crate::overlay`], [`crate::pods`]), and what waits of it is bounded
//! ([`BOUNDS`]). While it is away frames wait in the spool, and clients in the backlog of the socket, which stays open here.

use std::fs::File as Opened;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use evenkeel_border::coded::{Bytes, Coded as _};
use evenkeel_border::link::{Bounds, Channel, Ended, Link, Pace, Side};
use evenkeel_border::order::{Address, At, Changed, File, Order, Serve, Tls};
use evenkeel_border::socket;
use evenkeel_enforce::decisions::Draft;
use evenkeel_enforce::shared::lock;
use evenkeel_model::decision::{DecisionKind, DecisionResult};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::starter::{Said, Starter};
use crate::config::{Config, sections::trust::Guard};
use crate::outward::Gate;
use crate::serve::{Local, answers};

/// What the enforcing part takes of the network's, and keeps: questions of a few dozen people, and of each recommender the largest message
/// it may send (the requirements of 4,096 pods).
const BOUNDS: Bounds =
    Bounds { theirs: 256, ours: 64, message: 16 << 20, waiting: 24 << 20, packets: 4_000, descriptors: false };
/// Questions a second; more wait.
const ASKS: u32 = 100;
/// It shows so often that it lives, and is taken for dead after so long a silence.
const BEAT: Duration = Duration::from_secs(2);
const SILENCE: Duration = Duration::from_secs(20);
/// One that ended is started again after this, twice as long after each that ended soon, at most so long.
const AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// One that ran for so long did not end soon.
const SOON: Duration = Duration::from_secs(60);
/// One whose border is closed ends in this time, or is killed.
const ENDING: Duration = Duration::from_secs(2);
/// Largest file that it is served with.
const MOST_BYTES: u64 = 1 << 20;
/// Those are looked at so often.
const LOOK: Duration = Duration::from_secs(1);

/// What status says of the network's part.
#[derive(Debug, Clone, Default)]
pub(crate) struct NetworkState {
    /// Its process, while there is one.
    pub pid: Option<u32>,
    /// How often it was started again.
    pub restarts: u64,
    /// Why it ended last.
    pub ended: Option<String>,
}

/// That state, shared with who shows it.
pub(crate) type NetworkView = Arc<Mutex<NetworkState>>;

/// What keeps the network's part running.
pub(crate) struct Keeper {
    /// Starts it.
    pub starter: Starter,
    /// The way to it for streams.
    pub gate: Gate,
    /// What status shows.
    pub view: NetworkView,
    /// Definitions of resource types as written, JSON.
    pub types: String,
}

impl Keeper {
    /// Keeps it running until the agent stops.
    ///
    /// # Errors
    /// When the process that starts it has ended.
    pub(crate) async fn keep(
        self,
        local: Local,
        socket: UnixListener,
        mut stopped: watch::Receiver<bool>,
    ) -> anyhow::Result<()> {
        let starter = Arc::new(self.starter);
        let mut said = listen(&starter)?;
        let files = Files::of(&local.agent().context.config);
        let mut wait = AGAIN.0;
        loop {
            let began = Instant::now();
            let (ours, theirs) = socket::pair().context("no border to the network's part")?;
            starter.order(&theirs).context("the process that starts the others has ended")?;
            drop(theirs);
            let (link, asks) = Link::start(ours, Side::First, BOUNDS).context("no border to the network's part")?;
            self.gate.set(Some(link.clone()));
            let mut tasks = JoinSet::new();
            tasks.spawn(answer(local.clone(), asks));
            let order = files.order(&local.agent().context.config, self.types.clone());
            let passed = socket.try_clone().context("no descriptor of the agent's socket")?;
            let mut serving = tasks_of(&mut tasks, files.clone().serve(link.clone(), order, passed));
            let mut alive = tasks_of(&mut tasks, alive(link.clone()));
            let mut pid = None;
            let (why, has_ended) = loop {
                tokio::select! {
                    _ = stopped.wait_for(|stop| *stop) => {
                        self.gate.set(None);
                        link.close("the agent stops");
                        return Ok(());
                    }
                    heard = said.recv() => match heard.context("the process that starts the others has ended")? {
                        Said::Started(number) => {
                            pid = Some(number);
                            lock(&self.view).pid = pid;
                        }
                        Said::Failed(why) => break (format!("it cannot be started: {why}"), true),
                        Said::Ended(number, status) if Some(number) == pid => break (status, true),
                        // One before, which was given up.
                        Said::Ended(..) => {}
                    },
                    why = link.gone() => break (why, false),
                    Some(why) = alive.recv() => break (why, false),
                    Some(why) = serving.recv() => break (why, false),
                }
            };
            self.gate.set(None);
            link.close(&why);
            tasks.abort_all();
            if !has_ended {
                end(&starter, &mut said, pid).await;
            }
            wait = if began.elapsed() >= SOON { AGAIN.0 } else { wait };
            self.tell(&local, &why, wait);
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(AGAIN.1);
        }
    }

    fn tell(&self, local: &Local, why: &str, wait: Duration) {
        let mut view = lock(&self.view);
        let is_news = view.ended.as_deref() != Some(why);
        (view.pid, view.ended) = (None, Some(why.to_owned()));
        view.restarts += 1;
        let restarts = view.restarts;
        drop(view);
        tracing::warn!(why, restarts, again_in = ?wait, "the network's part ended; enforcement goes on");
        // The same again and again is one decision.
        if is_news {
            let reason = format!("the network's part ended: {why}; it is started again");
            let draft = Draft::node(DecisionKind::Agent, reason).result(DecisionResult::Failed);
            let agent = local.agent();
            agent.decisions.record(draft, &agent.context.enforce.stats);
        }
    }
}

/// Waits for the end of one whose border is closed, and has it killed where it does not end.
async fn end(starter: &Starter, said: &mut mpsc::Receiver<Said>, mut pid: Option<u32>) {
    for _ in 0..2 {
        let ended = async {
            loop {
                match said.recv().await {
                    Some(Said::Started(number)) => pid = Some(number),
                    Some(Said::Ended(number, _)) if Some(number) != pid => {}
                    Some(Said::Ended(..) | Said::Failed(_)) | None => return,
                }
            }
        };
        if tokio::time::timeout(ENDING, ended).await.is_ok() {
            return;
        }
        // Where there is no starter any more, the loop that called this finds out.
        let _ignored = starter.kill();
    }
}

/// Spawns a task, whose end comes out of the receiver.
fn tasks_of(
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

/// What the starter says, from a thread that waits for it.
fn listen(starter: &Arc<Starter>) -> anyhow::Result<mpsc::Receiver<Said>> {
    let (sender, receiver) = mpsc::channel(8);
    let starter = Arc::clone(starter);
    let listening = move || {
        while let Ok(said) = starter.said() {
            if sender.blocking_send(said).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("starter".to_owned()).spawn(listening).context("cannot start a thread")?;
    Ok(receiver)
}

/// Answers what is asked, at a bounded pace.
async fn answer(local: Local, mut asks: mpsc::Receiver<Channel>) {
    let (mut pace, mut answering) = (Pace::new(ASKS), JoinSet::new());
    loop {
        tokio::select! {
            asked = asks.recv() => {
                let Some(channel) = asked else { return };
                pace.wait().await;
                let local = local.clone();
                answering.spawn(async move { answers::answer(&local, channel).await });
            }
            Some(_) = answering.join_next() => {}
        }
    }
}

/// Asks whether it lives, until it does not.
async fn alive(link: Link) -> String {
    let beat = async {
        let channel = link.open(None).await?;
        channel.send(&Order::Alive.message()).await?;
        loop {
            let answered = async {
                channel.send(b"alive").await?;
                channel.receive().await
            };
            if tokio::time::timeout(SILENCE, answered).await.map_err(|_| Ended::Busy)??.as_slice() != b"alive" {
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

/// The files that addresses are served with.
#[derive(Debug, Clone)]
struct Files(Vec<(File, PathBuf)>);

/// Tells one state of a file from another.
type Print = Option<(u64, u64, i64, i64)>;

impl Files {
    fn of(config: &Config) -> Self {
        let rules = &config.trust;
        let mut files = Vec::new();
        if let Some(tls) = &rules.files {
            files.extend([(File::Cert, tls.cert.clone()), (File::Key, tls.key.clone())]);
            let authorities = tls.client_ca.iter().zip(0_u8..);
            files.extend(authorities.map(|(path, at)| (File::ClientCa(at), path.clone())));
        }
        files.extend(rules.service.token.clone().map(|path| (File::ServiceToken, path)));
        files.extend(rules.metrics.token.clone().map(|path| (File::MetricsToken, path)));
        Self(files)
    }

    fn bytes(&self, file: File) -> Option<Bytes> {
        let (_, path) = self.0.iter().find(|(known, _)| *known == file)?;
        // One that cannot be read holds nothing, by which nobody is let in; it is looked at again.
        Some(Bytes(read(path).unwrap_or_default()))
    }

    /// What is to be served.
    fn order(&self, config: &Config, types: String) -> Serve {
        let (serve, rules) = (&config.serve, &config.trust);
        let address = |at: Option<std::net::SocketAddr>, tls: bool, token: File| {
            Some(Address { at: At(at?), tls, token: self.bytes(token) })
        };
        let is_served = |guard: &Guard| guard.tls && rules.files.is_some();
        let tls = rules.files.as_ref().map(|files| Tls {
            cert: self.bytes(File::Cert).unwrap_or_default(),
            key: self.bytes(File::Key).unwrap_or_default(),
            client_ca: (0_u8..).zip(&files.client_ca).filter_map(|(at, _)| self.bytes(File::ClientCa(at))).collect(),
        });
        Serve {
            socket: true,
            service: address(serve.address, is_served(&rules.service), File::ServiceToken),
            metrics: address(serve.metrics, is_served(&rules.metrics), File::MetricsToken),
            dashboard: address(serve.dashboard, is_served(&rules.service), File::ServiceToken),
            tls,
            types,
        }
    }

    /// Orders to serve, and tells of files that change. Ends with the link, or when nothing is served.
    async fn serve(self, link: Link, order: Serve, socket: UnixListener) -> String {
        let mut prints: Vec<Print> = self.0.iter().map(|(_, path)| print(path)).collect();
        let served = async {
            let channel = link.open(Some(socket.as_fd())).await?;
            channel.send(&Order::Serve(order).message()).await?;
            loop {
                tokio::select! {
                    () = tokio::time::sleep(LOOK) => {}
                    ended = channel.receive() => return ended.map(drop),
                }
                for (at, (file, path)) in self.0.iter().enumerate() {
                    let now = print(path);
                    if prints.get(at) == Some(&now) {
                        continue;
                    }
                    let Some(bytes) = self.bytes(*file) else { continue };
                    channel.send(&Changed { file: *file, now: bytes }.message()).await?;
                    if let Some(print) = prints.get_mut(at) {
                        *print = now;
                    }
                }
            }
        };
        match served.await {
            Err(ended) => format!("nothing is served: {ended}"),
            Ok(()) => "it answered what it was not asked".to_owned(),
        }
    }
}

fn print(path: &Path) -> Print {
    let facts = std::fs::metadata(path).ok()?;
    Some((facts.ino(), facts.len(), facts.mtime(), facts.mtime_nsec()))
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    Opened::open(path)?.take(MOST_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}
