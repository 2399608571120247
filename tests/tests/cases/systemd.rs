//! What the agent does on a machine whose first process is systemd. Every case runs in the guest, one after the other on
//! one boot: the packaged unit is started by the first and its services stay.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use evenkeel_proto::v1::{ContainerStatus, ConvergeState, SourceStatus};
use evenkeel_tests::product::{AskAgent, Ended};
use evenkeel_tests::{machine, places, wait};

const AGENT: &str = "evenkeel-agent.service";
const UNITS: &str = "/etc/systemd/system";
const ROOT: &str = "/sys/fs/cgroup";
pub(crate) const HOLD: &str = "[Service]\nExecStart=/bin/evenkeel-workload hold 16Mi\nExecReload=/bin/true\n";
/// The packaged defaults, but for what these cases are not about.
pub(crate) const CONFIG: &str = "converge.audit_period = \"1s\"\ncpu.weight_conversion = \"quadratic\"\nsources.cri.enabled = false\n\
                      stream.recommender = \"\"\nsources.systemd.enabled = true\n";

pub(crate) fn systemctl(arguments: &[&str]) -> Result<String> {
    machine::run(Command::new("systemctl").args(arguments))
}

/// One property of a unit.
pub(crate) fn property(unit: &str, name: &str) -> Result<String> {
    Ok(systemctl(&["show", "--value", "-p", name, unit])?.trim().to_owned())
}

pub(crate) fn write(path: impl AsRef<Path>, text: &str) -> Result<()> {
    let path = path.as_ref();
    if let Some(above) = path.parent() {
        std::fs::create_dir_all(above).with_context(|| format!("cannot make {}", above.display()))?;
    }
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

pub(crate) fn unit_file(name: &str, text: &str) -> Result<()> {
    write(Path::new(UNITS).join(name), text)
}

/// A file of a unit's cgroup; `None` where there is none.
fn knob(unit: &str, file: &str) -> Result<Option<String>> {
    let path = directory(unit)?.join(file);
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// A unit's cgroup; that of the memory controller where each controller has a hierarchy of its own.
pub(crate) fn directory(unit: &str) -> Result<PathBuf> {
    let cgroup = property(unit, "ControlGroup")?;
    ensure!(!cgroup.is_empty(), "{unit} has no cgroup");
    let is_one = Path::new(ROOT).join("cgroup.controllers").exists();
    let root = if is_one { ROOT.to_owned() } else { format!("{ROOT}/memory") };
    Ok(Path::new(&root).join(cgroup.trim_start_matches('/')))
}

/// Scores of every process of a unit.
fn scores(unit: &str) -> Result<Vec<i32>> {
    let procs = std::fs::read_to_string(directory(unit)?.join("cgroup.procs"))?;
    procs
        .split_whitespace()
        .map(|pid| Ok(std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj"))?.trim().parse()?))
        .collect()
}

pub(crate) fn ask() -> Result<AskAgent> {
    AskAgent::new("unix:///run/evenkeel/agent.sock")
}

fn container(unit: &str) -> Result<Option<ContainerStatus>> {
    // Between a stop and the next start nobody answers.
    let Ok(status) = ask()?.status() else { return Ok(None) };
    Ok(status.containers.into_iter().find(|c| c.identity.as_ref().is_some_and(|i| i.pod == unit)))
}

/// Waits until the agent says of a unit what is wanted.
fn await_unit(unit: &str, what: &str, is: impl Fn(&ContainerStatus) -> bool) -> Result<ContainerStatus> {
    let mut last = None;
    let found = wait::until(&format!("{unit} to be {what}"), wait::PATIENCE, || {
        last = container(unit)?;
        Ok(last.clone().filter(&is))
    });
    found.with_context(|| format!("{last:#?}\n{}", log()))
}

fn await_converged(unit: &str) -> Result<ContainerStatus> {
    await_unit(unit, "converged", |c| c.state() == ConvergeState::Converged && c.processes > 0)
}

/// Waits until a knob of a unit has a value.
fn await_knob(unit: &str, file: &str, value: &str) -> Result<()> {
    let mut last = None;
    let found = wait::until(&format!("{file} of {unit} to be {value}"), wait::PATIENCE, || {
        last = knob(unit, file)?;
        Ok((last.as_deref() == Some(value)).then_some(()))
    });
    found.with_context(|| format!("it is {last:?}\n{:#?}\n{}", container(unit), log()))
}

/// Waits until the systemd source says what is wanted.
fn await_source(what: &str, is: impl Fn(&SourceStatus) -> bool) -> Result<SourceStatus> {
    let mut last = None;
    let found = wait::until(&format!("the source to be {what}"), wait::PATIENCE, || {
        let status = ask()?.status()?;
        last = status.sources.into_iter().find(|source| source.name == "systemd");
        Ok(last.clone().filter(&is))
    });
    found.with_context(|| format!("{last:#?}\n{}", log()))
}

fn log() -> String {
    let log = Command::new("journalctl").args(["--no-pager", "-n", "40", "-u", AGENT]).output();
    log.map_or_else(|error| error.to_string(), |log| String::from_utf8_lossy(&log.stdout).into_owned())
}

fn wanted<'a>(container: &'a ContainerStatus, knob: &str) -> Option<&'a str> {
    container.knobs.iter().find(|k| k.name == knob)?.wanted.as_deref()
}

/// Starts the packaged unit: it is ready, at its own score, and its sandbox lets it do its work.
pub(crate) fn the_hardened_unit_starts_and_protects_itself() -> Result<()> {
    write("/etc/evenkeel/agent.toml", CONFIG)?;
    systemctl(&["daemon-reload"])?;
    systemctl(&["start", AGENT]).with_context(log)?;
    let pid = property(AGENT, "MainPID")?;
    let score = std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj"))?;
    assert_eq!(score.trim(), "-999");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    assert!(status.lines().any(|line| line == "NoNewPrivs:\t1"), "{status}");
    assert!(status.lines().any(|line| line == "Seccomp:\t2"), "{status}");
    let source = await_source("healthy", |source| source.healthy)?;
    assert_eq!(source.address, "org.freedesktop.systemd1");
    Ok(())
}

/// Requests and limits of `[X-Evenkeel]`, of the unit's file and a drop-in over it, reach every knob.
pub(crate) fn a_service_gets_what_its_section_says() -> Result<()> {
    let section = "[X-Evenkeel]\nCPURequest=500m\nCPULimit=1\nMemoryRequest=64Mi\nMemoryLimit=512Mi\n";
    unit_file("db.service", &format!("{HOLD}{section}"))?;
    unit_file("db.service.d/10-more.conf", "[X-Evenkeel]\nMemoryRequest=128Mi\n")?;
    unit_file("web@.service", &format!("{HOLD}[X-Evenkeel]\nCPULimit=200m\nMemoryLimit=64Mi\n"))?;
    unit_file("plain.service", HOLD)?;
    unit_file("out.service", &format!("{HOLD}[X-Evenkeel]\nManage=no\nCPURequest=2\n"))?;
    systemctl(&["daemon-reload"])?;
    // Characters that are escaped in the names of objects and directories alike.
    let web = r"web@a\x2db.service";
    systemctl(&["start", "db.service", web, "plain.service", "out.service"])?;

    let db = await_converged("db.service")?;
    let identity = db.identity.clone().context("no identity")?;
    assert_eq!((identity.namespace.as_str(), identity.container.as_str()), ("systemd", "db"));
    assert_eq!((db.source.as_str(), db.cgroup.as_str()), ("systemd", "/system.slice/db.service"));
    // 512 shares by runc's curve, and what the section says.
    for (file, value) in [
        ("cpu.weight", "59"),
        ("cpu.max", "100000 100000"),
        ("memory.low", "134217728"),
        ("memory.max", "536870912"),
    ] {
        await_knob("db.service", file, value)?;
    }
    let score = wanted(&db, "oom_score_adj").context("no score is wanted")?.parse::<i32>()?;
    assert!((2..1000).contains(&score), "a Burstable score: {score}");
    assert_eq!(scores("db.service")?, [score]);
    // The manager knows them: they are its own properties.
    assert_eq!(property("db.service", "CPUWeight")?, "59");
    assert_eq!(property("db.service", "MemoryLow")?, "134217728");

    let instance = await_converged(web)?;
    assert_eq!(instance.identity.context("no identity")?.workload, "web@.service");
    assert_eq!(scores(web)?, [-999], "Guaranteed by its limits");
    await_knob(web, "memory.min", "67108864")?;

    let out = await_unit("out.service", "seen", |c| !c.managed)?;
    assert!(out.why.contains("Manage=no"), "{out:#?}");
    assert_eq!(property("out.service", "CPUWeight")?, "[not set]");
    assert!(container("plain.service")?.is_none(), "it says nothing about itself");
    Ok(())
}

/// What was set is still set when the manager read its files again and nobody else wrote it.
pub(crate) fn a_daemon_reload_keeps_what_was_set() -> Result<()> {
    systemctl(&["stop", AGENT])?;
    systemctl(&["daemon-reload"])?;
    // A change of any other property makes systemd write all of a unit's values.
    systemctl(&["set-property", "--runtime", "db.service", "TasksMax=100"])?;
    systemctl(&["restart", "db.service"])?;
    for (file, value) in
        [("cpu.weight", "59"), ("memory.low", "134217728"), ("memory.max", "536870912"), ("pids.max", "100")]
    {
        assert_eq!(knob("db.service", file)?.as_deref(), Some(value), "{file}");
    }
    systemctl(&["start", AGENT])?;
    await_converged("db.service").map(|_| ())
}

/// A new statement counts from the reload on, without a restart of anything.
pub(crate) fn a_changed_drop_in_counts_from_the_reload_on() -> Result<()> {
    unit_file("db.service.d/20-less.conf", "[X-Evenkeel]\nCPURequest=250m\nMemoryRequest=\nMemoryLimit=\n")?;
    systemctl(&["daemon-reload"])?;
    await_knob("db.service", "cpu.weight", "35")?;
    std::fs::remove_file(Path::new(UNITS).join("db.service.d/20-less.conf"))?;
    systemctl(&["daemon-reload"])?;
    await_knob("db.service", "cpu.weight", "59")?;
    await_knob("db.service", "memory.low", "134217728")?;
    await_converged("db.service").map(|_| ())
}

/// What the file says counts from the reload on, without a restart; a wrong file changes nothing.
pub(crate) fn a_reload_of_the_unit_puts_the_configuration_in_force() -> Result<()> {
    let pid = property(AGENT, "MainPID")?;
    let enabled = |wanted: bool| {
        wait::until(&format!("the pressure loop to be enabled: {wanted}"), wait::PATIENCE, || {
            let pressure = ask()?.status()?.pressure;
            Ok(pressure.is_some_and(|pressure| pressure.enabled == wanted).then_some(()))
        })
        .with_context(log)
    };
    enabled(true)?;
    write("/etc/evenkeel/agent.toml", &format!("{CONFIG}pressure.enabled = false\n"))?;
    systemctl(&["reload", AGENT])?;
    enabled(false)?;
    write("/etc/evenkeel/agent.toml", "pressure = 3\n")?;
    systemctl(&["reload", AGENT])?;
    wait::until("the agent to refuse it", wait::PATIENCE, || {
        Ok(log().contains("the running one stays in force").then_some(()))
    })
    .with_context(log)?;
    enabled(false)?;
    write("/etc/evenkeel/agent.toml", CONFIG)?;
    systemctl(&["reload", AGENT])?;
    enabled(true)?;
    assert_eq!(property(AGENT, "MainPID")?, pid);
    Ok(())
}

/// Errors are told by file, line and key, and nothing of a section with one is applied.
pub(crate) fn a_wrong_section_is_told_by_file_line_and_key() -> Result<()> {
    unit_file("wrong.service", &format!("{HOLD}[X-Evenkeel]\nCPURequest=3\nMemoryRequest=64Mb\n"))?;
    systemctl(&["daemon-reload"])?;
    systemctl(&["start", "wrong.service"])?;
    let wrong = await_unit("wrong.service", "seen", |c| !c.managed)?;
    assert!(wrong.why.contains("[X-Evenkeel]"), "{wrong:#?}");
    let place = "/etc/systemd/system/wrong.service:6";
    let source = await_source("telling", |source| source.why.contains(place))?;
    assert!(source.why.contains("MemoryRequest"), "{source:#?}");
    assert_eq!(property("wrong.service", "CPUWeight")?, "[not set]");
    systemctl(&["stop", "wrong.service"])?;
    await_source("content again", |source| source.why.is_empty()).map(|_| ())
}

/// A unit whose slice withholds a controller is named with what to change.
pub(crate) fn a_missing_controller_is_named_with_its_remedy() -> Result<()> {
    unit_file("lacking.slice", "[Slice]\nDisableControllers=cpu memory\n")?;
    let section = "[X-Evenkeel]\nCPURequest=1\nMemoryRequest=32Mi\n";
    unit_file("poor.service", &format!("{HOLD}Slice=lacking.slice\n{section}"))?;
    systemctl(&["daemon-reload"])?;
    systemctl(&["start", "poor.service"])?;
    let told = |c: &ContainerStatus, words: &str| c.knobs.iter().any(|knob| knob.reason.contains(words));
    await_unit("poor.service", "told", |c| told(c, "CPUAccounting=") && told(c, "MemoryAccounting="))?;
    let both = |source: &SourceStatus| {
        ["cpu of poor.service", "memory of poor.service"].iter().all(|text| source.why.contains(text))
    };
    let source = await_source("naming what poor.service lacks", both)?;
    assert!(source.healthy && source.remedy.contains("DisableControllers="), "{source:#?}");
    // Its score needs no controller.
    assert!(scores("poor.service")?.iter().all(|score| (2..1000).contains(score)));
    systemctl(&["stop", "poor.service"]).map(|_| ())
}

/// A slice with a section is one container made of all in it, until something in it speaks for itself.
pub(crate) fn a_slice_counts_as_a_whole_or_gives_way() -> Result<()> {
    unit_file("batch.slice", "[X-Evenkeel]\nCPURequest=100m\nMemoryRequest=32Mi\n")?;
    unit_file("job.service", &format!("{HOLD}Slice=batch.slice\n"))?;
    unit_file("own.service", &format!("{HOLD}Slice=batch.slice\n[X-Evenkeel]\nCPURequest=50m\n"))?;
    systemctl(&["daemon-reload"])?;
    systemctl(&["start", "job.service"])?;
    let batch = await_converged("batch.slice")?;
    let score = wanted(&batch, "oom_score_adj").context("no score is wanted")?.parse::<i32>()?;
    assert_eq!(scores("job.service")?, [score], "processes below the slice");
    await_knob("batch.slice", "memory.low", "33554432")?;
    systemctl(&["start", "own.service"])?;
    let batch = await_unit("batch.slice", "sampled only", |c| !c.managed)?;
    assert!(batch.why.contains("/batch.slice/own.service"), "{batch:#?}");
    await_converged("own.service")?;
    systemctl(&["stop", "own.service"])?;
    await_converged("batch.slice")?;
    systemctl(&["stop", "job.service", "batch.slice"]).map(|_| ())
}

/// A cgroup below a unit is whoever's it is delegated to, and systemd has no part in it.
pub(crate) fn a_delegated_subtree_is_written_directly() -> Result<()> {
    unit_file("runtime.service", "[Service]\nDelegate=yes\nExecStart=/bin/evenkeel-workload hold 1Mi\n")?;
    systemctl(&["daemon-reload"])?;
    systemctl(&["start", "runtime.service"])?;
    let runtime = directory("runtime.service")?;
    for inner in ["manager", "c1"] {
        std::fs::create_dir(runtime.join(inner))?;
    }
    let procs = std::fs::read_to_string(runtime.join("cgroup.procs"))?;
    for pid in procs.split_whitespace() {
        std::fs::write(runtime.join("manager/cgroup.procs"), pid)?;
    }
    std::fs::write(runtime.join("cgroup.subtree_control"), "+cpu +memory")?;
    write(
        "/etc/evenkeel/manifests/inner.json",
        &manifest("inner", "cgroup", "/system.slice/runtime.service/c1"),
    )?;
    wait::until_true("the inner cgroup to have its weight", || {
        std::fs::read_to_string(runtime.join("c1/cpu.weight")).is_ok_and(|weight| weight.trim() == "35")
    })
    .with_context(log)?;
    assert_eq!(property("runtime.service", "CPUWeight")?, "[not set]");
    std::fs::remove_file("/etc/evenkeel/manifests/inner.json")?;
    systemctl(&["stop", "runtime.service"]).map(|_| ())
}

/// A manifest that names a unit goes over silence, and is set through systemd as well.
pub(crate) fn a_manifest_binds_a_unit() -> Result<()> {
    write("/etc/evenkeel/manifests/plain.json", &manifest("plain", "unit", "plain.service"))?;
    let bound =
        await_unit("plain", "converged", |c| c.state() == ConvergeState::Converged && c.processes > 0)?;
    assert_eq!((bound.source.as_str(), bound.cgroup.as_str()), ("manifests", "/system.slice/plain.service"));
    await_knob("plain.service", "cpu.weight", "35")?;
    assert_eq!(property("plain.service", "CPUWeight")?, "35");
    Ok(())
}

fn manifest(name: &str, kind: &str, at: &str) -> String {
    format!(
        r#"{{"apiVersion": "v1", "kind": "Pod", "metadata": {{"name": "{name}", "annotations":
        {{"evenkeel.dev/{kind}.main": "{at}"}}}}, "spec": {{"containers": [{{"name": "main", "image": "localhost/x:1",
        "resources": {{"requests": {{"cpu": "250m", "memory": "16Mi"}}}}}}]}}}}"#
    )
}

/// A process that takes more than a unit may have, in its cgroup, and dies of it.
fn oom(unit: &str) -> Result<()> {
    let procs = directory(unit)?.join("cgroup.procs");
    let script = format!("echo $$ > {}; exec /bin/evenkeel-workload hold 96Mi", procs.display());
    let ended = Command::new("/bin/sh").args(["-c", &script]).output().context("cannot start a hog")?;
    ensure!(!ended.status.success(), "{unit} let a hog live: {ended:?}");
    Ok(())
}

/// Where it is wished the agent asks systemd to stop a BestEffort service that was OOM-killed, and to restart a Burstable
/// one that systemd itself would not.
pub(crate) fn services_that_were_oom_killed_are_stopped_and_restarted() -> Result<()> {
    let small = "[Service]\nExecStart=/bin/evenkeel-workload hold 1Mi\nMemoryMax=32M\nMemorySwapMax=0\nOOMPolicy=continue\n";
    unit_file("batch.service", &format!("{small}[X-Evenkeel]\nCPURequest=50m\n"))?;
    unit_file("keep.service", &format!("{small}[X-Evenkeel]\nMemoryRequest=8Mi\n"))?;
    write(
        "/etc/evenkeel/agent.toml",
        &format!("{CONFIG}eviction.carry_out = \"act\"\neviction.pause = \"1s\"\n"),
    )?;
    systemctl(&["daemon-reload"])?;
    systemctl(&["reload", AGENT])?;
    systemctl(&["start", "batch.service", "keep.service"])?;
    await_converged("batch.service")?;
    await_converged("keep.service")?;
    let before = property("keep.service", "MainPID")?;
    oom("batch.service")?;
    wait::until_true("batch.service to be stopped", || {
        property("batch.service", "ActiveState").is_ok_and(|state| state == "inactive")
    })
    .with_context(log)?;
    oom("keep.service")?;
    wait::until_true("keep.service to be another process", || {
        let now = property("keep.service", "MainPID");
        now.is_ok_and(|pid| pid != "0" && pid != before)
    })
    .with_context(log)?;
    for (unit, kind, words) in [
        ("batch.service", "evict", "asked systemd to stop"),
        ("keep.service", "restart", "asked systemd to restart"),
    ] {
        wait::until("the deed to be told", wait::PATIENCE, || {
            let of_unit =
                |d: &evenkeel_proto::v1::Decision| d.pod.as_deref() == Some(&format!("systemd/{unit}"));
            let told = ask()?.decisions()?.into_iter().filter(of_unit);
            let mut told = told.filter(|d| d.kind == kind && d.result == "done" && d.reason.contains(words));
            Ok(told.next())
        })
        .with_context(log)?;
    }
    write("/etc/evenkeel/agent.toml", CONFIG)?;
    systemctl(&["reload", AGENT])?;
    systemctl(&["stop", "keep.service"]).map(|_| ())
}

/// Killed, the agent is started again by its unit, and what was changed meanwhile is repaired.
pub(crate) fn a_killed_agent_comes_back_and_repairs() -> Result<()> {
    let before = property(AGENT, "MainPID")?;
    systemctl(&["kill", "--kill-whom=main", "--signal=KILL", AGENT])?;
    std::fs::write(directory("db.service")?.join("cpu.weight"), "777")?;
    wait::until_true("another agent", || {
        property(AGENT, "MainPID").is_ok_and(|pid| pid != "0" && pid != before)
    })?;
    await_knob("db.service", "cpu.weight", "59")?;
    await_converged("db.service")?;
    let pid = property(AGENT, "MainPID")?;
    assert_eq!(std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj"))?.trim(), "-999");
    assert_ne!(property(AGENT, "NRestarts")?, "0");
    Ok(())
}

/// Without the bus knobs are kept all the same, and the source says what is wrong until the bus is back.
pub(crate) fn without_the_bus_knobs_are_written_directly() -> Result<()> {
    // The service goes with its socket, but leaves its process behind on purpose.
    let pid = property("dbus.service", "MainPID")?;
    systemctl(&["stop", "dbus.socket"])?;
    // An error says that it has ended after all.
    let _ = machine::run(Command::new("kill").args(["-KILL", &pid]));
    let lost = await_source("lost", |source| !source.healthy)?;
    assert!(lost.remedy.contains("dbus.service") && lost.containers > 0, "{lost:#?}");
    std::fs::write(directory("db.service")?.join("cpu.weight"), "778")?;
    await_knob("db.service", "cpu.weight", "59")?;
    systemctl(&["start", "dbus.socket"])?;
    await_source("found again", |source| source.healthy)?;
    systemctl(&["restart", "db.service"])?;
    await_converged("db.service").map(|_| ())
}

/// Everything is put back, in the kernel and in the manager, and no drop-in hides what unit files say.
pub(crate) fn restoring_leaves_units_as_they_were() -> Result<()> {
    systemctl(&["stop", AGENT])?;
    let restored = Ended::of(places::command("evenkeel-agent")?.args(["restore", "-o", "json"]))?;
    ensure!(restored.status == Some(0), "{restored:#?}");
    for unit in ["db.service", r"web@a\x2db.service", "plain.service"] {
        for (name, value) in
            [("CPUWeight", "[not set]"), ("CPUQuotaPerSecUSec", "infinity"), ("MemoryMax", "infinity")]
        {
            assert_eq!(property(unit, name)?, value, "{name} of {unit}: {}", restored.stdout);
        }
        for (name, value) in [("MemoryLow", "0"), ("MemoryMin", "0")] {
            assert_eq!(property(unit, name)?, value, "{name} of {unit}: {}", restored.stdout);
        }
        assert_eq!(knob(unit, "memory.max")?.as_deref().unwrap_or("max"), "max", "{unit}");
        assert_eq!(knob(unit, "memory.low")?.as_deref().unwrap_or("0"), "0", "{unit}");
        assert_eq!(scores(unit)?, [0], "{unit}: {}", restored.stdout);
    }
    let left: Vec<PathBuf> = ["/run/systemd/system.control", "/run/systemd/transient"]
        .iter()
        .flat_map(|place| std::fs::read_dir(place).into_iter().flatten().flatten())
        .flat_map(|unit| std::fs::read_dir(unit.path()).into_iter().flatten().flatten())
        .map(|file| file.path())
        .filter(|path| !path.ends_with("50-TasksMax.conf"))
        .collect();
    assert!(left.is_empty(), "{left:#?}");
    Ok(())
}
