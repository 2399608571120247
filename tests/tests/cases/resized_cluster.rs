//! The cluster in which pods are resized: an API server (the fixture, or with `APISERVER=URL` and `KUBECONFIG` a real one that has no controllers,
//! scheduler and nodes of its own, such as kube-apiserver beside etcd), a private containerd with a kubelet, an agent, the webhook, and two
//! recommenders of which one leads. The test is scheduler and controller.

use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use evenkeel_tests::daemon::{Daemon, Program, Ready, free_port, last_lines};
use evenkeel_tests::kubelet::{Api, Kubelet};
use evenkeel_tests::product::{Agent, AgentSetup, Cli, Recommender, RecommenderSetup, directory};
use evenkeel_tests::runtime::{self, Runtime};
use evenkeel_tests::{figures, wait};
use http_body_util::BodyExt as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use super::apiserver::ApiServer;
use super::apiserver::definition::Definition;

/// The one node.
const NODE: &str = "node-a";
const CORE: &str = "/api/v1";
const APPS: &str = "/apis/apps/v1";
pub(crate) const OWN: &str = "/apis/evenkeel.dev/v1";
const REGISTRATIONS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

/// A client of an API server.
pub(crate) struct Asking {
    client: kube::Client,
    tokio: tokio::runtime::Runtime,
}

impl Api for Asking {
    fn ask(&self, method: &str, path: &str, body: &Value) -> Result<(u16, Value)> {
        // Kinds that are defined by objects take no strategic merge.
        let kind = match method {
            "PATCH" if path.contains("evenkeel.dev") => "application/merge-patch+json",
            "PATCH" => "application/strategic-merge-patch+json",
            _ => "application/json",
        };
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = http::Request::builder().method(method).uri(path).header("Content-Type", kind);
        let request = request.body(kube::client::Body::from(body)).context("a request")?;
        self.tokio.block_on(async {
            let answer = self.client.send(request).await.with_context(|| format!("{method} {path}"))?;
            let status = answer.status().as_u16();
            let bytes = answer.into_body().collect().await.context("an answer")?.to_bytes();
            Ok((status, serde_json::from_slice(&bytes).unwrap_or_default()))
        })
    }
}

/// Everything that runs.
pub(crate) struct Cluster {
    pub(crate) recommenders: Vec<(RecommenderSetup, Option<Recommender>)>,
    pub(crate) agent: Agent,
    pub(crate) kubelet: Kubelet,
    pub(crate) fixture: Option<ApiServer>,
    pub(crate) namespace: String,
    api: Arc<Asking>,
    registration: String,
    webhook: Daemon,
    dir: tempfile::TempDir,
}

/// Connects to the API server that is named, or to the fixture; a file leads there.
fn connect(dir: &Path) -> Result<(Asking, Option<ApiServer>)> {
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let real = std::env::var("APISERVER").ok();
    let fixture = match &real {
        Some(url) => {
            let mut known = Kubeconfig::read().context("APISERVER needs a KUBECONFIG")?;
            for cluster in known.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
                cluster.server = Some(url.clone());
            }
            std::fs::write(dir.join("kubeconfig"), serde_json::to_string(&known)?)?;
            figures::show(&format!("the story runs against the API server at {url}"));
            None
        }
        None => {
            figures::show(
                "APISERVER is not set: the story runs against the fixture API server, not a real one",
            );
            let fixture = tokio.block_on(ApiServer::start());
            fixture.kubeconfig(dir);
            fixture.has_kubelet();
            Some(fixture)
        }
    };
    let known = Kubeconfig::read_from(dir.join("kubeconfig"))?;
    let client = tokio.block_on(async {
        let config = kube::Config::from_custom_kubeconfig(known, &KubeConfigOptions::default()).await?;
        anyhow::Ok(kube::Client::try_from(config)?)
    })?;
    Ok((Asking { client, tokio }, fixture))
}

/// A recommender of the two.
fn recommender(dir: &Path, name: &str, namespace: &str, registration: &str) -> Result<RecommenderSetup> {
    let at = dir.join(name);
    std::fs::create_dir_all(&at)?;
    let text = |text: String| format!("{text:?}");
    let file = |name: &str| text(dir.join(name).display().to_string());
    Ok(RecommenderSetup::new(&at)?
        .set("kubernetes.view", "true")
        .set("kubernetes.recommend", "true")
        .set("kubernetes.events", "true")
        .set("kubernetes.cluster", "\"test\"")
        .set("kubernetes.kubeconfig", &file("kubeconfig"))
        .set("kubernetes.lease", &text(format!("{namespace}/evenkeel-recommender")))
        .set("kubernetes.panic_map", &text(format!("{namespace}/evenkeel-panic")))
        .set("kubernetes.registration", &text(registration.to_owned()))
        .set("kubernetes.updater.mode", "\"on\"")
        .set("kubernetes.updater.interval", "\"1s\"")
        .set("kubernetes.updater.per_minute", "600")
        .set("kubernetes.updater.webhook", &text(registration.to_owned()))
        .set("acting.min_span", "\"60s\"")
        .set("recommend.predefined", &file("predefined.toml"))
        .set("recommend.watch_interval", "\"1s\""))
}

/// The webhook, which keeps a certificate of its own and looks after its registration.
fn webhook(dir: &Path, namespace: &str, registration: &str, port: u16, recommender: &str) -> Result<Daemon> {
    let at = dir.join("webhook");
    std::fs::DirBuilder::new().mode(0o700).recursive(true).create(at.join("tls"))?;
    let text = |text: String| format!("{text:?}");
    let file = |name: &str| text(at.join("tls").join(name).display().to_string());
    let setup = RecommenderSetup::new(&at)?
        .set("kubernetes.kubeconfig", &text(dir.join("kubeconfig").display().to_string()))
        .set("kubernetes.cluster", "\"test\"")
        .set("webhook.address", &text(format!("127.0.0.1:{port}")))
        .set("webhook.mode", "\"apply\"")
        .set("webhook.objects", "true")
        .set("webhook.events", "true")
        .set("webhook.recommender", &text(recommender.to_owned()))
        .set("webhook.secret", &text(format!("{namespace}/evenkeel-webhook")))
        .set("webhook.names", "[\"localhost\"]")
        .set("webhook.registration", &text(registration.to_owned()))
        .set("webhook.cert", &file("tls.crt"))
        .set("webhook.key", &file("tls.key"))
        .set("webhook.authority", &file("ca.crt"));
    let program = Program::new("evenkeel-recommender")?.args(&["webhook", "--config"]).path(&setup.config()?);
    program.ready(Ready::Says("the webhook serves".to_owned())).start(&at)
}

impl Cluster {
    pub(crate) fn start() -> Result<Cluster> {
        let dir = directory()?;
        let (asking, fixture) = connect(dir.path())?;
        let api = Arc::new(asking);
        let namespace = format!("evenkeel-story-{}", std::process::id());
        let registration = namespace.clone();
        let predefined = format!("[[image]]\nname = {:?}\ncpu = '100m'\nmemory = '48Mi'\n", runtime::BUSYBOX);
        std::fs::write(dir.path().join("predefined.toml"), predefined)?;
        let port = free_port()?;
        surroundings(&api, &namespace, &registration, port)?;
        let mut recommenders = Vec::new();
        for name in ["r0", "r1"] {
            let setup = recommender(dir.path(), name, &namespace, &registration)?;
            let running = setup.start()?;
            recommenders.push((setup, Some(running)));
        }
        let addresses: Vec<String> = recommenders.iter().map(|(setup, _)| setup.address()).collect();
        let webhook = webhook(dir.path(), &namespace, &registration, port, &addresses[0])?;
        let containerd = Arc::new(Runtime::start()?);
        let agent = AgentSetup::new(dir.path())?
            .runtime(&containerd.socket())
            .set("rules", "\"kubelet\"")
            .set("stream.recommender", &format!("{addresses:?}"))
            .start()?;
        let kubelet = Kubelet::start(api.clone(), containerd, &namespace, NODE)?;
        let cluster =
            Cluster { recommenders, agent, kubelet, fixture, namespace, api, registration, webhook, dir };
        wait::until("the registration to have its authority", wait::PATIENCE, || {
            let registered = cluster.get(&format!("{REGISTRATIONS}/{}", cluster.registration))?;
            let bundle = registered["webhooks"][0]["clientConfig"]["caBundle"].as_str().unwrap_or_default();
            Ok((!bundle.is_empty()).then_some(()))
        })
        .with_context(|| last_lines(&cluster.webhook.log()))?;
        Ok(cluster)
    }

    /// Body of what has to be there.
    pub(crate) fn get(&self, path: &str) -> Result<Value> {
        self.done("GET", path, &Value::Null)
    }

    /// Body of what has to succeed.
    pub(crate) fn done(&self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let (status, answer) = self.api.ask(method, path, body)?;
        ensure!(status < 300, "{method} {path}: {status} {answer}");
        Ok(answer)
    }

    /// Where objects of a kind of the namespace are.
    pub(crate) fn place(&self, root: &str, plural: &str) -> String {
        format!("{root}/namespaces/{}/{plural}", self.namespace)
    }

    /// The pods of the set that have not been deleted, by name.
    pub(crate) fn pods(&self) -> Result<BTreeMap<String, Value>> {
        let list = self.get(&self.place(CORE, "pods"))?;
        let all = list["items"].as_array().into_iter().flatten();
        let there = all.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        Ok(there
            .map(|pod| (pod["metadata"]["name"].as_str().unwrap_or_default().to_owned(), pod.clone()))
            .collect())
    }

    /// As the set's controller does it: makes as many pods as are missing, without resources, on the node; and waits until they run.
    pub(crate) fn make_pods(&self, command: &str) -> Result<()> {
        let sets = self.get(&self.place(APPS, "replicasets/web-1"))?;
        let wanted = usize::try_from(sets["spec"]["replicas"].as_u64().unwrap_or_default())?;
        for _ in self.pods()?.len()..wanted {
            let owner = json!({
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": sets["metadata"]["uid"], "controller": true,
            });
            let container =
                json!({ "name": "main", "image": runtime::BUSYBOX, "command": ["sh", "-c", command] });
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": { "generateName": "web-1-", "labels": { "app": "web" }, "ownerReferences": [owner] },
                "spec": { "nodeName": NODE, "terminationGracePeriodSeconds": 0, "containers": [container] },
            });
            self.done("POST", &self.place(CORE, "pods"), &pod)?;
        }
        wait::until("the pods to run", wait::PATIENCE, || Ok((self.kubelet.count() == wanted).then_some(())))
            .with_context(|| format!("{:?}", self.kubelet.trouble()))
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = &Recommender> {
        self.recommenders.iter().filter_map(|(_, running)| running.as_ref())
    }

    /// The recommender that leads, and where it is.
    pub(crate) fn leader(&self) -> Result<(&RecommenderSetup, &Recommender)> {
        wait::until("somebody to lead", wait::PATIENCE, || {
            for (setup, running) in &self.recommenders {
                let Some(one) = running else { continue };
                if one.leads()? {
                    return Ok(Some((setup, one)));
                }
            }
            Ok(None)
        })
    }

    /// The command line as somebody uses it who asks the leader, and the node's agent.
    pub(crate) fn cli(&self) -> Result<Cli> {
        Ok(self.agent.cli().recommender(&self.leader()?.0.address()))
    }

    /// Kills the recommender that leads; which it was.
    pub(crate) fn kill_the_leader(&mut self) -> Result<usize> {
        let address = self.leader()?.0.address();
        let place = self.recommenders.iter().position(|(setup, _)| setup.address() == address);
        let place = place.context("the leader is one of them")?;
        let leader = self.recommenders[place].1.take();
        leader.map_or(Ok(()), Recommender::kill)?;
        Ok(place)
    }

    /// The ends of all logs.
    pub(crate) fn log_ends(&self) -> String {
        let all = self.running().map(|one| format!("{}\n", last_lines(&one.daemon().log())));
        let trouble = self.kubelet.trouble().unwrap_or_default();
        format!("{}{}\nkubelet: {trouble}", all.collect::<String>(), last_lines(&self.webhook.log()))
    }

    /// Ends everything in order, and takes away what is in no namespace, and the namespace.
    pub(crate) fn end(self) -> Result<()> {
        self.done("DELETE", &format!("{REGISTRATIONS}/{}", self.registration), &Value::Null)?;
        self.done("DELETE", &format!("{CORE}/nodes/{NODE}"), &Value::Null)?;
        self.done("DELETE", &format!("{CORE}/namespaces/{}", self.namespace), &Value::Null)?;
        self.agent.stop()?;
        for recommender in self.recommenders.into_iter().filter_map(|(_, running)| running) {
            recommender.stop()?;
        }
        self.webhook.stop()?;
        drop(self.kubelet);
        self.dir.close().context("the directory")
    }
}

/// What is there before anything runs.
fn surroundings(api: &Asking, namespace: &str, registration: &str, port: u16) -> Result<()> {
    let makes = Makes { api, namespace };
    makes.place_for_pods()?;
    makes.workload()?;
    makes.policy()?;
    makes.registration(registration, port)
}

/// Makes objects.
struct Makes<'a> {
    api: &'a Asking,
    namespace: &'a str,
}

impl Makes<'_> {
    fn make(&self, at: &str, object: &Value) -> Result<Value> {
        let (status, made) = self.api.ask("POST", at, object)?;
        // Our definition, and a node of an earlier run, may be there.
        ensure!(matches!(status, 201 | 409), "POST {at}: {status} {made}");
        Ok(made)
    }

    fn place(&self, root: &str, plural: &str) -> String {
        format!("{root}/namespaces/{}/{plural}", self.namespace)
    }

    /// A namespace, what its containers get by default, and a node.
    fn place_for_pods(&self) -> Result<()> {
        let namespace =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": self.namespace } });
        self.make(&format!("{CORE}/namespaces"), &namespace)?;
        // Which no controller makes here, and without which a real API server takes no pod.
        let account =
            json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default" } });
        self.make(&self.place(CORE, "serviceaccounts"), &account)?;
        let limit = json!({
            "type": "Container", "default": { "cpu": "400m", "memory": "64Mi" }, "defaultRequest": { "cpu": "50m", "memory": "16Mi" },
        });
        let range = json!({
            "apiVersion": "v1", "kind": "LimitRange", "metadata": { "name": "defaults" }, "spec": { "limits": [limit] },
        });
        self.make(&self.place(CORE, "limitranges"), &range)?;
        let room = json!({ "cpu": "4", "memory": "8Gi", "pods": "110" });
        let ready = json!([{ "type": "Ready", "status": "True" }]);
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": NODE },
            "status": { "allocatable": room, "capacity": room, "conditions": ready },
        });
        self.make(&format!("{CORE}/nodes"), &node).map(drop)
    }

    /// A Deployment and its set, without pods.
    fn workload(&self) -> Result<()> {
        let labels = json!({ "app": "web" });
        let container = json!({ "name": "main", "image": runtime::BUSYBOX });
        let template = json!({ "metadata": { "labels": labels }, "spec": { "containers": [container] } });
        let spec = json!({ "replicas": 3, "selector": { "matchLabels": labels }, "template": template });
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web", "labels": labels }, "spec": spec,
        });
        let made = self.make(&self.place(APPS, "deployments"), &deployment)?;
        let owner = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": made["metadata"]["uid"], "controller": true,
        });
        let metadata = json!({ "name": "web-1", "labels": labels, "ownerReferences": [owner] });
        let set =
            json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": spec });
        self.make(&self.place(APPS, "replicasets"), &set).map(drop)
    }

    /// Our definition, and an object of it: a replica is the canary for ten seconds, limits follow requests.
    fn policy(&self) -> Result<()> {
        self.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &Definition::shipped().object)?;
        let own = self.place(OWN, "verticalpodautoscalers");
        wait::until("our kind to be served", wait::PATIENCE, || {
            Ok((self.api.ask("GET", &own, &Value::Null)?.0 == 200).then_some(()))
        })?;
        let requests = json!({ "cpu": { "min": "100m", "max": "100m" }, "memory": { "min": "48Mi" } });
        let spec = json!({
            "targetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
            "updatePolicy": { "mode": "auto", "minAgeSeconds": 0, "canarySeconds": 10, "maxUnavailable": 1 },
            "resourcesPolicy": { "limits": "ratio", "containers": [{ "name": "*", "requests": requests }] },
        });
        let object = json!({
            "apiVersion": "evenkeel.dev/v1", "kind": "VerticalPodAutoscaler", "metadata": { "name": "web" }, "spec": spec,
        });
        self.make(&own, &object).map(drop)
    }

    /// The webhook's registration, without an authority. No pod is made without its answer.
    fn registration(&self, name: &str, port: u16) -> Result<()> {
        let rule = json!({
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
        });
        let hook = json!({
            "name": "pods.evenkeel.dev", "admissionReviewVersions": ["v1"], "sideEffects": "NoneOnDryRun", "timeoutSeconds": 5,
            "failurePolicy": "Fail", "rules": [rule], "clientConfig": { "url": format!("https://localhost:{port}/admit/pods") },
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": self.namespace } },
        });
        let registration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": { "name": name }, "webhooks": [hook],
        });
        self.make(REGISTRATIONS, &registration).map(drop)
    }
}
