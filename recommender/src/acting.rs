//! Owns what each node is told that its containers should request: recommendations of policies in mode `auto`, as one
//! message a node, which takes the place of the one before.
//!
//! Nothing is told of a recommendation that is of no use yet (too little history, too old, unknown), nor of one that would
//! change a class. While the panic switch is on, nodes are told just that. How far a node goes at once, and the proof that it
//! worked, are the agent's: it sees the kernel. A node that hears nothing goes back by itself.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_proto::v1;
use evenkeel_rightsizing::Resource;

use crate::api::Context;
use crate::config::ActingSection;
use crate::ingest::engine::now_usec;
use crate::ingest::record::Key;
use crate::ingest::service::Words;
use crate::state::stream::NodeKey;

/// A message holds for so many intervals: two may be lost before a node goes back to what was asked for.
const HOLDS: u32 = 3;

/// What nodes are told, made from everything the service knows.
pub(crate) struct Acting(Context);

impl Acting {
    /// Tells what `context` recommends; nothing where nobody acts.
    pub(crate) fn of(context: &Context) -> Option<Arc<dyn Words>> {
        context.config.acting.enabled.then(|| Arc::new(Self(context.clone())) as Arc<dyn Words>)
    }
}

impl Words for Acting {
    fn interval(&self) -> Duration {
        self.0.config.acting.interval.get()
    }

    fn version(&self) -> (u64, u64) {
        let panic_usec = self.0.engine.state().read().panic.since_usec;
        (self.0.stored.passed().0, panic_usec)
    }

    fn word(&self, key: &Key) -> v1::Overlay {
        word(&self.0, key)
    }
}

/// The word for one node.
fn word(context: &Context, key: &Key) -> v1::Overlay {
    let acting = &context.config.acting;
    let valid = acting.interval.get().saturating_mul(HOLDS).as_secs().max(1);
    let now_usec = now_usec();
    let (panic, running) = {
        let state = context.engine.state().read();
        let node = NodeKey { cluster: key.cluster.clone(), node: key.node.clone() };
        let stream =
            state.nodes().find(|(name, _)| **name == node).and_then(|(name, n)| state.current(name, n));
        let slots = stream.into_iter().flat_map(|stream| stream.slots.iter());
        let of = |i: &v1::ContainerIdentity| (i.namespace.clone(), i.workload.clone(), i.container.clone());
        (state.panic.clone(), slots.map(|slot| of(&slot.identity)).collect::<BTreeSet<_>>())
    };
    let entry = |(namespace, workload, container): (String, String, String)| {
        let of = |resource: Resource| {
            let place = (&*key.cluster, &*namespace, &*workload, &*container, resource.as_str());
            context.stored.of(place, now_usec).filter(|r| is_meant(r, acting))
        };
        let (cpu, memory) = (of(Resource::Cpu), of(Resource::Memory));
        let any = cpu.as_ref().or(memory.as_ref())?;
        Some(v1::OverlayEntry {
            policy: any.policy.clone(),
            rule: any.rule.clone(),
            cpu_request_milli: cpu.and_then(|r| r.request),
            memory_request_bytes: memory.and_then(|r| r.request),
            namespace,
            workload,
            container,
        })
    };
    let entries = if panic.on { Vec::new() } else { running.into_iter().filter_map(entry).collect() };
    v1::Overlay {
        panic: panic.on,
        panic_reason: if panic.on { panic.reason } else { String::new() },
        made_usec: now_usec,
        valid_seconds: u32::try_from(valid).unwrap_or(u32::MAX),
        entries,
    }
}

/// Whether a running container is to be given this.
fn is_meant(r: &v1::Recommendation, acting: &ActingSection) -> bool {
    r.mode == "auto"
        && r.request.is_some()
        && !r.changes_class
        && r.span_seconds >= acting.min_span.get().as_secs()
        && r.age_seconds <= acting.max_age.get().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_rests_on_enough_and_changes_no_class_is_meant() {
        let acting = ActingSection::default();
        let good = v1::Recommendation {
            mode: "auto".into(),
            request: Some(100),
            span_seconds: acting.min_span.get().as_secs(),
            ..v1::Recommendation::default()
        };
        let table = [
            ("good", good.clone(), true),
            ("initial", v1::Recommendation { mode: "initial".into(), ..good.clone() }, false),
            ("off", v1::Recommendation { mode: "off".into(), ..good.clone() }, false),
            ("no policy", v1::Recommendation { mode: String::new(), ..good.clone() }, false),
            ("nothing known", v1::Recommendation { request: None, ..good.clone() }, false),
            ("another class", v1::Recommendation { changes_class: true, ..good.clone() }, false),
            ("too young", v1::Recommendation { span_seconds: 60, ..good.clone() }, false),
            ("too old", v1::Recommendation { age_seconds: 1 << 20, ..good }, false),
        ];
        for (name, recommendation, want) in table {
            assert_eq!(is_meant(&recommendation, &acting), want, "{name}");
        }
    }
}
