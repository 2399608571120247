//! Owns what a replica of the webhook knows of the cluster: Evenkeel's objects with what their status recommends, limit ranges and quotas, and
//! objects of the Vertical Pod Autoscaler (`autoscalers`). So it answers without a recommender, for every pod that an object governs.
//!
//! A status counts only where it is about the object as it is now. Where something else may govern a pod (a policy of a file, an object whose
//! controller was not looked at yet), the recommender is asked.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use evenkeel_kubernetes::objects::{
    AUTOSCALERS, Asking, Autoscaler, FROZEN, FROZEN_NAMESPACE, KINDS, NAME, OWN,
};
use evenkeel_kubernetes::{ApiServer, ConnectError, KindStatus, Pace, WatchState, Watching};
use evenkeel_model::pod::{Pod, read_pod};
use evenkeel_model::resource_type::ResourceTypes;
use evenkeel_model::selector::LabelSelector;
use evenkeel_rightsizing::policy::rank::Dated;
use evenkeel_rightsizing::policy::{Policy, PolicyError};
use evenkeel_webhook::advice::{Advice, ClusterObjects as Says, Stated as Said};
use evenkeel_webhook::pod::{OWN_LABELS, PodQuestion};
use serde::Deserialize as _;
use tracing::info;

use super::autoscalers::Autoscalers;
use crate::api::convert::pod_response;
use crate::config::{Config, Recommend};
use crate::followed::is_to_come;
use crate::objects::policies::policy;
use crate::policy::panic::held;
use crate::policy::{PolicySource, Set, created};
use crate::recommend::advice::Advisor;
use crate::recommend::rules;
use crate::recommend::rules::Chosen;
use crate::recommend::stated::{ByStatus, Stated};

/// The least time between two looks at objects that changed.
const LEAST: Duration = Duration::from_millis(200);
/// Limit ranges and quotas are looked at so often.
const LOOK: Duration = Duration::from_secs(1);
/// Pods that are kept with what was said of them, about 4 KiB each; of more, all are read again.
const PODS: usize = 10_000;
/// How long the word of the recommender that the panic switch is off goes over what an object says.
const HOLDS: Duration = Duration::from_secs(60);

/// The cluster's objects, as this replica knows them.
#[derive(Debug)]
pub(crate) struct ReplicaObjects {
    asking: Asking,
    bounds: Watching,
    advisor: Advisor,
    config: Recommend,
    /// Flag and file of the panic switch.
    panic: (bool, PathBuf),
    /// Objects of the Vertical Pod Autoscaler are answered from, too.
    has_autoscalers: bool,
    /// That project's admission controller is at work, and sets what they say.
    is_vpa_admitting: AtomicBool,
    /// What the recommender said of the switch last.
    told: Mutex<Option<(bool, Instant)>>,
    known: RwLock<Arc<KnownObjects>>,
    entries: Mutex<HashMap<String, Arc<KnownObject>>>,
    /// Counts what answers rest on: it is another one when objects, limit ranges or quotas changed.
    state: AtomicU64,
    /// Pods as they were asked about, by the hash of the question: a rollout asks the same again and again.
    pods: Mutex<HashMap<[u8; 32], AskedPod>>,
}

/// A pod that was asked about.
#[derive(Debug, Clone)]
struct AskedPod {
    pod: Arc<Pod>,
    /// What was said of it, and in which state.
    said: Option<(u64, ObjectsAnswer)>,
}

/// What the objects say of a pod, before it is looked at whether they may.
#[derive(Debug, Clone)]
struct ObjectsAnswer {
    said: Said,
    /// By what a switch is looked up that an object's status tells of; nothing where nothing governs.
    policy: Option<Arc<str>>,
    /// It is that of an object of the Vertical Pod Autoscaler.
    is_vpa: bool,
}

/// What is known of all objects.
#[derive(Debug, Default)]
struct KnownObjects {
    version: u64,
    set: Set,
    autoscalers: Autoscalers,
    stated: HashMap<String, Stated>,
    /// Policies whose status says that the panic switch is on.
    frozen: HashSet<String>,
    /// Namespaces that objects in them say to be frozen.
    frozen_namespaces: HashSet<String>,
    /// Namespaces in which something else may govern.
    uncertain: HashSet<String>,
    /// Some policy selects by a label that each rollout, or each pod, has another value of: then equal questions may have other answers.
    is_by_own_label: bool,
    /// All objects are known.
    is_listed: bool,
    /// The switch is on by flag or file.
    is_held: bool,
}

/// What is known of one object.
#[derive(Debug)]
struct KnownObject {
    version: String,
    namespace: String,
    /// With its rule; nothing where it governs nothing, or it is not known what.
    policy: Option<(Dated, Result<Chosen, PolicyError>)>,
    is_uncertain: bool,
    stated: Option<Stated>,
    is_frozen: bool,
    is_namespace_frozen: bool,
    /// Policies that govern some of its containers in its place.
    overruled_by: Vec<String>,
}

impl ReplicaObjects {
    /// Begins to follow them.
    ///
    /// # Errors
    /// When the rule cannot be used, it is not told where the API server is, or credentials cannot be used.
    pub(crate) async fn start(config: &Config, pace: Pace) -> anyhow::Result<Arc<Self>> {
        let (asking, bounds) = Self::following(config, pace).await?;
        let types = ResourceTypes::with(&config.resources).unwrap_or_default();
        Ok(Arc::new(Self {
            asking,
            bounds,
            advisor: Advisor::new(&config.recommend)?.in_steps(&types),
            config: config.recommend.clone(),
            panic: (config.panic, config.panic_file.clone()),
            has_autoscalers: config.webhook.autoscalers,
            is_vpa_admitting: AtomicBool::default(),
            told: Mutex::default(),
            known: RwLock::default(),
            entries: Mutex::default(),
            state: AtomicU64::default(),
            pods: Mutex::default(),
        }))
    }

    async fn following(config: &Config, pace: Pace) -> Result<(Asking, Watching), ConnectError> {
        let source = config.kubernetes.source();
        let kinds = if config.webhook.autoscalers { &KINDS[..] } else { std::slice::from_ref(OWN) };
        let asking = Asking::start(&source, pace, kinds).await?;
        Ok((asking, Watching::bounds(&source, pace).await?))
    }

    /// Keeps up with them until this is dropped.
    pub(crate) async fn follow(self: Arc<Self>) {
        let mut changes = self.asking.kept().changes();
        loop {
            let (looking, version) = (Arc::clone(&self), *changes.borrow_and_update());
            let _looked = tokio::task::spawn_blocking(move || looking.look(version)).await;
            tokio::time::sleep(LEAST).await;
            let _changed = tokio::time::timeout(LOOK, changes.changed()).await;
        }
    }

    /// The recommender said whether the panic switch is on.
    pub(crate) fn told(&self, is_panic: bool) {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Some((is_panic, Instant::now()));
    }

    /// Whether the admission controller of the Vertical Pod Autoscaler is at work.
    pub(crate) fn vpa_admits(&self, is_admitting: bool) {
        if self.is_vpa_admitting.swap(is_admitting, Ordering::AcqRel) != is_admitting {
            info!(is_admitting, "the admission controller of the Vertical Pod Autoscaler came or went");
        }
    }

    /// Whether objects of the Vertical Pod Autoscaler are answered from.
    pub(crate) const fn has_autoscalers(&self) -> bool {
        self.has_autoscalers
    }

    /// The API server that is followed.
    pub(crate) fn api(&self) -> &ApiServer {
        self.asking.api()
    }

    /// How many objects are known, and what is wrong with following them.
    pub(crate) fn status(&self) -> (u64, Option<String>) {
        let mut status = self.asking.status();
        let own = status.iter().filter(|status| *status.kind == *OWN);
        let objects = own.map(|status| status.objects as u64).sum();
        status.extend(self.bounds.status());
        // That the Vertical Pod Autoscaler is not installed is no trouble.
        let is_wrong = |status: &KindStatus| match status.state {
            WatchState::Watching => false,
            WatchState::Absent => *status.kind != *AUTOSCALERS,
            _ => true,
        };
        let wrong = status.iter().filter(|status| is_wrong(status));
        let told = wrong.map(|status| {
            let why = status.trouble.as_ref().map_or_else(String::new, |why| format!(": {why}"));
            format!("{}: {}{why}", status.kind.name, status.state.word())
        });
        let told: Vec<String> = told.collect();
        (objects, (!told.is_empty()).then(|| told.join("; ")))
    }

    /// What was asked, and what was said; nothing where the pod cannot be read.
    fn asked(&self, key: &[u8; 32], question: &PodQuestion<'_>) -> Option<AskedPod> {
        let pods = || self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(asked) = pods().get(key) {
            return Some(asked.clone());
        }
        Some(AskedPod { pod: Arc::new(read_pod(&question.text, "question").ok()?), said: None })
    }

    /// What the objects say of a pod, kept for the next one of its workload.
    fn answer(&self, question: &PodQuestion<'_>, known: &KnownObjects, state: u64) -> Option<ObjectsAnswer> {
        let key = question.key;
        let mut asked = self.asked(&key, question)?;
        if let Some((of, answer)) = &asked.said
            && *of == state
            && !known.is_by_own_label
        {
            return Some(answer.clone());
        }
        let labels = question.labels.iter().copied();
        let by =
            ByStatus { advisor: &self.advisor, policies: &known.set, stated: &known.stated, panic: false };
        let answer = match by.pod(&asked.pod, labels.clone()) {
            None if by.governs(&asked.pod, labels) => {
                ObjectsAnswer { said: Said::Nothing, policy: None, is_vpa: false }
            }
            None => {
                let said = known.autoscalers.say(question, &self.advisor.limits);
                let policy = said.is_some().then(|| "".into());
                let said = said.map_or(Said::Nothing, |advice| Said::Whole(Arc::new(advice)));
                ObjectsAnswer { said, is_vpa: policy.is_some(), policy }
            }
            Some((advice, is_whole)) => {
                let policy = advice.policy.as_deref().map(Arc::from);
                let advice = Arc::new(Advice::said(&pod_response(advice)));
                let said = if is_whole { Said::Whole(advice) } else { Said::Part(advice) };
                ObjectsAnswer { said, policy, is_vpa: false }
            }
        };
        asked.said = Some((state, answer.clone()));
        let mut pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        if pods.len() >= PODS && !pods.contains_key(&key) {
            pods.clear();
        }
        pods.insert(key, asked);
        Some(answer)
    }

    /// Takes in what changed up to this version of the objects.
    fn look(&self, version: u64) {
        // Before they are taken: what is listed only meanwhile may not be among them.
        let are_bounds_listed = !self.bounds.status().iter().any(is_to_come);
        let mut is_bounded_anew = false;
        self.advisor.limits.follow("", |before| {
            let bounds = self.bounds.view().bounds(before);
            is_bounded_anew = bounds.is_some();
            bounds
        });
        if is_bounded_anew {
            self.state.fetch_add(1, Ordering::Release);
        }
        let status = self.asking.status();
        let is_listed =
            are_bounds_listed && status.iter().all(|status| status.is_known || *status.kind == *AUTOSCALERS);
        let is_held = held(self.panic.0, &self.panic.1).is_some();
        let now = (version, is_listed, is_held);
        {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            if (known.version, known.is_listed, known.is_held) == now {
                return;
            }
        }
        let autoscalers = match self.has_autoscalers {
            true => Autoscalers::of(self.asking.kept().of(AUTOSCALERS, NAME)),
            false => Autoscalers::default(),
        };
        let known =
            KnownObjects { version, is_listed, is_held, autoscalers, ..KnownObjects::of(&self.entries()) };
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(known);
        self.state.fetch_add(1, Ordering::Release);
    }

    /// What is known of each object; what did not change is not read again.
    fn entries(&self) -> Vec<Arc<KnownObject>> {
        let mut before = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let mut now = HashMap::new();
        for object in self.asking.kept().all(OWN) {
            let metadata = &object.metadata;
            if metadata.deletion_timestamp.is_some() {
                continue;
            }
            let known = before.get(&metadata.uid).filter(|entry| entry.version == metadata.resource_version);
            let entry = known.cloned().unwrap_or_else(|| Arc::new(KnownObject::read(&object, &self.config)));
            now.insert(metadata.uid.clone(), entry);
        }
        *before = now;
        before.values().cloned().collect()
    }
}

impl KnownObjects {
    fn of(entries: &[Arc<KnownObject>]) -> Self {
        let governing = || entries.iter().filter_map(|entry| entry.policy.as_ref());
        let rules: HashMap<String, &Result<Chosen, PolicyError>> =
            governing().map(|(dated, rule)| (dated.policy.key(), rule)).collect();
        let keys: HashSet<&String> = rules.keys().collect();
        let rule = |policy: &Policy| match rules.get(&policy.key()) {
            Some(rule) => (*rule).clone(),
            None => Err(unknown("it is not known")),
        };
        let dated = governing().map(|(dated, _)| (dated.clone(), PolicySource::Cluster(Arc::from(""))));
        let is_by_own_label = governing().any(|(dated, _)| {
            let mut requirements = dated.policy.selector.requirements().iter();
            requirements.any(|requirement| OWN_LABELS.contains(&requirement.key().as_str()))
        });
        let mut known = Self { set: Set::new(dated, rule), is_by_own_label, ..Self::default() };
        for entry in entries {
            if entry.is_namespace_frozen {
                known.frozen_namespaces.insert(entry.namespace.clone());
            }
            if entry.is_uncertain {
                known.uncertain.insert(entry.namespace.clone());
            }
            let Some((Dated { policy, .. }, _)) = &entry.policy else { continue };
            if entry.is_frozen {
                known.frozen.insert(policy.key());
            }
            // One that is kept elsewhere governs what this one's status is silent about.
            let is_known = entry.overruled_by.iter().all(|key| keys.contains(key));
            known
                .stated
                .extend(entry.stated.clone().filter(|_| is_known).map(|stated| (policy.key(), stated)));
        }
        known
    }
}

fn unknown(why: &str) -> PolicyError {
    PolicyError {
        place: "spec.rule".to_owned(),
        why: why.to_owned(),
        remedy: "see the object's conditions".to_owned(),
    }
}

impl KnownObject {
    fn read(object: &Autoscaler, config: &Recommend) -> Self {
        let (metadata, status) = (&object.metadata, &object.status);
        let found = |kind: &str, holds: &str| {
            let mut all = status["conditions"].as_array().into_iter().flatten();
            all.find(|one| one["type"] == kind && one["status"] == holds)
        };
        let condition = |kind: &str, holds: &str| found(kind, holds).is_some();
        let is_namespace_frozen =
            found(FROZEN, "True").is_some_and(|frozen| frozen["reason"] == FROZEN_NAMESPACE);
        let is_now = status["observedGeneration"].as_i64() == Some(metadata.generation);
        let names_controller = object.as_written().get("targetRef").is_some_and(|target| !target.is_null());
        let labels = Option::<LabelSelector>::deserialize(&status["selector"]).ok().flatten();
        let labels = labels.filter(|_| names_controller && is_now);
        let is_unresolved = names_controller && labels.is_none();
        let policy = policy(object, labels.as_ref()).ok().filter(|_| !is_unresolved).map(|policy| {
            let rule = rules::of_policy(&policy, config).map_err(|why| unknown(&why));
            let created_ms = created(&policy).unwrap_or_default();
            (Dated { policy: Arc::new(policy), created_ms }, rule)
        });
        let conflicts = status["conflicts"].as_array().into_iter().flatten();
        let others = conflicts.filter(|one| one["governs"] != true).filter_map(|one| one["policy"].as_str());
        Self {
            version: metadata.resource_version.clone(),
            namespace: metadata.namespace.clone(),
            is_uncertain: is_unresolved || condition("InForce", "False"),
            stated: (is_now && policy.is_some()).then(|| Stated::read(status)),
            policy,
            is_frozen: condition(FROZEN, "True") && !is_namespace_frozen,
            is_namespace_frozen,
            overruled_by: others.map(str::to_owned).collect(),
        }
    }
}

impl Says for ReplicaObjects {
    fn least(&self, namespace: &str) -> [Option<u64>; 2] {
        self.advisor.limits.least(namespace)
    }

    fn say(&self, question: &PodQuestion<'_>) -> Said {
        // Before anything else is read: what changes meanwhile is answered anew the next time.
        let state = self.state.load(Ordering::Acquire);
        let known = Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner));
        let frozen =
            || Said::Whole(Arc::new(Advice { is_by_policy: true, panic: true, ..Advice::default() }));
        if known.frozen_namespaces.contains(question.namespace) {
            return frozen();
        }
        if !known.is_listed || known.uncertain.contains(question.namespace) {
            return Said::Nothing;
        }
        let answer = self.answer(question, &known, state);
        let Some(ObjectsAnswer { said, policy, is_vpa }) = answer else { return Said::Nothing };
        if is_vpa && (question.is_seen_by_vpa || self.is_vpa_admitting.load(Ordering::Acquire)) {
            // That controller sets what the object says, and whatever is set beside it would be set twice.
            return Said::Whole(Arc::default());
        }
        let told = *self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let is_frozen = |policy: &str| match told {
            Some((true, _)) => true,
            Some((false, at)) if at.elapsed() < HOLDS => known.is_held,
            _ => known.is_held || known.frozen.contains(policy),
        };
        if policy.as_deref().is_some_and(is_frozen) {
            return frozen();
        }
        said
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn entry(spec: &Value, status: &Value) -> KnownObject {
        let metadata = json!({
            "name": "web", "namespace": "shop", "uid": "u", "generation": 2, "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        });
        let object = json!({ "metadata": metadata, "spec": spec, "status": status });
        KnownObject::read(&Autoscaler::own(object.to_string().as_bytes()).unwrap(), &Recommend::default())
    }

    #[test]
    fn a_status_counts_where_it_is_about_the_object_as_it_is() {
        let of_labels = json!({ "target": { "matchLabels": { "app": "web" } } });
        let of_controller =
            json!({ "targetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" } });
        let status = |generation: i64, more: Value| {
            let mut status = json!({ "observedGeneration": generation });
            more.as_object().unwrap().iter().for_each(|(key, value)| status[key] = value.clone());
            status
        };
        let selector = json!({ "selector": { "matchLabels": { "app": "web" } } });
        let not_in_force = json!({ "conditions": [{ "type": "InForce", "status": "False" }] });
        // Whether it governs, whether something else may, whether something is said.
        for (spec, status, want) in [
            (&of_labels, status(2, json!({})), (true, false, true)),
            (&of_labels, status(1, json!({})), (true, false, false)),
            (&of_labels, Value::Null, (true, false, false)),
            (&of_labels, status(2, not_in_force), (true, true, true)),
            (&of_controller, status(2, selector.clone()), (true, false, true)),
            (&of_controller, status(1, selector), (false, true, false)),
            (&of_controller, status(2, json!({ "selector": 7 })), (false, true, false)),
            (&json!({ "target": 7 }), status(2, json!({})), (false, false, false)),
        ] {
            let entry = entry(spec, &status);
            let found = (entry.policy.is_some(), entry.is_uncertain, entry.stated.is_some());
            assert_eq!(found, want, "{spec} {status}");
        }
    }

    #[test]
    fn what_is_overruled_from_elsewhere_says_nothing() {
        let spec = json!({ "target": { "matchLabels": { "app": "web" } } });
        let of = |conflicts: Value| {
            Arc::new(entry(&spec, &json!({ "observedGeneration": 2, "conflicts": conflicts })))
        };
        for (conflicts, want) in [
            (json!([]), 1),
            (json!([{ "policy": "shop/file", "governs": true }]), 1),
            (json!([{ "policy": "shop/file", "governs": false }]), 0),
            (json!([{ "policy": "shop/web", "governs": false }]), 1),
        ] {
            assert_eq!(KnownObjects::of(&[of(conflicts.clone())]).stated.len(), want, "{conflicts}");
        }
        let frozen = json!({ "conditions": [{ "type": FROZEN, "status": "True" }] });
        let known = KnownObjects::of(&[Arc::new(entry(&spec, &frozen))]);
        assert_eq!((known.frozen.len(), known.frozen_namespaces.len()), (1, 0));
        let frozen =
            json!({ "conditions": [{ "type": FROZEN, "status": "True", "reason": FROZEN_NAMESPACE }] });
        let known = KnownObjects::of(&[Arc::new(entry(&spec, &frozen))]);
        assert!(known.frozen.is_empty() && known.frozen_namespaces.contains("shop"));
    }
}
