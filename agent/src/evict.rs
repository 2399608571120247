//! systemd and container runtimes as those who end and start what they run.
//!
//! Owned here: the calls, their time limits, and waiting for what they began. A connection is made for each task: tasks
//! are seconds apart at least, and whoever was away is asked afresh.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use evenkeel_border::coded::Coded as _;
use evenkeel_border::order::{Order, Stop};
use evenkeel_enforce::evict::{EvictionResult, Hands, Runner};
use evenkeel_enforce::systemd::bus::{BusError, Manager};
use evenkeel_qos::eviction::Remedy;
use tokio::runtime::{Builder, Runtime};

use crate::outward::Gate;
use crate::sources::cri::{self, Stopped};
use crate::sources::reach::Reach;

/// One call to systemd.
const PATIENCE: Duration = Duration::from_secs(2);
/// A unit or pod that takes longer to end ends by itself; systemd and the runtime see to that.
const ENDING: Duration = Duration::from_secs(15);
/// Between two looks at a unit that ends or starts.
const LOOK: Duration = Duration::from_millis(100);

/// Asks systemd over the bus and runtimes over their sockets.
pub(crate) struct Runners {
    /// CRI sockets.
    pub sockets: Vec<PathBuf>,
    /// The way to the part that talks with runtimes, where that is another process.
    pub runtimes: Option<Gate>,
}

impl Hands for Runners {
    fn carry_out(
        &mut self,
        runner: &Runner,
        remedy: Remedy,
        beat: &dyn Fn(),
    ) -> Result<EvictionResult, String> {
        match runner {
            Runner::Unit(unit) => unit_done(unit, remedy, beat).map_err(|error| error.to_string()),
            Runner::Sandbox(id) => {
                let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
                let runtime = runtime.map_err(|error| error.to_string())?;
                let done = sandbox_stopped(&runtime, &self.sockets, self.runtimes.as_ref(), id, beat);
                runtime.shutdown_background();
                done
            }
        }
    }
}

/// Stops or restarts a unit and waits until it is so.
fn unit_done(unit: &str, remedy: Remedy, beat: &dyn Fn()) -> Result<EvictionResult, BusError> {
    let mut manager = Manager::connect(PATIENCE)?;
    beat();
    if remedy == Remedy::Restart {
        let policy = manager.restart_policy(unit)?;
        if policy != "no" {
            return Ok(EvictionResult::Unneeded(format!(
                "it has Restart={policy}, so systemd does it by itself"
            )));
        }
    }
    let wanted = match remedy {
        Remedy::Restart => "active",
        Remedy::Evict => "inactive",
    };
    match remedy {
        Remedy::Restart => manager.restart(unit)?,
        Remedy::Evict => manager.stop(unit)?,
    }
    let until = Instant::now() + ENDING;
    loop {
        beat();
        // A unit that was unloaded once it had stopped is stopped.
        let state = match manager.active_state(unit) {
            Err(BusError::NoUnit(_)) if remedy == Remedy::Evict => "inactive".to_owned(),
            other => other?,
        };
        let is_so = state == wanted || (remedy == Remedy::Evict && state == "failed");
        if is_so || Instant::now() >= until {
            return Ok(EvictionResult::Done(format!("it is {state}")));
        }
        std::thread::sleep(LOOK);
    }
}

/// Has the part that talks with runtimes stop a pod.
async fn stopped_there(gate: &Gate, socket: &Path, id: &str) -> Result<Stopped, String> {
    let within_ms = u64::try_from(ENDING.as_millis()).unwrap_or(u64::MAX);
    let order = Order::Stop(Stop { socket: socket.display().to_string(), id: id.to_owned(), within_ms });
    let answer = tokio::time::timeout(ENDING + PATIENCE, gate.answer(&order, None)).await;
    let answer = answer.map_err(|_| "the runtime's part does not answer".to_owned())?;
    let answer = answer.map_err(|error| format!("{error:#}"))?;
    match bool::of(&answer) {
        Ok(true) => Ok(Stopped::Done),
        Ok(false) => Ok(Stopped::Unknown),
        Err(error) => Err(error.to_string()),
    }
}

/// Stops a pod at the runtime that knows it.
fn sandbox_stopped(
    runtime: &Runtime,
    sockets: &[PathBuf],
    runtimes: Option<&Gate>,
    id: &str,
    beat: &dyn Fn(),
) -> Result<EvictionResult, String> {
    let mut failures = Vec::new();
    for socket in sockets {
        beat();
        let stop = |socket: &Path| {
            runtime.block_on(async {
                match runtimes {
                    None => cri::stop_sandbox(socket, &Reach::Here, id, ENDING).await,
                    Some(gate) => stopped_there(gate, socket, id).await,
                }
            })
        };
        match stop(socket) {
            Ok(Stopped::Done) => {
                return Ok(EvictionResult::Done(format!(
                    "its containers are stopped at {}",
                    socket.display()
                )));
            }
            Ok(Stopped::Unknown) => {}
            Err(why) => failures.push(format!("{}: {why}", socket.display())),
        }
    }
    if failures.is_empty() {
        Ok(EvictionResult::Unneeded("no runtime knows it any more".into()))
    } else {
        Err(failures.join("; "))
    }
}
