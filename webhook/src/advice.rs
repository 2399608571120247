//! Advice about a pod: asked of the recommender, and kept for pods of the same workload and for when it does not answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use evenkeel_proto::bearer::Bearer;
use evenkeel_proto::line::{self, Trust};
use evenkeel_proto::v1;
use evenkeel_proto::v1::recommender_service_client::RecommenderServiceClient;
use tokio::sync::Semaphore;
use tonic::Request;
use tonic::transport::Channel;

use crate::Amounts;
use crate::pod::PodQuestion;

/// Answers kept at once, about 1 KiB each.
const KEPT: usize = 10_000;
/// For how long an answer is given again without asking: a rollout makes its pods within seconds.
const FRESH: Duration = Duration::from_secs(10);
/// For how long one is given where the recommender does not answer.
const LASTS: Duration = Duration::from_secs(24 * 3600);
/// A recommender that cannot be reached is tried again this much later: until then no review tries to connect.
const RETRY: Duration = Duration::from_millis(100);
/// Questions at once.
const AT_ONCE: usize = 64;
/// Seconds of a day, an hour, a minute.
const SPANS: [(u64, &str); 3] = [(86_400, "d"), (3600, "h"), (60, "min")];

/// What should be set of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Advice {
    /// A policy governs the pod; without one, only what nobody set is set.
    pub is_by_policy: bool,
    /// Nothing is to be changed: the panic switch is on, or the namespace is frozen.
    pub panic: bool,
    /// For how long at most containers request what they do while they start, seconds.
    pub startup_seconds: u64,
    /// Container by container.
    pub containers: Vec<ContainerAdvice>,
}

/// What a container should have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerAdvice {
    /// Its name.
    pub name: String,
    /// Requests.
    pub requests: Amounts,
    /// Limits.
    pub limits: Amounts,
    /// CPU request while it starts, above that of its requests.
    pub startup: Option<u64>,
    /// Whether the request is a recommendation, and not what was asked about.
    pub known: [bool; 2],
    /// What each request rests on, for people.
    pub why: [String; 2],
}

impl Advice {
    /// About one container.
    #[must_use]
    pub fn of(&self, container: &str) -> Option<&ContainerAdvice> {
        self.containers.iter().find(|said| said.name == container)
    }

    /// As the recommender says it.
    #[must_use]
    pub fn said(response: &v1::RecommendPodResponse) -> Self {
        let of = |container: &v1::RecommendedContainer| {
            let about = |resource: &str| {
                let mut all = response.recommendations.iter();
                all.find(|one| one.container == container.name && one.resource == resource)
            };
            let both = crate::RESOURCES.map(about);
            let resources = container.resources.unwrap_or_default();
            ContainerAdvice {
                name: container.name.clone(),
                requests: [resources.cpu_request_milli, resources.memory_request_bytes],
                limits: [resources.cpu_limit_milli, resources.memory_limit_bytes],
                startup: container.startup_cpu_milli,
                known: both.map(|one| one.is_some_and(|one| one.request.is_some())),
                why: both.map(|one| one.map_or_else(String::new, why)),
            }
        };
        Self {
            is_by_policy: !response.policy.is_empty(),
            panic: response.panic,
            startup_seconds: response.startup_seconds,
            containers: response.containers.iter().map(of).collect(),
        }
    }
}

/// What a recommendation rests on.
fn why(one: &v1::Recommendation) -> String {
    let mut why = format!("rule {}", one.rule);
    let mut add = |text: String| why = format!("{why}, {text}");
    if !one.tier.is_empty() {
        add(format!("tier {}", one.tier));
    }
    if let Some((seconds, unit)) = SPANS.iter().find(|(seconds, _)| one.span_seconds >= *seconds) {
        add(format!("{}{unit} of history", one.span_seconds / seconds));
    }
    if !one.policy.is_empty() {
        add(format!("policy {}", one.policy));
    }
    if !one.capped_by.is_empty() {
        add(format!("capped by {}", one.capped_by.join(", ")));
    }
    why
}

/// What objects of the cluster say of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Stated {
    /// All that would be set.
    Whole(Arc<Advice>),
    /// A part: more may be known elsewhere.
    Part(Arc<Advice>),
    /// Nothing.
    #[default]
    Nothing,
}

/// Objects of the cluster as this process knows them: asked without waiting.
pub trait ClusterObjects: std::fmt::Debug + Send + Sync {
    /// What they say of a pod.
    fn say(&self, question: &PodQuestion<'_>) -> Stated;
    /// The least request of a container that a namespace allows.
    fn least(&self, namespace: &str) -> Amounts;
}

/// How an answer was come by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Come {
    /// It was asked for, or kept for a moment.
    Fresh(Arc<Advice>),
    /// It is older: the recommender did not answer, and why.
    Kept(Arc<Advice>, String),
    /// There is none, and why.
    None(String),
}

/// Where advice comes from.
#[derive(Debug)]
pub struct Advisor {
    address: String,
    trust: Trust,
    channel: tokio::sync::Mutex<Option<Channel>>,
    places: Semaphore,
    kept: Mutex<HashMap<[u8; 32], CachedAdvice>>,
    /// When it could not be reached last, and why.
    unreachable: Mutex<Option<(Instant, String)>>,
}

#[derive(Debug)]
struct CachedAdvice {
    advice: Arc<Advice>,
    since: Instant,
}

impl Advisor {
    /// By a recommender at an address.
    #[must_use]
    pub fn new(address: &str, trust: Trust) -> Self {
        Self {
            address: address.to_owned(),
            trust,
            channel: tokio::sync::Mutex::default(),
            places: Semaphore::new(AT_ONCE),
            kept: Mutex::default(),
            unreachable: Mutex::default(),
        }
    }

    /// The advice for a pod, which comes within this time or not at all.
    pub async fn advice(&self, question: &PodQuestion<'_>, within: Duration) -> Come {
        let key = question.key;
        let before = self.before(&key);
        if let Some((advice, _)) = before.as_ref().filter(|(_, age)| *age < FRESH) {
            return Come::Fresh(Arc::clone(advice));
        }
        let late = || Err(format!("no answer within {} ms", within.as_millis()));
        let asked = match self.unreachable() {
            Some(why) => Err(why),
            None => tokio::time::timeout(within, self.ask(question.text.clone(), within))
                .await
                .unwrap_or_else(|_| late()),
        };
        match (asked, before) {
            (Ok(advice), _) => {
                let advice = Arc::new(advice);
                self.keep(key, Arc::clone(&advice));
                Come::Fresh(advice)
            }
            (Err(why), Some((advice, _))) => Come::Kept(advice, why),
            (Err(why), None) => Come::None(why),
        }
    }

    /// Whether the panic switch is on; nothing where the recommender does not say so within this time.
    pub async fn is_panic(&self, within: Duration) -> Option<bool> {
        // Of no image, so that nothing is looked for, and in a namespace that there cannot be, so that none that is frozen answers.
        let pod = r#"{"metadata":{"name":"none","namespace":"evenkeel.dev"},"spec":{"containers":[{"name":"none"}]}}"#;
        let asked = tokio::time::timeout(within, self.ask(pod.to_owned(), within)).await;
        asked.ok()?.ok().map(|advice| advice.panic)
    }

    async fn ask(&self, pod: String, within: Duration) -> Result<Advice, String> {
        let _place = self.places.acquire().await.map_err(|error| error.to_string())?;
        let bearer = match &self.trust.token {
            Some(path) => Bearer::from_file(path).map_err(|error| format!("{}: {error}", path.display()))?,
            None => Bearer::default(),
        };
        let channel = self.channel().await?;
        let mut client = RecommenderServiceClient::with_interceptor(channel, bearer);
        let mut request = Request::new(v1::RecommendPodRequest { pod, rules: Vec::new() });
        // The recommender gives what it kept rather than a fresh answer that comes too late.
        request.set_timeout(within.mul_f64(0.9));
        match client.recommend_pod(request).await {
            Ok(response) => Ok(Advice::said(response.get_ref())),
            Err(status) => {
                let why = format!("{}: {}", self.address, status.message());
                if matches!(status.code(), tonic::Code::Unavailable | tonic::Code::Unknown) {
                    // Files that name either side may be others by now.
                    *self.channel.lock().await = None;
                    *lock(&self.unreachable) = Some((Instant::now(), why.clone()));
                }
                Err(why)
            }
        }
    }

    /// Why it is not asked now.
    fn unreachable(&self) -> Option<String> {
        let last = lock(&self.unreachable);
        last.as_ref().filter(|(at, _)| at.elapsed() < RETRY).map(|(_, why)| why.clone())
    }

    async fn channel(&self) -> Result<Channel, String> {
        let mut held = self.channel.lock().await;
        if let Some(channel) = held.as_ref() {
            return Ok(channel.clone());
        }
        let endpoint = line::endpoint(&self.address, &self.trust).map_err(|error| error.to_string())?;
        let channel = endpoint.connect_lazy();
        *held = Some(channel.clone());
        Ok(channel)
    }

    fn before(&self, key: &[u8; 32]) -> Option<(Arc<Advice>, Duration)> {
        let kept = self.kept();
        let found = kept.get(key)?;
        let age = found.since.elapsed();
        (age < LASTS).then(|| (Arc::clone(&found.advice), age))
    }

    fn keep(&self, key: [u8; 32], advice: Arc<Advice>) {
        let mut kept = self.kept();
        if kept.len() >= KEPT && !kept.contains_key(&key) {
            kept.retain(|_, one| one.since.elapsed() < FRESH);
            if kept.len() >= KEPT {
                kept.clear();
            }
        }
        kept.insert(key, CachedAdvice { advice, since: Instant::now() });
    }

    /// How many answers are kept.
    pub fn count(&self) -> usize {
        self.kept().len()
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<[u8; 32], CachedAdvice>> {
        lock(&self.kept)
    }
}

/// Whoever panicked left whole values behind.
fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize as _;
    use sha2::{Digest as _, Sha256};

    use super::*;

    #[test]
    fn what_the_recommender_says_is_told_with_its_reasons() {
        let one = |resource: &str, request: Option<u64>| v1::Recommendation {
            container: "main".to_owned(),
            resource: resource.to_owned(),
            request,
            rule: "initial".to_owned(),
            tier: "image:tag 7d".to_owned(),
            span_seconds: 3 * 86_400 + 5,
            capped_by: vec!["LimitRange max".to_owned()],
            ..v1::Recommendation::default()
        };
        let response = v1::RecommendPodResponse {
            recommendations: vec![one("cpu", Some(250)), one("memory", None)],
            containers: vec![v1::RecommendedContainer {
                name: "main".to_owned(),
                resources: Some(v1::ResourceValues { cpu_request_milli: Some(250), ..Default::default() }),
                ..Default::default()
            }],
            ..v1::RecommendPodResponse::default()
        };
        let advice = Advice::said(&response);
        let said = advice.of("main").unwrap();
        assert_eq!((said.requests, said.known), ([Some(250), None], [true, false]));
        assert_eq!(said.why[0], "rule initial, tier image:tag 7d, 3d of history, capped by LimitRange max");
        assert!(!advice.is_by_policy && advice.of("other").is_none());
    }

    #[tokio::test]
    async fn without_an_answer_what_was_kept_is_given() {
        let socket = format!("unix:///nowhere/{}.sock", std::process::id());
        let advisor = Advisor::new(&socket, Trust::default());
        let pod = serde_json::json!({"metadata": {}, "spec": {"containers": [{"name": "a"}]}});
        let pod = crate::object::Pod::deserialize(&pod).unwrap();
        let question = PodQuestion::of("shop", &pod).unwrap();
        let within = Duration::from_secs(5);
        assert!(matches!(advisor.advice(&question, within).await, Come::None(_)));
        let key = question.key;
        let advice = Arc::new(Advice { is_by_policy: true, ..Advice::default() });
        advisor.keep(key, Arc::clone(&advice));
        assert_eq!(advisor.advice(&question, within).await, Come::Fresh(Arc::clone(&advice)));
        let old = Instant::now().checked_sub(FRESH).unwrap();
        advisor.kept().get_mut(&key).unwrap().since = old;
        assert!(matches!(advisor.advice(&question, within).await, Come::Kept(found, _) if found == advice));
        for at in 0..KEPT as u64 + 5 {
            advisor.keep(Sha256::digest(at.to_le_bytes()).into(), Arc::default());
        }
        assert!(advisor.count() <= KEPT);
    }

    #[tokio::test]
    async fn a_recommender_that_cannot_be_reached_is_not_asked_for_a_moment() {
        let advisor = Advisor::new("unix:///nowhere/r.sock", Trust::default());
        let pod = serde_json::json!({"metadata": {}, "spec": {"containers": [{"name": "a"}]}});
        let pod = crate::object::Pod::deserialize(&pod).unwrap();
        let question = PodQuestion::of("shop", &pod).unwrap();
        let within = Duration::from_secs(5);
        let Come::None(why) = advisor.advice(&question, within).await else { panic!("it was reached") };
        assert_eq!(lock(&advisor.unreachable).as_ref().map(|(_, why)| why.clone()), Some(why.clone()));
        let told = |at| *lock(&advisor.unreachable) = Some((at, "gone".to_owned()));
        told(Instant::now() + Duration::from_secs(3600));
        assert_eq!(advisor.advice(&question, within).await, Come::None("gone".to_owned()));
        told(Instant::now().checked_sub(RETRY).unwrap());
        assert_eq!(advisor.advice(&question, within).await, Come::None(why));
    }
}
