//! Owns what each node is told that its containers should request: recommendations of policies in mode `auto`, as one
//! message a node, which takes the place of the one before.
//!
//! Nothing is told of a recommendation that is of no use yet (too little history, too old, unknown). One that would change a
//! class is told: the node refuses what would, and shows it, but may go as far as the class stays. While the panic switch is on, nodes are told just that, and whether to give back what was asked for.
//! Of namespaces that are frozen they are told the names: what is in force there stays. How far a node goes at once, and the proof that it
//! worked, are the agent's: it sees the kernel. A node that hears nothing goes back by itself.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_model::key::ContainerKey;
use evenkeel_proto::v1;
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::evidence::Evidence;
use evenkeel_store::key::{NodeKey, StreamKey};
use evenkeel_store::state::slots::StreamContainer;

use crate::api::Context;
use crate::config::ActingSection;
use crate::ingest::service::Words;

/// A message holds for so many intervals: two may be lost before a node goes back to what was asked for.
const HOLDS: u32 = 3;

/// What nodes are told, made from everything the service knows.
pub(crate) struct Acting(Context);

impl Acting {
    /// Tells what `context` recommends; nothing where nobody acts.
    pub(crate) fn of(context: &Context) -> Option<Arc<dyn Words>> {
        context.config.now().acting.enabled.then(|| Arc::new(Self(context.clone())) as Arc<dyn Words>)
    }
}

impl Words for Acting {
    fn interval(&self) -> Duration {
        self.0.config.now().acting.interval.get()
    }

    fn version(&self) -> (u64, u64) {
        let panic_usec = self.0.engine.state().panic().since_usec;
        let frozen = self.0.readiness.followed().map_or(0, |followed| followed.frozen_changes());
        // All only grow, so that their sum is another one when any is.
        let of_passes = self.0.stored.meant().version + u64::from(self.0.stored.is_bounded());
        (of_passes.wrapping_add(frozen), panic_usec)
    }

    fn is_made(&self) -> bool {
        self.0.stored.passed().0 > 0
    }

    fn word(&self, key: &StreamKey) -> v1::Overlay {
        word(&self.0, key)
    }
}

/// What running containers are meant to request: made once a pass, so that the word for a node costs one search for each
/// of its containers.
#[derive(Debug, Default)]
pub(crate) struct Meant {
    /// Another one whenever anything in it has changed.
    version: u64,
    /// When it was made, microseconds since 1970.
    made_usec: u64,
    /// In the order of their keys.
    entries: Vec<OverlayEntry>,
}

#[derive(Debug)]
struct OverlayEntry {
    of: ContainerKey,
    told: OverlayRequest,
    /// How old the older of its recommendations was then, seconds.
    age_seconds: u64,
}

/// What is told of a container.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct OverlayRequest {
    policy: String,
    rule: String,
    cpu_milli: Option<u64>,
    memory_bytes: Option<u64>,
}

impl OverlayEntry {
    /// For a node that calls the workload so.
    fn message(&self, workload: &str) -> v1::OverlayEntry {
        let (ContainerKey { namespace, container, .. }, told) = (&self.of, &self.told);
        v1::OverlayEntry {
            policy: told.policy.clone(),
            rule: told.rule.clone(),
            cpu_request_milli: told.cpu_milli,
            memory_request_bytes: told.memory_bytes,
            namespace: namespace.clone(),
            workload: workload.to_owned(),
            container: container.clone(),
        }
    }
}

impl Meant {
    /// Of all recommendations in the order of container and resource.
    pub(crate) fn of<'a>(
        before: &Self,
        all: impl Iterator<Item = &'a v1::Recommendation>,
        acting: &ActingSection,
        made_usec: u64,
    ) -> Self {
        let mut entries: Vec<OverlayEntry> = Vec::new();
        for r in all.filter(|r| acting.enabled && is_meant(r, acting)) {
            let of = ContainerKey::from(r);
            if entries.last().is_none_or(|last| last.of != of) {
                let told = OverlayRequest {
                    policy: r.policy.clone(),
                    rule: r.rule.clone(),
                    ..OverlayRequest::default()
                };
                entries.push(OverlayEntry { of, told, age_seconds: 0 });
            }
            let Some(OverlayEntry { told, age_seconds, .. }) = entries.last_mut() else { continue };
            match r.resource == Resource::Cpu.as_str() {
                true => told.cpu_milli = r.request,
                false => told.memory_bytes = r.request,
            }
            *age_seconds = r.age_seconds.max(*age_seconds);
        }
        let told = |(a, b): (&OverlayEntry, &OverlayEntry)| a.of == b.of && a.told == b.told;
        let same = before.entries.len() == entries.len() && before.entries.iter().zip(&entries).all(told);
        Self { version: before.version + u64::from(!same), made_usec, entries }
    }

    /// Place of a container's entry.
    fn find(&self, names: [&str; 4]) -> Option<usize> {
        self.entries.binary_search_by(|entry| entry.of.names().cmp(&names)).ok()
    }
}

/// The word for one node.
fn word(context: &Context, key: &StreamKey) -> v1::Overlay {
    let config = context.config.now();
    let acting = &config.acting;
    let valid = acting.interval.get().saturating_mul(HOLDS).as_secs().max(1);
    let now_usec = context.engine.now_usec();
    let (is_bounded, meant) = (context.stored.is_bounded(), context.stored.meant());
    let followed = context.readiness.followed().filter(|followed| followed.cluster() == key.cluster);
    let panic = context.engine.state().panic();
    let (places, frozen) = {
        let state = context.engine.state().read();
        let name = NodeKey::of(key);
        let stream = state.node(&name).and_then(|node| state.current(&name, node));
        let slots = || stream.into_iter().flat_map(|stream| stream.slots.iter());
        let place = |slot: &StreamContainer| {
            let i = &slot.identity;
            let at = meant.find([&key.cluster, &i.namespace, &i.workload, &i.container])?;
            Some((at, slot.reported().to_owned()))
        };
        let frozen = followed
            .map(|followed| followed.frozen(slots().map(|slot| &slot.identity.namespace), is_bounded))
            .unwrap_or_default();
        // Nobody is told of what nobody acts on: then there is nothing to search.
        let slots = slots().filter(|_| !(panic.on || meant.entries.is_empty()));
        (slots.filter_map(place).collect::<BTreeSet<_>>(), frozen)
    };
    let since = now_usec.saturating_sub(meant.made_usec) / 1_000_000;
    let young = |entry: &OverlayEntry| entry.age_seconds + since <= acting.max_age.get().as_secs();
    let entries = places.into_iter().filter_map(|(at, workload)| {
        let entry = meant.entries.get(at).filter(|entry| young(entry))?;
        Some(entry.message(&workload))
    });
    v1::Overlay {
        panic: panic.on,
        panic_revert: panic.on && panic.revert,
        panic_reason: if panic.on { panic.reason } else { String::new() },
        made_usec: now_usec,
        valid_seconds: u32::try_from(valid).unwrap_or(u32::MAX),
        entries: entries.collect(),
        frozen_namespaces: frozen.into_iter().collect(),
    }
}

/// Whether a running container is to be given this.
pub(crate) fn is_meant(r: &v1::Recommendation, acting: &ActingSection) -> bool {
    r.mode == "auto"
        && r.request.is_some()
        && evidence(r).seconds() >= acting.min_span.get().as_secs()
        && r.age_seconds <= acting.max_age.get().as_secs()
}

/// What it rests on.
const fn evidence(r: &v1::Recommendation) -> Evidence {
    Evidence { span_seconds: r.span_seconds, minutes: r.samples }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_rests_on_enough_is_meant() {
        let acting = ActingSection::default();
        let good = v1::Recommendation {
            mode: "auto".into(),
            request: Some(100),
            span_seconds: acting.min_span.get().as_secs(),
            samples: 48 * 60,
            ..v1::Recommendation::default()
        };
        let table = [
            ("good", good.clone(), true),
            ("initial", v1::Recommendation { mode: "initial".into(), ..good.clone() }, false),
            ("off", v1::Recommendation { mode: "off".into(), ..good.clone() }, false),
            ("no policy", v1::Recommendation { mode: String::new(), ..good.clone() }, false),
            ("nothing known", v1::Recommendation { request: None, ..good.clone() }, false),
            ("another class", v1::Recommendation { changes_class: true, ..good.clone() }, true),
            ("too young", v1::Recommendation { span_seconds: 60, ..good.clone() }, false),
            ("a day", v1::Recommendation { span_seconds: 86_400, samples: 1_440, ..good.clone() }, false),
            ("two glimpses", v1::Recommendation { samples: 2, ..good.clone() }, false),
            ("too old", v1::Recommendation { age_seconds: 1 << 20, ..good }, false),
        ];
        for (name, recommendation, want) in table {
            assert_eq!(is_meant(&recommendation, &acting), want, "{name}");
        }
    }

    #[test]
    fn what_is_meant_is_found_by_name_and_has_another_version_when_it_differs() {
        let acting = ActingSection::default();
        let all = |web: u64, age_seconds: u64| -> Vec<v1::Recommendation> {
            let one = |workload: &str, resource: Resource, request: u64| v1::Recommendation {
                cluster: "c".into(),
                namespace: "n".into(),
                workload: workload.into(),
                container: "main".into(),
                resource: resource.as_str().into(),
                mode: if workload == "idle" { "off".into() } else { "auto".into() },
                request: Some(request),
                span_seconds: acting.min_span.get().as_secs(),
                samples: 48 * 60,
                age_seconds,
                ..v1::Recommendation::default()
            };
            let (cpu, memory) = (Resource::Cpu, Resource::Memory);
            vec![one("db", memory, 7), one("idle", cpu, 1), one("web", cpu, web), one("web", memory, 9)]
        };
        let made = |before: &Meant, all: &[v1::Recommendation]| Meant::of(before, all.iter(), &acting, 5);
        let first = made(&Meant::default(), &all(100, 0));
        let of = |meant: &Meant, workload: &str| {
            let told = &meant.entries[meant.find(["c", "n", workload, "main"])?].told;
            Some((told.cpu_milli, told.memory_bytes))
        };
        assert_eq!(of(&first, "web"), Some((Some(100), Some(9))));
        assert_eq!(of(&first, "db"), Some((None, Some(7))));
        assert_eq!((of(&first, "idle"), of(&first, "x")), (None, None));
        // Growing older is nothing new to tell.
        let second = made(&first, &all(100, 15));
        assert_eq!((second.version, second.entries[0].age_seconds), (first.version, 15));
        assert_ne!(made(&second, &all(101, 0)).version, second.version);
        assert_ne!(made(&second, &[]).version, second.version);
    }
}
