//! Memory that grows past its limit: killed where the limit is that of the day, met on its way where it may change within the
//! day.
//!
//! Two containers that have used 64 MiB for three days grow alike. The limit of one stays; that of the other follows what the
//! recommender says of it, in its manifest, as whoever resizes pods in place would have it.

use std::time::Duration;

use anyhow::{Context, Result};
use evenkeel_proto::v1;
use evenkeel_rightsizing::Resource;
use evenkeel_tests::cgroups::TestCgroup;
use evenkeel_tests::product::{Manifest, Pair, Recommender, Site};
use evenkeel_tests::{figures, machine, require, wait};
use serde_json::json;

use super::forged::{Forged, hello};

const MIB: u64 = 1 << 20;
/// Limit and request of both; how fast both grow, and how far: MiB.
const LIMIT: u64 = 170;
const PACE: &str = "3Mi";
const GROWN: &str = "260Mi";
/// The limit that stays is reached within a minute of an idle machine.
const PATIENCE: Duration = Duration::from_secs(240);

const POLICY: &str = "
apiVersion: evenkeel.dev/v1
kind: Policy
metadata: {name: all, namespace: default}
spec:
  target: {}
  updatePolicy: {mode: initial}
  resourcesPolicy: {limits: ratio}
  parameters: {change: raise}
";

fn manifest(pod: &str, cgroup: &TestCgroup, bytes: u64) -> Manifest {
    let asked = json!({ "cpu": "100m", "memory": bytes.to_string() });
    Manifest::new(
        pod,
        &cgroup.path(),
        &json!({ "requests": asked, "limits": { "memory": bytes.to_string() } }),
    )
}

/// Three days of half an hour each in which containers of both pods used 64 MiB, on another node.
fn tell_the_past(address: &str) -> Result<()> {
    let mut past = Forged::greet(address, hello("node-b", 1))?;
    past.step = Duration::from_secs(1_800);
    let steps = 3 * 48;
    past.time_usec -= steps * 1_800 * 1_000_000;
    let mut frames = (0..steps).map(|_| past.second(1..3)).collect::<Result<Vec<_>>>()?;
    let identity = |pod: &str| v1::ContainerIdentity {
        namespace: "default".into(),
        pod: format!("{pod}-before"),
        container: "main".into(),
        workload: pod.into(),
        image: "localhost/workload:1".into(),
        requested: Some(v1::ResourceValues {
            memory_request_bytes: Some(LIMIT * MIB),
            memory_limit_bytes: Some(LIMIT * MIB),
            ..v1::ResourceValues::default()
        }),
        ..v1::ContainerIdentity::default()
    };
    let first = frames.first_mut().context("a first frame")?;
    first.announced = ["fixed", "raised"]
        .into_iter()
        .zip(1..)
        .map(|(pod, slot)| v1::Announcement { slot, identity: Some(identity(pod)) })
        .collect();
    past.send(frames)?;
    past.acknowledged()
}

/// What is recommended for the memory of a pod.
fn recommended(recommender: &Recommender, pod: &str) -> Result<Option<v1::Recommendation>> {
    let all = recommender.ask().recommendations("default")?;
    Ok(all.into_iter().find(|r| r.workload == pod && r.resource == Resource::Memory.as_str()))
}

/// Bytes a cgroup uses, and processes killed in it.
fn used_and_killed(cgroup: &TestCgroup) -> Result<(u64, u64)> {
    let number = |text: &str| text.trim().parse::<u64>().with_context(|| format!("no number: {text}"));
    let events = cgroup.read("memory", "memory.events")?;
    let killed = events.lines().find_map(|line| line.strip_prefix("oom_kill "));
    Ok((number(&cgroup.read("memory", "memory.current")?)?, number(killed.context("no oom_kill")?)?))
}

/// What became of the container whose limit follows.
#[derive(Debug, Default)]
struct Followed {
    limits_mib: Vec<u64>,
    /// MiB used at the first of them, and what the last seconds asked for.
    first_at: Option<u64>,
    notes: Vec<String>,
}

impl Followed {
    /// Carries out what is recommended where it is more.
    fn follow(&mut self, site: &Site, recommender: &Recommender, cgroup: &TestCgroup) -> Result<()> {
        let now = self.limits_mib.last().copied().unwrap_or(LIMIT);
        let Some(r) = recommended(recommender, "raised")? else { return Ok(()) };
        let Some(limit) = r.limit.filter(|limit| limit / MIB > now) else { return Ok(()) };
        self.limits_mib.push(limit / MIB);
        let used = used_and_killed(cgroup)?.0 / MIB;
        self.first_at.get_or_insert(used);
        self.notes.extend(r.notes.into_iter().filter(|note| note.starts_with("raised")));
        site.bind(&manifest("raised", cgroup, limit))
    }
}

pub(crate) fn memory_that_grows_is_met_on_its_way_where_limits_follow() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let Pair { mut site, recommender } = Pair::new()?;
    let address = recommender.address();
    let policies = site.directory().join("policies");
    std::fs::create_dir_all(&policies).context("cannot make a directory for policies")?;
    std::fs::write(policies.join("all.yaml"), POLICY).context("cannot write a policy")?;
    let recommender = recommender
        .set("policies", &format!("[{policies:?}]"))
        .set("recommend.watch_interval", "\"1s\"")
        .start()?;
    let (fixed, raised) = (site.cgroup("fixed")?, site.cgroup("raised")?);
    site.bind(&manifest("fixed", &fixed, LIMIT * MIB))?;
    site.bind(&manifest("raised", &raised, LIMIT * MIB))?;
    let agent = site.start()?;
    let growing = site.run(&fixed, &["grow", PACE, GROWN])?;
    site.run(&raised, &["grow", PACE, GROWN])?;
    tell_the_past(&address)?;
    for cgroup in [&fixed, &raised] {
        wait::until_true("the limit", || {
            cgroup.read("memory", "memory.max").is_ok_and(|now| now == (LIMIT * MIB).to_string())
        })?;
    }
    let mut followed = Followed::default();
    let done = wait::until("one to be killed and the other to be above its first limit", PATIENCE, || {
        followed.follow(&site, &recommender, &raised)?;
        let (mine, others) = (used_and_killed(&raised)?, used_and_killed(&fixed)?);
        anyhow::ensure!(mine.1 == 0, "it was killed: {:?}", recommended(&recommender, "raised")?);
        Ok((others.1 > 0 && mine.0 > (LIMIT + 8) * MIB).then_some(mine.0 / MIB))
    });
    let used = done.with_context(|| format!("{followed:?} {}", agent.log_end()))?;
    let at = followed.first_at.context("no limit was raised")?;
    let limits: Vec<String> = followed.limits_mib.iter().map(u64::to_string).collect();
    figures::show(&format!(
        "growth of {PACE}/s towards a limit of {LIMIT} MiB: killed (pid {growing}) where it stays; with raises to {} MiB, \
         the first at {at} MiB, {used} MiB and alive; {}",
        limits.join(", "),
        followed.notes.first().map_or("", String::as_str)
    ));
    recommender.stop()?;
    agent.stop()
}
