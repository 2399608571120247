//! What each part may do where the agent starts them: part x action, each allowed or with its error.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use evenkeel_tests::cgroups::{CgroupTree, Tier};
use evenkeel_tests::matrix::{Answers, Around, PARTS, Victims, answers};
use evenkeel_tests::product::directory;
use evenkeel_tests::{machine, places, require};
use nix::unistd::Pid;

/// Users of the parts, in their order: the starter begins as root.
const USERS: [u32; 5] = [0, 65_530, 65_531, 65_532, 0];

/// Runs a part as its starter does, only to try what it may.
fn probed(part: &str, uid: u32, victims: &Victims) -> Result<Answers> {
    let mut command = Command::new(places::program("evenkeel-agent")?);
    command.args(["part", part, "--probe"]).args(victims.flags()).env_clear().current_dir("/");
    if uid != 0 {
        command.uid(uid).gid(uid);
    }
    let output = command.stdin(Stdio::null()).output().context("cannot run a part")?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{part}: {said}");
    Ok(answers(&said))
}

/// By the list of what the kernel was started with.
fn around() -> Result<Around> {
    if machine::is_emulated() {
        // Guests have nothing mounted that they do not need; one that is mounted already is refused.
        let mut securityfs = Command::new("mount");
        securityfs.args(["-t", "securityfs", "securityfs", "/sys/kernel/security"]).stderr(Stdio::null());
        let _mounted = securityfs.status().context("cannot run mount")?;
    }
    let modules = fs::read_to_string("/sys/kernel/security/lsm");
    let is_there = modules.map(|modules| modules.contains("landlock"));
    Ok(is_there.map_or(Around::Unknown, |is_there| if is_there { Around::Landlock } else { Around::User }))
}

pub(crate) fn each_part_may_what_it_needs_and_nothing_else() -> Result<()> {
    require!(machine::is_root(), "parts are started as root");
    let place = directory()?;
    fs::set_permissions(place.path(), Permissions::from_mode(0o755))?;
    let tree = CgroupTree::new()?;
    let cgroup = tree.container(Tier::Burstable, "probe", "main")?;
    let knob = cgroup.directory("memory")?.join("cgroup.procs");
    let mut victim = Command::new("sleep").arg("1000").spawn()?;
    let victims = Victims::new(place.path(), knob, Pid::from_raw(victim.id().try_into()?))?;
    let answers: Result<Vec<_>> =
        PARTS.into_iter().zip(USERS).map(|(part, uid)| probed(part, uid, &victims)).collect();
    victim.kill()?;
    victim.wait()?;
    let wrong = victims.wrong(around()?, &answers?);
    ensure!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}
