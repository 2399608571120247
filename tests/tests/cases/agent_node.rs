//! The node as a whole: daemons, overcommit, the cap of all workloads, admission. Run on this machine and in a guest.

use std::process::Command;

use anyhow::{Context, Result};
use evenkeel_proto::v1::{ContainerStatus, ConvergeState, DaemonStatus, GetStatusResponse, KnobStatus};
use evenkeel_tests::cgroups::TestCgroup;
use evenkeel_tests::processes::score;
use evenkeel_tests::product::{Agent, Manifest, Site};
use evenkeel_tests::{machine, places, require, stage, wait};
use nix::unistd::Pid;

/// A program of a name that nobody else on this machine has, as a copy of the workload.
fn program(site: &Site) -> Result<(String, std::path::PathBuf)> {
    let name = format!("ekd-{}", std::process::id());
    let path = site.directory().join(&name);
    stage::copied(&places::program("evenkeel-workload")?, &path)?;
    Ok((name, path))
}

fn daemon(status: &GetStatusResponse, pid: Pid) -> Option<&DaemonStatus> {
    status.daemons.iter().find(|daemon| i64::from(daemon.pid) == i64::from(pid.as_raw()))
}

fn row<'a>(status: &'a GetStatusResponse, name: &str) -> Option<&'a KnobStatus> {
    status.knobs.iter().find(|knob| knob.name == name)
}

/// Waits until a daemon is found, and checks that it is protected or says why not.
fn await_protected(agent: &Agent, pid: Pid, by: &str) -> Result<()> {
    let status = agent.await_status("the daemon to be found", |s| daemon(s, pid).is_some())?;
    let found = daemon(&status, pid).context("it was there")?;
    assert!(found.found_by.starts_with(by), "{found:?}");
    if machine::may_lower_scores() {
        assert_eq!((found.state.as_str(), found.actual), ("protected", Some(-999)), "{found:?}");
        assert_eq!(score(pid)?, -999);
        return Ok(());
    }
    assert_eq!((found.state.as_str(), score(pid)?), ("denied", 0), "{found:?}");
    let row = row(&status, "oom_score_adj of daemons").context("no row")?;
    assert!(row.state == "denied" && row.remedy.contains("CAP_SYS_RESOURCE"), "{row:?}");
    Ok(())
}

fn spawn(site: &mut Site, cgroup: &TestCgroup, path: &std::path::Path) -> Result<Pid> {
    let mut command = Command::new(path);
    command.arg("sleep");
    site.spawn(cgroup, &command)
}

pub(crate) fn a_daemon_found_by_its_program_is_protected_and_nothing_beside_it() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = Site::new()?;
    let (name, path) = program(&site)?;
    let home = site.tree().group("daemon.service")?;
    let pid = spawn(&mut site, &home, &path)?;
    let helper = site.run(&home, &["sleep"])?;
    // A container's imitation of it, and the same without a container's requests.
    let (web, plain) =
        (site.cgroup("web")?, site.tree().group(&format!("docker-{:064x}.scope", pid.as_raw()))?);
    let imitation = spawn(&mut site, &web, &path)?;
    let unknown = spawn(&mut site, &plain, &path)?;
    site.bind(&Manifest::best_effort("web", &web.path()))?;
    let site = site.with(|agent| {
        agent
            .set("daemons.enabled", "true")
            .set("daemons.units", "[]")
            .set("daemons.executables", &format!("[{name:?}]"))
    });
    let agent = site.start()?;
    await_protected(&agent, pid, &format!("program {name}"))?;
    agent.await_state("web", ConvergeState::Converged)?;
    // The containers are known by now: whoever was taken for a daemon before is none any more.
    let known = |s: &GetStatusResponse| daemon(s, imitation).is_none() && daemon(s, unknown).is_none();
    agent.await_status("imitations to be told from the daemon", known)?;
    assert_eq!((score(helper)?, score(imitation)?), (0, 1000));
    agent.stop()?;
    let restored = site.agent.run(&["restore"])?;
    assert_eq!((restored.status, score(pid)?), (Some(0), 0), "{}", restored.said());
    Ok(())
}

pub(crate) fn a_daemon_found_by_its_cgroup_is_the_first_process_in_it() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = Site::new()?;
    let (_, path) = program(&site)?;
    let home = site.tree().group("daemon")?;
    let pid = spawn(&mut site, &home, &path)?;
    let helper = site.run(&home, &["sleep"])?;
    let inside = spawn(&mut site, &home, &path)?;
    home.nest("container", inside)?;
    let cgroups = format!("[{:?}]", home.path());
    let site = site.with(|agent| {
        agent
            .set("daemons.enabled", "true")
            .set("daemons.units", "[]")
            .set("daemons.executables", "[]")
            .set("daemons.cgroups", &cgroups)
    });
    let agent = site.start()?;
    await_protected(&agent, pid, &format!("cgroup {}", home.path()))?;
    let status = agent.ask().status()?;
    assert_eq!((daemon(&status, helper), daemon(&status, inside)), (None, None));
    assert_eq!((score(helper)?, score(inside)?), (0, 0));
    if machine::may_lower_scores() {
        assert_eq!(score(agent.daemon().pid()?)?, -999);
    }
    agent.stop()
}

pub(crate) fn overcommit_and_swap_are_told_and_a_rehearsal_says_what_it_would_set() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mode = std::fs::read_to_string("/proc/sys/vm/overcommit_memory").context("no overcommit_memory")?;
    let mode = mode.trim();
    let site = Site::new()?;
    let agent = site.start()?;
    let rows = ["vm.overcommit_memory", "vm.panic_on_oom", "swap"];
    let status =
        agent.await_status("the node to be looked at", |s| rows.iter().all(|name| row(s, name).is_some()))?;
    let found = row(&status, "vm.overcommit_memory").context("it was there")?;
    let wanted = match mode {
        "1" => "ok",
        "2" => "fail",
        _ => "warn",
    };
    assert_eq!(found.state, wanted, "{found:?}");
    assert!(wanted == "ok" || found.remedy.contains("overcommit"), "{found:?}");
    let told = agent.ask().decisions()?.iter().any(|d| d.kind == "node" && d.knob == Some(rows[0].into()));
    assert_eq!(told, wanted != "ok");
    agent.stop()?;

    let site = site.with(|agent| agent.set("memory.overcommit", "\"set\""));
    let rehearsed = site.agent.run(&["--once", "--dry-run"])?;
    let word = if mode == "1" { "ok" } else { "would-set" };
    let line = rehearsed.stdout.lines().find(|line| line.contains("vm.overcommit_memory"));
    assert!(line.is_some_and(|line| line.contains(word)), "{}", rehearsed.said());
    assert_eq!(std::fs::read_to_string("/proc/sys/vm/overcommit_memory")?.trim(), mode);
    Ok(())
}

/// In guests only: it changes a setting of the whole machine.
#[allow(dead_code, reason = "the suites of the host leave it out")]
pub(crate) fn overcommit_is_set_and_put_back() -> Result<()> {
    let file = "/proc/sys/vm/overcommit_memory";
    // Not 2: other tests run beside this one, and would be refused memory.
    std::fs::write(file, "0").context("cannot set overcommit_memory")?;
    let site = Site::new()?.with(|agent| agent.set("memory.overcommit", "\"set\""));
    let agent = site.start()?;
    let set = |s: &GetStatusResponse| row(s, "vm.overcommit_memory").is_some_and(|row| row.state == "ok");
    agent.await_status("overcommit to be set", set)?;
    assert_eq!(std::fs::read_to_string(file)?.trim(), "1");
    let told = |d: &evenkeel_proto::v1::Decision| {
        (d.kind.as_str(), d.old.as_deref(), d.result.as_str()) == ("node", Some("0"), "done")
    };
    assert!(agent.ask().decisions()?.iter().any(told));
    agent.kill()?;
    let restored = site.agent.run(&["restore"])?;
    assert_eq!(restored.status, Some(0), "{}", restored.said());
    assert_eq!(std::fs::read_to_string(file)?.trim(), "0", "{}", restored.said());
    Ok(())
}

/// The file of the limit, and what it holds without one.
fn limit_of(cgroup: &TestCgroup) -> Result<(&'static str, String)> {
    let file = if cgroup.is_v2() { "memory.max" } else { "memory.limit_in_bytes" };
    Ok((file, cgroup.read("memory", file)?))
}

pub(crate) fn workloads_are_capped_until_somebody_else_owns_the_limit() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = Site::new()?;
    let all = site.tree().group("workloads")?;
    let inner = site.tree().group("workloads/one")?;
    site.run(&inner, &["sleep"])?;
    let (file, before) = limit_of(&all)?;
    let path = all.path();
    let site = site.with(|agent| {
        agent
            .set("memory.workloads_cap.enabled", "true")
            .set("memory.workloads_cap.cgroup", &format!("{path:?}"))
            .set("memory.workloads_cap.reserve", "\"256Mi\"")
    });
    let agent = site.start()?;
    let capped = |s: &GetStatusResponse| s.workloads_cap.as_ref().is_some_and(|cap| cap.state == "ok");
    let status = agent.await_status("the cap to be set", capped)?;
    let cap = status.workloads_cap.context("it was there")?;
    let page = 65_536;
    let total = status.facts.context("no facts")?.memory_bytes;
    assert!(cap.reserve_bytes + page >= 256 << 20 && cap.reserve_bytes <= total / 2 + page, "{cap:?}");
    let limit: u64 = all.read("memory", file)?.trim().parse().context("no limit")?;
    assert!(limit.abs_diff(cap.cap_bytes.unwrap_or(0)) <= page, "{limit} {cap:?}");

    agent.stop()?;
    let restored = site.agent.run(&["restore"])?;
    assert_eq!(
        (restored.status, all.read("memory", file)?),
        (Some(0), before.clone()),
        "{}",
        restored.said()
    );

    // Whoever rewrites it often enough has it.
    let agent = site.start()?;
    let other = before.trim();
    wait::until("the cap to be contended", wait::PATIENCE, || {
        let status = agent.ask().status()?;
        let state = status.workloads_cap.map(|cap| cap.state).unwrap_or_default();
        if state != "contended" && all.read("memory", file)?.trim() != other {
            all.set("memory", file, if other.starts_with("922") { "-1" } else { other })?;
        }
        Ok((state == "contended").then_some(()))
    })?;
    let cap = agent.ask().status()?.workloads_cap.context("no cap")?;
    assert!(cap.rewrites >= 3 && cap.since_usec > 0 && !cap.remedy.is_empty(), "{cap:?}");
    assert_eq!(all.read("memory", file)?.trim(), other);
    agent.stop()
}

pub(crate) fn a_pod_is_admitted_by_every_resource() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = Site::new()?;
    let (web, _) = site.sleeper("web")?;
    site.bind(&Manifest::burstable("web", &web.path(), "500m", "64Mi"))?;
    let allocatable = r#"{cpu = 2, memory = "1Gi", pods = 2, "nvidia.com/gpu" = 1}"#;
    let site = site
        .with(|agent| agent.set("node.allocatable", allocatable).set("node.reserve", r#"{cpu = "500m"}"#));
    let agent = site.start()?;
    agent.await_state("web", ConvergeState::Converged)?;
    let ask = |requests: &str| -> Result<(Option<i32>, serde_json::Value)> {
        let pod = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {{overhead: {{cpu: 100m}}, containers: [{{name: c, \
             image: i, resources: {{limits: {{{requests}}}}}}}]}}"
        );
        let file = site.directory().join("pod.yaml");
        std::fs::write(&file, pod).context("cannot write the pod")?;
        let ended = agent.cli().run(&["admit", "-f", &file.display().to_string(), "-o", "json"])?;
        Ok((ended.status, serde_json::from_str(&ended.stdout).with_context(|| ended.said())?))
    };
    let (status, answer) = ask("cpu: 900m, nvidia.com/gpu: 1")?;
    assert_eq!((status, &answer["fits"]), (Some(0), &true.into()), "{answer}");
    let (status, answer) = ask("cpu: 1, memory: 1Gi, nvidia.com/gpu: 2, example.com/fpga: 1")?;
    let by = |name: &str| {
        let of = answer["short"].as_array().and_then(|all| all.iter().find(|s| s["resource"] == name));
        of.and_then(|short| short["by"].as_str()).map(str::to_owned)
    };
    assert_eq!((status, &answer["fits"]), (Some(1), &false.into()), "{answer}");
    let found = ["cpu", "memory", "nvidia.com/gpu", "example.com/fpga", "pods"].map(by);
    let wanted = [Some("100m"), Some("64Mi"), Some("1"), Some("1"), None];
    assert_eq!(found.each_ref().map(Option::as_deref), wanted, "{answer}");
    agent.stop()
}

pub(crate) fn a_manifest_that_does_not_fit_waits_for_room_also_over_a_restart() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = Site::new()?;
    let (zeta, zeta_process) = site.sleeper("zeta")?;
    let (alpha, alpha_process) = site.sleeper("alpha")?;
    let site = site.with(|agent| {
        agent
            .set("admission.mode", "\"refuse\"")
            .set("node.allocatable", r#"{cpu = 2, memory = "64Gi", pods = 9}"#)
    });
    site.bind(&Manifest::burstable("zeta", &zeta.path(), "1500m", "64Mi"))?;
    let agent = site.start()?;
    agent.await_state("zeta", ConvergeState::Converged)?;
    site.bind(&Manifest::burstable("alpha", &alpha.path(), "1", "64Mi"))?;
    let is_refused = |c: &ContainerStatus| !c.managed && c.why == "not admitted: cpu is short by 500m";
    agent.await_container("alpha", "refused", is_refused)?;
    let status = agent.ask().status()?;
    let shown = row(&status, "admission").context("status says so")?;
    assert!(
        shown.state == "refused" && shown.why.contains("default/alpha: cpu is short by 500m"),
        "{shown:#?}"
    );
    // It is in nobody's way: what is left is what it would have.
    let file = site.directory().join("pod.yaml");
    let asked = Manifest::burstable("alpha", "/x", "600m", "64Mi").json().to_string();
    std::fs::write(&file, asked).context("cannot write the pod")?;
    let ended = agent.cli().run(&["admit", "-f", &file.display().to_string(), "-o", "json"])?;
    let answer: serde_json::Value = serde_json::from_str(&ended.stdout).with_context(|| ended.said())?;
    assert_eq!((ended.status, &answer["short"][0]["by"]), (Some(1), &"100m".into()), "{answer}");
    agent.stop()?;

    // Read anew both are there at once; neither the name nor the file decides.
    let agent = site.start()?;
    agent.await_state("zeta", ConvergeState::Converged)?;
    agent.await_container("alpha", "refused again", is_refused)?;
    assert_eq!(score(alpha_process)?, 0, "nothing of it was written");
    assert_ne!(score(zeta_process)?, 0);
    site.unbind("zeta")?;
    agent.await_state("alpha", ConvergeState::Converged)?;
    let told: Vec<String> = agent.ask().decisions()?.into_iter().map(|d| d.reason).collect();
    assert!(
        told.iter().any(|reason| reason.contains("does not fit this node: cpu is short by 500m")),
        "{told:#?}"
    );
    assert!(told.iter().any(|reason| reason.contains("fits this node now")), "{told:#?}");
    agent.stop()
}
