//! The agent with a unit for each part, on a machine whose first process is systemd. Every case runs in the guest, one after the other on one
//! boot, with the units as they are shipped.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Child, Command};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use evenkeel_proto::v1::{GetStatusResponse, PartStatus};
use evenkeel_tests::matrix::{Answers, Around, PARTS, UNITS, Victims, answers};
use evenkeel_tests::processes::{field, score};
use evenkeel_tests::product::RecommenderSetup;
use evenkeel_tests::{figures, machine, wait};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::units::{HOLD, ask, directory, property, systemctl, unit_file, write};

const TARGET: &str = "evenkeel-agent.target";
const ENFORCING: &str = "evenkeel-agent-enforcing.service";
const NETWORK: &str = "evenkeel-agent-network.service";
const RUNTIME: &str = "evenkeel-agent-runtime.service";
const READER: &str = "evenkeel-agent-reader.service";
/// A service that is governed.
const DB: &str = "db.service";
/// Where the recommender of these cases is.
const PLACE: &str = "/run/recommender-of-tests";
/// Nothing is mended by an audit while these cases run: what becomes right, events made right.
const CONFIG: &str = "converge.audit_period = \"1h\"\nsample.interval = \"200ms\"\nsources.cri.enabled = false\n\
                      node.name = \"node-a\"\nsources.systemd.enabled = true\n\
                      stream.recommender = \"unix:///run/recommender-of-tests/recommender.sock\"\n";
/// Unit, and the most that `systemd-analyze security` may say of it, in tenths.
const EXPOSURE: [(&str, &str); 4] = [(NETWORK, "12"), (RUNTIME, "14"), (READER, "14"), (ENFORCING, "22")];

fn log() -> String {
    let log = Command::new("journalctl").args(["--no-pager", "-n", "60", "-u", "evenkeel-agent*"]).output();
    log.map_or_else(|error| error.to_string(), |log| String::from_utf8_lossy(&log.stdout).into_owned())
}

/// Waits until the agent's status is as wanted; nobody answers while the network part is away.
fn await_status(what: &str, is: impl Fn(&GetStatusResponse) -> bool) -> Result<GetStatusResponse> {
    let mut last = None;
    let found = wait::until(what, wait::PATIENCE, || {
        last = ask()?.status().ok();
        Ok(last.clone().filter(&is))
    });
    found.with_context(|| format!("{last:#?}\n{}", log()))
}

fn part<'a>(status: &'a GetStatusResponse, name: &str) -> Option<&'a PartStatus> {
    status.parts.iter().find(|part| part.name == name && part.pid > 0)
}

fn await_parts() -> Result<GetStatusResponse> {
    let all = ["enforcing", "network", "runtime", "reader"];
    await_status("all parts", |status| all.iter().all(|name| part(status, name).is_some_and(|p| p.seccomp)))
}

fn main_pid(unit: &str) -> Result<Pid> {
    Ok(Pid::from_raw(property(unit, "MainPID")?.parse().context("no process")?))
}

/// Waits for another process of a unit than `before`.
fn await_another(unit: &str, before: Pid) -> Result<Pid> {
    let found = wait::until(&format!("another process of {unit}"), wait::PATIENCE, || {
        let now = main_pid(unit)?;
        Ok((now.as_raw() != 0 && now != before).then_some(now))
    });
    found.with_context(log)
}

fn network_of(pid: impl std::fmt::Display) -> Result<String> {
    let path = format!("/proc/{pid}/ns/net");
    Ok(fs::read_link(&path).with_context(|| format!("cannot read {path}"))?.display().to_string())
}

/// A process without a score in a governed service's cgroup, as if it had just come.
fn newcomer() -> Result<Child> {
    let child = Command::new("sleep").arg("1000").spawn().context("cannot start a process")?;
    fs::write(directory(DB)?.join("cgroup.procs"), child.id().to_string()).context("cannot move it")?;
    Ok(child)
}

fn pid_of(child: &Child) -> Result<Pid> {
    Ok(Pid::from_raw(child.id().try_into()?))
}

/// The packaged units start, each as its own user with its own rights, and systemd thinks well of them.
pub(crate) fn each_part_is_a_unit_with_its_own_user_and_rights() -> Result<()> {
    machine::run(&mut Command::new("systemd-sysusers"))?;
    write("/etc/evenkeel/agent.toml", CONFIG)?;
    unit_file(DB, &format!("{HOLD}[X-Evenkeel]\nCPURequest=100m\nMemoryRequest=64Mi\n"))?;
    systemctl(&["daemon-reload"])?;
    systemctl(&["start", DB])?;
    systemctl(&["start", TARGET]).with_context(log)?;
    let status = await_parts()?;
    assert_eq!(status.parts_mode, "three-processes");
    assert!(status.wake.as_ref().is_some_and(|wake| wake.process_events), "{:#?}\n{}", status.wake, log());
    // Nobody starts anybody but systemd.
    for unit in [ENFORCING, NETWORK, RUNTIME, READER] {
        let (pid, name) =
            (main_pid(unit)?, unit.trim_start_matches("evenkeel-agent-").trim_end_matches(".service"));
        let told = part(&status, name).context("no such part")?;
        assert_eq!(i64::from(told.pid), i64::from(pid.as_raw()), "{unit}");
        assert_eq!(field(pid, "NoNewPrivs")?, "1", "{unit}");
        assert_eq!(field(pid, "Seccomp")?, "2", "{unit}");
        let capabilities: BTreeSet<String> =
            ["CapEff", "CapPrm", "CapBnd"].into_iter().map(|set| field(pid, set)).collect::<Result<_>>()?;
        if unit == ENFORCING {
            // KILL, NET_ADMIN, SYS_RESOURCE, DAC_OVERRIDE and SYSLOG: 5, 12, 24, 1, 34 of capabilities(7).
            let most = [1, 5, 12, 24, 34].into_iter().fold(0_u64, |mask, bit| mask | 1 << bit);
            for set in &capabilities {
                let held = u64::from_str_radix(set, 16).context("not a mask")?;
                assert_eq!(held & !most, 0, "{set}");
            }
        } else {
            assert_eq!(capabilities, BTreeSet::from(["0".repeat(16)]), "{unit}");
            assert!(told.uid != 0 && field(pid, "Uid")?.starts_with(&told.uid.to_string()), "{told:?}");
        }
        // Only one of them has the host's network.
        let is_hosts = network_of(pid)? == network_of(1)?;
        assert_eq!(is_hosts, unit == NETWORK, "{unit}");
    }
    let uids: BTreeSet<u32> = status.parts.iter().map(|part| part.uid).collect();
    assert_eq!(uids.len(), 4, "{:?}", status.parts);
    for (unit, most) in EXPOSURE {
        let mut analyze = Command::new("systemd-analyze");
        analyze.args(["security", "--no-pager", &format!("--threshold={most}"), unit]);
        let said = machine::run(&mut analyze)?;
        let overall = said.lines().find(|line| line.contains("Overall exposure")).unwrap_or_default();
        figures::show(overall.trim_start_matches(['→', ' ']));
    }
    wait::until_true("the service's score", || {
        main_pid(DB).and_then(score).is_ok_and(|score| (2..1000).contains(&score))
    })
}

/// What a part's unit and its own confinement together let it do, as the kernel answers; by attempt.
fn probed(name: &str, victims: &Victims) -> Result<Answers> {
    let shipped = fs::read_to_string(format!("/etc/systemd/system/evenkeel-agent-{name}.service"))?;
    let own = [
        "Requires=",
        "PartOf=",
        "After=",
        "Wants=",
        "Conflicts=",
        "Sockets=",
        "Type=",
        "ExecStart=",
        "ExecStopPost=",
        "Restart",
        "WatchdogSec=",
    ];
    let sandbox = shipped.lines().filter(|line| !own.iter().any(|key| line.starts_with(key)));
    let said = format!("/var/tmp/probe-{name}");
    let program = format!(
        "Type=oneshot\nExecStart=/usr/bin/evenkeel-agent part {name} --readable /sys/fs/cgroup --probe {}\n\
         StandardError=file:{said}",
        victims.flags().join(" ")
    );
    let text: Vec<&str> = sandbox
        .flat_map(|line| if line == "[Service]" { vec![line, &program] } else { vec![line] })
        .collect();
    let unit = format!("probe-{name}.service");
    unit_file(&unit, &text.join("\n"))?;
    systemctl(&["daemon-reload"])?;
    systemctl(&["start", &unit]).with_context(|| fs::read_to_string(&said).unwrap_or_default())?;
    Ok(answers(&fs::read_to_string(said)?))
}

/// Part x action, where each part is in its unit's sandbox beside its own confinement.
pub(crate) fn in_its_unit_each_part_may_what_it_needs_and_nothing_else() -> Result<()> {
    // Below /etc, which no unit has a directory of its own for.
    let place = Path::new("/etc/victims");
    fs::create_dir_all(place)?;
    fs::set_permissions(place, Permissions::from_mode(0o755))?;
    let victims = Victims::new(place, directory(DB)?.join("cgroup.procs"), main_pid(DB)?)?;
    let answers: Vec<_> =
        PARTS.into_iter().take(UNITS).map(|name| probed(name, &victims)).collect::<Result<_>>()?;
    let wrong = victims.wrong(Around::Unit, &answers);
    ensure!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}

/// Killed again and again, the network part leaves no process without its score: only events can make it right here, and each does.
pub(crate) fn enforcement_has_no_gap_while_the_network_part_is_killed() -> Result<()> {
    let wanted = score(main_pid(DB)?)?;
    let enforcing = main_pid(ENFORCING)?;
    let mut took = Vec::new();
    for _ in 0..machine::scaled(10, 100) {
        let network = main_pid(NETWORK)?;
        kill(network, Signal::SIGKILL)?;
        let (mut child, came) = (newcomer()?, Instant::now());
        let pid = pid_of(&child)?;
        wait::until_true("a newcomer's score", || score(pid).is_ok_and(|score| score == wanted))
            .with_context(log)?;
        took.push(came.elapsed());
        child.kill()?;
        child.wait()?;
        await_another(NETWORK, network)?;
    }
    took.sort();
    let p99 = took.get((took.len() * 99).div_ceil(100) - 1).copied().unwrap_or_default();
    figures::show(&format!(
        "{} kills of the network part: a newcomer's score is right after {p99:?} at p99, looked for every 5 to 50 ms on an emulated processor",
        took.len()
    ));
    assert_eq!(main_pid(ENFORCING)?, enforcing);
    let status = await_parts()?;
    let network = part(&status, "network").context("no network part")?;
    // Those that were killed before the enforcing part had spoken to them are nothing to it.
    assert!(network.restarts > 0 && !network.ended.is_empty(), "{network:?}");
    Ok(())
}

/// What was seen before the enforcing part is killed waits on disk, and arrives with what the next one sees.
pub(crate) fn nothing_that_was_seen_is_lost_while_enforcement_restarts() -> Result<()> {
    let written = |at_least: u64| {
        let status = await_status(&format!("{at_least} frames"), |status| {
            status.stream.as_ref().is_some_and(|stream| stream.frames_written >= at_least)
        })?;
        Ok::<u64, anyhow::Error>(status.stream.context("it was there")?.frames_written)
    };
    let before = written(3)?;
    let enforcing = main_pid(ENFORCING)?;
    kill(enforcing, Signal::SIGKILL)?;
    let killed = Instant::now();
    await_another(ENFORCING, enforcing)?;
    let after = written(1)?;
    figures::show(&format!(
        "enforcement killed: the first frame after that is seen {:?} later, on an emulated processor with debug builds",
        killed.elapsed()
    ));
    fs::create_dir_all(PLACE)?;
    let recommender = RecommenderSetup::new(Path::new(PLACE))?.start()?;
    let all = wait::until("all frames", wait::PATIENCE, || {
        let nodes = recommender.ask().nodes()?;
        let node = nodes.into_iter().find(|node| node.name == "node-a");
        Ok(node.filter(|node| node.frames >= before + after))
    });
    let node = all.with_context(log)?;
    assert_eq!(node.gaps, 0, "{node:?}");
    // All parts are back, and the service kept its score.
    await_parts()?;
    assert!((2..1000).contains(&score(main_pid(DB)?)?));
    recommender.stop()
}

/// Has a ledger of the agent say something more.
fn noted(ledger: &str, line: &Value) -> Result<()> {
    let path = format!("/var/lib/evenkeel/agent/{ledger}.jsonl");
    let mut file = fs::File::options().append(true).open(&path).with_context(|| format!("no {path}"))?;
    writeln!(file, "{line}").context("cannot write a ledger")
}

/// However the enforcing part ends, and though nothing starts it again, systemd has undone what it had set for a while, by its ledgers. Here
/// somebody else sets and notes it, while the part is stopped.
pub(crate) fn systemd_undoes_what_a_killed_enforcing_part_had_set_for_a_while() -> Result<()> {
    let enforcing = main_pid(ENFORCING)?;
    let processes = fs::read_to_string(directory(ENFORCING)?.join("cgroup.procs"))?;
    assert_eq!(processes.trim(), enforcing.to_string(), "there is a guardian");
    let once = "/run/systemd/system/evenkeel-agent-enforcing.service.d/once.conf";
    write(once, "[Service]\nRestart=no\nExecStartPre=/bin/sh -c 'exit 1'\n")?;
    systemctl(&["daemon-reload"])?;
    let at = directory(DB)?;
    let (high, freeze) = (at.join("memory.high"), at.join("cgroup.freeze"));
    let now = |file: &Path| fs::read_to_string(file).map(|text| text.trim().to_owned());
    let before = now(&high)?;
    kill(enforcing, Signal::SIGSTOP)?;
    let path = at.display().to_string().replace("/sys/fs/cgroup", "");
    let place = json!({ "hierarchy": "unified", "path": path, "inode": fs::metadata(&at)?.ino() });
    let held =
        json!({ "what": "held", "target": place, "knob": "memory.high", "old": before, "new": "1073741824" });
    noted("transients", &held)?;
    noted("journal", &json!({ "what": "frozen", "target": place }))?;
    fs::write(&high, "1073741824")?;
    fs::write(&freeze, "1")?;
    kill(enforcing, Signal::SIGKILL)?;
    let is_undone = || now(&high).is_ok_and(|now| now == before) && now(&freeze).is_ok_and(|now| now == "0");
    wait::until_true("what was set for a while to be undone", is_undone).with_context(log)?;
    assert_eq!(property(ENFORCING, "MainPID")?, "0", "there is another enforcing part");
    fs::remove_file(once)?;
    systemctl(&["daemon-reload"])?;
    // Parts that came back meanwhile had it started again, in vain.
    systemctl(&["reset-failed"])?;
    systemctl(&["start", TARGET])?;
    await_parts().map(|_| ())
}

/// Each of the parts without rights may be restarted by itself; with the enforcing part all stop, and with the target all come.
pub(crate) fn parts_restart_alone_and_stop_with_the_enforcing_one() -> Result<()> {
    let enforcing = main_pid(ENFORCING)?;
    for unit in [NETWORK, RUNTIME, READER] {
        let before = main_pid(unit)?;
        systemctl(&["restart", unit]).with_context(log)?;
        await_another(unit, before)?;
        await_parts()?;
        assert_eq!(main_pid(ENFORCING)?, enforcing, "{unit}");
    }
    systemctl(&["stop", ENFORCING])?;
    for unit in [
        ENFORCING,
        NETWORK,
        RUNTIME,
        READER,
        "evenkeel-agent-border-network.socket",
        "evenkeel-agent-process-events.socket",
    ] {
        wait::until_true(&format!("{unit} to be stopped"), || {
            property(unit, "ActiveState").is_ok_and(|state| state == "inactive")
        })
        .with_context(|| format!("{unit}\n{}", log()))?;
    }
    // What is forked now must start nothing.
    drop(newcomer()?.kill());
    assert_eq!(property(ENFORCING, "ActiveState")?, "inactive");
    systemctl(&["start", TARGET])?;
    await_parts().map(|_| ())
}

/// The reader lists again over a new connection when the bus comes back, and is started again when what connects for it ended.
pub(crate) fn the_reader_connects_to_the_bus_again() -> Result<()> {
    let listed = |what: &str, is_well: bool| {
        await_status(what, |status| {
            status.sources.iter().any(|source| source.name == "systemd" && source.healthy == is_well)
        })
    };
    listed("units to be listed", true)?;
    let reader = main_pid(READER)?;
    // The service goes with its socket, but may leave its process behind.
    let bus = main_pid("dbus.service")?;
    systemctl(&["stop", "dbus.socket"])?;
    // An error says that it has ended after all.
    let _ = kill(bus, Signal::SIGKILL);
    listed("the bus to be missed", false)?;
    systemctl(&["start", "dbus.socket"])?;
    listed("units to be listed again", true)?;
    assert_eq!(main_pid(READER)?, reader);
    let processes = fs::read_to_string(directory(READER)?.join("cgroup.procs"))?;
    let mut others = processes.lines().filter(|pid| **pid != reader.to_string());
    let (connector, more) = (others.next().context("nothing connects")?, others.next());
    assert!(more.is_none(), "{processes}");
    let connector = Pid::from_raw(connector.parse()?);
    assert_eq!(field(connector, "Seccomp")?, "2");
    assert_eq!(field(connector, "Uid")?, field(reader, "Uid")?);
    kill(connector, Signal::SIGKILL)?;
    await_another(READER, reader)?;
    await_parts()?;
    listed("units to be listed by another reader", true).map(|_| ())
}

/// systemd ends a part that hangs, and another one takes its place.
pub(crate) fn a_part_that_hangs_is_ended_by_its_watchdog() -> Result<()> {
    let network = main_pid(NETWORK)?;
    kill(network, Signal::SIGSTOP)?;
    await_another(NETWORK, network)?;
    await_parts().map(|_| ())
}

/// The agent in one process takes the place of all of them, and they its.
pub(crate) fn one_process_and_units_take_each_others_place() -> Result<()> {
    systemctl(&["start", "evenkeel-agent.service"]).with_context(log)?;
    let status = await_status("one process", |status| status.parts_mode == "one-process")?;
    assert_eq!(status.parts.len(), 1);
    for unit in [ENFORCING, NETWORK, RUNTIME, READER] {
        assert_eq!(property(unit, "ActiveState")?, "inactive", "{unit}");
    }
    systemctl(&["start", TARGET])?;
    await_parts()?;
    assert_eq!(property("evenkeel-agent.service", "ActiveState")?, "inactive");
    systemctl(&["stop", TARGET])?;
    wait::until_true("all to stop", || {
        property(ENFORCING, "ActiveState").is_ok_and(|state| state == "inactive")
    })
}

/// Where a starter starts the reader, in place of systemd, it lists units as well: over a connection of nobody's, made for it once more after it
/// was killed.
pub(crate) fn a_reader_that_a_starter_started_lists_units() -> Result<()> {
    let unit = "evenkeel-agent-by-hand.service";
    let program = "ExecStart=/usr/bin/evenkeel-agent --default-mode enforce";
    let mode = "Environment=EVENKEEL_AGENT_PARTS__MODE=three-processes";
    unit_file(unit, &format!("[Service]\nType=notify\n{program}\n{mode}\n"))?;
    systemctl(&["daemon-reload"])?;
    systemctl(&["start", unit]).with_context(log)?;
    let status = await_status("a reader and the service", |status| {
        part(status, "reader").is_some()
            && status.containers.iter().any(|container| container.cgroup.ends_with(DB))
    })?;
    let reader = part(&status, "reader").context("it was there")?;
    assert_eq!(reader.uid, 65_532);
    kill(Pid::from_raw(reader.pid.try_into()?), Signal::SIGKILL)?;
    systemctl(&["stop", DB])?;
    await_status("the service to be gone", |status| {
        status.containers.iter().all(|container| !container.cgroup.ends_with(DB))
    })?;
    systemctl(&["stop", unit]).map(|_| ())
}
