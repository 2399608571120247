//! Pods of a Deployment run, are rolled out, and keep their history; what is recommended to it stands in the status of both kinds of objects;
//! an OOM kill raises it, also when the recommender that led is gone.

use anyhow::{Context, Result, ensure};
use evenkeel_tests::cgroups::Tier;
use evenkeel_tests::daemon::last_lines;
use evenkeel_tests::product::{Agent, AgentSetup, Recommender, RecommenderSetup, directory};
use evenkeel_tests::runtime::{self, ContainerSpec, Pod, PodSpec, Runtime, resources};
use evenkeel_tests::{figures, require, wait};
use serde_json::{Value, json};

use super::apiserver::ApiServer;

const AUTOSCALERS: &str = "/apis/autoscaling.k8s.io/v1/verticalpodautoscalers";
const OWN: &str = "/apis/evenkeel.dev/v1/verticalpodautoscalers";
const LEASES: &str = "/apis/coordination.k8s.io/v1/leases";
/// What a container holds, and what it may.
const HELD: u64 = 20_000_000;
const LIMIT: u64 = 64 << 20;
/// Recommendations rest on whole minutes.
const MINUTES: std::time::Duration = std::time::Duration::from_secs(300);

/// An object of the namespace `default`, and who it belongs to.
fn object(version: &str, kind: &str, name: &str, owner: Option<(&str, &str)>, more: &Value) -> Value {
    let owners = owner.map(
        |(kind, name)| json!([{ "apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name, "controller": true }]),
    );
    let mut object = json!({ "apiVersion": version, "kind": kind, "metadata": {
        "name": name, "namespace": "default", "generation": 1, "labels": { "app": "web" }, "ownerReferences": owners,
    } });
    for (key, value) in more.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
    object
}

/// The memory of a quantity in bytes.
fn bytes(quantity: &Value) -> Option<u64> {
    let quantity: evenkeel_model::quantity::Quantity = quantity.as_str()?.parse().ok()?;
    u64::try_from(quantity.nano() / 1_000_000_000).ok()
}

struct Cluster {
    api: ApiServer,
    containerd: Runtime,
    agent: Agent,
    recommenders: Vec<(RecommenderSetup, Option<Recommender>)>,
    dir: tempfile::TempDir,
    _async: tokio::runtime::Runtime,
}

impl Cluster {
    fn start() -> Result<Cluster> {
        let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let api = tokio.block_on(ApiServer::start());
        let (containerd, dir) = (Runtime::start()?, directory()?);
        let mut recommenders = Vec::new();
        for name in ["r0", "r1"] {
            let at = dir.path().join(name);
            std::fs::create_dir_all(&at)?;
            let kubeconfig = api.kubeconfig(&at).display().to_string();
            let setup = RecommenderSetup::new(&at)?
                .set("kubernetes.view", "true")
                .set("kubernetes.recommend", "true")
                .set("kubernetes.cluster", "\"test\"")
                .set("kubernetes.lease", "\"evenkeel/evenkeel-recommender\"")
                .set("kubernetes.kubeconfig", &format!("{kubeconfig:?}"))
                .set("recommend.watch_interval", "\"1s\"");
            let running = setup.start()?;
            recommenders.push((setup, Some(running)));
        }
        let addresses: Vec<String> = recommenders.iter().map(|(setup, _)| setup.address()).collect();
        let agent = AgentSetup::new(dir.path())?
            .runtime(&containerd.socket())
            .set("rules", "\"kubelet\"")
            .set("stream.recommender", &format!("{addresses:?}"))
            .start()?;
        Ok(Cluster { api, containerd, agent, recommenders, dir, _async: tokio })
    }

    /// A set of the Deployment, and its one pod, which holds some memory and takes more than it may once its file `go` is there.
    fn rolls_out(&self, set: &str) -> Result<Pod> {
        let selector = json!({ "spec": { "selector": { "matchLabels": { "app": "web" } } } });
        self.api.put(object("apps/v1", "Deployment", "web", None, &selector));
        self.api.put(object("apps/v1", "ReplicaSet", set, Some(("Deployment", "web")), &selector));
        let work = self.dir.path().join(set);
        std::fs::create_dir_all(&work)?;
        let held = format!(
            "held=$(head -c {HELD} /dev/zero | tr '\\0' x); while [ ! -e /given/go ]; do sleep 0.2; done; \
             head -c 200000000 /dev/zero | tail > /dev/null; sleep 1000000"
        );
        let main = ContainerSpec::new("main", &["sh", "-c", &held])
            .resources(resources(102, Some(i64::try_from(LIMIT)?), 999))
            .mount(&work, "/given", true);
        let (name, uid) = (format!("{set}-x"), runtime::uid()?);
        let asked = json!({ "requests": { "cpu": "100m", "memory": "32Mi" }, "limits": { "memory": LIMIT.to_string() } });
        let mut known = object(
            "v1",
            "Pod",
            &name,
            Some(("ReplicaSet", set)),
            &json!({
                "spec": { "nodeName": "node-a", "containers": [{ "name": "main", "image": runtime::BUSYBOX, "resources": asked }] },
                "status": { "phase": "Running", "qosClass": "Burstable" },
            }),
        );
        known["metadata"]["uid"] = uid.as_str().into();
        self.api.put(known);
        let spec = PodSpec::new(&name, Tier::Burstable).uid(&uid).label("app", "web").container(main);
        self.containerd.run_pod(&spec)
    }

    fn end(&self, set: &str, pod: &Pod) -> Result<()> {
        self.containerd.cri().remove_sandbox(&pod.sandbox)?;
        self.api.delete("/api/v1/pods", "default", &format!("{set}-x"));
        Ok(())
    }

    fn running(&self) -> impl Iterator<Item = &Recommender> {
        self.recommenders.iter().filter_map(|(_, running)| running.as_ref())
    }

    /// What both objects say.
    fn statuses(&self) -> [Value; 2] {
        [AUTOSCALERS, OWN]
            .map(|at| self.api.object(at, "default", "web").unwrap_or_default()["status"].clone())
    }

    fn log_ends(&self) -> String {
        self.running().map(|one| format!("{}\n", last_lines(&one.daemon().log()))).collect()
    }

    /// Memory that both kinds of objects ask for, before what caps it.
    fn told(&self) -> Option<[u64; 2]> {
        let vpa = self.api.object(AUTOSCALERS, "default", "web")?;
        let own = self.api.object(OWN, "default", "web")?;
        let vpa = &vpa["status"]["recommendation"]["containerRecommendations"][0]["uncappedTarget"]["memory"];
        let own = &own["status"]["recommendation"]["containers"][0]["uncapped"]["memory"];
        Some([bytes(vpa)?, bytes(own)?])
    }

    /// The history of memory of the one container (a sandbox is none), as each recommender has it: its workload, its minutes, its replicas.
    fn histories(&self) -> Result<Vec<(String, u64, u32)>> {
        let mut all = Vec::new();
        for recommender in self.running() {
            let of = recommender.ask().recommendations("default")?;
            let memory: Vec<_> = of.into_iter().filter(|one| one.resource == "memory").collect();
            all.extend(memory.into_iter().map(|one| (one.workload, one.samples, one.replicas)));
        }
        Ok(all)
    }

    /// Waits until every recommender that runs knows so many samples at least, of one replica of the Deployment, and of nothing else.
    fn await_samples(&self, least: u64) -> Result<u64> {
        wait::until("minutes to be known", MINUTES, || {
            let all = self.histories()?;
            let is_known = |(workload, samples, replicas): &(String, u64, u32)| {
                workload == "deployment/web" && *samples >= least && *replicas == 1
            };
            let is_all = all.len() == self.running().count() && all.iter().all(is_known);
            Ok(is_all.then(|| all.iter().map(|(_, samples, _)| *samples).min()).flatten())
        })
        .with_context(|| format!("{:?}; {}; {}", self.histories(), self.agent.log_end(), self.log_ends()))
    }

    /// Kills the recommender that leads.
    fn kill_the_leader(&mut self) -> Result<()> {
        let lease = self.api.object(LEASES, "evenkeel", "evenkeel-recommender").context("a Lease")?;
        let holder = lease["spec"]["holderIdentity"].as_str().context("a holder")?.to_owned();
        for (_, running) in &mut self.recommenders {
            let Some(one) = running else { continue };
            if one.leads()? {
                return running.take().map_or(Ok(()), Recommender::kill);
            }
        }
        anyhow::bail!("nobody leads, and the Lease is {holder}'s")
    }
}

#[test]
fn a_deployment_is_rolled_out_keeps_its_history_and_is_raised_after_an_oom_kill() -> Result<()> {
    require!(runtime::impossible().is_none(), runtime::impossible().unwrap_or_default());
    let mut cluster = Cluster::start()?;
    let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" });
    let mode = json!({ "updateMode": "Off" });
    let autoscaler = json!({ "spec": { "targetRef": target, "updatePolicy": mode, "recommenders": [{ "name": "evenkeel" }] } });
    cluster.api.put(object("autoscaling.k8s.io/v1", "VerticalPodAutoscaler", "web", None, &autoscaler));
    let own = json!({ "spec": { "targetRef": target, "updatePolicy": { "mode": "initial" } } });
    cluster.api.put(object("evenkeel.dev/v1", "VerticalPodAutoscaler", "web", None, &own));

    let first = cluster.rolls_out("web-1")?;
    let known = cluster.await_samples(2)?;
    let told = wait::until("both objects to be told", MINUTES, || Ok(cluster.told()))
        .with_context(|| format!("{:?}; {}", cluster.statuses(), cluster.log_ends()))?;
    ensure!(told.iter().all(|memory| (HELD..LIMIT).contains(memory)), "{told:?}");

    // A new version: another set, another pod, the same history.
    cluster.end("web-1", &first)?;
    let _second = cluster.rolls_out("web-2")?;
    cluster.await_samples(known + 1)?;

    // Who led is gone; the other one tells of the kill.
    cluster.kill_the_leader()?;
    std::fs::write(cluster.dir.path().join("web-2/go"), "")?;
    let raised = wait::until("both objects to be told more", MINUTES, || {
        Ok(cluster.told().filter(|now| now.iter().zip(told).all(|(now, before)| *now > before.max(LIMIT))))
    })
    .with_context(|| {
        let ends = (cluster.agent.log_end(), cluster.log_ends());
        format!("{told:?}, now {:?}; {}; {}", cluster.told(), ends.0, ends.1)
    })?;
    figures::show(&format!("memory by VPA's object and ours: {told:?}, after an OOM kill {raised:?}"));
    let of_pod = cluster.agent.ask().oom_kills("web-2-x")?;
    ensure!(!of_pod.is_empty(), "no OOM kill was seen");

    // One recommender is back, and has what it missed.
    for (setup, running) in &mut cluster.recommenders {
        if running.is_none() {
            *running = Some(setup.start()?);
        }
    }
    cluster.await_samples(known + 2)?;
    cluster.agent.stop()
}
