//! Who dies and who stays when memory runs out: the promises of the classes under a real OOM killer, in a guest small
//! enough to run out of memory.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use evenkeel_proto::v1::ConvergeState;
use evenkeel_tests::cgroups::{TestCgroup, Tier};
use evenkeel_tests::processes::{killed_first, memory, memory_total, score, vm_event};
use evenkeel_tests::product::{Heard, Manifest, Site, await_score};
use evenkeel_tests::{figures, machine, wait};
use nix::sys::signal::{Signal, kill};

const MIB: u64 = 1 << 20;

/// Longer than an emulated machine that shares its processors takes to read a few times its memory from a disk.
const READING: Duration = Duration::from_secs(600);

/// A part of the machine's memory as a manifest writes it.
fn percent(part: u64) -> Result<String> {
    Ok(format!("{}Mi", memory_total()? * part / 100 / MIB))
}

/// A site whose scores alone decide: the loop that would step in earlier is off.
fn site() -> Result<Site> {
    if machine::is_emulated() {
        // Names and inodes that are freed again and again count as progress, and put off the OOM killer for minutes
        // where the processor is slow (sysctl/vm.rst, "vfs_cache_pressure").
        std::fs::write("/proc/sys/vm/vfs_cache_pressure", "0").context("cannot keep names and inodes")?;
    }
    Ok(Site::new()?.with(|agent| agent.set("pressure.enabled", "false")))
}

/// A daemon of the node, and the agent told of it.
fn daemon(site: Site) -> Result<(Site, Heard)> {
    let cgroup = site.tree().group("system/daemon")?;
    let path = cgroup.path();
    let mut site = site
        .with(|agent| agent.set("daemons.enabled", "true").set("daemons.cgroups", &format!("[{path:?}]")));
    let heard = site.run_heard(&cgroup, &["hold", "8Mi"])?;
    ensure!(heard.await_word_or_end("holding")?, "the daemon did not start");
    Ok((site, heard))
}

/// Cgroup of a container named as its pod.
fn container(site: &Site, tier: Tier, pod: &str) -> Result<TestCgroup> {
    site.tree().container(tier, pod, "main")
}

/// A Guaranteed container that holds `part` percent of memory, four fifths of what it asked for.
fn guaranteed(site: &mut Site, pod: &str, part: u64) -> Result<(TestCgroup, Heard)> {
    let cgroup = container(site, Tier::Guaranteed, pod)?;
    site.bind(&Manifest::guaranteed(pod, &cgroup.path(), "1", &percent(part * 5 / 4)?))?;
    let heard = site.run_heard(&cgroup, &["hold", &format!("{part}%")])?;
    Ok((cgroup, heard))
}

/// A BestEffort container that takes `part` percent of memory.
fn best_effort(site: &mut Site, pod: &str, part: u64) -> Result<(TestCgroup, Heard)> {
    let path = format!("{}/{}/main", site.tree().path(), Tier::BestEffort.pod_path(pod));
    // Known before it runs, as a kubelet knows its pods.
    site.bind(&Manifest::best_effort(pod, &path))?;
    let cgroup = container(site, Tier::BestEffort, pod)?;
    let heard = site.run_heard(&cgroup, &["hold", &format!("{part}%")])?;
    Ok((cgroup, heard))
}

/// The proposal's first demonstration.
pub(crate) fn guaranteed_containers_survive_a_barrage_of_best_effort_ones() -> Result<()> {
    let (mut site, daemon) = daemon(site()?)?;
    let kept = [guaranteed(&mut site, "safe-1", 10)?.1, guaranteed(&mut site, "safe-2", 10)?.1];
    let agent = site.start()?;
    for heard in &kept {
        ensure!(heard.await_word_or_end("holding")?, "a Guaranteed container did not start");
        await_score(heard.pid, -999)?;
    }
    await_score(daemon.pid, -999)?;
    let (before, mut killed, mut held) = (vm_event("oom_kill")?, 0, 0);
    let rounds = machine::scaled(5, 20);
    for round in 0..rounds {
        let names: Vec<String> = (0..3).map(|hog| format!("hog-{round}-{hog}")).collect();
        let mut hogs = Vec::new();
        for name in &names {
            hogs.push(best_effort(&mut site, name, 40)?);
        }
        for (_, hog) in &hogs {
            held += u64::from(hog.await_word_or_end("holding")?);
        }
        // Not before all of them are done: one that held its memory may have to go for the next.
        for (cgroup, _) in &hogs {
            killed += cgroup.oom_kills()?;
        }
        ensure!(kept.iter().chain([&daemon]).all(Heard::is_alive), "round {round}: a protected one died");
        clear(
            &site,
            &names.into_iter().zip(hogs).map(|(name, (cgroup, _))| (name, cgroup)).collect::<Vec<_>>(),
        )?;
    }
    let kills = vm_event("oom_kill")? - before;
    figures::show(&format!(
        "barrage: {rounds} rounds of 3 BestEffort hogs of 40 %: {kills} OOM kills, {killed} of them hogs, {held} hogs held their memory; Guaranteed alive 2 of 2, daemon alive"
    ));
    ensure!(kills >= rounds, "memory never ran out");
    ensure!(kills == killed, "{} of {kills} OOM kills took somebody else", kills - killed);
    for heard in &kept {
        ensure!(score(heard.pid)? == -999, "a Guaranteed container lost its score");
    }
    agent.stop()
}

/// The proposal's second demonstration: the newcomers leave no room for a single one that asked for nothing.
pub(crate) fn a_node_full_of_best_effort_gives_way_to_guaranteed_newcomers() -> Result<()> {
    let (mut site, daemon) = daemon(site()?)?;
    let agent = site.start()?;
    await_score(daemon.pid, -999)?;
    let before = vm_event("oom_kill")?;
    let rounds = machine::scaled(5, 20);
    let (mut filled, mut killed) = (0, 0);
    for round in 0..rounds {
        let (mut old, mut names) = (Vec::new(), Vec::new());
        // All but what one of the old takes and a little: what the kernel says is available is an estimate, some percent off.
        let room = memory("MemAvailable")? * 100 / memory_total()?;
        let part = (room - 15) / 2;
        while memory("MemAvailable")? > memory_total()? / 100 * 15 {
            let name = format!("old-{round}-{}", names.len());
            let (cgroup, heard) = best_effort(&mut site, &name, 11)?;
            heard.await_word_or_end("holding")?;
            names.push(name);
            old.push((cgroup, heard));
        }
        filled += old.len();
        let mut newcomers = Vec::new();
        for number in 0..2 {
            let name = format!("new-{round}-{number}");
            newcomers.push(guaranteed(&mut site, &name, part)?);
            names.push(name);
        }
        for (_, heard) in &newcomers {
            ensure!(heard.await_word_or_end("holding")?, "round {round}: a Guaranteed newcomer died");
            await_score(heard.pid, -999)?;
        }
        // A third takes what the estimate left, until none of the old is left; what the last of them held stays free.
        let name = format!("new-{round}-2");
        let cgroup = container(&site, Tier::Guaranteed, &name)?;
        site.bind(&Manifest::guaranteed(&name, &cgroup.path(), "1", &percent(50)?))?;
        let third = site.run_heard(&cgroup, &["grow", "6", "40%"])?;
        await_score(third.pid, -999)?;
        let is_over = || old.iter().all(|(_, heard)| !heard.is_alive()) || !third.is_alive();
        wait::until_true("all BestEffort containers to give way", is_over)?;
        ensure!(third.is_alive(), "round {round}: the third Guaranteed newcomer died");
        kill(third.pid, Signal::SIGSTOP).context("cannot stop the third from growing")?;
        names.push(name);
        newcomers.push((cgroup, third));
        ensure!(
            newcomers.iter().all(|(_, heard)| heard.is_alive()),
            "round {round}: a Guaranteed newcomer died"
        );
        ensure!(daemon.is_alive(), "round {round}: the daemon died");
        killed += old.iter().filter(|(_, heard)| !heard.is_alive()).count();
        let cgroups = old.into_iter().chain(newcomers).map(|(cgroup, _)| cgroup);
        clear(&site, &names.into_iter().zip(cgroups).collect::<Vec<_>>())?;
    }
    let kills = vm_event("oom_kill")? - before;
    figures::show(&format!(
        "newcomers: {rounds} rounds, {filled} BestEffort filled the node, {killed} of them gave way to {} Guaranteed, all of which run; {kills} OOM kills; daemon and agent alive",
        3 * rounds
    ));
    ensure!(
        filled > 0 && killed == filled,
        "{} of {filled} BestEffort containers did not give way",
        filled - killed
    );
    agent.stop()
}

/// Both hold the same; one asked for less than that and one for more. A third, protected, then takes the rest.
pub(crate) fn a_burstable_container_over_its_request_dies_before_one_within() -> Result<()> {
    let mut site = site()?;
    let agent = site.start()?;
    let rounds = machine::scaled(5, 20);
    let (mut first, mut alone) = (0, 0);
    for round in 0..rounds {
        let mut cgroups = Vec::new();
        let mut both = Vec::new();
        for (name, request) in [("over", 8), ("within", 30)] {
            let name = format!("{name}-{round}");
            let cgroup = container(&site, Tier::Burstable, &name)?;
            site.bind(&Manifest::burstable(&name, &cgroup.path(), "100m", &percent(request)?))?;
            let heard = site.run_heard(&cgroup, &["hold", "25%"])?;
            ensure!(heard.await_word_or_end("holding")?, "{name} did not start");
            agent.await_settled(&name)?;
            both.push(heard);
            cgroups.push((name, cgroup));
        }
        let name = format!("taker-{round}");
        let cgroup = container(&site, Tier::Guaranteed, &name)?;
        site.bind(&Manifest::guaranteed(&name, &cgroup.path(), "1", &percent(50)?))?;
        let taker = site.run_heard(&cgroup, &["grow", "12", "45%"])?;
        // Slowly enough for the memory of the first to be back before more is wanted.
        wait::until_true("memory to run out", || !both[0].is_alive() || !both[1].is_alive())?;
        // On a slow machine both may be gone by now: the kernel says who was first.
        first += u32::from(killed_first(&[both[0].pid, both[1].pid])? == Some(both[0].pid));
        ensure!(taker.await_word_or_end("grown")?, "round {round}: the Guaranteed one died");
        ensure!(score(taker.pid)? == -999, "it was not Guaranteed");
        cgroups.push((name, cgroup));
        ensure!(!both[0].is_alive(), "round {round}: memory did not run out");
        alone += u32::from(both[1].is_alive());
        clear(&site, &cgroups)?;
    }
    figures::show(&format!(
        "burstable order: the one over its request died first in {first} of {rounds}, alone in {alone}"
    ));
    ensure!(first == rounds, "one within its request died first {} times", rounds - first);
    agent.stop()
}

/// Takes containers and their pods away.
fn clear(site: &Site, cgroups: &[(String, TestCgroup)]) -> Result<()> {
    cgroups.iter().try_for_each(|(name, cgroup)| {
        cgroup.remove()?;
        site.unbind(name)
    })
}

/// Pages of a file in two containers that asked for them; the cgroups above grant it to one of them only.
pub(crate) fn memory_protection_holds_below_a_granting_ancestor_and_is_told_where_it_is_not() -> Result<()> {
    let mut site = site()?;
    let grants = |path: &str| -> Result<()> {
        for level in path.match_indices('/').map(|(at, _)| &path[..at]).skip(2) {
            site.tree().group(level.trim_start_matches(&site.tree().path()))?.set(
                "memory",
                "memory.min",
                "256M",
            )?;
        }
        Ok(())
    };
    let granted = site.tree().group("grants/pod/main")?;
    site.tree().group("")?.set("memory", "memory.min", "256M")?;
    grants(&granted.path())?;
    let refused = site.tree().group("refuses/pod/main")?;
    let reader = site.tree().group("reader/pod/main")?;
    for (name, cgroup) in [("granted", &granted), ("refused", &refused)] {
        site.bind(&Manifest::guaranteed(name, &cgroup.path(), "1", "64Mi"))?;
    }
    site.bind(&Manifest::best_effort("reader", &reader.path()))?;
    let agent = site.start()?;
    for (cgroup, offset) in [(&granted, "0Mi"), (&refused, "64Mi")] {
        let heard = site.run_heard(cgroup, &["read", "/dev/vda", offset, "40Mi"])?;
        ensure!(heard.await_word_or_end("read ")?, "a reader ended");
    }
    agent.await_settled("granted")?;
    let told = agent.await_container("refused", "found without effect", |found| {
        found.knobs.iter().any(|knob| knob.name == "memory.min" && knob.state() == ConvergeState::Ineffective)
    })?;
    let knob = told.knobs.iter().find(|knob| knob.name == "memory.min").context("no memory.min")?;
    let file = |cgroup: &TestCgroup| cgroup.stat("memory", "memory.stat", "file");
    let before = [file(&granted)?, file(&refused)?];
    let (scanned, total) = (vm_event("pgsteal_kswapd")? + vm_event("pgsteal_direct")?, memory_total()?);
    site.run(&reader, &["read", "/dev/vda", "256Mi", "1Gi", "again"])?;
    wait::until("memory to be reclaimed three times over", READING, || {
        let now = vm_event("pgsteal_kswapd")? + vm_event("pgsteal_direct")?;
        Ok(((now - scanned) * 4096 > 3 * total).then_some(()))
    })?;
    let after = [file(&granted)?, file(&refused)?];
    figures::show(&format!(
        "protection: {} of {} MiB kept below a granting ancestor, {} of {} MiB below another; reported: {} ({})",
        after[0] / MIB,
        before[0] / MIB,
        after[1] / MIB,
        before[1] / MIB,
        knob.reason,
        knob.by
    ));
    ensure!(after[0] * 100 >= before[0] * 98, "protected pages were reclaimed: {before:?} to {after:?}");
    ensure!(
        after[1] * 2 < before[1],
        "nothing was reclaimed from the unprotected one: {before:?} to {after:?}"
    );
    ensure!(knob.by.contains("refuses"), "not the ancestor that refuses: {knob:?}");
    agent.stop()
}
