//! Owns giving back the CPU that containers request while they start (`kubernetes.startup_boost`): in place, when their pod is ready and its seconds
//! say that the start is over, at the latest after the policy's time.
//!
//! What it goes back to is in an annotation of the pod, which is taken off when it is done, so that a leader that takes over goes on where the
//! other one ended. Not owned: how much more a start has (`recommend::startup`), and setting it (`evenkeel_webhook`).

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use evenkeel_kubernetes::objects::ApiError;
use evenkeel_kubernetes::{ApiServer, PodAt};
use evenkeel_model::quantity::Quantity;
use evenkeel_proto::v1;
use evenkeel_webhook::serve::STARTING;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::api::Context;
use crate::api::convert::live_now;
use crate::events::EventRecorder;
use crate::gates::{about, now_usec};
use crate::serve::ended;

/// How often starting pods are looked at.
const LOOK: Duration = Duration::from_secs(2);
/// How long use has to be back below the request without throttling: ten samples.
const CALM: Duration = Duration::from_secs(10);
/// How long a pod whose resize was refused is left alone.
const AGAIN: Duration = Duration::from_secs(60);
/// What is changed in one look.
const A_LOOK: usize = 50;

/// What a container goes back to.
#[derive(Debug, Clone, PartialEq)]
struct Back {
    name: String,
    request: Quantity,
    limit: Option<Quantity>,
}

/// What a pod goes back to, and for how long it starts at most.
#[derive(Debug, Clone, PartialEq)]
struct Starting {
    containers: Vec<Back>,
    longest: Duration,
}

impl Starting {
    /// As the annotation has it; nothing where it makes no sense.
    fn of(pod: &Value) -> Option<Self> {
        let text = pod["metadata"]["annotations"][STARTING].as_str()?;
        let told: Value = serde_json::from_str(text).ok()?;
        let amount = |value: &Value| Quantity::parse(value.as_str()?).ok();
        let back = |(name, back): (&String, &Value)| {
            let limit = match &back["limit"] {
                Value::Null => None,
                limit => Some(amount(limit)?),
            };
            Some(Back { name: name.clone(), request: amount(&back["request"])?, limit })
        };
        let containers = told["containers"].as_object()?.iter().map(back).collect::<Option<Vec<_>>>()?;
        let longest = Duration::from_secs(told["seconds"].as_u64()?);
        (!containers.is_empty()).then_some(Self { containers, longest })
    }

    /// Containers as `pods/resize` takes them.
    fn spec(&self) -> Value {
        let container = |back: &Back| {
            let mut resources = json!({ "requests": { "cpu": back.request.canonical() } });
            if let Some(limit) = back.limit {
                resources["limits"] = json!({ "cpu": limit.canonical() });
            }
            json!({ "name": back.name, "resources": resources })
        };
        json!({ "containers": self.containers.iter().map(container).collect::<Vec<_>>() })
    }
}

/// What was seen of a pod.
#[derive(Debug, Default)]
struct StartObservation {
    calm_since: Option<Instant>,
    /// Throttled time of each container at the last look, microseconds.
    throttled: HashMap<String, u64>,
    /// When its resize was refused.
    refused: Option<Instant>,
}

impl StartObservation {
    /// Whether all containers use no more than they go back to, and none was throttled since the last look.
    fn is_calm<'u>(
        &mut self,
        starting: &Starting,
        usage: impl Fn(&str) -> Option<&'u v1::ContainerUsage>,
    ) -> bool {
        let mut calm = |back: &Back| {
            let Some(usage) = usage(&back.name) else { return false };
            let throttled =
                usage.sample.as_ref().and_then(|sample| sample.cpu_throttled_usec).unwrap_or_default();
            let before = self.throttled.insert(back.name.clone(), throttled);
            let most = back.request.milli_u64().unwrap_or(u64::MAX);
            usage.cpu_milli.is_some_and(|cpu| cpu <= most) && before.is_none_or(|before| throttled <= before)
        };
        // Each is looked at, so that what was seen of it is of now.
        let all: Vec<bool> = starting.containers.iter().map(&mut calm).collect();
        all.iter().all(|calm| *calm)
    }

    /// Why the start is over; nothing while it is not.
    fn over<'u>(
        &mut self,
        pod: &Value,
        starting: &Starting,
        usage: impl Fn(&str) -> Option<&'u v1::ContainerUsage>,
        now: Instant,
        now_usec: u64,
    ) -> Option<String> {
        let since = pod["status"]["startTime"].as_str().and_then(|at| at.parse::<Timestamp>().ok())?;
        let since = u64::try_from(since.as_microsecond()).unwrap_or(0);
        let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        let is_ready = conditions.any(|one| one["type"] == "Ready" && one["status"] == "True");
        let is_calm = self.is_calm(starting, usage) && is_ready;
        self.calm_since = is_calm.then(|| self.calm_since.unwrap_or(now));
        let calm_for = self.calm_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        if calm_for >= CALM {
            return Some(format!("it is ready, and used no more than that for {} s", calm_for.as_secs()));
        }
        let age = Duration::from_micros(now_usec.saturating_sub(since));
        (age > starting.longest).then(|| format!("its {} s are over", starting.longest.as_secs()))
    }
}

/// Gives back until the process ends.
pub(crate) async fn run(context: Context, stopped: watch::Receiver<bool>) {
    let section = context.config.now().kubernetes.clone();
    if !section.startup_boost {
        return;
    }
    let api = match ApiServer::at(&section.source()).await {
        Ok(api) => api,
        Err(error) => return warn!(%error, "the CPU of starts is not given back"),
    };
    let recorder = EventRecorder::start(api.clone());
    let mut keeper = StartController { api, recorder, seen: HashMap::new(), said: String::new() };
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

/// Gives back, and remembers what was seen of each pod.
#[derive(Debug)]
struct StartController {
    api: ApiServer,
    recorder: EventRecorder,
    /// By uid.
    seen: HashMap<String, StartObservation>,
    said: String,
}

impl StartController {
    async fn look(&mut self, context: &Context) {
        let mut pods = match self.api.labelled(STARTING).await {
            Ok(pods) => pods,
            Err(error) => {
                let why = error.to_string();
                if self.said != why {
                    warn!(why, "the CPU of starts is not given back");
                }
                self.said = why;
                return;
            }
        };
        self.said.clear();
        let there: HashSet<&str> = pods.iter().filter_map(|pod| pod["metadata"]["uid"].as_str()).collect();
        self.seen.retain(|uid, _| there.contains(uid.as_str()));
        // The switch freezes, and so do namespaces: what runs keeps what it has.
        let text = |pod: &Value| pod["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        pods.retain(|pod| !context.freezes(&text(pod)));
        if pods.is_empty() || context.engine.state().is_panic() {
            return;
        }
        let nodes: HashSet<String> =
            pods.iter().filter_map(|pod| pod["spec"]["nodeName"].as_str().map(str::to_owned)).collect();
        let asking = context.clone();
        let live = tokio::task::spawn_blocking(move || {
            let state = asking.engine.state().study();
            nodes.iter().flat_map(|node| live_now(&state, node)).collect::<Vec<_>>()
        });
        let live = live.await.unwrap_or_default();
        let mut done = 0;
        for pod in &pods {
            if done >= A_LOOK || !context.readiness.leading().leads() {
                return;
            }
            done += usize::from(self.judge(pod, &live).await);
        }
    }

    /// Whether something was changed.
    async fn judge(&mut self, pod: &Value, live: &[v1::ContainerUsage]) -> bool {
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
        let Some(starting) = Starting::of(pod) else {
            return self.unmarked(pod, "StartupBoostUnreadable", "what it goes back to cannot be read").await;
        };
        let usage = |container: &str| {
            live.iter().find(|usage| {
                usage.identity.as_ref().is_some_and(|of| of.pod_uid == uid && of.container == container)
            })
        };
        let seen = self.seen.entry(uid.to_owned()).or_default();
        let Some(why) = seen.over(pod, &starting, usage, Instant::now(), now_usec()) else { return false };
        if seen.refused.is_some_and(|at| at.elapsed() < AGAIN) {
            return false;
        }
        let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
        let at =
            PodAt { namespace: text("namespace"), name: text("name"), uid, version: text("resourceVersion") };
        match self.api.resize(at, &starting.spec()).await {
            Ok(()) => self.unmarked(pod, "StartupBoostEnded", &format!("{why}: {}", starting.spec())).await,
            Err(ApiError::Conflict(_) | ApiError::Later(..) | ApiError::Silent(_)) => false,
            Err(ApiError::Absent(_)) => false,
            Err(refused) => {
                let is_first = seen.refused.replace(Instant::now()).is_none();
                if is_first {
                    self.tell(pod, "StartupBoostStays", true, &format!("{refused}; tried again each minute"));
                }
                is_first
            }
        }
    }

    async fn unmarked(&self, pod: &Value, reason: &'static str, why: &str) -> bool {
        match self.api.unmark(STARTING, pod).await {
            Ok(()) => {
                let (namespace, name) = (&pod["metadata"]["namespace"], &pod["metadata"]["name"]);
                info!(%namespace, pod = %name, reason, why, "the CPU of a start was given back");
                self.tell(pod, reason, reason != "StartupBoostEnded", why);
                true
            }
            Err(error) => {
                debug!(%error, "ignoring that a pod stays marked: it is tried again");
                false
            }
        }
    }

    fn tell(&self, pod: &Value, reason: &'static str, is_warning: bool, why: &str) {
        self.recorder.record(about(pod, reason, "Resize", is_warning, why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(back: &str, ready: &str, start: &str) -> Value {
        json!({
            "metadata": { "annotations": { STARTING: back } },
            "status": { "startTime": start, "conditions": [{ "type": "Ready", "status": ready }] },
        })
    }

    fn usage(cpu: u64, throttled: u64) -> v1::ContainerUsage {
        let sample = v1::Sample { cpu_throttled_usec: Some(throttled), ..v1::Sample::default() };
        v1::ContainerUsage { cpu_milli: Some(cpu), sample: Some(sample), ..v1::ContainerUsage::default() }
    }

    const BACK: &str = r#"{"seconds":60,"containers":{"main":{"request":"250m"}}}"#;
    const START: &str = "2026-01-01T00:00:00Z";
    const START_USEC: u64 = 1_767_225_600_000_000;

    #[test]
    fn a_start_is_over_when_use_is_back_for_a_while_and_nothing_is_throttled() {
        let (began, starting) = (Instant::now(), Starting::of(&pod(BACK, "True", START)).unwrap());
        let mut seen = StartObservation::default();
        let mut at = |seconds: u64, ready: &str, cpu: u64, throttled: u64| {
            let (now, usec) = (began + Duration::from_secs(seconds), START_USEC + seconds * 1_000_000);
            let usage = usage(cpu, throttled);
            seen.over(&pod(BACK, ready, START), &starting, |_| Some(&usage), now, usec).is_some()
        };
        // Seconds, ready, use, throttled time: whether it is over.
        for (seconds, ready, cpu, throttled, want) in [
            (0, "False", 100, 0, false),
            (2, "True", 900, 0, false),
            (4, "True", 250, 0, false),
            (13, "True", 250, 0, false),
            // Throttled: it begins anew.
            (14, "True", 200, 5, false),
            (16, "True", 200, 5, false),
            (25, "True", 300, 5, false),
            (26, "True", 200, 5, false),
            (36, "True", 200, 5, true),
            // Not ready any more, and the time is over.
            (38, "False", 200, 5, false),
            (60, "False", 900, 5, false),
            (61, "False", 900, 5, true),
        ] {
            assert_eq!(at(seconds, ready, cpu, throttled), want, "{seconds} s");
        }
        // Of what nobody measures the time alone is known, and one that has not begun has none.
        let mut seen = StartObservation::default();
        let mut over = |start: &str, seconds: u64| {
            let (now, usec) = (began + Duration::from_secs(seconds), START_USEC + seconds * 1_000_000);
            seen.over(&pod(BACK, "True", start), &starting, |_| None, now, usec)
        };
        assert!(over(START, 59).is_none());
        let told = over(START, 61).unwrap();
        assert_eq!(told, "its 60 s are over");
        assert!(over("", 9999).is_none());
    }

    #[test]
    fn what_it_goes_back_to_is_read_and_rubbish_is_not() {
        let both = r#"{"seconds":5,"containers":{"main":{"request":"250m","limit":"1"}}}"#;
        let spec = Starting::of(&pod(both, "", "")).unwrap().spec();
        let resources = json!({ "requests": { "cpu": "250m" }, "limits": { "cpu": "1" } });
        assert_eq!(spec, json!({ "containers": [{ "name": "main", "resources": resources }] }));
        for rubbish in [
            "",
            "{",
            "{}",
            r#"{"seconds":5,"containers":{}}"#,
            r#"{"seconds":-1,"containers":{"main":{"request":"1"}}}"#,
            r#"{"seconds":5,"containers":{"main":{"request":"much"}}}"#,
            r#"{"seconds":5,"containers":{"main":{"request":"1","limit":7}}}"#,
        ] {
            assert_eq!(Starting::of(&pod(rubbish, "", "")), None, "{rubbish}");
        }
    }
}
