//! What the agent may do, who may do it twice, where it keeps its state, and how it takes a changed configuration.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::Path;

use anyhow::{Context as _, Result};
use evenkeel_proto::v1::ConvergeState;
use evenkeel_tests::product::{Agent, AgentSetup, Manifest, Site};
use evenkeel_tests::{machine, require, wait};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

/// Capabilities an agent may have, as bits of `/proc/PID/status`: SYS_RESOURCE, DAC_OVERRIDE, KILL, NET_ADMIN, SYSLOG.
const AGENTS: u64 = 1 << 24 | 1 << 1 | 1 << 5 | 1 << 12 | 1 << 34;
/// What a guardian may have: DAC_OVERRIDE.
const GUARDIANS: u64 = 1 << 1;

/// A field of `/proc/PID/status`.
fn status(pid: Pid, field: &str) -> Result<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    Ok(line.with_context(|| format!("no {field}"))?.trim().to_owned())
}

fn assert_confined(pid: Pid, may: u64) -> Result<()> {
    assert_eq!(status(pid, "NoNewPrivs")?, "1", "{pid}");
    for set in ["CapPrm", "CapEff", "CapBnd", "CapInh", "CapAmb"] {
        let held = u64::from_str_radix(&status(pid, set)?, 16)?;
        assert_eq!(held & !may, 0, "{pid}: {set} is {held:x}, of which {may:x} may be held");
    }
    Ok(())
}

/// The guardian: the agent's child.
fn guardian(agent: &Agent) -> Result<Pid> {
    let pid = agent.daemon().pid()?;
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    let child = children.split_whitespace().next().context("no guardian")?;
    Ok(Pid::from_raw(child.parse()?))
}

#[test]
fn agent_and_guardian_hold_what_they_need_and_gain_nothing() -> Result<()> {
    require!(machine::is_root(), "an agent needs root");
    let site = Site::new()?;
    let agent = site.start()?;
    // Its socket is there before it has opened everything; it answers when it has dropped what it does not need.
    agent.ask().status()?;
    assert_confined(agent.daemon().pid()?, AGENTS)?;
    let guardian = guardian(&agent)?;
    wait::until("the guardian to have dropped its capabilities", wait::PATIENCE, || {
        Ok((u64::from_str_radix(&status(guardian, "CapEff")?, 16)? & !GUARDIANS == 0).then_some(()))
    })?;
    assert_confined(guardian, GUARDIANS)?;
    agent.stop()
}

#[test]
fn one_agent_writes_on_a_machine_whatever_its_socket_and_state() -> Result<()> {
    require!(machine::is_root(), "an agent needs root");
    let site = Site::new()?;
    let agent = site.start()?;
    let (state, socket) = (site.directory().join("other"), site.directory().join("other.sock"));
    let (state, socket) = (state.to_string_lossy(), socket.to_string_lossy());
    let elsewhere = ["--state-dir", &state, "--socket", &socket];
    let pid = agent.daemon().pid()?.to_string();
    for more in [&["--once"][..], &[], &["restore"]] {
        let second = site.agent.run(&[&elsewhere[..], more].concat())?;
        assert_eq!(second.status, Some(1), "{more:?}: {}", second.said());
        let said = second.said();
        assert!(said.contains("another agent") && said.contains(&pid) && said.contains("stop it"), "{said}");
    }
    // Who only looks disturbs nobody.
    let dry = site.agent.run(&[&elsewhere[..], &["--once", "--dry-run"]].concat())?;
    assert_eq!(dry.status, Some(0), "{}", dry.said());
    agent.kill()?;
    let once = site.agent.run(&[&elsewhere[..], &["--once"]].concat())?;
    assert_eq!(once.status, Some(0), "{}", once.said());
    Ok(())
}

#[test]
fn state_is_kept_private_or_not_at_all() -> Result<()> {
    require!(machine::is_root(), "an agent needs root");
    let site = Site::new()?;
    let state = site.directory().join("agent");
    fs::create_dir(&state)?;
    // Another user's directory, and one others may write: refused in words, before anything is written.
    chown(&state, Some(65_534), None)?;
    let victim = site.directory().join("victim");
    fs::write(&victim, "precious")?;
    symlink(&victim, state.join("journal.new"))?;
    let refused = site.agent.run(&["--once"])?;
    assert!(refused.status == Some(1) && refused.said().contains("chown"), "{}", refused.said());
    chown(&state, Some(0), None)?;
    fs::set_permissions(&state, Permissions::from_mode(0o777))?;
    let refused = site.agent.run(&["--once"])?;
    assert!(refused.status == Some(1) && refused.said().contains("chmod"), "{}", refused.said());
    // What was planted there before is not followed either.
    fs::set_permissions(&state, Permissions::from_mode(0o755))?;
    let once = site.agent.run(&["--once", "--strict"])?;
    assert!(once.status == Some(1) && once.said().contains("symbolic link"), "{}", once.said());
    assert_eq!(fs::read_to_string(&victim)?, "precious");
    fs::remove_file(state.join("journal.new"))?;
    let agent = site.start()?;
    let mut open = Vec::new();
    others_may(&state, &mut open)?;
    assert!(open.is_empty(), "others may use {open:?}");
    agent.stop()
}

/// Everything below a directory that others than its owner may use.
fn others_may(directory: &Path, found: &mut Vec<String>) -> Result<()> {
    for path in fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).chain([Ok(directory.to_owned())]) {
        let path: std::path::PathBuf = path.map_err(|error: std::io::Error| error)?;
        let meta = fs::symlink_metadata(&path)?;
        if meta.mode() & 0o077 != 0 {
            found.push(format!("{} {:o}", path.display(), meta.mode()));
        }
        if meta.is_dir() && path != directory {
            others_may(&path, found)?;
        }
    }
    Ok(())
}

#[test]
fn damage_of_state_is_told_in_log_status_and_metrics() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = Site::new()?;
    let (cgroup, _) = site.sleeper("web")?;
    site.bind(&Manifest::burstable("web", &cgroup.path(), "100m", "64Mi"))?;
    let agent = site.start()?;
    agent.await_state("web", ConvergeState::Converged)?;
    agent.kill()?;
    let journal = site.directory().join("agent/journal.jsonl");
    let whole = fs::read(&journal)?;
    fs::write(&journal, &whole[..whole.len() - 7])?;
    let agent = site.start()?;
    let status = agent.ask().status()?;
    let log = agent.daemon().log();
    assert!(log.contains("a state file is damaged") && log.contains("journal.jsonl"), "{log}");
    let row =
        status.knobs.iter().find(|knob| knob.name == "journal.jsonl").context("status does not tell")?;
    assert_eq!((row.state.as_str(), row.remedy.is_empty()), ("damaged", false), "{row:?}");
    assert!(
        agent.cli().run(&["status"])?.stdout.contains("journal.jsonl"),
        "the table of status does not tell"
    );
    let metrics = agent.metrics()?;
    let line = "evenkeel_agent_state_entries_damaged_total{file=\"journal.jsonl\"} 1";
    assert!(metrics.contains(line), "{metrics}");
    agent.stop()
}

/// Changes the configuration on disk, sends SIGHUP, and waits for what the log says of it.
fn reload(agent: &Agent, setup: &AgentSetup, said: &str) -> Result<()> {
    let before = agent.daemon().log().matches(said).count();
    setup.config()?;
    agent.daemon().signal(Signal::SIGHUP)?;
    wait::until(said, wait::PATIENCE, || {
        Ok((agent.daemon().log().matches(said).count() > before).then_some(()))
    })
    .with_context(|| agent.log_end())
}

#[test]
fn a_reload_puts_in_force_what_it_can_and_names_the_rest() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = Site::new()?;
    let (cgroup, _) = site.sleeper("web")?;
    site.bind(&Manifest::burstable("web", &cgroup.path(), "100m", "64Mi"))?;
    let agent = site.start()?;
    let container = agent.await_state("web", ConvergeState::Converged)?;
    let namespace = container.identity.context("no identity")?.namespace;
    let managed = |wanted: bool| {
        agent.await_container("web", "managed as the configuration says", |c| c.managed == wanted).map(drop)
    };
    let excluding = site.agent.clone().set("manage.exclude_namespaces", &format!("[\"{namespace}\"]"));
    reload(&agent, &excluding, "the new configuration is in force")?;
    managed(false)?;
    // What needs a restart is named, what does not is in force all the same.
    let both = site.agent.clone().set("rules", "\"kubelet\"");
    reload(&agent, &both, "restart=\"rules\"")?;
    managed(true)?;
    // A mistake keeps what runs.
    let wrong = excluding.clone().set("converge.freeze", "\"sometimes\"");
    reload(&agent, &wrong, "the configuration is wrong; the running one stays in force")?;
    assert!(agent.daemon().log().contains("converge.freeze"), "{}", agent.log_end());
    managed(true)?;
    reload(&agent, &excluding, "the new configuration is in force")?;
    managed(false)?;
    agent.stop()
}
