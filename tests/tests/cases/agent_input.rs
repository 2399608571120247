//! Bad input: each is told by name, place and remedy, and the rest goes on.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;

use anyhow::{Context, Result};
use evenkeel_proto::v1::{ConvergeState, GetStatusResponse, SourceStatus};
use evenkeel_tests::product::{Manifest, Site};
use evenkeel_tests::{machine, require};

fn source<'a>(status: &'a GetStatusResponse, name: &str) -> Option<&'a SourceStatus> {
    status.sources.iter().find(|source| source.name == name)
}

#[test]
fn wrong_configuration_ends_with_78_and_names_key_place_and_remedy() -> Result<()> {
    let wrong = [
        ("converge.audit_perod", "\"1s\"", ["audit_perod", "audit_period"]),
        ("converge.audit_period", "\"fortnight\"", ["converge.audit_period", "fortnight"]),
        ("converge.freeze", "\"often\"", ["converge.freeze", "when-forking"]),
        ("stream.recommender", "\"somewhere\"", ["stream.recommender", "somewhere"]),
        ("mode", "\"quiet\"", ["mode", "dry-run"]),
    ];
    for (key, value, named) in wrong {
        let directory = evenkeel_tests::product::directory()?;
        let agent = evenkeel_tests::product::AgentSetup::new(directory.path())?.set(key, value);
        let ended = agent.run(&["--once"])?;
        assert_eq!(ended.status, Some(78), "{key}: {}", ended.said());
        for name in named.iter().chain(&["agent.toml"]) {
            assert!(ended.stderr.contains(name), "{key}: no {name} in {}", ended.stderr);
        }
    }
    Ok(())
}

#[test]
fn a_malformed_manifest_is_named_and_the_others_hold() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = Site::new()?;
    let (cgroup, _) = site.sleeper("good")?;
    site.bind(&Manifest::best_effort("good", &cgroup.path()))?;
    site.agent.file("broken.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: [\n")?;
    site.agent.file("absurd.json", &absurd(&cgroup.path()))?;
    let agent = site.start()?;
    agent.await_state("good", ConvergeState::Converged)?;
    let named = |s: &GetStatusResponse| {
        source(s, "manifests").is_some_and(|source| {
            ["broken.yaml", "absurd.json"].iter().all(|name| source.why.contains(name))
                && !source.remedy.is_empty()
        })
    };
    agent.await_status("both files to be named", named)?;
    // Corrected, it is taken.
    let (late, _) = site.sleeper("late")?;
    site.agent.file("broken.yaml", &Manifest::best_effort("late", &late.path()).json().to_string())?;
    agent.await_state("late", ConvergeState::Converged)?;
    agent.await_status("the corrected file to be named no more", |s| {
        source(s, "manifests").is_some_and(|source| !source.why.contains("broken.yaml"))
    })?;
    agent.stop()
}

/// A manifest whose limit is below its request.
fn absurd(path: &str) -> String {
    let resources = serde_json::json!({ "requests": { "memory": "2Gi" }, "limits": { "memory": "1Gi" } });
    Manifest::new("absurd", path, &resources).json().to_string()
}

#[test]
fn a_cgroup_claimed_twice_is_used_by_neither() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = Site::new()?;
    let (disputed, _) = site.sleeper("disputed")?;
    let (good, _) = site.sleeper("good")?;
    site.bind(&Manifest::best_effort("first", &disputed.path()))?;
    site.bind(&Manifest::best_effort("second", &disputed.path()))?;
    site.bind(&Manifest::best_effort("good", &good.path()))?;
    let agent = site.start()?;
    agent.await_state("good", ConvergeState::Converged)?;
    let named = |s: &GetStatusResponse| {
        s.sources.iter().any(|source| {
            ["default/first", "default/second", &disputed.path()].iter().all(|name| source.why.contains(name))
        })
    };
    agent.await_status("both claims to be named", named)?;
    assert_eq!((agent.container("first")?, agent.container("second")?), (None, None));
    // The dispute settled, the winner is served.
    std::fs::remove_file(site.agent.manifests().join("second.json"))?;
    agent.await_state("first", ConvergeState::Converged)?;
    agent.stop()
}

#[test]
fn a_socket_that_is_no_runtime_is_told_and_the_rest_goes_on() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = Site::new()?;
    let (cgroup, _) = site.sleeper("good")?;
    site.bind(&Manifest::best_effort("good", &cgroup.path()))?;
    let socket = site.directory().join("other.sock");
    let listener = UnixListener::bind(&socket).context("cannot bind")?;
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // What is asked does not matter: the answer is another protocol's.
            let mut asked = [0; 64];
            let _ = stream.read(&mut asked);
            let _ = stream.write_all(b"220 mail ready\r\n");
        }
    });
    let site = site.with(|agent| agent.runtime(&socket));
    let agent = site.start()?;
    agent.await_state("good", ConvergeState::Converged)?;
    let status = agent.await_status("the socket to be told", |s| {
        source(s, "cri").is_some_and(|source| !source.healthy && !source.why.is_empty())
    })?;
    let cri = source(&status, "cri").context("it was there")?;
    assert!(cri.address.contains("other.sock") && !cri.remedy.is_empty(), "{cri:?}");
    agent.stop()
}
