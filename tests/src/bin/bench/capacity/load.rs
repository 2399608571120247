//! Loading a large snapshot, by the command people use.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use evenkeel_tests::places;
use nix::unistd::Pid;
use serde_json::json;
use tempfile::TempDir;

use super::cluster;
use crate::figure::{Figure, Target};
use crate::run::Run;
use crate::usage::memory_mib;

/// Nodes and pods of the file.
const NODES: usize = 5_000;
const PODS: usize = 150_000;
/// Between two looks at the memory.
const LOOK: Duration = Duration::from_millis(10);

/// Seconds and memory of a whole `evenkeel capacity` over the file.
pub(crate) fn run(run: &Run) -> Result<Vec<Figure>> {
    let scratch = TempDir::new().context("cannot make a scratch directory")?;
    let (snapshot, pod) = (scratch.path().join("cluster.json"), scratch.path().join("pod.json"));
    run.say(&format!("{NODES} nodes and {PODS} pods are written as JSON"));
    let bytes = write(&snapshot)?;
    let shape = json!({"metadata": {"name": "sim"}, "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
    std::fs::write(&pod, shape.to_string()).context("cannot write the pod")?;
    let mut runs = Vec::new();
    for _ in 0..3 {
        run.check()?;
        runs.push(ask(&snapshot, &pod)?);
    }
    runs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let seconds: Vec<f64> = runs.iter().map(|(seconds, _)| *seconds).collect();
    let peaks: Vec<f64> = runs.iter().map(|(_, peak)| *peak).collect();
    let what =
        format!("evenkeel capacity over {NODES} nodes and {PODS} pods, {} MB of JSON", bytes / 1_000_000);
    Ok(vec![
        Figure::new("capacity/load", seconds[1], "s", Target::AtMost(5.0))
            .what(what.as_str())
            .spread(&seconds),
        Figure::new("capacity/load-memory", peaks[1], "MiB", Target::AtMost(1024.0))
            .what(what)
            .spread(&peaks),
    ])
}

fn write(path: &Path) -> Result<u64> {
    let mut file = BufWriter::new(File::create(path).context("cannot make the snapshot")?);
    file.write_all(b"{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":[\n")?;
    for index in 0..NODES + PODS {
        if index > 0 {
            file.write_all(b",\n")?;
        }
        let object = if index < NODES { cluster::node(index) } else { cluster::pod(index - NODES, NODES) };
        serde_json::to_writer(&mut file, &object)?;
    }
    file.write_all(b"]}\n")?;
    file.flush()?;
    Ok(std::fs::metadata(path)?.len())
}

/// Seconds and the highest memory seen, MiB.
fn ask(snapshot: &Path, pod: &Path) -> Result<(f64, f64)> {
    let begun = Instant::now();
    let mut child = Command::new(places::program("evenkeel")?)
        .args(["capacity", "-o", "json", "--max", "1", "-f"])
        .arg(pod)
        .arg("--snapshot")
        .arg(snapshot)
        .stdout(Stdio::null())
        .spawn()
        .context("cannot start evenkeel")?;
    let pid = Pid::from_raw(i32::try_from(child.id()).context("not a process number")?);
    let mut peak = 0.0_f64;
    loop {
        if let Some(status) = child.try_wait().context("cannot see to evenkeel")? {
            if !status.success() {
                bail!("evenkeel capacity ended with {status}");
            }
            return Ok((begun.elapsed().as_secs_f64(), peak));
        }
        // It may end in between.
        if let Ok((_, high)) = memory_mib(pid) {
            peak = peak.max(high);
        }
        std::thread::sleep(LOOK);
    }
}
