//! What each part may do: part x action, each allowed or with its error, as the kernel answers a process confined like it.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use evenkeel_tests::cgroups::{CgroupTree, Tier};
use evenkeel_tests::product::directory;
use evenkeel_tests::{machine, places, require};

/// Users of the network's part, the runtime's and the reader.
const NETWORK: u32 = 65_530;
const RUNTIME: u32 = 65_531;
const READER: u32 = 65_532;

/// Runs a part as its starter does, only to try what it may; what the kernel answered, by attempt.
fn probed(part: &str, uid: u32, victims: &[String]) -> Result<BTreeMap<String, String>> {
    let mut command = Command::new(places::program("evenkeel-agent")?);
    command.args(["part", part, "--probe"]).args(victims).env_clear().current_dir("/");
    if uid != 0 {
        command.uid(uid).gid(uid);
    }
    let output = command.stdin(Stdio::null()).output().context("cannot run a part")?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{part}: {said}");
    let lines = said.lines().filter_map(|line| line.strip_prefix("probe ")?.rsplit_once(' '));
    Ok(lines.map(|(what, how)| (what.to_owned(), how.to_owned())).collect())
}

pub(crate) fn each_part_may_what_it_needs_and_nothing_else() -> Result<()> {
    require!(machine::is_root(), "parts are started as root");
    let place = directory()?;
    fs::set_permissions(place.path(), Permissions::from_mode(0o755))?;
    // A runtime's socket, as open as a careless one is, and a secret.
    let runtime = place.path().join("runtime.sock");
    let _listener = UnixListener::bind(&runtime)?;
    fs::set_permissions(&runtime, Permissions::from_mode(0o777))?;
    let (open, secret) = (place.path().join("open"), place.path().join("secret"));
    fs::write(&open, "readable by all")?;
    fs::set_permissions(&open, Permissions::from_mode(0o644))?;
    fs::write(&secret, "root's")?;
    fs::set_permissions(&secret, Permissions::from_mode(0o600))?;
    let tree = CgroupTree::new()?;
    let cgroup = tree.container(Tier::Burstable, "probe", "main")?;
    let knob = cgroup.directory("memory")?.join("cgroup.procs");
    let mut victim = Command::new("sleep").arg("1000").spawn()?;
    let shown = |path: &std::path::Path| path.display().to_string();
    let mut victims: Vec<String> = Vec::new();
    for (flag, value) in [
        ("--pid", victim.id().to_string()),
        ("--read", shown(&open)),
        ("--read", shown(&secret)),
        ("--write", shown(&knob)),
        ("--connect", shown(&runtime)),
    ] {
        victims.extend([flag.to_owned(), value]);
    }
    let enforcing = probed("enforcing", 0, &victims);
    let network = probed("network", NETWORK, &victims);
    let runtimes = probed("runtime", RUNTIME, &victims);
    let reader = probed("reader", READER, &victims);
    victim.kill()?;
    victim.wait()?;
    let (enforcing, network, runtimes, reader) = (enforcing?, network?, runtimes?, reader?);
    let (connect, write) = (format!("connect:{}", shown(&runtime)), format!("write:{}", shown(&knob)));
    let (open, secret) = (format!("read:{}", shown(&open)), format!("read:{}", shown(&secret)));
    // What is tried, and what the enforcing part, the network's, and the runtime's and the reader get.
    let table = [
        ("socket:inet", "EPERM", "ok", "EPERM"),
        ("socket:inet6", "EPERM", "ok", "EPERM"),
        ("bind:loopback", "EPERM", "ok", "EPERM"),
        ("socket:unix", "ok", "EPERM", "EPERM"),
        ("socket:netlink", "ok", "ok", "EPERM"),
        ("socket:packet", "EPERM", "EPERM", "EPERM"),
        ("socket:vsock", "EPERM", "EPERM", "EPERM"),
        (&connect, "ok", "EPERM", "EPERM"),
        (&write, "ok", "EACCES", "EACCES"),
        (&secret, "ok", "EACCES", "EACCES"),
        ("oom_score_adj", "ok", "EACCES", "EACCES"),
        ("environ", "EACCES", "EACCES", "EACCES"),
        ("kill", "ok", "EPERM", "EPERM"),
        ("mem", "EACCES", "EACCES", "EACCES"),
        ("process_vm_readv", "EPERM", "EPERM", "EPERM"),
        ("unshare:user", "EPERM", "EPERM", "EPERM"),
        ("unshare:mount", "EPERM", "EPERM", "EPERM"),
        ("mount", "EPERM", "EPERM", "EPERM"),
        ("chroot", "EPERM", "EPERM", "EPERM"),
        ("setuid:0", "ok", "EPERM", "EPERM"),
        ("execve", "ok", "EPERM", "EPERM"),
    ];
    for (what, first, second, third) in table {
        let of = |answers: &BTreeMap<String, String>| answers.get(what).cloned().unwrap_or_default();
        let got = [of(&enforcing), of(&network), of(&runtimes), of(&reader)];
        assert_eq!(got, [first, second, third, third], "{what}");
    }
    // By Landlock, where the kernel has it: nothing but what it needs, also of what all may read.
    if machine::is_emulated() {
        // Guests have nothing mounted that they do not need; one that is mounted already is refused.
        let mut securityfs = Command::new("mount");
        securityfs.args(["-t", "securityfs", "securityfs", "/sys/kernel/security"]).stderr(Stdio::null());
        let _mounted = securityfs.status().context("cannot run mount")?;
    }
    let has_landlock =
        fs::read_to_string("/sys/kernel/security/lsm").is_ok_and(|lsm| lsm.contains("landlock"));
    if has_landlock {
        for answers in [network, runtimes, reader] {
            assert_eq!(answers.get(&open).map(String::as_str), Some("EACCES"));
        }
    }
    Ok(())
}
