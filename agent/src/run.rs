//! The agent's life: open what needs a capability, drop capabilities, start threads, wait, drain.
//!
//! Owned here: order, signals, the watchdog, deadlines. Not owned: opening (`open`), what a thread is given (`start`), anything a
//! thread does.

mod open;
mod start;
mod threads;

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use evenkeel_enforce::decisions::Draft;
use evenkeel_model::decision::DecisionKind;
use evenkeel_model::reload::Reloaded;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use sd_notify::NotifyState;
use serde_json::Value;

use open::show_landlock;
pub(crate) use open::{Keeps, Opened, open};
pub(crate) use start::hierarchies;
use start::{RunningAgent, start};
use threads::Threads;

use crate::config::{Config, ConfigError};
use crate::parts::Part;
use crate::parts::activation::Handed;
use crate::parts::confine::confine;
use crate::parts::starter::Logging;
use crate::shared::Context;
use crate::{allocator, machine};

/// Mode of the agent's socket: root, and whoever is given its group.
const SOCKET_MODE: u32 = 0o660;
/// Time for draining after SIGTERM. The unit's own limit is 15 s.
const DRAIN: Duration = Duration::from_secs(8);

/// The configuration with its values as JSON, read anew.
pub(crate) type Reread<'a> = &'a dyn Fn() -> Result<(Config, Value), Vec<ConfigError>>;

/// Runs until a signal ends it; at SIGHUP the configuration is read anew.
///
/// # Errors
/// When it cannot start, or a thread ends by itself.
pub(crate) fn daemon(
    config: Config,
    written: Value,
    reread: Reread<'_>,
    logging: &Logging,
) -> anyhow::Result<()> {
    // First of all: a signal that comes while it starts ends it in order as well.
    let signals = block_signals()?;
    let handed = Handed::take()?;
    let mut socket = evenkeel_net::socket::bind(&config.serve.socket, SOCKET_MODE, "serve.socket")?;
    let _lock = machine::only_agent(&config)?;
    let types = written.get("resources").map_or_else(|| "{}".to_owned(), Value::to_string);
    let opened = open(config, written, Keeps::State, Some((logging, handed)))?;
    if let Some(apart) = &opened.apart {
        confine(Part::Enforcing, apart.given())?;
        show_landlock(&opened.board);
    }
    let context = Arc::clone(&opened.context);
    let stats = &*context.enforce.stats;
    let decisions = Arc::clone(&opened.decisions);
    decisions.record(
        Draft::node(DecisionKind::Agent, format!("the agent {} starts", env!("CARGO_PKG_VERSION")))
            .input("mode", context.config.enforce.mode.as_str())
            .input("rules", context.config.enforce.plan.rules),
        stats,
    );
    let mut threads = Threads::default();
    let listener = socket.take_listener().context("the agent's socket was taken already")?;
    let running = start(opened, listener, types, &mut threads)?;
    allocator::forget_code();
    tell(&[NotifyState::Ready]);
    tracing::info!(node = context.node.node, epoch = context.epoch, "the agent runs");
    let ended = wait(&signals, &threads, || running.reload(&context, reread));
    tell(&[NotifyState::Stopping]);
    context.enforce.stop.set();
    running.stop.send_replace(true);
    let drained = threads.drain(&signals, Instant::now() + DRAIN);
    decisions.record(Draft::node(DecisionKind::Agent, "the agent ends"), stats);
    decisions.make_durable(stats);
    decisions.sync(stats);
    drop(socket);
    drained?;
    ended
}

impl RunningAgent {
    /// SIGHUP: what can change at run time is put in force, what needs a restart is named, and a configuration that is
    /// wrong changes nothing.
    fn reload(&self, context: &Context, reread: Reread<'_>) {
        let began: Vec<_> = NotifyState::monotonic_usec_now().into_iter().collect();
        tell(&[&[NotifyState::Reloading], &*began].concat());
        let told = match reread() {
            Ok((config, written)) => {
                let Reloaded { applied, restart } =
                    context.reload.take(&context.enforce.live, config, &written);
                self.evictions.set_policy(context.enforce.live.now().eviction);
                let (applied, restart) = (applied.join(", "), restart.join(", "));
                match (applied.is_empty(), restart.is_empty()) {
                    (true, true) => tracing::info!("the configuration is unchanged"),
                    (false, true) => tracing::info!(applied, "the new configuration is in force"),
                    (_, false) => tracing::warn!(
                        applied,
                        restart,
                        "the new configuration is in force but for the keys under restart: restart the agent for those"
                    ),
                }
                match restart.is_empty() {
                    true => "the configuration on disk is in force".to_owned(),
                    false => format!("restart needed for {restart}"),
                }
            }
            Err(errors) => {
                for error in &errors {
                    tracing::error!(%error, "the configuration is wrong; the running one stays in force");
                }
                "the configuration on disk is wrong; the one before is in force".to_owned()
            }
        };
        tell(&[NotifyState::Ready, NotifyState::Status(&told)]);
    }
}

/// Signals come through a descriptor, on the main thread only.
fn block_signals() -> anyhow::Result<SignalFd> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        set.add(signal);
    }
    set.thread_block().context("cannot block signals")?;
    SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        .context("cannot receive signals")
}

/// Waits for the signal to end; tells the watchdog while every thread lives.
fn wait(signals: &SignalFd, threads: &Threads, reread: impl Fn()) -> anyhow::Result<()> {
    let watchdog = sd_notify::watchdog_enabled();
    let period = watchdog.map_or(Duration::from_secs(1), |limit| (limit / 3).min(Duration::from_secs(1)));
    let millis = PollTimeout::from(u16::try_from(period.as_millis()).unwrap_or(1000));
    loop {
        let mut fds = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        // Interrupted or not, the descriptor tells.
        let _ = poll(&mut fds, millis);
        while let Ok(Some(signal)) = signals.read_signal() {
            match i32::try_from(signal.ssi_signo).ok().and_then(|number| Signal::try_from(number).ok()) {
                Some(Signal::SIGHUP) => reread(),
                signal => {
                    tracing::info!(?signal, "ending");
                    return Ok(());
                }
            }
        }
        if let Some(name) = threads.ended() {
            anyhow::bail!("thread {name} ended by itself; see the log above");
        }
        if watchdog.is_some() && threads.alive() {
            tell(&[NotifyState::Watchdog]);
        }
    }
}

/// Tells the service manager; without one this does nothing.
fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "ignoring: the service manager was not told");
    }
}
