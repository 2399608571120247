//! What a recommender that lies achieves with an agent that takes recommended requests: steps within bounds, and nothing more.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use evenkeel_proto::v1::stream_response::Message as Said;
use evenkeel_proto::v1::{
    Ack, ContainerRequirements, Decision, NodePods, Overlay, OverlayEntry, PodRequirements, Refused, Resume,
};
use evenkeel_tests::cgroups::TestCgroup;
use evenkeel_tests::product::{Agent, Manifest, Site, parse_metrics};
use evenkeel_tests::{figures, machine, processes, require, wait};

use super::liar::Liar;

/// Steers a terminal in every way there is.
const ESCAPES: &str = "stop\u{1b}]0;title\u{7}\u{1b}[2J\u{9b}31m\u{202e}gpj\nline";
/// What the agent's pod on Kubernetes may use (packaging/kubernetes/base/agent.yaml).
const MOST_MEMORY: u64 = 128 << 20;
/// Ticks: twice a second.
const INTERVAL: Duration = Duration::from_millis(500);
/// A value nobody asked for.
const FOREIGN: &str = "7777";

/// What is attacked: an agent with one container, which asks for 100m and 64Mi.
struct Victim {
    agent: Agent,
    cgroup: TestCgroup,
}

impl Victim {
    fn knob(&self) -> &'static str {
        if self.cgroup.is_v2() { "cpu.weight" } else { "cpu.shares" }
    }

    /// What the kernel has.
    fn held(&self) -> Result<u64> {
        Ok(self.cgroup.read("cpu", self.knob())?.parse()?)
    }

    /// Waits until the kernel has what the agent wants, and that fits.
    fn await_held(&self, what: &str, fits: impl Fn(u64) -> bool) -> Result<u64> {
        let found = wait::until(what, wait::PATIENCE, || {
            let knobs = self.agent.container("web")?.map(|c| c.knobs).unwrap_or_default();
            let wanted = knobs.into_iter().find(|knob| knob.name == self.knob()).and_then(|knob| knob.wanted);
            let held = self.held()?;
            Ok((wanted == Some(held.to_string()) && fits(held)).then_some(held))
        });
        found.with_context(|| self.agent.log_end())
    }

    /// Somebody else writes a value, and the agent puts it right.
    fn enforces(&self, lie: &str) -> Result<()> {
        self.cgroup.set("cpu", self.knob(), FOREIGN)?;
        let foreign: u64 = FOREIGN.parse()?;
        self.await_held(&format!("a foreign value to be put right beside {lie}"), |held| held != foreign)?;
        Ok(())
    }

    fn counter(&self, name: &str) -> Result<f64> {
        let metrics = parse_metrics(&self.agent.metrics()?)?;
        metrics.sum(&format!("evenkeel_agent_{name}")).with_context(|| format!("no {name}"))
    }

    /// Waits until a counter has reached a value.
    fn await_counter(&self, name: &str, value: f64) -> Result<()> {
        let found = wait::until(&format!("{name} to reach {value}"), wait::PATIENCE, || {
            Ok((self.counter(name)? >= value).then_some(()))
        });
        found.with_context(|| self.agent.log_end())
    }

    /// Nothing in what the agent shows steers a terminal.
    fn shows_nothing_hostile(&self) -> Result<()> {
        for words in [["status", "-o", "wide"], ["status", "-o", "json"], ["events", "-o", "wide"]] {
            let said = self.agent.cli().run(&words)?.success()?;
            let steering = said.chars().find(|c| *c == '\u{202e}' || (c.is_control() && *c != '\n'));
            ensure!(steering.is_none(), "{words:?}: {steering:?} in {said:?}");
        }
        Ok(())
    }
}

/// A word about the container of the pod `web`.
fn word(cpu_milli: u64, memory_bytes: u64) -> Overlay {
    let entry = OverlayEntry {
        namespace: "default".into(),
        workload: "web".into(),
        container: "main".into(),
        cpu_request_milli: Some(cpu_milli),
        memory_request_bytes: Some(memory_bytes),
        policy: "default/all".into(),
        rule: ESCAPES.into(),
    };
    Overlay { valid_seconds: u32::MAX, made_usec: u64::MAX, entries: vec![entry], ..Overlay::default() }
}

/// Says all lies about requests and the panic switch.
fn lie_about_requests(liar: &Liar, victim: &Victim) -> Result<()> {
    let asked = victim.await_held("the pod's own request", |value| value > 2)?;
    liar.say(Said::Overlay(word(u64::MAX, u64::MAX)))?;
    victim.await_held("a step towards 2^64", |value| value > asked)?;
    victim.enforces("a request of 2^64")?;

    // As many as fit into a message.
    let entry = OverlayEntry { namespace: "n".into(), workload: "w".into(), ..OverlayEntry::default() };
    let many = (0..60_000).map(|n| OverlayEntry { container: n.to_string(), ..entry.clone() });
    liar.say(Said::Overlay(Overlay { entries: many.collect(), ..word(1, 1) }))?;
    wait::until_true("60,000 entries to be refused", || {
        victim.agent.daemon().log().contains("60000 containers; 16384 at most")
    })?;
    ensure!(victim.held()? > asked, "the word before holds");

    liar.say(Said::Overlay(word(0, 0)))?;
    victim.await_held("a step towards 0", |value| value < asked)?;
    liar.say(Said::Overlay(Overlay { panic: true, panic_reason: ESCAPES.into(), ..word(1, 1) }))?;
    victim.agent.await_status("the panic switch to arrive", |status| status.panic)?;
    victim.enforces("a panic switch")?;
    victim.shows_nothing_hostile()?;
    liar.say(Said::Overlay(Overlay { entries: Vec::new(), ..word(1, 1) }))?;
    victim.agent.await_status("the panic switch to be off", |status| !status.panic)?;
    victim.await_held("what was asked for", |value| value == asked)?;
    Ok(())
}

/// Says all lies about the node's pods: more than there are, such as cannot be, half told without end, and millions of nothing.
fn lie_about_pods(liar: &Liar, victim: &Victim) -> Result<()> {
    let pod = |uid: usize| PodRequirements {
        uid: uid.to_string(),
        namespace: ESCAPES.into(),
        name: ESCAPES.into(),
        ..PodRequirements::default()
    };
    let whole = |changed: Vec<PodRequirements>| NodePods {
        run: 1,
        generation: u64::MAX,
        whole: true,
        changed,
        ..NodePods::default()
    };
    let is_told = |words: &str| {
        wait::until_true(&format!("{words:?} to be told"), || victim.agent.daemon().log().contains(words))
    };
    liar.say(Said::Pods(whole((0..5000).map(pod).collect())))?;
    is_told("more than 4096 pods")?;
    let negative = PodRequirements { overhead: [("cpu".to_string(), "-1".to_string())].into(), ..pod(1) };
    liar.say(Said::Pods(whole(vec![pod(0), negative])))?;
    victim.agent.await_status("a pod to be refused", |status| {
        status.pods.as_ref().is_some_and(|pods| (pods.pods, pods.refused.len()) == (1, 1))
    })?;
    victim.shows_nothing_hostile()?;
    let container = |at: usize| ContainerRequirements {
        name: format!("{at}-{}", "x".repeat(240)),
        kind: 1,
        ..ContainerRequirements::default()
    };
    for part in 0..20 {
        let large = |at: usize| PodRequirements { containers: (0..1000).map(container).collect(), ..pod(at) };
        let changed = (part * 10..part * 10 + 10).map(large).collect();
        liar.say(Said::Pods(NodePods { more: true, ..whole(changed) }))?;
    }
    is_told("more than 8388608 bytes")?;
    let hellos = liar.book().hellos;
    liar.say(Said::Pods(whole(vec![PodRequirements::default(); 500_000])))?;
    wait::until_true("a new connection after half a million of nothing", || liar.book().hellos > hellos)?;
    victim.enforces("lies about pods")?;
    next_frames(liar)
}

/// Every step was within the bounds of the configuration: 10m and 16Mi at least, 80 % of the node at most.
fn steps_are_bounded(victim: &Victim) -> Result<()> {
    let facts = victim.agent.ask().status()?.facts.context("no facts in the status")?;
    let steps: Vec<Decision> = victim.agent.ask().decisions()?;
    for (knob, least, node) in
        [("cpu.request", 10, facts.cpu_milli), ("memory.request", 16 << 20, facts.memory_bytes)]
    {
        let of_knob = steps.iter().filter(|d| d.kind == "resize" && d.knob.as_deref() == Some(knob));
        let values = of_knob.filter_map(|d| d.new.as_ref()?.parse().ok()).collect::<Vec<u64>>();
        ensure!(values.len() >= 2, "{knob} up and down: {steps:#?}");
        ensure!(values.iter().all(|value| (least..=node * 8 / 10).contains(value)), "{knob}: {values:?}");
    }
    Ok(())
}

/// Says all lies about frames, each on a connection that stands.
fn lie_about_frames(liar: &Liar, victim: &Victim) -> Result<()> {
    let refused = |sequence| {
        let epoch = liar.book().epoch;
        Said::Refused(Refused { epoch, sequence, why: ESCAPES.into(), remedy: ESCAPES.into() })
    };
    liar.say(refused(1))?;
    wait::until("a refusal to be told", wait::PATIENCE, || {
        let told = victim.agent.ask().decisions()?;
        Ok(told.iter().any(|d| d.reason.contains("refused frame 1:")).then_some(()))
    })?;
    victim.shows_nothing_hostile()?;
    let ack = Said::Ack(Ack { epoch: liar.book().epoch, last_seq: u64::MAX });
    liar.say(ack)?;
    victim.await_counter("epochs_renewed_total", 1.0)?;
    next_frames(liar)?;
    liar.say(refused(u64::MAX))?;
    victim.await_counter("epochs_renewed_total", 2.0)?;
    next_frames(liar)?;
    let epoch = liar.book().epoch;
    let hellos = liar.book().hellos;
    liar.say(Said::Resume(Resume {
        epoch,
        last_seq: u64::MAX,
        credits: u32::MAX,
        knows_slots: true,
        token_ends: 1,
        leading: None,
    }))?;
    wait::until_true("a new connection after an unasked Resume", || liar.book().hellos > hellos)?;
    next_frames(liar)?;
    liar.refuse(ESCAPES)?;
    victim.agent.await_status("a hostile refusal to be told", |status| {
        status.stream.as_ref().is_some_and(|stream| stream.last_error.contains("]0;title"))
    })?;
    victim.shows_nothing_hostile()?;
    liar.take_again();
    next_frames(liar)
}

/// Waits for some frames more.
fn next_frames(liar: &Liar) -> Result<()> {
    let ticks = liar.book().ticks.len();
    wait::until_true("frames to go on", || liar.book().ticks.len() > ticks + 3)
}

/// Each tick says how long after the one before it was: a frame that did not arrive leaves a hole.
fn nothing_is_lost(liar: &Liar, victim: &Victim) -> Result<()> {
    let book = liar.book();
    ensure!(book.gaps.is_empty() && book.epochs.len() == 3, "{:?} {:?}", book.gaps, book.epochs);
    let ticks: Vec<(u64, u64)> = book.ticks.iter().map(|(time, since)| (*time, u64::from(*since))).collect();
    drop(book);
    let slack = u64::try_from(INTERVAL.as_micros())? / 2;
    // The first has none before it to be told of.
    let holes = ticks.windows(2).skip(1).filter(|pair| pair[1].0 - pair[0].0 > pair[1].1 + slack).count();
    let dropped = victim.counter("ticks_dropped_total")?;
    ensure!(holes as f64 <= dropped, "{holes} holes, {dropped} ticks never became frames: {ticks:?}");
    ensure!(victim.counter("frames_dropped_total")? == 0.0, "frames were dropped");
    Ok(())
}

#[test]
fn a_recommender_that_lies_moves_bounded_steps_and_loses_no_frame() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let liar = Liar::start()?;
    let mut site = Site::new()?.with(|agent| {
        let agent = agent.recommender(liar.address()).set("overlay.accept", "true");
        // As far and as fast as a configuration can allow.
        let agent = agent.set("overlay.pause", "\"1s\"").set("overlay.up_percent", "1000");
        agent
            .set("overlay.down_percent", "1")
            .set("sample.interval", &format!("\"{}ms\"", INTERVAL.as_millis()))
    });
    let (cgroup, pid) = site.sleeper("web")?;
    site.bind(&Manifest::burstable("web", &cgroup.path(), "100m", "64Mi"))?;
    let victim = Victim { agent: site.start()?, cgroup };
    next_frames(&liar)?;
    lie_about_requests(&liar, &victim)?;
    steps_are_bounded(&victim)?;
    lie_about_pods(&liar, &victim)?;
    lie_about_frames(&liar, &victim)?;
    nothing_is_lost(&liar, &victim)?;
    victim.enforces("all lies")?;
    ensure!((-999..=1000).contains(&processes::score(pid)?), "the score of {pid}");
    ensure!(victim.counter("panics_total")? == 0.0, "{}", victim.agent.log_end());
    let peak = processes::memory_of(victim.agent.daemon().pid()?, "VmHWM")?;
    figures::show(&format!("peak memory of an agent whose recommender lies: {} MiB", peak >> 20));
    ensure!(peak < MOST_MEMORY, "{peak} bytes");
    // Says so where something panicked.
    victim.agent.stop()
}
