//! Suite `images`: the images, made without a registry or a daemon, as containerd runs them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use evenkeel_tests::runtime::{self, Runtime};
use evenkeel_tests::{machine, places, require, wait};

/// Where `scripts/test images` puts the static programs.
const STATIC: &str = "EVENKEEL_STATIC_PROGRAMS";

/// An image as a tar, and its name.
fn image(name: &str, into: &Path) -> Result<(PathBuf, String)> {
    let programs = std::env::var(STATIC).with_context(|| format!("{STATIC} names no directory"))?;
    let (out, tag) = (into.join(format!("{name}.tar")), format!("localhost/evenkeel-{name}:test"));
    let mut make = Command::new(places::repository().join("scripts/image"));
    make.args([name, "--programs", &programs, "--tag", &tag, "--out"]).arg(&out);
    machine::run(&mut make)?;
    Ok((out, tag))
}

fn ctr(containerd: &Runtime, words: &[&str]) -> Result<Output> {
    let mut ctr = Command::new("ctr");
    ctr.arg("-a").arg(containerd.socket()).args(["-n", "k8s.io"]).args(words);
    ctr.output().context("cannot run ctr")
}

fn succeed(output: Output) -> Result<String> {
    let (said, words) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{}: {said}{words}", output.status);
    Ok(said.into_owned())
}

/// What `ctr run` says of a container that ends by itself.
fn run(containerd: &Runtime, options: &[&str], tag: &str, name: &str, words: &[&str]) -> Result<String> {
    let first = ["run", "--rm", "--snapshotter", "native"];
    succeed(ctr(containerd, &[&first, options, &[tag, name], words].concat())?)
}

#[test]
fn programs_know_nothing_of_the_machine_they_were_built_on() -> Result<()> {
    require!(std::env::var_os(STATIC).is_some(), "no static programs: scripts/test images builds them");
    let programs = PathBuf::from(std::env::var(STATIC)?);
    let home = std::env::var("CARGO_HOME").or_else(|_| std::env::var("HOME").map(|home| home + "/.cargo"))?;
    let repository = places::repository().display().to_string();
    for name in ["evenkeel", "evenkeel-agent", "evenkeel-recommender"] {
        let path = programs.join(name);
        let program = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        for place in [&home, &repository] {
            let knows = program.windows(place.len()).any(|bytes| bytes == place.as_bytes());
            ensure!(!knows, "{name} has {place} in it: it would be another one elsewhere");
        }
    }
    Ok(())
}

#[test]
fn images_are_imported_and_run_and_the_recommenders_has_no_root() -> Result<()> {
    require!(runtime::impossible().is_none(), runtime::impossible().unwrap_or_default());
    require!(std::env::var_os(STATIC).is_some(), "no static programs: scripts/test images builds them");
    let containerd = Runtime::start()?;
    for name in ["agent", "recommender"] {
        let (tar, tag) = image(name, containerd.directory())?;
        let tar = tar.display().to_string();
        succeed(ctr(&containerd, &["images", "import", "--snapshotter", "native", &tar])?)?;
        let said = run(&containerd, &[], &tag, name, &[&format!("/usr/bin/evenkeel-{name}"), "--version"])?;
        assert!(said.starts_with(&format!("evenkeel-{name} ")), "{said}");
        let said =
            run(&containerd, &[], &tag, "cli", &["/usr/bin/evenkeel", "quantity", "1Gi", "-o", "json"])?;
        assert!(said.contains("1073741824"), "{said}");
        // With root's rights everything of the machine is looked at; without a configuration nothing is written.
        let code = ["/usr/bin/evenkeel-agent", "config", "validate"];
        if name == "agent" {
            assert!(run(&containerd, &[], &tag, "validate", &code)?.starts_with("valid"));
        }
    }
    serves(&containerd)
}

/// The recommender by its own entry point, as its own user, on a read-only root: it comes up and answers.
fn serves(containerd: &Runtime) -> Result<()> {
    let tag = "localhost/evenkeel-recommender:test";
    let tmpfs = |at: &str| format!("type=tmpfs,dst={at},options=uid=65532:gid=65532:mode=0700");
    let (state, socket) = (tmpfs("/var/lib/evenkeel/recommender"), tmpfs("/run/evenkeel"));
    let first =
        ["run", "-d", "--snapshotter", "native", "--read-only", "--mount", &state, "--mount", &socket];
    succeed(ctr(containerd, &[&first, [tag, "served"].as_slice()].concat())?)?;
    let listed = succeed(ctr(containerd, &["tasks", "ls"])?)?;
    let task = listed.lines().find(|line| line.starts_with("served ")).context("no task")?;
    let pid = task.split_whitespace().nth(1).context("no process")?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    assert!(status.lines().any(|line| line == "Uid:\t65532\t65532\t65532\t65532"), "{status}");
    wait::until("the recommender in its container to answer", wait::PATIENCE, || {
        let words =
            ["tasks", "exec", "--exec-id", "ask", "served", "/usr/bin/evenkeel", "nodes", "-o", "json"];
        let answer = ctr(containerd, &words)?;
        let _ = ctr(containerd, &["tasks", "delete", "--exec-id", "ask", "served"]);
        Ok((answer.status.success() && String::from_utf8_lossy(&answer.stdout).contains('[')).then_some(()))
    })?;
    succeed(ctr(containerd, &["tasks", "kill", "-s", "SIGTERM", "served"])?)?;
    wait::until("it to end", wait::PATIENCE, || {
        let listed = succeed(ctr(containerd, &["tasks", "ls"])?)?;
        Ok(listed.contains("STOPPED").then_some(()))
    })?;
    succeed(ctr(containerd, &["tasks", "delete", "served"])?)?;
    succeed(ctr(containerd, &["containers", "delete", "served"])?)?;
    Ok(())
}
