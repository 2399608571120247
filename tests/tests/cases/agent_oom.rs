//! What the agent makes of OOM kills inside containers, on whatever kernel this runs.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use evenkeel_proto::v1::{Decision, EvictionOffer};
use evenkeel_tests::cgroups::{TestCgroup, Tier};
use evenkeel_tests::product::{Agent, Manifest, Site, parse_metrics};
use evenkeel_tests::runtime::scripted::{Events, Scripted, Told};
use evenkeel_tests::{machine, require, wait};

/// Limit of the containers here, and what a process asks for that must die of it.
const LIMIT: u64 = 48 << 20;
const TOO_MUCH: &str = "96Mi";

/// Limits a container's memory, with swap counted where the kernel lets us.
fn limit(cgroup: &TestCgroup) -> Result<()> {
    let limit = LIMIT.to_string();
    if cgroup.is_v2() {
        cgroup.set("memory", "memory.max", &limit)?;
        // Without swap there is no such file.
        let _without_swap = cgroup.set("memory", "memory.swap.max", "0");
        return Ok(());
    }
    cgroup.set("memory", "memory.limit_in_bytes", &limit)
}

/// A container with one process that sleeps and a limit a hog dies of.
fn container(site: &mut Site, pod: &str) -> Result<TestCgroup> {
    let (cgroup, _) = site.sleeper(pod)?;
    limit(&cgroup)?;
    Ok(cgroup)
}

fn await_known(agent: &Agent, pod: &str) -> Result<()> {
    agent.await_container(pod, "known and sampled", |c| c.usage.is_some())?;
    Ok(())
}

/// Starts a process in a container that dies of the limit, and waits for that.
fn oom(site: &mut Site, cgroup: &TestCgroup) -> Result<i32> {
    let hog = site.run_heard(cgroup, &["hold", TOO_MUCH])?;
    ensure!(!hog.await_word_or_end("holding")?, "the limit of {} was not kept", cgroup.path());
    Ok(hog.pid.as_raw())
}

/// Waits for the kills of a pod to be told, and then a moment in which a second telling would show.
fn await_kills(agent: &Agent, pod: &str, killed: u64) -> Result<Vec<Decision>> {
    let told = |kills: &[Decision]| kills.iter().map(|k| number(k, "killed").unwrap_or(0)).sum::<u64>();
    let mut last = Vec::new();
    wait::until(&format!("{killed} kills in {pod} to be told"), wait::PATIENCE, || {
        last = agent.ask().oom_kills(pod)?;
        Ok((told(&last) >= killed).then_some(()))
    })
    .with_context(|| format!("told so far: {last:#?}\n{}", agent.log_end()))?;
    // Two more samples: every witness has looked.
    agent.ask().usage(2)?;
    let kills = agent.ask().oom_kills(pod)?;
    ensure!(told(&kills) == killed, "not {killed}: {kills:#?}");
    Ok(kills)
}

fn number(decision: &Decision, name: &str) -> Result<u64> {
    let text = decision.inputs.get(name).with_context(|| format!("no {name} in {decision:#?}"))?;
    text.parse().with_context(|| format!("{name} is {text:?}"))
}

fn text<'a>(decision: &'a Decision, name: &str) -> Result<&'a str> {
    decision.inputs.get(name).map(String::as_str).with_context(|| format!("no {name} in {decision:#?}"))
}

/// Decisions of a kind about a pod.
fn decisions(agent: &Agent, pod: &str, kind: &str) -> Result<Vec<Decision>> {
    let all = agent.ask().decisions()?;
    Ok(all.into_iter().filter(|d| d.kind == kind && d.pod == Some(format!("default/{pod}"))).collect())
}

fn rulings(offers: &[EvictionOffer]) -> Vec<(String, u32, bool)> {
    offers.iter().map(|o| (o.action.clone(), o.restarts, o.standing)).collect()
}

pub(crate) fn a_kill_is_told_once_with_its_victim_its_numbers_and_the_seconds_before() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = Site::new()?;
    let web = container(&mut site, "web")?;
    site.bind(&Manifest::burstable("web", &web.path(), "100m", "32Mi"))?;
    let agent = site.start()?;
    await_known(&agent, "web")?;
    let victim = oom(&mut site, &web)?;
    let kills = await_kills(&agent, "web", 1)?;
    let kill = &kills[0];
    ensure!(kills.len() == 1 && kill.kind == "oom-kill" && kill.result == "done", "{kills:#?}");
    ensure!(text(kill, "class")? == "Burstable" && text(kill, "constraint")? == "memcg", "{kill:#?}");
    ensure!(number(kill, "limit_bytes")? == LIMIT && number(kill, "total")? == 1, "{kill:#?}");
    ensure!(number(kill, "usage_bytes")? > LIMIT * 9 / 10, "{kill:#?}");
    ensure!(number(kill, "request_bytes")? == 32 << 20, "{kill:#?}");
    ensure!(text(kill, "samples")?.contains("Ki"), "{kill:#?}");
    ensure!(!text(kill, "oom_score_adj")?.is_empty(), "{kill:#?}");
    // Who may read the kernel's log is told the victim; in a guest its number is ours, too.
    if std::fs::File::open("/dev/kmsg").is_ok() {
        ensure!(text(kill, "victim_comm")?.starts_with("evenkeel-worklo"), "{kill:#?}");
        ensure!(
            !machine::is_emulated() || number(kill, "victim_pid")? == u64::from(victim.unsigned_abs()),
            "{kill:#?}"
        );
    }
    // One process died; what else the container has goes on, as nothing else is wished.
    ensure!(web.processes()?.len() == 1, "{:?}", web.processes()?);
    ensure!(decisions(&agent, "web", "kill")?.is_empty());
    let offers = agent.ask().offers("web", false)?;
    ensure!(rulings(&offers) == [("restart".to_owned(), 0, true)], "{offers:#?}");
    let offer = &offers[0];
    ensure!((offer.restarts_allowed, offer.window_usec) == (Some(3), 600_000_000), "{offer:#?}");
    ensure!(offer.actor.contains(&web.path()), "{offer:#?}");
    let decision = offer.decision.as_ref().context("an offer has its decision")?;
    ensure!(number(decision, "because_of")? == kill.seq, "{decision:#?}");
    let metrics = parse_metrics(&agent.metrics()?)?;
    for (name, value) in [
        ("evenkeel_agent_oom_kills_total", 1.0),
        ("evenkeel_agent_restarts_total", 1.0),
        ("evenkeel_agent_evictions_total", 0.0),
        ("container_oom_events_total", 1.0),
    ] {
        ensure!(metrics.sum(name) == Some(value), "{name}: {:?}", metrics.sum(name));
    }
    // The command line filters where the agent does.
    let told = agent.cli().json(&["events", "--kind", "oom-kill,restart", "--pod", "web", "--limit", "9"])?;
    let kinds: Vec<_> = told.as_array().context("a list")?.iter().map(|e| e["kind"].as_str()).collect();
    ensure!(kinds == [Some("oom-kill"), Some("restart")], "{told}");
    let newest = agent.cli().json(&["events", "--kind", "oom-kill,restart", "--limit", "1"])?;
    ensure!(newest.as_array().is_some_and(|e| e.len() == 1 && e[0]["kind"] == "restart"), "{newest}");
    agent.stop()
}

pub(crate) fn the_rest_of_a_container_goes_with_a_process_where_that_is_wished() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = Site::new()?;
    let whole = container(&mut site, "whole")?;
    let inner = site.run(&whole, &["sleep"])?;
    whole.nest("inner", inner)?;
    let manifest = Manifest::burstable("whole", &whole.path(), "100m", "32Mi");
    site.bind(&manifest.annotation("evenkeel.dev/oom-kill", "container"))?;
    // Not wished of this one.
    let part = container(&mut site, "part")?;
    site.bind(&Manifest::burstable("part", &part.path(), "100m", "32Mi"))?;
    let agent = site.start()?;
    for pod in ["whole", "part"] {
        await_known(&agent, pod)?;
    }
    if whole.is_v2() {
        wait::until_true("memory.oom.group to be set", || {
            whole.read("memory", "memory.oom.group").is_ok_and(|text| text == "1")
        })?;
    }
    oom(&mut site, &whole)?;
    oom(&mut site, &part)?;
    wait::until_true("the rest to be gone", || {
        whole.processes().is_ok_and(|left| left.is_empty()) && !evenkeel_tests::processes::is_alive(inner)
    })?;
    let counted = whole.oom_kills()?;
    let kills = await_kills(&agent, "whole", counted)?;
    await_kills(&agent, "part", 1)?;
    ensure!(part.processes()?.len() == 1, "the other container lost more than a process");
    let rest = decisions(&agent, "whole", "kill")?;
    if whole.is_v2() {
        // The kernel took all three, and may count the one it chose again with its group (mm/oom_kill.c).
        ensure!((3..=4).contains(&counted) && rest.is_empty(), "{counted} killed, {rest:#?}");
    } else {
        ensure!(counted == 1 && rest.len() == 1 && rest[0].result == "done", "{counted} killed, {rest:#?}");
        ensure!(
            number(&rest[0], "processes")? >= 2 && number(&rest[0], "because_of")? == kills[0].seq,
            "{rest:#?}"
        );
        ensure!(text(&rest[0], "wished_by")?.contains("annotation"), "{rest:#?}");
    }
    agent.stop()
}

pub(crate) fn a_best_effort_pod_goes_at_once_and_a_burstable_one_after_three_restarts() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = Site::new()?;
    let idle = container(&mut site, "idle")?;
    site.bind(&Manifest::best_effort("idle", &idle.path()))?;
    let agent = site.start()?;
    await_known(&agent, "idle")?;
    oom(&mut site, &idle)?;
    await_kills(&agent, "idle", 1)?;
    let offers = agent.ask().offers("idle", false)?;
    ensure!(rulings(&offers) == [("evict".to_owned(), 0, true)], "{offers:#?}");
    // Somebody acts on it.
    idle.remove()?;
    site.unbind("idle")?;
    wait::until("the offer to be settled", wait::PATIENCE, || {
        Ok(agent.ask().offers("idle", false)?.is_empty().then_some(()))
    })?;
    ensure!(agent.ask().offers("idle", true)?.len() == 1);

    let mut wanted = Vec::new();
    for life in 0..4_u32 {
        let web = container(&mut site, "web")?;
        if life == 0 {
            site.bind(&Manifest::burstable("web", &web.path(), "100m", "32Mi"))?;
        }
        let inode = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(web.directory("memory")?)?);
        agent.await_container("web", "known in this life", |c| {
            c.identity.as_ref().is_some_and(|i| i.cgroup_inode == inode) && c.usage.is_some()
        })?;
        oom(&mut site, &web)?;
        wanted.push((if life < 3 { "restart" } else { "evict" }.to_owned(), life.min(3)));
        let rulings = wait::until("a ruling", wait::PATIENCE, || {
            let offers = agent.ask().offers("web", true)?;
            let rulings: Vec<_> = offers.into_iter().map(|o| (o.action, o.restarts)).collect();
            Ok((rulings.len() == wanted.len()).then_some(rulings))
        })
        .with_context(|| agent.log_end())?;
        ensure!(rulings == wanted, "{rulings:?}");
        web.remove()?;
    }
    agent.stop()
}

pub(crate) fn a_pod_that_no_kubelet_runs_is_stopped_where_that_is_wished() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let site = Site::new()?;
    let runtime = Scripted::start(site.directory(), Events::OpenAtOnce)?;
    // Ids are invented here.
    let mut site = site.with_invented_ids().with(|agent| {
        let agent = agent.runtime(runtime.socket());
        agent.set("eviction.carry_out", "\"act\"").set("eviction.pause", "\"1s\"")
    });
    // One is where a kubelet puts its pods, and is the kubelet's to end.
    let ours = site.tree().group("pods/main-ours")?;
    let kubelets = site.tree().container(Tier::BestEffort, "kubelets", "main")?;
    site.tree().group("pods/sandbox-ours")?;
    for cgroup in [&ours, &kubelets] {
        site.run(cgroup, &["sleep"])?;
        limit(cgroup)?;
    }
    runtime.tell(Told::best_effort("kubelets", &kubelets.path()));
    runtime.tell(Told::best_effort("ours", &ours.path()));
    let agent = site.start()?;
    for (pod, cgroup) in [("kubelets", &kubelets), ("ours", &ours)] {
        await_known(&agent, pod)?;
        oom(&mut site, cgroup)?;
        await_kills(&agent, pod, 1)?;
    }
    wait::until_true("the pod to be stopped", || runtime.stopped() == ["ours"])
        .with_context(|| agent.log_end())?;
    let deed = |d: &&Decision| d.reason.contains("asked the container runtime to stop the pod");
    let told = wait::until("the deed to be told", wait::PATIENCE, || {
        Ok(decisions(&agent, "ours", "evict")?.iter().find(deed).cloned())
    })?;
    ensure!(told.result == "done" && number(&told, "because_of")? > 0, "{told:#?}");
    let offers = agent.ask().offers("kubelets", false)?;
    ensure!(rulings(&offers) == [("evict".to_owned(), 0, true)], "it stays an offer: {offers:#?}");
    ensure!(runtime.stopped() == ["ours"], "nobody else was stopped");
    agent.stop()
}

pub(crate) fn a_kill_right_after_a_restart_has_the_seconds_of_the_run_before() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = Site::new()?;
    let web = container(&mut site, "web")?;
    site.bind(&Manifest::burstable("web", &web.path(), "100m", "32Mi"))?;
    let agent = site.start()?;
    await_known(&agent, "web")?;
    agent.ask().usage(5)?;
    agent.stop()?;
    let stopped = Instant::now();
    let agent = site.start()?;
    await_known(&agent, "web")?;
    oom(&mut site, &web)?;
    let kills = await_kills(&agent, "web", 1)?;
    let samples = text(&kills[0], "samples")?;
    // `-7s 1Mi 0m`: what is older than the stop is of the run before.
    let ages = samples
        .split(", ")
        .filter_map(|second| second.trim_start_matches('-').split_once('s')?.0.parse().ok());
    let of_before = ages.filter(|age: &u64| *age > stopped.elapsed().as_secs()).count();
    ensure!(of_before >= 3, "{of_before} of the run before: {samples}");
    agent.stop()
}

pub(crate) fn kills_are_known_after_a_restart_and_those_in_between_are_told() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = Site::new()?;
    let web = container(&mut site, "web")?;
    // A whole processor: its limit is a quota.
    site.bind(&Manifest::guaranteed("web", &web.path(), "1", "48Mi"))?;
    let agent = site.start()?;
    await_known(&agent, "web")?;
    oom(&mut site, &web)?;
    let before = await_kills(&agent, "web", 1)?;
    // Killed where it stands: what was told is on disk.
    agent.kill()?;
    let agent = site.start()?;
    await_known(&agent, "web")?;
    ensure!(await_kills(&agent, "web", 1)? == before, "the same after a restart");
    agent.stop()?;
    // Nobody looks now.
    oom(&mut site, &web)?;
    let agent = site.start()?;
    let kills = await_kills(&agent, "web", 2)?;
    ensure!(kills.len() == 2 && number(&kills[1], "total")? == 2, "{kills:#?}");
    let offers = agent.ask().offers("web", true)?;
    ensure!(
        rulings(&offers).iter().all(|(action, ..)| action == "restart") && offers.len() == 2,
        "{offers:#?}"
    );
    agent.stop()
}

pub(crate) fn no_kill_is_lost_or_told_twice_when_its_cgroup_goes_at_once() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    require!(std::fs::File::open("/dev/kmsg").is_ok(), "only the kernel's log outlives a cgroup");
    let mut site = Site::new()?;
    let agent = site.start()?;
    for round in 0..machine::scaled(5, 50) {
        let pod = format!("brief-{round}");
        let brief = container(&mut site, &pod)?;
        site.bind(&Manifest::best_effort(&pod, &brief.path()))?;
        agent.await_container(&pod, "known", |_| true)?;
        oom(&mut site, &brief)?;
        brief.remove()?;
        site.unbind(&pod)?;
        await_kills(&agent, &pod, 1)?;
        ensure!(decisions(&agent, &pod, "evict")?.len() == 1, "round {round}: one eviction");
    }
    agent.stop()
}
