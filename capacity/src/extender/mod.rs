//! Scheduler extenders: other programs that filter nodes, score them and judge preemption over HTTP
//! (`k8s.io/kube-scheduler/extender/v1`; `pkg/scheduler/extender.go`).
//!
//! Owned here: what is sent (`sent`), what answers mean (`answer`, `preempt`), and what bounds them. Not owned: the
//! network ([`Transport`]). An extender is sent the pod and the nodes that are left, as far as they are known, and is told of
//! no pod that is placed here (nothing is bound by a simulation, and its `bindVerb` is not called): it answers as of now. The
//! same question is therefore asked once. As in the scheduler, an answer that fails ends the count, unless the extender is
//! `ignorable`; one that cannot score gives no score.

mod answer;
pub(crate) mod preempt;
pub(crate) mod sent;

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::{Cluster, NodeIndex, PodInfo};
use crate::plugin::{Rejection, Scores};
use crate::profile::Profile;
use answer::{Filtered, HostPriority, NodeList, lowered};

/// Questions one extender is sent for one answer.
const MOST_CALLS: u64 = 10_000;
/// An extender scores 0 to 10, plugins 0 to 100.
const SCALE: i64 = 10;
/// Remarks on one extender that are kept.
const MOST_REMARKS: usize = 8;
/// Characters of a reason that are kept.
const REASON: usize = 256;

/// How an extender is reached.
pub trait Transport: Debug + Send + Sync {
    /// Reads what is needed to reach a server; nothing is asked yet.
    ///
    /// # Errors
    /// In words, when its certificates cannot be used.
    fn prepare(&self, server: &Server) -> Result<(), String>;

    /// Sends JSON to a verb of a server and gives the body of a 200 answer, bounded in size and time.
    ///
    /// # Errors
    /// In words, without the URL.
    fn post(&self, server: &Server, verb: &str, body: &[u8], timeout: Duration) -> Result<Vec<u8>, String>;
}

/// Where an extender is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Server {
    /// Its URL, without the verbs.
    pub url: String,
    /// How it is known, where it speaks TLS.
    pub tls: Tls,
}

/// `ExtenderTLSConfig`: names of files, and in their place data in base64; empty = none.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Tls {
    /// Its certificate is not checked.
    pub insecure: bool,
    /// The name in its certificate, where it is not that of the URL.
    pub server_name: String,
    /// Authority that its certificate is checked with.
    pub ca: Pem,
    /// Certificate shown to it.
    pub cert: Pem,
    /// Its key.
    pub key: Pem,
}

/// PEM in a file, or in the configuration itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Pem {
    /// Name of the file.
    pub file: String,
    /// The text in base64, in place of the file.
    pub data: String,
}

impl Pem {
    /// Nothing is given.
    pub fn is_empty(&self) -> bool {
        self.file.is_empty() && self.data.is_empty()
    }
}

/// What a configuration says of an extender.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// Where it is.
    pub server: Server,
    /// Verb that filters; empty = it filters nothing.
    pub filter_verb: String,
    /// Verb that scores; empty = it scores nothing.
    pub prioritize_verb: String,
    /// Verb that judges who is displaced; empty = it has no say in that.
    pub preempt_verb: String,
    /// Weight of its scores.
    pub weight: i64,
    /// Longest time one answer may take.
    pub timeout: Duration,
    /// It is sent names of nodes in place of nodes.
    pub names_only: bool,
    /// Resources it manages; it is asked about pods that request one of them, or about all where there are none.
    pub managed: Vec<String>,
    /// An answer that fails is passed over.
    pub ignorable: bool,
}

/// One extender.
#[derive(Debug)]
pub struct Extender {
    settings: Settings,
    transport: Arc<dyn Transport>,
    talk: Mutex<Talk>,
}

/// What was said so far.
#[derive(Debug, Default)]
struct Talk {
    calls: u64,
    answers: HashMap<(String, Vec<NodeIndex>), Result<Value, String>>,
    remarks: Vec<String>,
    /// Why the count cannot go on.
    failed: Option<String>,
    /// It is not asked again.
    silent: bool,
}

/// Nodes an extender leaves, and why not the others.
type Split = (Vec<NodeIndex>, Vec<(NodeIndex, Rejection)>);

impl Extender {
    /// An extender that nothing was asked of yet.
    pub fn new(settings: Settings, transport: Arc<dyn Transport>) -> Self {
        let unchecked = settings.server.tls.insecure && settings.server.url.starts_with("https://");
        let extender = Self { settings, transport, talk: Mutex::default() };
        if unchecked {
            let odd = "its certificate is not checked (insecure, or as in the scheduler enableHTTPS without an authority)";
            extender.remark(odd.to_owned());
        }
        extender
    }

    fn talk(&self) -> MutexGuard<'_, Talk> {
        self.talk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is asked about a pod.
    pub(crate) fn takes(&self, cluster: &Cluster, pod: &PodInfo) -> bool {
        let name = |resource| cluster.resources.name(resource, &cluster.symbols);
        let asks =
            |managed: &String| pod.requests.plain.iter().any(|(resource, _)| name(*resource) == managed);
        self.settings.managed.is_empty() || self.settings.managed.iter().any(asks)
    }

    /// Why the count cannot be relied on; nothing where everything was answered or may be passed over.
    pub(crate) fn failure(&self) -> Option<String> {
        let failed = self.talk().failed.clone()?;
        Some(format!("extender {}: {failed}", self.settings.server.url))
    }

    /// What is odd about its answers.
    pub(crate) fn remarks(&self) -> Vec<String> {
        self.talk()
            .remarks
            .iter()
            .map(|odd| format!("extender {}: {odd}", self.settings.server.url))
            .collect()
    }

    fn remark(&self, odd: String) {
        let remarks = &mut self.talk().remarks;
        if !remarks.contains(&odd) && remarks.len() < MOST_REMARKS {
            remarks.push(odd);
        }
    }

    /// It failed, and is ignorable.
    fn passed_over(&self, why: &str) {
        self.remark(format!("it is passed over (ignorable): {why}"));
    }

    /// It failed, and is not.
    fn fail(&self, why: String) {
        self.talk().failed.get_or_insert(why);
    }

    /// The answer of a verb about a pod and nodes.
    fn ask_of(
        &self,
        verb: &str,
        cluster: &Cluster,
        pod: &PodInfo,
        nodes: &[NodeIndex],
    ) -> Result<Value, String> {
        let text = pod.sent.as_deref().map_or_else(|| sent::known(cluster, pod).to_string(), str::to_owned);
        let body = || {
            let pod = sent::known(cluster, pod);
            arguments(cluster, pod, nodes, self.settings.names_only).to_string().into_bytes()
        };
        self.ask(verb, text, nodes.to_vec(), body)
    }

    /// The answer of a verb to a question, asked for once.
    fn ask(
        &self,
        verb: &str,
        text: String,
        nodes: Vec<NodeIndex>,
        body: impl FnOnce() -> Vec<u8>,
    ) -> Result<Value, String> {
        let key = (format!("{verb} {text}"), nodes);
        let mut talk = self.talk();
        if let Some(answer) = talk.answers.get(&key) {
            return answer.clone();
        }
        if talk.silent {
            return Err("it is not asked again".to_owned());
        }
        if talk.calls >= MOST_CALLS {
            talk.silent = true;
            return Err(format!(
                "it was asked {MOST_CALLS} times, which is the most; count fewer pods with --max"
            ));
        }
        talk.calls += 1;
        let body = self.transport.post(&self.settings.server, verb, &body(), self.settings.timeout);
        let answer = body.and_then(|body| {
            let value =
                serde_json::from_slice(&body).map_err(|error| format!("its answer is no JSON: {error}"))?;
            Ok(lowered(value))
        });
        // One that is slow or gone is not waited for again.
        talk.silent |= answer.is_err();
        talk.answers.insert(key, answer.clone());
        answer
    }

    fn filter(&self, cluster: &Cluster, pod: &PodInfo, nodes: &[NodeIndex]) -> Result<Split, String> {
        let answer = self.ask_of(&self.settings.filter_verb, cluster, pod, nodes)?;
        let read = serde_json::from_value::<Filtered>(answer);
        let answer = read.map_err(|error| format!("its answer is no ExtenderFilterResult: {error}"))?;
        if !answer.error.is_empty() {
            return Err(short(&answer.error));
        }
        let listed = answer.nodes.map(NodeList::names);
        let names: Option<Vec<String>> = match self.settings.names_only {
            true => answer.nodenames.or(listed),
            false => listed,
        };
        if names.is_none() {
            self.remark("it names no list of nodes that fit, which the scheduler takes for none".to_owned());
        }
        let index: HashMap<&str, NodeIndex> =
            nodes.iter().map(|node| (cluster.word(cluster.nodes[*node].name), *node)).collect();
        let mut fit = Vec::new();
        for name in names.unwrap_or_default() {
            let node = index.get(name.as_str()).ok_or_else(|| {
                format!(
                    "it claims a filtered node {:?} which is not found in the input node list",
                    short(&name)
                )
            })?;
            fit.push(*node);
        }
        fit.sort_unstable();
        fit.dedup();
        let (failed, for_good) =
            (answer.failednodes.unwrap_or_default(), answer.failedandunresolvablenodes.unwrap_or_default());
        let why = |node: NodeIndex| {
            let name = cluster.word(cluster.nodes[node].name);
            let unresolvable = for_good.get(name);
            let reason = unresolvable.or_else(|| failed.get(name)).map(|reason| short(reason));
            let resolvable = unresolvable.is_none();
            (node, Rejection::Own { reason: reason.unwrap_or_default(), resolvable })
        };
        let is_both = |node: &&NodeIndex| {
            let name = cluster.word(cluster.nodes[**node].name);
            failed.contains_key(name) || for_good.contains_key(name)
        };
        if let Some(node) = fit.iter().find(is_both) {
            let name = cluster.word(cluster.nodes[*node].name);
            self.remark(format!(
                "it says of {name} both that it fits and that it does not; as in the scheduler it fits"
            ));
        }
        let refused = nodes.iter().filter(|node| fit.binary_search(node).is_err()).map(|node| why(*node));
        let refused = refused.collect();
        Ok((fit, refused))
    }

    /// A score for each of these nodes, weighted and in the measure of plugins.
    fn scores(&self, cluster: &Cluster, pod: &PodInfo, nodes: &[NodeIndex]) -> Result<Vec<i64>, String> {
        let answer = self.ask_of(&self.settings.prioritize_verb, cluster, pod, nodes)?;
        let read = serde_json::from_value::<Option<Vec<HostPriority>>>(answer);
        let list = read.map_err(|error| format!("its answer is no HostPriorityList: {error}"))?;
        let mut by_name: HashMap<String, i64> = HashMap::new();
        for HostPriority { host, score } in list.unwrap_or_default() {
            if !(0..=10).contains(&score) {
                let host = short(&host);
                self.remark(format!(
                    "its score of {host} is {score}, not 0 to 10; as in the scheduler it counts as it is"
                ));
            }
            let slot = by_name.entry(host).or_default();
            *slot = slot.saturating_add(score);
        }
        let weight = self.settings.weight.saturating_mul(SCALE);
        let score = |node: &NodeIndex| {
            let score = by_name.get(cluster.word(cluster.nodes[*node].name)).copied().unwrap_or(0);
            score.saturating_mul(weight)
        };
        Ok(nodes.iter().map(score).collect())
    }
}

/// Leaves the nodes that every extender leaves; the others, and why. Where the count cannot go on, none is left.
pub(crate) fn filter(
    profile: &Profile,
    cluster: &Cluster,
    pod: &PodInfo,
    feasible: &mut Vec<NodeIndex>,
) -> Vec<(NodeIndex, Rejection)> {
    let mut refused = Vec::new();
    for extender in profile.extenders.iter().filter(|extender| extender.takes(cluster, pod)) {
        if feasible.is_empty() {
            break;
        }
        if extender.settings.filter_verb.is_empty() {
            continue;
        }
        match extender.filter(cluster, pod, feasible) {
            Ok((fit, others)) => {
                *feasible = fit;
                refused.extend(others);
            }
            Err(why) if extender.settings.ignorable => {
                extender.passed_over(&why);
            }
            Err(why) => {
                extender.fail(why);
                let none = Rejection::Own { reason: String::new(), resolvable: false };
                refused.extend(feasible.drain(..).map(|node| (node, none.clone())));
            }
        }
    }
    refused
}

/// Adds what extenders say of nodes that are left.
pub(crate) fn prioritize(
    profile: &Profile,
    cluster: &Cluster,
    pod: &PodInfo,
    feasible: &[NodeIndex],
    scores: &mut Scores,
) {
    let asked = profile.extenders.iter().filter(|extender| extender.takes(cluster, pod));
    for extender in asked.filter(|extender| !extender.settings.prioritize_verb.is_empty()) {
        match extender.scores(cluster, pod, feasible) {
            Ok(weighted) => scores.add("Extender", weighted),
            Err(why) => extender.remark(format!("it gives no score: {why}")),
        }
    }
}

/// `ExtenderArgs`.
fn arguments(cluster: &Cluster, pod: Value, nodes: &[NodeIndex], names_only: bool) -> Value {
    if names_only {
        let names: Vec<&str> = nodes.iter().map(|node| cluster.word(cluster.nodes[*node].name)).collect();
        return json!({ "Pod": pod, "Nodes": null, "NodeNames": names });
    }
    let items: Vec<Value> = nodes.iter().map(|node| sent::node(cluster, *node)).collect();
    let list = json!({ "kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": items });
    json!({ "Pod": pod, "Nodes": list, "NodeNames": null })
}

fn short(text: &str) -> String {
    text.chars().take(REASON).collect()
}
