//! From a host with systemd: services stop, the agent's program puts the originals back. What packages or hands installed is theirs to take
//! away, and named.

use std::path::Path;
use std::process::{Command, Stdio};

use super::{StepResult, UninstallStep};
use crate::failure::Failure;

/// The units, in the order they are stopped; the socket would start the recommender again.
const UNITS: [&str; 4] = [
    "evenkeel-agent.service",
    "evenkeel-agent.target",
    "evenkeel-recommender.socket",
    "evenkeel-recommender.service",
];
/// The program that restores.
const AGENT: &str = "evenkeel-agent";
/// The Debian packages.
const PACKAGES: [&str; 3] = ["evenkeel-agent", "evenkeel-recommender", "evenkeel"];
/// What is left where no package brought it.
const PLACES: [&str; 18] = [
    "/usr/bin/evenkeel-agent",
    "/usr/bin/evenkeel-recommender",
    "/etc/systemd/system/evenkeel-agent.service",
    "/etc/systemd/system/evenkeel-agent.target",
    "/etc/systemd/system/evenkeel-agent-enforcing.service",
    "/etc/systemd/system/evenkeel-agent-network.service",
    "/etc/systemd/system/evenkeel-agent-runtime.service",
    "/etc/systemd/system/evenkeel-agent-reader.service",
    "/etc/systemd/system/evenkeel-agent-border-network.socket",
    "/etc/systemd/system/evenkeel-agent-border-runtime.socket",
    "/etc/systemd/system/evenkeel-agent-border-reader.socket",
    "/etc/systemd/system/evenkeel-agent-process-events.socket",
    "/etc/systemd/system/evenkeel-recommender.service",
    "/etc/systemd/system/evenkeel-recommender.socket",
    "/etc/evenkeel",
    "/var/lib/evenkeel",
    "/var/lib/private/evenkeel",
    "/run/evenkeel",
];

/// Everything that is to be done, or was.
pub(super) fn run(yes: bool) -> Result<Vec<UninstallStep>, Failure> {
    if yes && !nix::unistd::Uid::effective().is_root() {
        let why = "only root may stop services and write their settings";
        return Err(Failure::new("cannot uninstall", "this host", why, "sudo evenkeel uninstall --yes"));
    }
    let mut steps: Vec<UninstallStep> =
        UNITS.iter().filter(|unit| is_loaded(unit)).map(|unit| stop(unit, yes)).collect();
    if steps.iter().any(|step| step.result == StepResult::Failed) {
        return Ok(steps);
    }
    steps.push(restore(yes));
    if steps.iter().all(|step| step.result != StepResult::Failed) {
        steps.push(left());
    }
    Ok(steps)
}

/// Whether systemd knows the unit, running or not.
fn is_loaded(unit: &str) -> bool {
    let mut show = Command::new("systemctl");
    show.args(["show", "--property=LoadState", "--value", unit]);
    said(&mut show).is_ok_and(|state| state.trim() == "loaded")
}

fn stop(unit: &str, yes: bool) -> UninstallStep {
    if !yes {
        return UninstallStep::new("stop", unit, StepResult::WouldDo);
    }
    match said(Command::new("systemctl").args(["disable", "--now", unit])) {
        Ok(_) => UninstallStep::new("stop", unit, StepResult::Done),
        Err(why) => UninstallStep::new("stop", unit, StepResult::Failed).because(why),
    }
}

fn restore(yes: bool) -> UninstallStep {
    let step = |result| UninstallStep::new("restore", "this host", result);
    if !yes {
        return step(StepResult::WouldDo)
            .because("evenkeel-agent restore: every setting gets the value it had before");
    }
    match said(Command::new(AGENT).arg("restore").env("EVENKEEL_AGENT_MODE", "enforce")) {
        Ok(_) => step(StepResult::Done),
        Err(why) => step(StepResult::Failed)
            .because(format!("{why}; see evenkeel-agent restore, which can be run again")),
    }
}

/// What is left, and who takes it away.
fn left() -> UninstallStep {
    let is_installed = |package: &str| {
        let mut query = Command::new("dpkg-query");
        query.args(["--show", "--showformat=${db:Status-Status}", package]);
        said(&mut query).is_ok_and(|status| status == "installed")
    };
    let packages: Vec<&str> = PACKAGES.into_iter().filter(|package| is_installed(package)).collect();
    if !packages.is_empty() {
        let why = format!("apt-get purge {}", packages.join(" "));
        return UninstallStep::new("remove", "packages, configuration and state", StepResult::Left)
            .because(why);
    }
    let there: Vec<&str> = PLACES.iter().filter(|place| Path::new(place).exists()).copied().collect();
    if there.is_empty() {
        return UninstallStep::new("remove", "files", StepResult::Done)
            .because("none is left where they are installed by hand");
    }
    UninstallStep::new("remove", "files", StepResult::Left).because(format!("rm -r {}", there.join(" ")))
}

/// What a program prints, or why it failed.
fn said(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{program}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().replace('\n', "; ");
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    Err(format!("{program}: {}: {}", output.status, text(&output.stderr)))
}
