//! How the agent is started, tried out, stopped, followed and undone.

use anyhow::{Context, Result};
use evenkeel_proto::v1::ConvergeState;
use evenkeel_tests::processes::score;
use evenkeel_tests::product::{Manifest, Site, parse_metrics};
use evenkeel_tests::{machine, require, wait};
use nix::sys::signal::Signal;
use serde_json::Value;

#[test]
fn a_dry_run_writes_nothing_and_says_what_it_would() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = Site::new()?.with(|agent| agent.set("mode", "\"dry-run\""));
    let (cgroup, pid) = site.sleeper("web")?;
    let (file, usual) = if cgroup.is_v2() { ("cpu.weight", "100") } else { ("cpu.shares", "1024") };
    site.bind(&Manifest::burstable("web", &cgroup.path(), "100m", "64Mi"))?;
    let agent = site.start()?;
    let decisions = wait::until("both wishes to be told", wait::PATIENCE, || {
        let decisions = agent.ask().decisions()?;
        let would = decisions.iter().filter(|d| d.kind == "set" && d.result == "would-do").count();
        Ok((would >= 2).then_some(decisions))
    })?;
    assert!(decisions.iter().all(|d| d.kind != "set" || d.result == "would-do"), "{decisions:#?}");
    assert_eq!(agent.ask().status()?.mode, "dry-run");
    assert_eq!((score(pid)?, cgroup.read("cpu", file)?.as_str()), (0, usual));
    agent.stop()?;
    assert_eq!((score(pid)?, cgroup.read("cpu", file)?.as_str()), (0, usual));
    Ok(())
}

#[test]
fn once_does_it_tells_it_and_ends() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = Site::new()?;
    let (cgroup, pid) = site.sleeper("web")?;
    site.bind(&Manifest::best_effort("web", &cgroup.path()))?;
    let dry = site.agent.run(&["--once", "--dry-run"])?;
    assert_eq!((dry.status, score(pid)?), (Some(0), 0), "{}", dry.said());
    assert!(dry.stdout.contains("web") && dry.stdout.contains("would"), "{}", dry.said());
    let done = site.agent.run(&["--once"])?;
    assert_eq!((done.status, score(pid)?), (Some(0), 1000), "{}", done.said());
    assert!(done.stdout.contains("web") && done.stdout.contains("1000"), "{}", done.said());
    Ok(())
}

#[test]
fn a_start_without_a_configuration_is_a_dry_run_and_says_so() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = Site::new()?;
    let (cgroup, pid) = site.sleeper("web")?;
    site.bind(&Manifest::best_effort("web", &cgroup.path()))?;
    // Everything as it was, but nobody chooses a mode.
    let site = site.with(|agent| agent.unset("mode"));
    let agent = site.start()?;
    wait::until("the wish to be told", wait::PATIENCE, || {
        let decisions = agent.ask().decisions()?;
        Ok(decisions.iter().any(|d| d.kind == "set" && d.result == "would-do").then_some(()))
    })?;
    let status = agent.ask().status()?;
    let told = status.knobs.iter().find(|knob| knob.name == "mode").context("status does not say it")?;
    assert!(told.remedy.contains("mode = \"enforce\""), "{told:?}");
    assert_eq!((status.mode.as_str(), score(pid)?), ("dry-run", 0));
    assert!(agent.daemon().log().contains("no configuration names a mode"), "{}", agent.daemon().log());
    agent.stop()?;
    let help = site.agent.run(&["--help"])?;
    assert!(help.stdout.contains("dry run") && help.stdout.contains("mode = \"enforce\""), "{}", help.said());
    // A service unit's word is a default: it enforces, and a file goes over it.
    let once = site.agent.run(&["--once", "--default-mode", "enforce"])?;
    assert_eq!((once.status, score(pid)?), (Some(0), 1000), "{}", once.said());
    let site = site.with(|agent| agent.set("mode", "\"dry-run\""));
    let shown = site.agent.run(&["config", "show", "--default-mode", "enforce"])?;
    assert!(shown.stdout.contains("mode = \"dry-run\""), "{}", shown.said());
    Ok(())
}

#[test]
fn a_dry_run_may_look_while_the_agent_runs() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = Site::new()?;
    let (cgroup, _pid) = site.sleeper("web")?;
    site.bind(&Manifest::best_effort("web", &cgroup.path()))?;
    let agent = site.start()?;
    agent.await_state("web", ConvergeState::Converged)?;
    let look = site.agent.run(&["--dry-run", "--once"])?;
    assert_eq!(look.status, Some(0), "{}", look.said());
    assert!(look.stdout.contains("web") && look.stdout.contains("dry run"), "{}", look.said());
    agent.ask().status()?;
    agent.stop()
}

#[test]
fn metrics_are_answered_at_once() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = Site::new()?.with(|agent| agent.set("sample.interval", "\"5s\""));
    let (cgroup, _pid) = site.sleeper("web")?;
    site.bind(&Manifest::best_effort("web", &cgroup.path()))?;
    let agent = site.start()?;
    let is_sampled =
        |page: &str| page.contains("container_memory_usage_bytes{namespace=\"default\",pod=\"web\"");
    wait::until("the container to be sampled", wait::PATIENCE, || {
        // Until it listens nothing answers.
        Ok(is_sampled(&agent.metrics().unwrap_or_default()).then_some(()))
    })?;
    // Waiting for the next tick each time would take up to five seconds, three times as long as all of them may.
    let began = std::time::Instant::now();
    for _ in 0..8 {
        assert!(is_sampled(&agent.metrics()?));
    }
    let took = began.elapsed();
    assert!(took < std::time::Duration::from_secs(2), "{took:?} for eight pages");
    agent.stop()
}

#[test]
fn restore_puts_the_originals_back() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = Site::new()?;
    let (cgroup, pid) = site.sleeper("web")?;
    let (file, before) = if cgroup.is_v2() { ("cpu.weight", "70") } else { ("cpu.shares", "700") };
    cgroup.set("cpu", file, before)?;
    site.bind(&Manifest::burstable("web", &cgroup.path(), "100m", "64Mi"))?;
    let agent = site.start()?;
    agent.await_state("web", ConvergeState::Converged)?;
    assert_ne!(cgroup.read("cpu", file)?, before);
    // An agent that was killed could not say goodbye; its journal can.
    agent.kill()?;
    let restored = site.agent.run(&["restore"])?;
    assert_eq!(restored.status, Some(0), "{}", restored.said());
    assert_eq!((score(pid)?, cgroup.read("cpu", file)?.as_str()), (0, before), "{}", restored.said());
    let again = site.agent.run(&["restore"])?;
    assert_eq!(again.status, Some(0), "{}", again.said());
    assert!(site.agent.state().join("journal.jsonl").exists() && site.agent.socket().exists());
    // Nothing of the agent is left on the machine; again, too.
    for _ in 0..2 {
        let purged = site.agent.run(&["restore", "--purge"])?;
        assert_eq!(purged.status, Some(0), "{}", purged.said());
        assert!(!site.agent.state().exists() && !site.agent.socket().exists(), "{}", purged.said());
    }
    Ok(())
}

#[test]
fn a_second_agent_on_the_same_node_state_is_refused() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let site = Site::new()?;
    let agent = site.start()?;
    let second = site.agent.run(&[])?;
    assert!(second.status.is_some_and(|status| status != 0), "{}", second.said());
    assert!(second.stderr.contains("another") && second.stderr.contains("agent"), "{}", second.said());
    // The first is not disturbed.
    agent.ask().status()?;
    agent.stop()?;
    // A socket left by one that was killed is no obstacle.
    site.start()?.kill()?;
    assert!(site.agent.socket().exists());
    site.start()?.stop()
}

#[test]
fn sigterm_ends_it_in_order_and_an_interrupt_too() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = Site::new()?;
    let (cgroup, _) = site.sleeper("web")?;
    site.bind(&Manifest::best_effort("web", &cgroup.path()))?;
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let agent = site.start()?;
        agent.await_state("web", ConvergeState::Converged)?;
        let mut daemon = agent.into_daemon();
        daemon.signal(signal)?;
        let status = daemon.wait(wait::PATIENCE)?;
        assert!(status.success(), "{signal}: {status}");
        assert!(!site.agent.socket().exists(), "the socket is left behind");
    }
    Ok(())
}

fn has_keys(what: &str, value: &Value, keys: &[&str]) {
    let missing: Vec<_> = keys.iter().filter(|key| value.get(**key).is_none()).collect();
    assert!(missing.is_empty(), "{what} lacks {missing:?}: {value:#}");
}

#[test]
fn status_and_events_have_their_pinned_form() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = Site::new()?;
    let (cgroup, _) = site.sleeper("web")?;
    site.bind(&Manifest::burstable("web", &cgroup.path(), "100m", "64Mi"))?;
    let agent = site.start()?;
    agent.await_state("web", ConvergeState::Converged)?;
    let status = agent.cli().json(&["status"])?;
    has_keys(
        "status",
        &status,
        &["node", "mode", "rules", "panic", "capabilities", "knobs", "containers", "sources", "stream"],
    );
    assert_eq!((&status["node"], &status["mode"]), (&"node-a".into(), &"enforce".into()));
    for knob in status["knobs"].as_array().context("knobs is a list")? {
        has_keys("a knob", knob, &["name", "state", "why", "remedy"]);
    }
    let containers = status["containers"].as_array().context("containers is a list")?;
    let web = containers.iter().find(|c| c["pod"] == "default/web").context("no container")?;
    let keys = [
        "pod",
        "container",
        "id",
        "inode",
        "classes",
        "state",
        "generation",
        "verifiedAt",
        "processes",
        "knobs",
    ];
    has_keys("a container", web, &keys);
    assert_eq!((&web["state"], &web["classes"]["memory"]), (&"converged".into(), &"Burstable".into()));
    assert_eq!((&web["processes"], &web["container"]), (&1.into(), &"main".into()));
    assert!(web["inode"].as_u64().is_some_and(|inode| inode > 0) && web["verifiedAt"].is_string(), "{web:#}");

    let events = agent.cli().json(&["events"])?;
    let events = events.as_array().context("events is a list")?;
    assert!(!events.is_empty());
    for event in events {
        let keys = [
            "time",
            "seq",
            "node",
            "pod",
            "container",
            "kind",
            "knob",
            "old",
            "new",
            "reason",
            "inputs",
            "result",
        ];
        has_keys("an event", event, &keys);
    }
    let set = events.iter().find(|e| e["kind"] == "set" && e["knob"] == "oom_score_adj").context("no set")?;
    assert_eq!((&set["old"], &set["result"], &set["node"]), (&"0".into(), &"done".into(), &"node-a".into()));
    for command in [["status"], ["events"], ["top"]] {
        let mut words = command.to_vec();
        if command == ["top"] {
            words.push("--once");
        }
        let shown = agent.cli().run(&words)?.success()?;
        assert!(shown.contains("web"), "{words:?}: {shown}");
    }
    agent.stop()
}

#[test]
fn metrics_are_read_by_any_scraper() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = Site::new()?;
    let (cgroup, _) = site.sleeper("web")?;
    site.bind(&Manifest::burstable("web", &cgroup.path(), "100m", "64Mi"))?;
    let agent = site.start()?;
    agent.await_state("web", ConvergeState::Converged)?;
    let series = wait::until("the container's use to be served", wait::PATIENCE, || {
        let series = parse_metrics(&agent.metrics()?)?;
        let is_web = |labels: &&std::collections::BTreeMap<String, String>| {
            labels.get("pod").is_some_and(|pod| pod == "web")
                && labels.get("namespace").is_some_and(|namespace| namespace == "default")
                && labels.get("container").is_some_and(|container| container == "main")
        };
        let served = series.labels("container_memory_working_set_bytes").iter().any(is_web);
        Ok(served.then_some(series))
    })?;
    for family in ["container_cpu_usage_seconds_total", "container_memory_rss"] {
        assert!(series.sum(family).is_some(), "no {family}");
    }
    assert_eq!(series.kind("container_memory_working_set_bytes"), Some("gauge"));
    let text = agent.metrics()?;
    assert!(text.lines().any(|line| line.starts_with("evenkeel_agent_")), "{text}");
    agent.stop()
}
