//! Suite `containerd`: the demonstration, as it is run by people who see Evenkeel for the first time.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use evenkeel_tests::processes::memory_total;
use evenkeel_tests::{machine, places, require, runtime, wait};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

/// The demonstration, keeping all its files below a directory of ours.
fn start(scratch: &TempDir, seconds: &str) -> Result<Child> {
    Command::new(places::program("evenkeel-demo")?)
        .args(["--json", "--seconds", seconds])
        .env("TMPDIR", scratch.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start the demonstration")
}

fn scratch() -> Result<TempDir> {
    tempfile::Builder::new().prefix("ekx").tempdir().context("cannot make a directory")
}

/// Asserts that nothing of a demonstration that ended is left on this machine.
fn assert_clean(pid: u32, scratch: &Path) -> Result<()> {
    let left: Vec<_> = std::fs::read_dir(scratch)?.flatten().map(|entry| entry.path()).collect();
    assert!(left.is_empty(), "files are left: {left:?}");
    let place = scratch.display().to_string();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    assert!(!mounts.contains(&place), "mounts are left:\n{mounts}");
    let mine = format!("ek-{pid}-");
    for mount in std::fs::read_dir("/sys/fs/cgroup")?.flatten() {
        let below = std::fs::read_dir(mount.path()).into_iter().flatten().flatten();
        let names = below.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let found: Vec<String> = names
            .chain([mount.file_name().to_string_lossy().into_owned()])
            .filter(|name| name.starts_with(&mine))
            .collect();
        assert!(found.is_empty(), "cgroups are left in {}: {found:?}", mount.path().display());
    }
    for process in std::fs::read_dir("/proc")?.flatten() {
        // What is gone by now is no leftover.
        let Ok(line) = std::fs::read(process.path().join("cmdline")) else { continue };
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        assert!(!line.contains(&place), "a process is left: {line}");
    }
    Ok(())
}

fn has(what: &Value, keys: &[&str]) {
    for key in keys {
        assert!(what.get(key).is_some(), "no {key} in {what:#}");
    }
}

#[test]
fn the_demonstration_shows_the_whole_line_and_cleans_up() -> Result<()> {
    require!(runtime::impossible().is_none(), runtime::impossible().unwrap_or_default());
    let scratch = scratch()?;
    let child = start(&scratch, "8")?;
    let pid = child.id();
    let output = child.wait_with_output()?;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {stderr}", output.status);
    let report: Value = serde_json::from_str(&stdout).with_context(|| format!("not one object: {stdout}"))?;
    has(&report, &["node", "allowed", "denied", "containers", "frames", "capacity"]);
    for knob in report["allowed"].as_array().into_iter().chain(report["denied"].as_array()).flatten() {
        has(knob, &["knob", "why", "remedy"]);
    }
    let may_lower = machine::may_lower_scores();
    let denied = report["denied"].as_array().context("denied is a list")?;
    assert_eq!(denied.iter().any(|knob| knob["knob"] == "oom_score_adj"), !may_lower, "{denied:#?}");

    let containers = report["containers"].as_array().context("containers is a list")?;
    let web = i64::try_from(1000 - 1000 * (128_u64 << 20) / memory_total()?)?;
    let expected = [
        ("payments", "Guaranteed", -999, 512),
        ("web", "Burstable", web, 256),
        ("batch", "BestEffort", 1000, 2),
    ];
    assert_eq!(containers.len(), expected.len(), "{report:#}");
    for ((pod, class, wanted, shares), found) in expected.into_iter().zip(containers) {
        has(
            found,
            &[
                "pod",
                "container",
                "qosClass",
                "oomScoreAdj",
                "processes",
                "samples",
                "usage",
                "recommendation",
            ],
        );
        assert_eq!((&found["pod"], &found["qosClass"]), (&pod.into(), &class.into()));
        let score = &found["oomScoreAdj"];
        assert_eq!(score["wanted"], wanted, "{found:#}");
        let state = if wanted < 0 && !may_lower { "denied" } else { "converged" };
        assert_eq!(score["state"], state, "{found:#}");
        assert!(state == "denied" || score["actual"] == wanted, "{found:#}");
        if found["cpuShares"].is_object() {
            assert_eq!(
                (&found["cpuShares"]["wanted"], &found["cpuShares"]["actual"]),
                (&shares.into(), &shares.into())
            );
        } else {
            assert_eq!(found["cpuWeight"]["wanted"], found["cpuWeight"]["actual"], "{found:#}");
        }
        assert!(found["processes"].as_u64() >= Some(1) && found["samples"].as_u64() >= Some(1), "{found:#}");
        assert!(found["usage"]["memoryBytes"].as_u64() >= Some(16 << 20), "it holds memory: {found:#}");
        assert!(found["usage"]["cpuMilli"].as_u64() >= Some(1), "it burns CPU: {found:#}");
        let recommendation = &found["recommendation"];
        has(recommendation, &["cpu", "memory", "rule", "tier", "samples"]);
        assert_eq!(recommendation["rule"], "goal", "{found:#}");
        assert_ne!(recommendation["tier"], "none", "{found:#}");
        assert!(!recommendation["cpu"].is_null() && !recommendation["memory"].is_null(), "{found:#}");
    }
    let frames = &report["frames"];
    assert!(frames["sent"].as_u64() >= Some(1) && frames["acknowledged"].as_u64() >= Some(1), "{frames}");
    assert!(report["capacity"]["count"].as_u64() >= Some(1), "{}", report["capacity"]);
    assert_clean(pid, scratch.path())
}

#[test]
fn an_interrupted_demonstration_cleans_up_as_well() -> Result<()> {
    require!(runtime::impossible().is_none(), runtime::impossible().unwrap_or_default());
    let scratch = scratch()?;
    let mut child = start(&scratch, "3600")?;
    let pid = child.id();
    // Its words go to standard error; what it is doing is read there.
    let stderr = child.stderr.take().context("no standard error")?;
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(stderr));
    let watching = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("watching for")));
    watching.context("it ended before it watched")??;
    kill(Pid::from_raw(i32::try_from(pid)?), Signal::SIGINT)?;
    let said: Vec<String> = lines.collect::<Result<_, _>>()?;
    let status = wait::until("the demonstration to end", wait::PATIENCE, || {
        child.try_wait().context("cannot see to the demonstration")
    })?;
    assert_eq!(status.code(), Some(1), "{said:?}");
    assert!(said.iter().any(|line| line.contains("cleaned up")), "{said:?}");
    assert_clean(pid, scratch.path())
}
