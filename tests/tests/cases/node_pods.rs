//! A node's containers are scored by what the API server says that they request: exactly, anew when they are resized in place, and over
//! a restart without a recommender.

use anyhow::{Context, Result, ensure};
use evenkeel_proto::v1::{ConvergeState, PodsStatus};
use evenkeel_tests::cgroups::Tier;
use evenkeel_tests::processes::memory_total;
use evenkeel_tests::product::{Agent, RecommenderSetup, Site, await_score};
use evenkeel_tests::runtime::scripted::{Events, Scripted, Told};
use evenkeel_tests::{machine, require, wait};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::apiserver::ApiServer;

/// A pod of the namespace `default` with one container, `main`, as the scripted runtime tells it.
pub(super) fn pod(name: &str, node: &str, memory: u64) -> Value {
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": { "name": name, "namespace": "default", "uid": format!("uid-{name}") },
        "spec": { "nodeName": node, "containers": [{ "name": "main", "resources": { "requests": { "memory": memory.to_string() } } }] },
        "status": { "phase": "Running", "qosClass": "Burstable" },
    })
}

/// The score of a Burstable container of Kubernetes that requests so many thousandths of the machine's memory.
pub(super) fn score_of(permille: u64) -> i32 {
    1000 - i32::try_from(permille).unwrap_or(1000)
}

/// So many thousandths of the machine's memory, and a little.
pub(super) fn memory(permille: u64) -> Result<u64> {
    Ok(memory_total()? / 1000 * permille + memory_total()? / 4000)
}

/// An API server, a recommender that follows it, and an agent beside a runtime.
pub(super) struct Cluster {
    pub(super) api: ApiServer,
    recommender: RecommenderSetup,
    runtime: Scripted,
    pub(super) site: Site,
    _async: Runtime,
}

impl Cluster {
    pub(super) fn new() -> Result<Cluster> {
        let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let api = tokio.block_on(ApiServer::start());
        let site = Site::new()?;
        let runtime = Scripted::start(site.directory(), Events::OpenAtOnce)?;
        let kubeconfig = api.kubeconfig(site.directory());
        let recommender = RecommenderSetup::new(site.directory())?
            .set("kubernetes.view", "true")
            .set("kubernetes.cluster", "\"test\"")
            .set("kubernetes.kubeconfig", &format!("{:?}", kubeconfig.display().to_string()));
        let address = recommender.address();
        let site = site
            .with(|agent| agent.runtime(runtime.socket()).recommender(&address).set("rules", "\"kubelet\""))
            // Ids are invented here.
            .with_invented_ids();
        Ok(Cluster { api, recommender, runtime, site, _async: tokio })
    }

    /// A pod runs as a kubelet would have started it, of which the record tells no more than that it requests something.
    pub(super) fn runs(&mut self, name: &str) -> Result<Pid> {
        let cgroup = self.site.tree().container(Tier::Burstable, name, "main")?;
        let pid = self.site.run(&cgroup, &["sleep"])?;
        self.runtime.tell(Told { score: 999, ..Told::best_effort(name, &cgroup.path()) });
        Ok(pid)
    }
}

fn await_pods(agent: &Agent, what: &str, is: impl Fn(&PodsStatus) -> bool) -> Result<PodsStatus> {
    let status = agent.await_status(what, |status| status.pods.as_ref().is_some_and(&is))?;
    status.pods.context("pods")
}

/// Waits until the container of a pod is to have a score, by somebody's word.
pub(super) fn await_wanted(agent: &Agent, pod: &str, score: i32, by: &str) -> Result<()> {
    let wanted = Some(score.to_string());
    agent.await_container(pod, &format!("scored {score} by {by}"), |container| {
        let knob = container.knobs.iter().find(|knob| knob.name == "oom_score_adj");
        container.required_by == by && knob.is_some_and(|knob| knob.wanted == wanted)
    })?;
    Ok(())
}

#[test]
fn containers_follow_the_api_servers_words_over_resizes_and_restarts() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut cluster = Cluster::new()?;
    let pid = cluster.runs("web")?;
    let agent = cluster.site.start()?;
    await_wanted(&agent, "web", 999, "estimate")?;
    ensure!(agent.ask().status()?.pods.is_none());

    // The pod is placed; what another node's requires is nobody's business here.
    cluster.api.put(pod("web", "node-a", memory(250)?));
    cluster.api.put(pod("stranger", "node-b", memory(100)?));
    let recommender = cluster.recommender.start()?;
    await_wanted(&agent, "web", score_of(250), "api")?;
    await_score(pid, score_of(250))?;
    let told = await_pods(&agent, "pods to be told", |pods| pods.followed == 1)?;
    assert_eq!((told.pods, told.kept, told.refused), (1, false, vec![]));
    let shown = agent.cli().run(&["status"])?.success()?;
    ensure!(shown.contains("pods by the API server: 1 known, 1 containers follow them"), "{shown}");
    let shown = agent.cli().run(&["describe", "web"])?.success()?;
    ensure!(shown.contains("required by: api"), "{shown}");

    // A resize: asked for, which changes nothing; then in force.
    let mut resized = pod("web", "node-a", memory(400)?);
    let in_force = |memory: u64| json!([{ "name": "main", "resources": { "requests": { "memory": memory.to_string() } } }]);
    resized["status"]["containerStatuses"] = in_force(memory(250)?);
    cluster.api.put(resized.clone());
    cluster.api.put(pod("late", "node-a", memory(1)?));
    await_pods(&agent, "a later change", |pods| pods.pods == 2)?;
    await_wanted(&agent, "web", score_of(250), "api")?;
    resized["status"]["containerStatuses"] = in_force(memory(400)?);
    cluster.api.put(resized);
    await_wanted(&agent, "web", score_of(400), "api")?;
    await_score(pid, score_of(400))?;

    // Without a recommender, after a restart: as it was.
    let generation = await_pods(&agent, "two pods", |pods| pods.pods == 2)?.generation;
    recommender.stop()?;
    agent.stop()?;
    let kept = std::fs::read_to_string(cluster.site.agent.state().join("pods.json"))?;
    ensure!(kept.contains("uid-web") && !kept.contains("stranger"), "{kept}");
    let agent = cluster.site.start()?;
    await_wanted(&agent, "web", score_of(400), "api")?;
    let told = await_pods(&agent, "pods that were kept", |pods| pods.followed == 1)?;
    assert_eq!((told.pods, told.kept, told.generation), (2, true, generation));

    // A pod of which the API server has nothing any more is what its runtime says.
    let recommender = cluster.recommender.start()?;
    await_pods(&agent, "the recommender to speak", |pods| !pods.kept && pods.pods == 2)?;
    cluster.api.delete("/api/v1/pods", "default", "web");
    await_pods(&agent, "the pod to be gone", |pods| pods.pods == 1)?;
    await_wanted(&agent, "web", 999, "estimate")?;
    agent.await_state("web", ConvergeState::Converged)?;
    recommender.stop()?;
    agent.stop()
}

#[test]
fn an_agent_of_another_node_takes_nothing_that_was_kept_and_a_lie_raises_nobody() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut cluster = Cluster::new()?;
    let pid = cluster.runs("web")?;
    // A pod that the API server has as Guaranteed, which its runtime contradicts, and one that does not run here.
    let mut lie = pod("web", "node-a", memory(250)?);
    lie["spec"]["containers"][0]["resources"]["limits"] =
        json!({ "cpu": "1", "memory": memory(250)?.to_string() });
    lie["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1".into();
    lie["status"]["qosClass"] = "Guaranteed".into();
    cluster.api.put(lie);
    cluster.api.put(pod("nowhere", "node-a", memory(900)?));
    let recommender = cluster.recommender.start()?;
    let agent = cluster.site.start()?;
    await_pods(&agent, "pods to be told", |pods| pods.pods == 2)?;
    await_wanted(&agent, "web", 999, "estimate")?;
    await_score(pid, 999)?;
    let said = |status: &evenkeel_proto::v1::GetStatusResponse| {
        status
            .sources
            .iter()
            .any(|source| source.why.contains("it is said to be Guaranteed, and runs as Burstable"))
    };
    agent.await_status("the contradiction to be told", said)?;
    recommender.stop()?;
    agent.stop()?;
    ensure!(cluster.site.agent.state().join("pods.json").exists());
    cluster.site = cluster.site.with(|agent| agent.set("node.name", "\"node-c\""));
    let agent = cluster.site.start()?;
    wait::until("the container to be known", wait::PATIENCE, || agent.container("web"))?;
    ensure!(agent.ask().status()?.pods.is_none(), "pods of another node");
    ensure!(!cluster.site.agent.state().join("pods.json").exists());
    agent.stop()
}
