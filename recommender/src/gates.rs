//! Owns what becomes of pods that wait for the gate `evenkeel.dev/policy` (`kubernetes.gates`): one whose requests are known by now is resized and
//! freed; one that cannot be is deleted where its controller makes it anew, which the webhook then gives its requests; and none waits longer than
//! `kubernetes.gate_deadline`, the panic switch or a frozen namespace notwithstanding: a pod that is free asks for what it asked for.
//!
//! The leader does this. The webhook's replicas free what is over the deadline by a minute, so that no pod waits for a recommender that is gone.
//! Not owned: which pods are gated (`evenkeel_webhook::gate`).

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use evenkeel_kubernetes::objects::{ApiError, ObjectEvent};
use evenkeel_kubernetes::{ApiServer, PodAt, SchedulingGate};
use evenkeel_model::quantity::Quantity;
use evenkeel_rightsizing::policy::UpdateMode;
use evenkeel_store::clock::WallClock;
use evenkeel_webhook::RESOURCES;
use evenkeel_webhook::gate::{GATE, LABEL, PLACEHOLDERS};
use evenkeel_webhook::object::Pod;
use evenkeel_webhook::pod::{Controller, PodQuestion};
use jiff::Timestamp;
use serde::Deserialize as _;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::api::Context;
use crate::events::{EventRecorder, event_time};
use crate::recommend::pod::{self, PodAdvice};
use crate::serve::ended;

/// How often gated pods are looked at.
const LOOK: Duration = Duration::from_secs(2);
/// How long a pod whose resize was refused is left alone, and the least time between two pods of a controller that are deleted.
const AGAIN: Duration = Duration::from_secs(60);
/// How long after the deadline a replica of the webhook frees a pod itself.
const LATE: Duration = Duration::from_secs(60);
/// What is changed in one look.
const A_LOOK: usize = 50;

/// What a pod waits for.
const UNKNOWN: &str = "nothing is known of what it needs";
const UNBOUNDED: &str = "it is not known what its namespace allows";
const FROZEN: &str = "nothing is changed, since the panic switch is on or its namespace is frozen,";

/// The gate as it is found.
pub(crate) const OURS: SchedulingGate<'static> =
    SchedulingGate { name: GATE, label: LABEL, annotation: PLACEHOLDERS };

/// What is to be done with a pod, and why.
#[derive(Debug, Clone, PartialEq)]
enum GateDecision {
    /// For this.
    Wait(&'static str),
    /// With these containers, as `pods/resize` takes them.
    Resize(Value, String),
    Lift(&'static str, String),
}

/// Frees pods until the process ends.
pub(crate) async fn run(context: Context, stopped: watch::Receiver<bool>) {
    let section = context.config.now().kubernetes.clone();
    if !section.gates {
        return;
    }
    let api = match ApiServer::at(&section.source()).await {
        Ok(api) => api,
        Err(error) => return warn!(%error, "gated pods are not looked after"),
    };
    let mut keeper = GateController::new(api, section.gate_deadline.get());
    let looks = async {
        loop {
            tokio::time::sleep(LOOK).await;
            if context.readiness.answers() && context.readiness.leading().leads() {
                keeper.look(&context).await;
            }
        }
    };
    tokio::select! { () = looks => {}, () = ended(stopped) => {} }
}

/// Frees pods that are over the deadline; for who knows nothing else of them.
pub(crate) async fn lift_late(api: ApiServer, deadline: Duration) {
    let (mut said, recorder) = (String::new(), EventRecorder::start(api.clone()));
    loop {
        tokio::time::sleep(LATE / 4).await;
        let now = now_usec();
        let pods = match api.labelled(LABEL).await {
            Ok(pods) => pods,
            Err(error) => {
                let why = error.to_string();
                if said != why {
                    warn!(why, "gated pods are not looked after");
                }
                said = why;
                continue;
            }
        };
        let is_late = |pod: &&Value| OURS.is_on(pod) && age(pod, now) > deadline + LATE;
        for pod in pods.iter().filter(is_late).take(A_LOOK) {
            let why = "no recommender freed it in time";
            freed(&api, &recorder, pod, "GateDeadline", why).await;
        }
    }
}

/// Frees pods, and remembers what was refused.
#[derive(Debug)]
struct GateController {
    api: ApiServer,
    recorder: EventRecorder,
    deadline: Duration,
    /// Pods whose resize was refused, by uid: when, and why.
    refused: HashMap<String, (Instant, String)>,
    /// Controllers of which a pod was deleted.
    deleted: HashMap<String, Instant>,
    said: String,
}

impl GateController {
    fn new(api: ApiServer, deadline: Duration) -> Self {
        let recorder = EventRecorder::start(api.clone());
        Self {
            api,
            recorder,
            deadline,
            refused: HashMap::new(),
            deleted: HashMap::new(),
            said: String::new(),
        }
    }

    async fn look(&mut self, context: &Context) {
        let mut pods = match self.api.labelled(LABEL).await {
            Ok(pods) => {
                self.said.clear();
                pods
            }
            Err(error) => {
                let why = error.to_string();
                if self.said != why {
                    warn!(why, "gated pods are not looked after");
                }
                self.said = why;
                return;
            }
        };
        pods.retain(|pod| OURS.is_on(pod));
        let there: HashSet<&str> = pods.iter().filter_map(|pod| pod["metadata"]["uid"].as_str()).collect();
        self.refused.retain(|uid, _| there.contains(uid.as_str()));
        self.deleted.retain(|_, at| at.elapsed() < AGAIN);
        let (now, asking) = (now_usec(), context.clone());
        let knows_bounds = context.knows_bounds();
        let judged = tokio::task::spawn_blocking(move || {
            let recommend = |pod: &evenkeel_model::pod::Pod| {
                asking.recommend_pod(pod, &[], asking.is_frozen(&pod.metadata.namespace))
            };
            let judge = |pod: Value| match judge(&pod, recommend) {
                GateDecision::Resize(..) if !knows_bounds => (pod, GateDecision::Wait(UNBOUNDED)),
                verdict => (pod, verdict),
            };
            pods.into_iter().map(judge).collect::<Vec<_>>()
        });
        let mut done = 0;
        for (pod, verdict) in judged.await.unwrap_or_default() {
            if done >= A_LOOK || !context.readiness.leading().leads() {
                return;
            }
            done += usize::from(self.carry_out(&pod, verdict, now).await);
        }
    }

    /// Whether something was changed.
    async fn carry_out(&mut self, pod: &Value, verdict: GateDecision, now: u64) -> bool {
        let is_over = age(pod, now) > self.deadline;
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let recent =
            self.refused.get(&uid).filter(|(at, _)| at.elapsed() < AGAIN).map(|(_, why)| why.clone());
        match (verdict, recent) {
            (GateDecision::Lift(reason, why), _) => freed(&self.api, &self.recorder, pod, reason, &why).await,
            (_, Some(why)) if is_over => freed(&self.api, &self.recorder, pod, "GateDeadline", &why).await,
            (GateDecision::Wait(what), _) if is_over => {
                let why = format!("{what} after {} s", self.deadline.as_secs());
                freed(&self.api, &self.recorder, pod, "GateDeadline", &why).await
            }
            (GateDecision::Wait(_), _) | (GateDecision::Resize(..), Some(_)) => false,
            (GateDecision::Resize(spec, why), None) => self.resize(pod, &uid, &spec, &why).await,
        }
    }

    async fn resize(&mut self, pod: &Value, uid: &str, spec: &Value, why: &str) -> bool {
        let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
        let at =
            PodAt { namespace: text("namespace"), name: text("name"), uid, version: text("resourceVersion") };
        match self.api.resize(at, spec).await {
            Ok(()) => freed(&self.api, &self.recorder, pod, "RequestsSet", why).await,
            Err(ApiError::Conflict(_) | ApiError::Later(..) | ApiError::Silent(_)) => false,
            Err(refused) => {
                let refused = format!("its resize was refused: {refused}");
                self.refused.insert(uid.to_owned(), (Instant::now(), refused.clone()));
                self.delete(pod, &refused).await
            }
        }
    }

    /// Deletes a pod that its controller makes anew, one a minute of each; others wait for the deadline.
    async fn delete(&mut self, pod: &Value, why: &str) -> bool {
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        let read = Pod::deserialize(pod).ok();
        let Some(controller) = read.and_then(|read| Controller::of(namespace, &read)) else { return false };
        if self.deleted.contains_key(&controller.uid) {
            return false;
        }
        match self.api.delete_pod(pod).await {
            Ok(()) => {
                let why = format!("{why}; {} makes it anew", controller.kind);
                self.recorder.record(about(pod, "GatedPodDeleted", "Gate", false, &why));
                self.deleted.insert(controller.uid, Instant::now());
                true
            }
            Err(error) => {
                debug!(%error, "ignoring that a gated pod was not deleted");
                false
            }
        }
    }
}

/// What is to be done with a pod, by what is recommended to it without the requests that stand for others.
fn judge(pod: &Value, recommend: impl Fn(&evenkeel_model::pod::Pod) -> PodAdvice) -> GateDecision {
    let lift = |why: &str| GateDecision::Lift("GateLifted", why.to_owned());
    let placeholders = placeholders(pod);
    if placeholders.is_empty() {
        return lift("nothing of it waits for anything");
    }
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
    let stripped = stripped(pod, &placeholders);
    let read = Pod::deserialize(&stripped).ok();
    let question = read.as_ref().and_then(|read| PodQuestion::of(namespace, read).ok());
    let Some(asked) = question.and_then(|question| pod::read(&question.text).ok()) else {
        return lift("it cannot be read");
    };
    let advice = recommend(&asked);
    if advice.panic {
        return GateDecision::Wait(FROZEN);
    }
    if let (Some(policy), Some(UpdateMode::Off)) = (&advice.policy, advice.mode) {
        return lift(&format!("policy {policy} is off"));
    }
    let mut containers = Vec::new();
    for (name, resources) in &placeholders {
        let said = advice.containers.iter().find(|container| container.name == *name);
        let mut requests = Map::new();
        for resource in resources {
            let of =
                |one: &evenkeel_proto::v1::Recommendation| one.resource == *resource && one.request.is_some();
            let is_known = said.is_some_and(|said| said.recommendations.iter().any(of));
            let amount = said.and_then(|said| request(&said.resources.requests, resource));
            let Some(amount) = amount.filter(|_| is_known) else { return GateDecision::Wait(UNKNOWN) };
            requests.insert(resource.clone(), amount.canonical().into());
        }
        containers.push(json!({ "name": name, "resources": { "requests": requests } }));
    }
    let by = advice
        .policy
        .as_ref()
        .map_or_else(|| "its image's history".to_owned(), |policy| format!("policy {policy}"));
    let why = format!("requests are set by {by}: {}", Value::from(containers.clone()));
    GateDecision::Resize(json!({ "containers": containers }), why)
}

fn request(of: &evenkeel_model::requirements::ResourceList, resource: &str) -> Option<Quantity> {
    let amount = if resource == RESOURCES[0] { of.cpu() } else { of.memory() };
    amount.filter(|amount| amount.nano() > 0)
}

/// Containers with the resources that stand for others.
fn placeholders(pod: &Value) -> Vec<(String, Vec<String>)> {
    let text = pod["metadata"]["annotations"][PLACEHOLDERS].as_str().unwrap_or_default();
    let told: Value = serde_json::from_str(text).unwrap_or_default();
    let of = |(name, resources): (&String, &Value)| {
        let all = resources.as_array()?.iter().filter_map(|one| one.as_str().map(str::to_owned));
        let known: Vec<String> = all.filter(|one| RESOURCES.contains(&one.as_str())).collect();
        (!known.is_empty()).then(|| (name.clone(), known))
    };
    told.as_object().into_iter().flatten().filter_map(of).collect()
}

/// The pod without the requests that stand for others, as its controller wrote it.
fn stripped(pod: &Value, placeholders: &[(String, Vec<String>)]) -> Value {
    let mut pod = pod.clone();
    for list in ["containers", "initContainers"] {
        let containers = pod["spec"].get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let of = placeholders.iter().find(|(name, _)| container["name"] == **name);
            let requests = container.pointer_mut("/resources/requests").and_then(Value::as_object_mut);
            if let (Some((_, resources)), Some(requests)) = (of, requests) {
                requests.retain(|resource, _| !resources.contains(resource));
            }
        }
    }
    pod
}

/// How long ago a pod was made.
fn age(pod: &Value, now_usec: u64) -> Duration {
    let made = pod["metadata"]["creationTimestamp"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
    let made = made.and_then(|at| u64::try_from(at.as_microsecond()).ok()).unwrap_or(0);
    Duration::from_micros(now_usec.saturating_sub(made))
}

pub(crate) fn now_usec() -> u64 {
    WallClock::system().now_usec()
}

/// Frees a pod and says why; whether it is free.
async fn freed(
    api: &ApiServer,
    recorder: &EventRecorder,
    pod: &Value,
    reason: &'static str,
    why: &str,
) -> bool {
    let (namespace, name) = (&pod["metadata"]["namespace"], &pod["metadata"]["name"]);
    match api.lift(OURS, pod).await {
        Ok(()) => {
            info!(%namespace, pod = %name, reason, why, "a gated pod was freed");
            recorder.record(about(pod, reason, "Gate", reason == "GateDeadline", why));
            true
        }
        Err(error) => {
            debug!(%error, pod = %name, "ignoring that a gate was not lifted: it is tried again");
            false
        }
    }
}

/// An event about a pod: reason, action and whether somebody should look.
pub(crate) fn about(
    pod: &Value,
    reason: &'static str,
    action: &'static str,
    is_warning: bool,
    why: &str,
) -> ObjectEvent {
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
    ObjectEvent {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        namespace: text("namespace"),
        name: text("name"),
        uid: text("uid"),
        container: None,
        reason,
        action,
        is_warning,
        controller: "evenkeel.dev/recommender",
        instance: "evenkeel-recommender".to_owned(),
        note: why.to_owned(),
        at: event_time(now_usec()),
        number: 0,
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_model::pod::Pod;
    use evenkeel_model::qos_class::QosClass;
    use evenkeel_proto::v1;

    use super::*;
    use crate::recommend::pod::ContainerAdvice;

    fn gated(placeholders: &str) -> Value {
        json!({
            "metadata": {
                "name": "web-x", "namespace": "shop", "uid": "u", "annotations": { PLACEHOLDERS: placeholders },
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {
                "schedulingGates": [{ "name": GATE }],
                "containers": [{ "name": "main", "resources": { "requests": { "cpu": "10m", "memory": "16Mi" } } }],
            },
        })
    }

    /// Says the same of every pod: requests of the container `main`.
    fn advice(
        pod: &Pod,
        cpu: Option<u64>,
        memory: Option<u64>,
        mode: Option<UpdateMode>,
        panic: bool,
    ) -> PodAdvice {
        let mut resources = pod.containers[0].resources.clone();
        assert!(resources.is_empty(), "what stands for others is not asked about");
        let one = |resource: &str, request| v1::Recommendation {
            resource: resource.to_owned(),
            request,
            ..v1::Recommendation::default()
        };
        if let Some(cpu) = cpu {
            resources.requests.set(evenkeel_model::name::ResourceName::CPU, Quantity::from_milli(cpu as i64));
        }
        if let Some(memory) = memory {
            resources.requests.set(evenkeel_model::name::ResourceName::MEMORY, Quantity::from_bytes(memory));
        }
        let recommendations = vec![one("cpu", cpu), one("memory", memory)];
        PodAdvice {
            containers: vec![ContainerAdvice {
                name: "main".into(),
                resources,
                recommendations,
                startup: None,
            }],
            policy: mode.map(|_| "shop/web".to_owned()),
            mode,
            conflicts: Vec::new(),
            qos_before: QosClass::BestEffort,
            qos_after: QosClass::Burstable,
            startup_seconds: 0,
            panic,
            loading: false,
            cached: false,
        }
    }

    #[test]
    fn a_pod_is_resized_when_all_that_it_waits_for_is_known() {
        let both = r#"{"main":["cpu","memory"]}"#;
        let spec = json!({ "containers": [{ "name": "main", "resources": { "requests": { "cpu": "250m", "memory": "64Mi" } } }] });
        let (cpu, memory) = (Some(250), Some(64 << 20));
        let auto = Some(UpdateMode::Auto);
        let judged = |placeholders: &str, cpu, memory, mode, panic| {
            judge(&gated(placeholders), |pod| advice(pod, cpu, memory, mode, panic))
        };
        assert!(
            matches!(judged(both, cpu, memory, auto, false), GateDecision::Resize(found, _) if found == spec)
        );
        assert!(
            matches!(judged(both, cpu, memory, None, false), GateDecision::Resize(_, why) if why.contains("image"))
        );
        for (cpu, memory, mode, panic, why) in [
            (cpu, None, auto, false, UNKNOWN),
            (None, None, None, false, UNKNOWN),
            (cpu, memory, auto, true, FROZEN),
        ] {
            assert_eq!(judged(both, cpu, memory, mode, panic), GateDecision::Wait(why));
        }
        assert!(
            matches!(judged(both, cpu, memory, Some(UpdateMode::Off), false), GateDecision::Lift(_, why) if why.contains("off"))
        );
        for rubbish in ["", "[]", "{", r#"{"main":[]}"#, r#"{"main":["gpu"]}"#] {
            let verdict = judge(&gated(rubbish), |_| panic!("nothing is asked"));
            assert!(matches!(verdict, GateDecision::Lift(..)), "{rubbish}");
        }
    }

    #[test]
    fn the_age_of_a_pod_is_since_it_was_made() {
        let made = 1_767_225_600_000_000;
        assert_eq!(age(&gated(""), made + 7_000_000), Duration::from_secs(7));
        assert_eq!(age(&gated(""), made - 7_000_000), Duration::ZERO);
        // Who does not say when waits no longer.
        assert!(age(&json!({}), made) > Duration::from_secs(86_400));
    }
}
