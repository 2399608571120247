//! Owns the answers made of the state: which containers are meant, what the rule is given, and what caps its answer.
//!
//! The rule itself is `evenkeel_rightsizing::initial`; usage records are in `usage.rs`, pods and what they get in
//! `pod.rs`. Nothing here changes the state.

pub mod pod;
pub mod usage;

use std::collections::BTreeMap;

use evenkeel_proto::v1;
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::initial::{self, Answer, Observations, Params, Scope};

use crate::state::State;
use crate::state::history::{History, Select, Series, SeriesId, SeriesKey, observations};
use crate::state::image::Image;
use crate::state::minute::{Entry, MINUTE_USEC};

/// Name of the rule, as answers show it.
pub const RULE: &str = "initial";

/// What one container should request of one resource.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice {
    /// The rule's answer.
    pub answer: Answer,
    /// Its value before anything capped it.
    pub raw: Option<u64>,
    /// What capped it.
    pub capped_by: Vec<String>,
    /// Seconds since the newest sample used ended; 0 while it is being measured.
    pub age_seconds: u64,
}

/// Asks the rule for one resource of a container of an image. A container without an image has no history to look at.
///
/// `limit` is the container's own limit: a request above it would be refused, so it caps the answer.
pub fn advise(
    state: &State,
    params: &Params,
    now_usec: u64,
    image: Option<&Image>,
    resource: Resource,
    current: Option<u64>,
    limit: Option<u64>,
) -> Advice {
    let now_minute = now_usec / MINUTE_USEC;
    let mut newest = None;
    let mut answer = initial::recommend(params, now_minute, current, |scope, from| {
        let seen = image.map(|image| observed(state, image, scope, resource, from)).unwrap_or_default();
        newest = seen.span.map(|(_, last)| last);
        seen
    });
    let raw = answer.request;
    let mut capped_by = Vec::new();
    if let (Some(request), Some(limit)) = (answer.request, limit)
        && request > limit
    {
        answer.request = Some(limit);
        capped_by.push("limit".to_owned());
    }
    let age_seconds = newest.map_or(0, |last: u64| now_minute.saturating_sub(last + 1) * 60);
    Advice { answer, raw, capped_by, age_seconds }
}

/// What the rule may look at: recorded minutes and the unfinished ones.
fn observed(state: &State, image: &Image, scope: Scope, resource: Resource, from: u64) -> Observations {
    let tag = match scope {
        Scope::ImageTag => Some(image.tag.as_str()),
        Scope::Image => None,
    };
    let from = u32::try_from(from).unwrap_or(u32::MAX);
    let mut entries = state.history.entries(Select::Image { name: &image.name, tag }, resource, from);
    for id in state.history.of_image(&image.name, tag) {
        entries.extend(unfinished(state, id, resource, from));
    }
    observations(&entries, resource)
}

/// The minutes of a series that have not ended yet, one per container.
pub(crate) fn unfinished(
    state: &State,
    id: SeriesId,
    resource: Resource,
    from: u32,
) -> impl Iterator<Item = Entry> {
    let open = state.live_of(id).filter_map(|(_, slot)| slot.open);
    open.filter_map(move |(minute, rollup)| Entry::of(minute, &rollup, resource))
        .filter(move |e| e.minute >= from)
}

/// Recommendations for every workload's container seen, both resources, in the order of their names.
pub fn all(state: &State, params: &Params, now_usec: u64, namespace: &str) -> Vec<v1::Recommendation> {
    let mut out = Vec::new();
    for (id, series) in newest_by_container(state, namespace) {
        for resource in Resource::ALL {
            let current = series.requested.of(resource);
            let limit =
                state.live_of(id).find_map(|(_, slot)| limit_of(slot.identity.requested.as_ref(), resource));
            let image = series.key.image.as_ref();
            let advice = advise(state, params, now_usec, image, resource, current, limit);
            let of = Of {
                namespace: &series.key.namespace,
                workload: &series.key.workload,
                container: &series.key.container,
                image,
            };
            out.push(recommendation(&of, resource, current, advice));
        }
    }
    out
}

/// Of every (cluster, namespace, workload, container) the series that is followed now, or was last: after a roll-out
/// there is one per image.
fn newest_by_container<'a>(
    state: &'a State,
    namespace: &str,
) -> impl Iterator<Item = (SeriesId, &'a Series)> {
    type Place<'a> = (&'a str, &'a str, &'a str, &'a str);
    let mut newest: BTreeMap<Place<'a>, (SeriesId, &'a Series)> = BTreeMap::new();
    for (id, series) in state.history.all() {
        let SeriesKey { cluster, namespace: space, workload, container, .. } = &series.key;
        if !namespace.is_empty() && namespace != space {
            continue;
        }
        let rank = |s: &Series| (!s.live.is_empty(), s.newest);
        let place = newest.entry((space, workload, container, cluster)).or_insert((id, series));
        if rank(series) >= rank(place.1) {
            *place = (id, series);
        }
    }
    newest.into_values()
}

/// Whose a recommendation is.
pub(crate) struct Of<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) workload: &'a str,
    pub(crate) container: &'a str,
    pub(crate) image: Option<&'a Image>,
}

pub(crate) fn recommendation(
    of: &Of<'_>,
    resource: Resource,
    current: Option<u64>,
    advice: Advice,
) -> v1::Recommendation {
    let Advice { answer, raw, capped_by, age_seconds } = advice;
    let known = answer.request.is_some();
    v1::Recommendation {
        namespace: of.namespace.to_owned(),
        workload: of.workload.to_owned(),
        container: of.container.to_owned(),
        resource: resource.as_str().to_owned(),
        current,
        request: answer.request,
        // The rule gives a value, no range.
        lower: None,
        upper: None,
        raw,
        capped_by,
        rule: RULE.to_owned(),
        tier: answer.tier,
        samples: answer.samples as u64,
        span_seconds: answer.span_seconds,
        confidence: known.then_some(answer.confidence),
        risk_now: answer.risk_now,
        risk_then: answer.risk_then,
        age_seconds,
        image: of.image.map(ToString::to_string).unwrap_or_default(),
    }
}

pub(crate) fn limit_of(requested: Option<&v1::ResourceValues>, resource: Resource) -> Option<u64> {
    requested.and_then(|r| match resource {
        Resource::Cpu => r.cpu_limit_milli,
        Resource::Memory => r.memory_limit_bytes,
    })
}
