//! Looking at every process of a cgroup whose processes come and go: once at once, and once while it is frozen, when
//! none can slip through.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use evenkeel_tests::cgroups::TestCgroup;
use evenkeel_tests::wait;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;
use nix::unistd::Pid;

/// How often the frozen look is tried again when the agent thawed the cgroup meanwhile.
const ATTEMPTS: u32 = 100;

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    /// Live processes looked at while frozen.
    pub(crate) live: usize,
    /// Live processes with another score, and which.
    pub(crate) wrong: Vec<(Pid, i32)>,
}

/// Looks at every process twice.
pub(crate) fn check(cgroup: &TestCgroup, wanted: i32) -> Result<Checked> {
    let mut checked = look(cgroup, wanted)?;
    let freezer = Freezer::of(cgroup)?;
    for _ in 0..ATTEMPTS {
        freezer.freeze()?;
        let frozen = look(cgroup, wanted);
        // The agent, too, may have frozen the cgroup, and its thawing would have let forks through.
        let held = freezer.is_frozen();
        freezer.thaw()?;
        let frozen = frozen?;
        if held? {
            checked.live = frozen.live;
            checked.wrong.extend(frozen.wrong);
            return Ok(checked);
        }
    }
    bail!("the cgroup did not stay frozen in {ATTEMPTS} attempts")
}

/// Reads the list and every score in it.
fn look(cgroup: &TestCgroup, wanted: i32) -> Result<Checked> {
    let mut seen = Vec::new();
    for pid in cgroup.processes()? {
        // Through the directory: what is read is of one process, whoever has its number later.
        if let Ok(directory) = open(format!("/proc/{pid}").as_str(), OFlag::O_DIRECTORY, Mode::empty()) {
            let read = |name: &str| -> Option<String> {
                let file = openat(&directory, name, OFlag::O_RDONLY, Mode::empty()).ok()?;
                let mut text = String::new();
                File::from(file).read_to_string(&mut text).ok()?;
                Some(text)
            };
            // Gone between two reads is fine.
            if let (Some(score), Some(stat)) = (read("oom_score_adj"), read("stat")) {
                seen.push((pid, score, stat));
            }
        }
    }
    // A number read from the list may have been given to a stranger before its directory was opened.
    let still = cgroup.processes()?;
    let mut checked = Checked::default();
    for (pid, score, stat) in seen {
        if !still.contains(&pid) || is_dead(&stat) {
            continue;
        }
        let score: i32 = score.trim().parse().with_context(|| format!("{pid} has the score {score:?}"))?;
        checked.live += 1;
        if score != wanted {
            checked.wrong.push((pid, score));
        }
    }
    Ok(checked)
}

/// State Z or X, proc_pid_stat(5): dead already, and its score means nothing.
fn is_dead(stat: &str) -> bool {
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
}

/// Holds a cgroup's processes still.
enum Freezer {
    V1(PathBuf),
    V2 { switch: PathBuf, events: PathBuf },
}

impl Freezer {
    fn of(cgroup: &TestCgroup) -> Result<Freezer> {
        let directory = cgroup.directory("freezer")?;
        Ok(if cgroup.is_v2() {
            Freezer::V2 { switch: directory.join("cgroup.freeze"), events: directory.join("cgroup.events") }
        } else {
            Freezer::V1(directory.join("freezer.state"))
        })
    }

    /// Freezes, again and again while the agent thaws.
    fn freeze(&self) -> Result<()> {
        wait::until("the cgroup to freeze", wait::PATIENCE, || {
            self.write("FROZEN", "1")?;
            Ok(self.is_frozen()?.then_some(()))
        })
    }

    fn thaw(&self) -> Result<()> {
        self.write("THAWED", "0")
    }

    fn write(&self, v1: &str, v2: &str) -> Result<()> {
        let (path, value) = match self {
            Freezer::V1(state) => (state, v1),
            Freezer::V2 { switch, .. } => (switch, v2),
        };
        std::fs::write(path, value).with_context(|| format!("cannot write {}", path.display()))
    }

    fn is_frozen(&self) -> Result<bool> {
        let path = match self {
            Freezer::V1(state) => state,
            Freezer::V2 { events, .. } => events,
        };
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(match self {
            Freezer::V1(_) => text.trim() == "FROZEN",
            Freezer::V2 { .. } => text.lines().any(|line| line == "frozen 1"),
        })
    }
}
