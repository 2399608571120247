//! Owns the way from a question to a value: the rule, the answers kept before it, the predefined values behind it, and
//! what caps what it says.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use evenkeel_metrics::Histogram;
use evenkeel_model::name::ResourceName;
use evenkeel_model::quantity::Quantity;
use evenkeel_model::resource_type::ResourceTypes;
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::policy::bounds::{capped, limit};
use evenkeel_rightsizing::policy::{ContainerPolicy, LimitsMode};
use evenkeel_rightsizing::rule::{Answer, Question};
use evenkeel_store::history::{HistoryView, SharedScopes, ViewTarget};
use evenkeel_store::key::Image;
use evenkeel_store::state::StoreState;

use super::caps::{self, NamedCap, Present};
use super::learned::{Learned, learned};
use super::limits::Limits;
use super::predefined::{self, Predefined};
use super::rules::{self, Chosen};
use super::stored::StoredRecommendations;
use crate::config::Recommend;

/// Answers kept at once, about 1 KiB each; when there are more, those that are no longer fresh go first, then all.
const KEPT: usize = 100_000;

/// Upper bounds of the times that answers about pods take, microseconds. A thousand is what is promised of 99 %.
const ANSWER_BOUNDS_USEC: [u64; 9] = [50, 100, 250, 500, 1000, 2500, 5000, 10_000, 100_000];

/// Whose past is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct AdviceSubject {
    /// Cluster; all of them together without.
    pub cluster: Option<String>,
    /// Namespace of the pod.
    pub namespace: String,
    /// Controller, or pod where there is none.
    pub workload: String,
    /// Container.
    pub container: String,
    /// Image, where known.
    pub image: Option<Image>,
    /// Hash of command and arguments, where known.
    pub command: Option<u64>,
}

impl AdviceSubject {
    pub(super) fn of(&self) -> ViewTarget<'_> {
        ViewTarget {
            cluster: self.cluster.as_deref(),
            namespace: &self.namespace,
            workload: &self.workload,
            container: &self.container,
            image: self.image.as_ref(),
            command: self.command,
        }
    }
}

/// What a rule said of both resources of a container, in the units of requests: thousandths of a core, and bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Raw {
    /// Name of the rule.
    pub rule: &'static str,
    /// Tells it from others with the same name.
    pub rule_crc32c: u32,
    /// CPU, then memory.
    pub answers: [Answer; 2],
    /// The greatest memory limit at which it was killed lately, bytes.
    pub killed_at: Option<u64>,
    /// When, microseconds since 1970.
    pub made_usec: u64,
    /// The rule looks at the last seconds.
    pub looks_at_seconds: bool,
    /// What its start could use, where starts were seen.
    pub start: Option<Learned>,
}

impl Raw {
    /// The answer for one resource.
    pub const fn of(&self, resource: Resource) -> &Answer {
        &self.answers[index(resource)]
    }

    /// Whether it may still be given: for a sixtieth of the time measured, 1 to 60 seconds. A young container's answer changes by
    /// the second, that of a week old one does not, unless it looks at the last seconds. The resource of which less is known
    /// decides: an answer for memory alone, from a container's first sample, is not kept for CPU's.
    fn is_fresh(&self, now_usec: u64) -> bool {
        let seconds = match self.looks_at_seconds {
            true => 1,
            false => self.answers.iter().map(|a| a.samples.min(a.span_seconds / 60)).min().unwrap_or(0),
        };
        now_usec.saturating_sub(self.made_usec) < seconds.clamp(1, 60) * 1_000_000
    }
}

/// Place of a resource where both stand side by side.
pub const fn index(resource: Resource) -> usize {
    match resource {
        Resource::Cpu => 0,
        Resource::Memory => 1,
    }
}

/// What a container asks for of both resources: CPU, then memory.
pub type Amounts = [Option<u64>; 2];

#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    asked: AdviceSubject,
    rule: Arc<str>,
    current: Amounts,
}

/// Everything around the rule that bounds a value.
#[derive(Debug, Clone, Copy)]
pub struct Around<'a> {
    /// Cluster of the container, where it is known.
    pub cluster: Option<&'a str>,
    /// Its namespace.
    pub namespace: &'a str,
    /// What the policy says of the container.
    pub policy: Option<&'a ContainerPolicy>,
    /// What becomes of limits.
    pub limits: LimitsMode,
    /// Largest node seen.
    pub largest: Amounts,
}

/// What one container should request of one resource.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice {
    /// The rule's answer, its values within the caps.
    pub answer: Answer,
    /// Its value before anything capped it.
    pub raw: Option<u64>,
    /// What capped it.
    pub capped_by: Vec<String>,
    /// The limit beside it.
    pub limit: Option<u64>,
    /// Seconds since it was made.
    pub age_seconds: u64,
}

/// Makes answers.
#[derive(Debug)]
pub struct Advisor {
    /// The rule where no policy names one.
    pub default: Chosen,
    predefined: Predefined,
    /// What namespaces allow.
    pub limits: Limits,
    /// Granularity of requests: thousandths of a core, bytes.
    steps: [u64; 2],
    kept: Mutex<HashMap<Key, Arc<Raw>>>,
    /// The past of images and commands that many containers share.
    pub shared: SharedScopes,
    /// How long pods' answers took inside the process, from the question read to the answer made.
    pub times: Histogram<{ ANSWER_BOUNDS_USEC.len() }>,
    /// Pods answered with what was kept, because their callers could not wait.
    pub late: AtomicU64,
}

impl Advisor {
    /// The same, which rounds requests up to the granularity of their types.
    #[must_use]
    pub fn in_steps(self, types: &ResourceTypes) -> Self {
        let step = |name, of: fn(Quantity) -> Option<u64>| types.get(&name).quantization().and_then(of);
        let cpu = step(ResourceName::CPU, Quantity::milli_u64);
        let memory = step(ResourceName::MEMORY, Quantity::to_u64);
        Self { steps: [cpu, memory].map(|step| step.unwrap_or(1).max(1)), ..self }
    }

    /// By the configuration.
    ///
    /// # Errors
    /// When the rule or the predefined values cannot be used.
    pub fn new(config: &Recommend) -> anyhow::Result<Self> {
        let default = rules::choose(&config.rule, &Default::default(), &Default::default(), config);
        Ok(Self {
            default: default.map_err(|why| anyhow::anyhow!("recommend.rule: {why}"))?,
            predefined: Predefined::load(config.predefined.as_deref())?,
            limits: Limits::new(&config.limit_ranges),
            steps: [1; 2],
            kept: Mutex::default(),
            shared: SharedScopes::default(),
            times: Histogram::new(ANSWER_BOUNDS_USEC),
            late: AtomicU64::new(0),
        })
    }

    /// What a rule says of a container, which it may keep to where it said it before; an answer that is still fresh is given
    /// again.
    pub fn raw(
        &self,
        state: &StoreState,
        before: &StoredRecommendations,
        now_usec: u64,
        asked: &AdviceSubject,
        rule: &Chosen,
        current: Amounts,
    ) -> Arc<Raw> {
        let mut asked = asked.clone();
        if let (None, [only]) = (&asked.cluster, &*state.clusters()) {
            // Then a pod that names no cluster is asked about like the workloads that are gone through regularly.
            asked.cluster = Some((*only).to_owned());
        }
        let key = Key { asked, rule: Arc::clone(rule.key()), current };
        if let Some(kept) = self.kept().get(&key).filter(|kept| kept.is_fresh(now_usec)) {
            return Arc::clone(kept);
        }
        let said = before.said(&key.asked, rule);
        let made = Arc::new(self.make(state, now_usec, &key.asked, rule, [current, said]));
        let mut kept = self.kept();
        if kept.len() >= KEPT {
            kept.retain(|_, raw| raw.is_fresh(now_usec));
            if kept.len() >= KEPT {
                kept.clear();
            }
        }
        kept.insert(key, Arc::clone(&made));
        made
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Arc<Raw>>> {
        // Whoever panicked left whole answers behind.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the rule; the amounts are what the container has and what the rule said before.
    fn make(
        &self,
        state: &StoreState,
        now_usec: u64,
        asked: &AdviceSubject,
        rule: &Chosen,
        [current, said]: [Amounts; 2],
    ) -> Raw {
        let answer = |resource| {
            let scale = rule_units(resource);
            let scaled = |amounts: Amounts| amounts[index(resource)].map(|a| a.saturating_mul(scale));
            let (current, previous) = (scaled(current), scaled(said));
            let question = Question { resource, now_ms: now_usec / 1000, current, previous };
            let view = HistoryView::new(state, asked.of(), resource).sharing(&self.shared, now_usec);
            let view = if rule.leaves_starts_out() { view.without_starts() } else { view };
            let mut answer = rule.recommend(&question, &view);
            for value in [&mut answer.request, &mut answer.lower, &mut answer.upper] {
                *value = value.map(|v| v.div_ceil(scale));
            }
            if answer.request.is_none()
                && let Some(value) =
                    asked.image.as_ref().and_then(|image| self.predefined.of(image, resource))
            {
                answer = Answer { request: Some(value), tier: predefined::TIER.to_owned(), ..Answer::none() };
            }
            answer
        };
        Raw {
            rule: rule.name(),
            rule_crc32c: rule.checksum(),
            answers: Resource::ALL.map(answer),
            killed_at: caps::killed_at(
                &HistoryView::new(state, asked.of(), Resource::Memory),
                now_usec / 1000,
            ),
            made_usec: now_usec,
            looks_at_seconds: rule.looks_at_seconds(),
            start: learned(
                &HistoryView::new(state, asked.of(), Resource::Cpu),
                now_usec,
                rule.leaves_starts_out(),
            ),
        }
    }

    /// The value of one resource within everything that bounds it.
    pub fn within(
        &self,
        around: &Around<'_>,
        resource: Resource,
        raw: &Raw,
        now_usec: u64,
        present: Present,
    ) -> Advice {
        let mut answer = raw.of(resource).clone();
        let off = around.policy.is_some_and(|p| p.off);
        let allowed = self.limits.of(around.cluster, around.namespace, resource);
        let caps = caps::all(around, &allowed, resource, present);
        let within = |value: u64| capped(value, caps.iter().map(NamedCap::cap));
        let value = answer.request;
        let mut by: Vec<String> = Vec::new();
        if value.is_none() && present.request.or(present.limit).is_none() {
            // What the API server gives it where nothing is set.
            if let Some(given) = allowed.default_request {
                answer = Answer { request: Some(given), tier: caps::DEFAULTED.to_owned(), ..answer };
            }
        }
        if let Some(value) = answer.request {
            // Rounded first: a maximum holds whatever the granularity is.
            let (value, names) =
                within(value.checked_next_multiple_of(self.steps[index(resource)]).unwrap_or(value));
            by.extend(names.into_iter().map(str::to_owned));
            // A LimitRange bounds the request, and through the ratio the limit.
            by.dedup();
            answer.request = Some(value).filter(|_| !off);
        }
        answer.lower = answer.lower.map(|v| within(v).0).filter(|_| !off);
        answer.upper = answer.upper.map(|v| within(v).0).filter(|_| !off);
        if off {
            by = vec!["policy off".to_owned()];
        }
        if resource == Resource::Memory && !off {
            answer.notes.extend(caps::raise_limit(around.limits, value, raw.killed_at, present.limit, &caps));
        }
        let limit = match answer.request {
            Some(request) => limit(around.limits, present.limit, present.request, request)
                .map(|limit| allowed.limit_beside(around.limits, request, limit)),
            None => present.limit,
        };
        let age_seconds = now_usec.saturating_sub(raw.made_usec) / 1_000_000;
        Advice { answer, raw: value, capped_by: by, limit, age_seconds }
    }
}

/// Units of a rule in one of a request: rules count CPU in millionths of a core, requests in thousandths.
const fn rule_units(resource: Resource) -> u64 {
    match resource {
        Resource::Cpu => 1000,
        Resource::Memory => 1,
    }
}

/// The largest node that has reported, resource by resource: a request above it could never be placed.
pub fn largest_node(state: &StoreState) -> Amounts {
    let some = |amount: u64| (amount > 0).then_some(amount);
    [some(state.largest.cpu_milli), some(state.largest.memory_bytes)]
}
