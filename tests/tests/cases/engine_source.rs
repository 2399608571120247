//! The agent beside an engine that hangs and lies: a scripted one, whose containers are cgroups of the test's own.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use evenkeel_proto::v1::{ContainerStatus, ConvergeState};
use evenkeel_tests::processes::{memory_total, score};
use evenkeel_tests::product::{Site, await_score};
use evenkeel_tests::stalls::Stalls;
use evenkeel_tests::{machine, require, wait};
use serde_json::json;

/// A new container is to be known within this of its making.
const KNOWN_WITHIN: Duration = Duration::from_secs(1);

/// What an engine says of a container; `None` hangs.
type Script = Arc<Mutex<BTreeMap<String, Option<String>>>>;

/// Answers at a socket for as long as the test runs.
fn engine(socket: &Path, script: &Script) -> Result<()> {
    let listener = UnixListener::bind(socket).context("cannot listen")?;
    let script = Arc::clone(script);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let script = Arc::clone(&script);
            // Whoever hung up is answered nothing.
            std::thread::spawn(move || answer(stream, &script).ok());
        }
    });
    Ok(())
}

fn answer(mut stream: UnixStream, script: &Script) -> Result<()> {
    let mut line = String::new();
    let mut reader = BufReader::new(stream.try_clone()?);
    reader.read_line(&mut line)?;
    let id = line.strip_prefix("GET /containers/").and_then(|rest| rest.split_once("/json "));
    let told = script.lock().ok().and_then(|script| script.get(id?.0).cloned());
    match told {
        Some(Some(text)) => {
            write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}", text.len())?;
        }
        // Until the other side has had enough.
        Some(None) => while reader.read_line(&mut line)? > 0 {},
        None => write!(stream, "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")?,
    }
    Ok(())
}

fn id(n: u32) -> String {
    format!("{:060x}{n:04x}", std::process::id())
}

fn record(id: &str, name: &str, host: &serde_json::Value) -> String {
    json!({"Id": id, "Name": name, "Config": {"Image": "shop:1"}, "HostConfig": host}).to_string()
}

#[test]
fn a_new_container_of_an_engine_is_known_within_a_second() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    // Agents of tests that run at the same time see these cgroups, too: no id is another test's.
    let id = |n: u32| id(0x100 + n);
    let site = Site::new()?;
    let (docker, podman) = (site.directory().join("d.sock"), site.directory().join("p.sock"));
    let script = Script::default();
    engine(&docker, &script)?;
    engine(&podman, &script)?;
    let mut site = site.with(|agent| agent.engines(&docker, &podman));
    let agent = site.start()?;
    // The first snapshot waits up to 3 s for engines that do not answer.
    agent.await_status("the first look", |status| {
        status.sources.iter().any(|source| source.name == "names")
    })?;
    let stalls = Stalls::watch();
    // The first one is never told of, which costs the others nothing.
    for n in 0..5 {
        let told = (n > 0).then(|| record(&id(n), &format!("/web-{n}"), &json!({"CpuShares": 256})));
        script.lock().map_err(|_| anyhow::anyhow!("poisoned"))?.insert(id(n), told);
        let name = if n % 2 == 0 { format!("docker-{}.scope", id(n)) } else { format!("libpod-{}", id(n)) };
        let cgroup = site.tree().group(&name)?;
        site.run(&cgroup, &["sleep"])?;
        let made = Instant::now();
        if n > 0 {
            let pod = format!("web-{n}");
            wait::until(&format!("{pod} to be known"), wait::PATIENCE, || {
                let status = agent.ask().status()?;
                let named = |c: &ContainerStatus| c.identity.as_ref().is_some_and(|i| i.pod == pod);
                Ok(status.containers.iter().any(named).then_some(()))
            })?;
            let after = made.elapsed();
            ensure!(
                after < stalls.allow(KNOWN_WITHIN),
                "{pod} was known after {after:?}\n{}",
                agent.log_end()
            );
        }
    }
    agent.stop()
}

#[test]
fn an_engine_that_hangs_or_lies_is_its_own_problem() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = Site::new()?;
    let (docker, podman) = (site.directory().join("d.sock"), site.directory().join("p.sock"));
    let mut processes = Vec::new();
    for n in 0..6 {
        let name = if n == 5 { format!("libpod-{}", id(n)) } else { format!("docker-{}.scope", id(n)) };
        let cgroup = site.tree().group(&name)?;
        processes.push(site.run(&cgroup, &["sleep"])?);
    }
    let reserved = json!({"MemoryReservation": 64 << 20});
    let script = Script::default();
    script.lock().map_err(|_| anyhow::anyhow!("poisoned"))?.extend([
        (id(0), Some(record(&id(0), "/good", &reserved))),
        (id(1), None),
        // It speaks of another, gives a name that is none, and does not speak sense.
        (id(2), Some(record(&id(0), "/good", &reserved))),
        (id(3), Some(record(&id(3), "/../../\u{1b}[2J", &reserved))),
        (id(4), Some("{\"Id\": 7}".repeat(3))),
        (id(5), Some(record(&id(5), "/neighbour", &reserved))),
    ]);
    engine(&docker, &script)?;
    engine(&podman, &script)?;
    let site = site.with(|agent| agent.engines(&docker, &podman));
    let agent = site.start()?;

    // Those that are told of are brought to what was said of them, beside the others.
    for n in [0, 5] {
        await_score(processes[n], 1000 - i32::try_from(1000 * (64_u64 << 20) / memory_total()?)?)?;
    }
    let wrong =
        ["not answer within 5s", "about another container", "not one of a container", "not understood"];
    wait::until("the problems to be told", wait::PATIENCE, || {
        let log = agent.daemon().log();
        Ok(wrong.iter().all(|why| log.contains(why)).then_some(()))
    })
    .with_context(|| agent.log_end())?;
    let status = agent.ask().status()?;
    let of = |n: u32| {
        status
            .containers
            .iter()
            .find(|c| c.identity.as_ref().is_some_and(|i| i.id == id(n)))
            .context("it is there")
    };
    let named = |c: &ContainerStatus| c.identity.as_ref().map(|i| (i.pod.clone(), i.image.clone()));
    ensure!(named(of(0)?) == Some(("good".to_string(), "shop:1".to_string())), "{status:#?}");
    for n in 1..5 {
        let found = of(n)?;
        ensure!(found.state() == ConvergeState::Unclassified, "{found:#?}");
        ensure!(named(found) == Some((id(n)[..12].to_string(), String::new())), "{found:#?}");
        ensure!(score(processes[n as usize])? == 0, "nothing is known of it");
    }
    agent.stop()
}
