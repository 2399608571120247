//! Clients of an agent's TCP address that ask for the impossible, many at once, or never read what they asked for.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use evenkeel_proto::v1::agent_service_client::AgentServiceClient;
use evenkeel_proto::v1::{AdmitRequest, WatchUsageRequest, WatchUsageResponse};
use evenkeel_tests::daemon::free_port;
use evenkeel_tests::product::{Agent, Manifest, Site, parse_metrics};
use evenkeel_tests::{figures, machine, processes, require, wait};
use futures::future::join_all;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

/// What the unit allows (`MemoryMax` of systemd/evenkeel-agent.service).
const MOST_MEMORY: u64 = 256 << 20;
const AT_ONCE: usize = 16;
const WATCHERS: (usize, usize) = (4, 50);

/// Pods that cannot be read, what each is, and a word of the reason.
fn pods() -> [(&'static str, String, &'static str); 4] {
    let mut bomb = "apiVersion: v1\nkind: Pod\na0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_string();
    for level in 1..11 {
        let inner = vec![format!("*a{}", level - 1); 9].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{inner}]\n"));
    }
    let containers = |count: usize| {
        let list: Vec<String> = (0..count).map(|i| format!("{{name: c{i}, image: i}}")).collect();
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {{containers: [{}]}}\n",
            list.join(", ")
        )
    };
    [
        ("5,000 containers", containers(5_000), "1000 containers"),
        ("aliases of aliases", bomb, "alias"),
        ("30,000 levels", format!("{}{}", "[".repeat(30_000), "]".repeat(30_000)), "limit"),
        ("200,000 containers", containers(200_000), "large"),
    ]
}

/// Has a pod admitted so many times at once; every answer is a refusal.
async fn attack(client: &AgentServiceClient<Channel>, pod: &str) -> Vec<Status> {
    let asking = (0..AT_ONCE).map(|_| {
        let (mut client, pod) = (client.clone(), pod.to_string());
        async move { client.admit(AdmitRequest { pod }).await.err() }
    });
    join_all(asking).await.into_iter().flatten().collect()
}

/// Opens streams of usage and reads nothing.
async fn watch(address: &str) -> Result<Vec<Streaming<WatchUsageResponse>>> {
    let mut open = Vec::new();
    for _ in 0..WATCHERS.0 {
        let mut client = AgentServiceClient::connect(address.to_string()).await?;
        for _ in 0..WATCHERS.1 {
            open.push(client.watch_usage(WatchUsageRequest {}).await?.into_inner());
        }
    }
    Ok(open)
}

fn counter(agent: &Agent, name: &str) -> Result<f64> {
    let metrics = parse_metrics(&agent.metrics()?)?;
    metrics.sum(&format!("evenkeel_agent_{name}")).with_context(|| format!("no {name}"))
}

/// Waits until so many samples more were taken.
fn await_samples(agent: &Agent, more: f64) -> Result<()> {
    let before = counter(agent, "samples_total")?;
    wait::until("samples to go on", wait::PATIENCE, || {
        Ok((counter(agent, "samples_total")? >= before + more).then_some(()))
    })
}

#[test]
fn an_agent_samples_on_beside_pods_that_cannot_be_read_and_watchers_that_do_not_read() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let address = format!("127.0.0.1:{}", free_port()?);
    let mut site = Site::new()?.with(|agent| {
        agent
            .set("serve.address", &format!("{address:?}"))
            .set("sample.interval", "\"100ms\"")
            .set("insecure", "true")
    });
    let (cgroup, _) = site.sleeper("web")?;
    site.bind(&Manifest::burstable("web", &cgroup.path(), "100m", "64Mi"))?;
    let agent = site.start()?;
    wait::until_true("metrics to be served", || agent.metrics().is_ok())?;
    await_samples(&agent, 10.0)?;
    let missed_before = counter(&agent, "ticks_missed_total")?;

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let address = format!("http://{address}");
    let watchers = runtime.block_on(watch(&address))?;
    ensure!(watchers.len() == WATCHERS.0 * WATCHERS.1, "{} watch", watchers.len());
    let client = runtime.block_on(AgentServiceClient::connect(address))?;
    let (started, before) = (Instant::now(), counter(&agent, "samples_total")?);
    for (what, pod, word) in pods() {
        let refusals = runtime.block_on(attack(&client, &pod));
        ensure!(refusals.len() == AT_ONCE, "{what}: {} of {AT_ONCE} are refused", refusals.len());
        let known = [Code::InvalidArgument, Code::ResourceExhausted, Code::OutOfRange];
        ensure!(refusals.iter().all(|status| known.contains(&status.code())), "{what}: {refusals:?}");
        let reasons: Vec<String> = refusals.iter().map(|status| status.message().to_lowercase()).collect();
        ensure!(reasons.iter().any(|reason| reason.contains(word)), "{what}: {reasons:?}");
        // Whoever asks over the socket is answered meanwhile.
        ensure!(agent.container("web")?.is_some(), "{what}: the container is unknown");
    }
    await_samples(&agent, 10.0)?;
    let taken = counter(&agent, "samples_total")? - before;
    let missed = counter(&agent, "ticks_missed_total")? - missed_before;
    let peak = processes::memory_of(agent.daemon().pid()?, "VmHWM")?;
    figures::show(&format!(
        "an agent beside {} pods it refuses and {} watchers that do not read: {taken} samples and {missed} missed ticks in \
         {:.1} s, peak memory {} MiB",
        AT_ONCE * pods().len(),
        watchers.len(),
        started.elapsed().as_secs_f64(),
        peak >> 20
    ));
    ensure!(peak < MOST_MEMORY, "{peak} bytes");
    ensure!(counter(&agent, "panics_total")? == 0.0, "{}", agent.log_end());

    let pod = Manifest::burstable("more", "/nowhere", "10m", "1Mi").json().to_string();
    let mut honest = client.clone();
    let answer = runtime.block_on(async move { honest.admit(AdmitRequest { pod }).await })?;
    ensure!(answer.into_inner().fits, "a small pod fits after all that");
    // Open streams would be waited for.
    drop((client, watchers));
    drop(runtime);
    agent.stop()
}
