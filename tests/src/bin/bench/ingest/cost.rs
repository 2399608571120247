//! What history costs on disk and at start: the example `history_cost` of the recommender, which goes through its store
//! with the clock as an argument, so that days pass in seconds.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use crate::figure::{Figure, Target};
use crate::run::Run;

/// Containers and days by default, and in a full run.
const SOME: (u32, u64) = (40, 1);
const ALL: (u32, u64) = (3000, 8);
/// Workloads of the store that is read back.
const WORKLOADS: u32 = 10_000;

/// Runs the example; its answers by name.
fn ask(arguments: &[&str]) -> Result<BTreeMap<String, f64>> {
    let here = std::env::current_exe().context("cannot find this program")?;
    let example = here.with_file_name("examples").join("history_cost");
    let output = Command::new(&example)
        .args(arguments)
        .output()
        .with_context(|| format!("cannot run {}; scripts/bench builds it", example.display()))?;
    if !output.status.success() {
        bail!("{} fails: {}", example.display(), String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(name, value)| Ok((name.to_owned(), value.parse()?))).collect()
}

fn of(answers: &BTreeMap<String, f64>, name: &str) -> Result<f64> {
    answers.get(name).copied().with_context(|| format!("history_cost does not say {name}"))
}

/// Names of a workload of that store.
pub(crate) struct Names {
    pub(crate) namespace: String,
    pub(crate) app: String,
    pub(crate) image: String,
}

/// Those of a number, as the example gives them; its workload is `deployment/APP`, its container `main`, the hash of its
/// command the number.
pub(crate) fn names(number: u32) -> Names {
    let namespace = format!("team-{}", number % 20);
    let app = format!("app-{number}");
    Names { image: format!("registry.test/{namespace}/{app}:1.2.3"), namespace, app }
}

/// Makes a store with a month of history of so many workloads, until yesterday; what it holds, for people.
pub(crate) fn fill(state_dir: &Path, workloads: usize) -> Result<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?.as_secs();
    let yesterday = (now / 86_400 - 1).to_string();
    let dir = state_dir.to_str().context("the temporary directory has no ordinary name")?;
    let answers = ask(&["fill", dir, &workloads.to_string(), &yesterday])?;
    Ok(format!(
        "9 days of hours and 30 days of days of {workloads} workloads behind it ({:.0} MiB of files)",
        of(&answers, "history_mib")?
    ))
}

/// Gives the bytes of a container-day.
pub(crate) fn disk(run: &Run) -> Result<Vec<Figure>> {
    let (containers, days) = if run.full { ALL } else { SOME };
    let mut figures = Vec::new();
    for (load, most) in [("busy", 40.0), ("idle", 4.0)] {
        run.say(&format!("{days} days of one-second samples of {containers} {load} containers"));
        let answers = ask(&["disk", load, &containers.to_string(), &days.to_string()])?;
        let parts = ["minutes_kib", "hours_kib", "days_kib"];
        let parts: Vec<String> = parts
            .iter()
            .map(|name| Ok(format!("{} {:.2}", name.trim_end_matches("_kib"), of(&answers, name)?)))
            .collect::<Result<_>>()?;
        let value = of(&answers, "kib_per_container_day")?;
        let name = format!("ingest/disk-{load}");
        figures.push(Figure::new(&name, value, "KiB", Target::AtMost(most)).what(format!(
            "all files of the history after {days} simulated days of {containers} {load} containers at a sample a second, \
             each the only one of its workload, command and image, for one container and day ({}, in KiB); fixed seed",
            parts.join(", "),
        )));
        run.check()?;
    }
    Ok(figures)
}

/// Gives the time until a month of history is read back, and what reading it for an answer takes.
pub(crate) fn ready(run: &Run) -> Result<Vec<Figure>> {
    run.say(&format!("making 9 days of hours and 30 days of days of {WORKLOADS} workloads"));
    let answers = ask(&["ready", &WORKLOADS.to_string()])?;
    let what = format!(
        "opening a store with 9 days of hours and 30 days of days of {WORKLOADS} workloads ({:.0} MiB, {} subjects, no two \
         alike), in the page cache, until it answers; {:.0} MiB resident then: state {:.1} KiB per workload of one container",
        of(&answers, "history_mib")?,
        of(&answers, "subjects")?,
        of(&answers, "resident_mib")?,
        of(&answers, "resident_mib")? * 1024.0 / f64::from(WORKLOADS),
    );
    let read = "the 99th percentile of reading all hours, days and events of both resources of one container, decoded, in \
                that store: what an answer has to read";
    Ok(vec![
        Figure::new("recommend/ready-30d", of(&answers, "ready_seconds")?, "s", Target::AtMost(5.0))
            .what(what),
        Figure::new("recommend/history-read-p99", of(&answers, "read_p99_ms")?, "ms", Target::AtMost(1.0))
            .what(read),
    ])
}
