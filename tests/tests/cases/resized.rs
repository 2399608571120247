//! Pods without resources are made, get requests by the webhook, run, are measured, and are resized: after an OOM kill one first, which is watched,
//! then the rest, over the death of who leads; a replica that becomes worse goes back; the panic switch freezes, and gives back what was there.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use evenkeel_tests::kubelet::{amount, score};
use evenkeel_tests::{figures, processes, require, runtime, wait};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::resized_cluster::{Cluster, OWN};

/// What is recommended rests on whole minutes, and so does what is said of a canary.
const MINUTES: Duration = Duration::from_secs(300);
/// How long a score may follow its request.
const FOLLOWS: Duration = Duration::from_secs(1);
const MIB: u64 = 1 << 20;
/// By what the webhook says and what is there by default, before anything is known.
const FIRST: (u64, u64) = (100, 48 * MIB);
/// The namespace's default limit of memory.
const LIMIT: u64 = 64 * MIB;
/// Where the webhook says what it set.
const SET: &str = "evenkeel.dev/initial-resources";

/// Holds 20 MB, uses less than a tenth of a core, and takes 200 MB when it is asked to by SIGUSR1: more than it may.
const WORK: &str = "held=$(head -c 20000000 /dev/zero | tr '\\0' x); trap 'head -c 200000000 /dev/zero | tail > /dev/null' USR1; \
    while :; do i=0; while [ $i -lt 15000 ]; do i=$((i+1)); done; sleep 0.3; done";

/// Requests of CPU and memory.
fn requests(pod: &Value) -> (u64, u64) {
    let requests = &pod["spec"]["containers"][0]["resources"]["requests"];
    (amount(requests, "cpu").unwrap_or_default(), amount(requests, "memory").unwrap_or_default())
}

/// What the updater noted on a pod: how far it is, and the rest.
fn note(pod: &Value) -> Option<(String, Value)> {
    let mut conditions = pod["status"]["conditions"].as_array()?.iter();
    let found = conditions.find(|condition| condition["type"] == "evenkeel.dev/Resize")?;
    Some((found["reason"].as_str()?.to_owned(), serde_json::from_str(found["message"].as_str()?).ok()?))
}

fn is_at(pod: &Value, stage: &str) -> bool {
    note(pod).is_some_and(|(at, _)| at == stage)
}

/// Sizes that a pod has had since it was made.
fn generation(pod: &Value) -> u64 {
    pod["metadata"]["generation"].as_u64().unwrap_or(1)
}

/// Whether a process does something of its own on a signal (`SigCgt`, proc(5)).
fn catches(pid: Pid, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    caught.is_some_and(|mask| mask & (1 << (signal as u64 - 1)) != 0)
}

impl Cluster {
    /// Waits until the pods are as wanted.
    fn await_pods<T>(&self, what: &str, is: impl Fn(&BTreeMap<String, Value>) -> Option<T>) -> Result<T> {
        wait::until(what, MINUTES, || Ok(is(&self.pods()?))).with_context(|| {
            let all = self.pods().unwrap_or_default();
            let of = |(name, pod): (&String, &Value)| format!("{name} {:?} {:?}", requests(pod), note(pod));
            let pods: Vec<String> = all.iter().map(of).collect();
            format!(
                "{}\nleft alone: {}\n{}",
                pods.join("\n"),
                self.left_alone().unwrap_or_default(),
                self.log_ends()
            )
        })
    }

    /// Why pods are left alone, as the leader says.
    fn left_alone(&self) -> Result<Value> {
        let (_, leader) = self.leader()?;
        let told: Value = serde_json::from_str(&leader.get("/api/v1/updates")?.1)?;
        Ok(told["leftAlone"].clone())
    }

    fn await_reason(&self, reason: &str) -> Result<Value> {
        let found = wait::until(reason, MINUTES, || {
            let told = self.left_alone()?;
            Ok(told.as_array().and_then(|all| all.iter().find(|of| of["reason"] == reason)).cloned())
        });
        found.with_context(|| format!("{:?}\n{}", self.left_alone(), self.log_ends()))
    }

    /// Waits for passes of the leader that begin after this.
    fn passes(&self, more: u64) -> Result<()> {
        let now = || -> Result<u64> {
            let told: Value = serde_json::from_str(&self.leader()?.1.get("/api/v1/updates")?.1)?;
            Ok(told["passes"].as_u64().unwrap_or_default())
        };
        let before = now()?;
        wait::until("passes of the updater", MINUTES, || Ok((now()? >= before + more).then_some(())))
    }

    /// The policy's bounds of CPU, and of memory.
    fn bounds(&self, cpu: &str, memory: &Value) -> Result<()> {
        let at = self.place(OWN, "verticalpodautoscalers/web");
        let requests = json!({ "cpu": { "min": cpu, "max": cpu }, "memory": memory });
        let change = json!({ "spec": { "resourcesPolicy": { "limits": "ratio", "containers": [{ "name": "*", "requests": requests }] } } });
        self.done("PATCH", &at, &change).map(drop)
    }

    /// What the policy's object recommends.
    fn recommended(&self) -> Result<Option<(u64, u64)>> {
        let object = self.get(&self.place(OWN, "verticalpodautoscalers/web"))?;
        let told = &object["status"]["recommendation"]["containers"][0]["resources"]["requests"];
        Ok(amount(told, "cpu").zip(amount(told, "memory")))
    }

    fn await_recommended(&self, what: &str, is: impl Fn((u64, u64)) -> bool) -> Result<(u64, u64)> {
        wait::until(what, MINUTES, || Ok(self.recommended()?.filter(|now| is(*now))))
            .with_context(|| format!("{:?}\n{}", self.recommended(), self.log_ends()))
    }

    fn pid(&self, pod: &str) -> Result<Pid> {
        let ran = self.kubelet.pod(pod).with_context(|| format!("{pod} does not run"))?;
        Ok(Pid::from_raw(ran.containers.first().context("a container")?.pid))
    }

    /// Waits until a pod's process has the score of its request.
    fn await_score(&self, pod: &str, memory: u64) -> Result<i64> {
        let (pid, wanted) = (self.pid(pod)?, score("Burstable", memory, processes::memory_total()?));
        let found = wait::until(&format!("score {wanted} of {pod}"), wait::PATIENCE, || {
            Ok((i64::from(processes::score(pid)?) == wanted).then_some(wanted))
        });
        found.with_context(|| format!("it is {:?}\n{}", processes::score(pid), self.agent.log_end()))
    }

    /// Resizes that somebody asked for; nothing where the API server does not tell.
    fn resizes(&self) -> Option<u64> {
        self.fixture.as_ref().map(|api| api.asked_for("/resize").len() as u64)
    }
}

/// Pods without resources get what is known of their image; one that is made anew later gets what was measured meanwhile.
fn made_and_measured(cluster: &Cluster) -> Result<()> {
    cluster.make_pods(WORK)?;
    for (name, pod) in cluster.pods()? {
        let said = pod["metadata"]["annotations"][SET].as_str().unwrap_or_default();
        ensure!(said.contains("predefined"), "{name}: {said:?}, {}", pod["metadata"]);
        ensure!(requests(&pod) == FIRST, "{name}: {}", pod["spec"]["containers"][0]["resources"]);
        cluster.await_score(&name, FIRST.1)?;
    }
    let told = cluster.await_recommended("something to be recommended", |_| true)?;
    ensure!(told == FIRST, "within the policy's bounds: {told:?}");
    // One is evicted, as by a drain, and made anew.
    let (first, _) = cluster.pods()?.pop_first().context("a pod")?;
    let body = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": first } });
    cluster.done(
        "POST",
        &format!("{}/eviction", cluster.place("/api/v1", &format!("pods/{first}"))),
        &body,
    )?;
    wait::until("the evicted pod to end", wait::PATIENCE, || {
        Ok((cluster.kubelet.count() == 2).then_some(()))
    })?;
    cluster.make_pods(WORK)?;
    let measured = |pod: &Value| {
        let said = pod["metadata"]["annotations"][SET].as_str().unwrap_or_default().to_owned();
        (!said.is_empty() && !said.contains("predefined")).then_some(said)
    };
    let said = cluster.pods()?.values().find_map(measured).context("what was measured is set")?;
    figures::show(&format!("a pod made anew: {said}"));
    Ok(())
}

/// An OOM kill raises the recommendation, and the pod in which it was is the first to get it; its score follows. What is recommended then.
fn killed_and_raised(cluster: &Cluster) -> Result<(String, u64)> {
    let (killed, _) = cluster.pods()?.pop_first().context("a pod")?;
    let pid = cluster.pid(&killed)?;
    // One that was just made anew would end by it.
    wait::until_true("it to heed the signal", || catches(pid, Signal::SIGUSR1))?;
    kill(pid, Signal::SIGUSR1)?;
    let (changed, memory, at) = cluster.await_pods("the first replica to be raised", |pods| {
        let (name, pod) = pods.iter().find(|(_, pod)| requests(pod) != FIRST)?;
        Some((name.clone(), requests(pod).1, Instant::now()))
    })?;
    ensure!(changed == killed && memory > LIMIT, "{changed} has {memory}, and {killed} was killed");
    let score = cluster.await_score(&changed, memory)?;
    let took = at.elapsed();
    figures::show(&format!("raised to {memory} bytes; its score was {score} {took:?} after its request"));
    ensure!(took <= FOLLOWS, "the score followed after {took:?}");
    // The rest waits for it.
    cluster.await_pods("it to be in force", |pods| is_at(pods.get(&changed)?, "Done").then_some(()))?;
    let others = cluster.pods()?;
    ensure!(others.iter().all(|(name, pod)| *name == changed || requests(pod) == FIRST), "{others:?}");
    ensure!(note(&others[&changed]).is_some_and(|(_, note)| note["canary"] == true), "{others:?}");
    Ok((killed, memory))
}

/// Who leads dies while a resize is under way: the other one goes on, and nothing is asked for twice.
fn leader_dies(cluster: &mut Cluster) -> Result<()> {
    cluster.kubelet.hold(true);
    let second = cluster.await_pods("the second replica to be raised", |pods| {
        let under_way = |pod: &&Value| generation(pod) > 1 && is_at(pod, "Asked");
        pods.values().find(under_way).map(|pod| pod["metadata"]["name"].clone())
    })?;
    let gone = cluster.kill_the_leader()?;
    let began = Instant::now();
    cluster.leader()?;
    figures::show(&format!("another one leads {:?} after the leader's death", began.elapsed()));
    cluster.await_reason("UnderWay")?;
    cluster.passes(3)?;
    let pods = cluster.pods()?;
    let changed = pods.values().filter(|pod| generation(pod) > 1).count();
    ensure!(changed == 2 && cluster.resizes().is_none_or(|asked| asked == 2), "beside {second}: {pods:?}");
    cluster.kubelet.hold(false);
    cluster.await_pods("all to be raised", |pods| {
        pods.values().all(|pod| is_at(pod, "Done") || is_at(pod, "Passed")).then_some(())
    })?;
    ensure!(cluster.resizes().is_none_or(|asked| asked == 3), "{:?} resizes", cluster.resizes());
    let (setup, running) = &mut cluster.recommenders[gone];
    *running = Some(setup.start()?);
    Ok(())
}

/// One replica gets too little CPU, is throttled, and goes back; no other is changed.
fn worse_goes_back(cluster: &Cluster, memory: u64) -> Result<()> {
    let exactly = memory.to_string();
    let memory = json!({ "min": exactly, "max": exactly });
    let before: u64 = cluster.pods()?.values().map(generation).sum();
    cluster.bounds("10m", &memory)?;
    let canary = cluster.await_pods("a replica to get less CPU", |pods| {
        pods.iter().find(|(_, pod)| requests(pod).0 == 10).map(|(name, _)| name.clone())
    })?;
    cluster.await_pods("it to go back", |pods| {
        let pod = pods.get(&canary)?;
        (is_at(pod, "Worse") && requests(pod).0 == FIRST.0).then_some(())
    })?;
    let told = cluster.await_reason("CanaryWorse")?;
    figures::show(&format!("a canary went back: {}", told["why"]));
    cluster.passes(3)?;
    let after: u64 = cluster.pods()?.values().map(generation).sum();
    ensure!(after == before + 2, "{before} sizes, then {after}");
    Ok(())
}

/// The panic switch freezes everything, and gives back what was asked for at first, but what is in use.
fn frozen_and_given_back(cluster: &Cluster, killed: &str, memory: u64) -> Result<()> {
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "evenkeel-panic" }, "data": { "panic": "drill" } });
    let maps = cluster.place("/api/v1", "configmaps");
    cluster.done("POST", &maps, &map)?;
    cluster.await_reason("Frozen")?;
    let before: u64 = cluster.pods()?.values().map(generation).sum();
    let exactly = memory.to_string();
    let memory = json!({ "min": exactly, "max": exactly });
    cluster.bounds("200m", &memory)?;
    cluster.passes(5)?;
    let after: u64 = cluster.pods()?.values().map(generation).sum();
    ensure!(after == before, "{before} sizes, then {after}");
    for command in [&["status"][..], &["doctor", "--all-nodes"]] {
        let said = cluster.cli()?.run(command)?.stdout;
        ensure!(said.contains("Frozen"), "{command:?}: {said}");
    }
    cluster.bounds("100m", &memory)?;
    cluster.done("DELETE", &format!("{maps}/evenkeel-panic"), &Value::Null)?;
    wait::until("the switch to be let go", wait::PATIENCE, || {
        Ok(cluster.cli()?.run(&["policy", "panic", "on", "--revert", "--reason", "drill"])?.success().ok())
    })?;
    let is_back = |name: &str, pod: &Value| {
        let (cpu, memory) = requests(pod);
        cpu == FIRST.0 && (memory == FIRST.1 || name == killed)
    };
    cluster.await_pods("all to be as they were", |pods| {
        pods.iter().all(|(name, pod)| is_back(name, pod)).then_some(())
    })?;
    for (name, pod) in cluster.pods()? {
        cluster.await_score(&name, requests(&pod).1)?;
    }
    // What it held when it was killed is in use, as far as anybody knows within the hour.
    if requests(&cluster.pods()?[killed]).1 != FIRST.1 {
        cluster.await_reason("MemoryInUse")?;
    }
    cluster.passes(3)
}

#[test]
fn pods_are_raised_watched_taken_back_frozen_and_given_back_over_the_death_of_who_leads() -> Result<()> {
    require!(runtime::impossible().is_none(), runtime::impossible().unwrap_or_default());
    let mut cluster = Cluster::start()?;
    made_and_measured(&cluster)?;
    let (killed, memory) = killed_and_raised(&cluster)?;
    leader_dies(&mut cluster)?;
    worse_goes_back(&cluster, memory)?;
    frozen_and_given_back(&cluster, &killed, memory)?;
    // Each size was asked for once.
    let sizes: u64 = cluster.pods()?.values().map(|pod| generation(pod) - 1).sum();
    ensure!(
        cluster.resizes().is_none_or(|asked| asked == sizes),
        "{sizes} sizes, {:?} resizes",
        cluster.resizes()
    );
    ensure!(
        !cluster.agent.ask().oom_kills_in(&cluster.namespace, &killed)?.is_empty(),
        "no OOM kill was seen"
    );
    cluster.end()
}
