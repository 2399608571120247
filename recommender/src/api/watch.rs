//! Owns the watch over recommendations: what is kept, a bookmark, then what each pass over the workloads has changed.

use std::collections::{HashMap, HashSet};

use evenkeel_proto::v1::{self, watch_recommendations_response::Event};
use tokio::sync::{mpsc, watch};
use tonic::Status;

use super::Context;
use crate::recommend::stored::{Place, place};
use crate::serve::ended;

/// What a watcher was told of a recommendation: the values and what they rest on, not their age.
type Said = (Option<u64>, Option<u64>, Option<u64>, String, String, String, bool);

fn value(r: &v1::Recommendation) -> Said {
    (r.request, r.current, r.limit, r.tier.clone(), r.rule.clone(), r.policy.clone(), r.young)
}

/// Tells a watcher until it or the process ends. A watcher that does not read holds up nobody but itself: it gets the
/// newest state when it reads on.
pub(super) async fn recommendations(
    context: Context,
    stopping: watch::Receiver<bool>,
    outbox: mpsc::Sender<Result<v1::WatchRecommendationsResponse, Status>>,
) {
    let mut passes = context.stored.watch();
    let mut said = HashMap::new();
    let mut bookmarked = false;
    loop {
        // Nothing is kept of this run before its first pass.
        if *passes.borrow_and_update() > 0 {
            let all = context.stored.all("", context.engine.now_usec());
            let mut events = changes(&mut said, all);
            if !bookmarked {
                bookmarked = true;
                events.push(Event::Bookmark(v1::Bookmark {}));
            }
            for event in events {
                let response = v1::WatchRecommendationsResponse { event: Some(event) };
                if outbox.send(Ok(response)).await.is_err() {
                    return;
                }
            }
        }
        tokio::select! {
            changed = passes.changed() => if changed.is_err() { return },
            () = outbox.closed() => return,
            () = ended(stopping.clone()) => return,
        }
    }
}

/// What a watcher that was told `said` has to be told.
fn changes(
    said: &mut HashMap<Place, (Said, v1::Recommendation)>,
    all: Vec<v1::Recommendation>,
) -> Vec<Event> {
    let mut events = Vec::new();
    let mut present = HashSet::with_capacity(all.len());
    for r in all {
        let key = place(&r);
        present.insert(key.clone());
        let now = value(&r);
        if said.get(&key).is_none_or(|(before, _)| *before != now) {
            let name = v1::Recommendation {
                cluster: r.cluster.clone(),
                namespace: r.namespace.clone(),
                workload: r.workload.clone(),
                container: r.container.clone(),
                resource: r.resource.clone(),
                ..v1::Recommendation::default()
            };
            said.insert(key, (now, name));
            events.push(Event::Recommendation(r));
        }
    }
    said.retain(|key, (_, name)| {
        let stays = present.contains(key);
        if !stays {
            events.push(Event::Removed(std::mem::take(name)));
        }
        stays
    });
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    fn r(workload: &str, request: u64) -> v1::Recommendation {
        v1::Recommendation { workload: workload.into(), request: Some(request), ..Default::default() }
    }

    fn told(events: Vec<Event>) -> Vec<String> {
        let text = |event| match event {
            Event::Recommendation(r) => format!("{} {:?}", r.workload, r.request),
            Event::Removed(r) => format!("-{}", r.workload),
            Event::Bookmark(_) => "bookmark".to_owned(),
        };
        events.into_iter().map(text).collect()
    }

    #[test]
    fn only_changes_are_told_and_age_is_none() {
        let mut said: HashMap<Place, _> = HashMap::new();
        assert_eq!(told(changes(&mut said, vec![r("a", 1), r("b", 2)])), ["a Some(1)", "b Some(2)"]);
        let older = v1::Recommendation { age_seconds: 9, ..r("a", 1) };
        assert_eq!(told(changes(&mut said, vec![older, r("b", 3)])), ["b Some(3)"]);
        assert_eq!(told(changes(&mut said, vec![r("b", 3)])), ["-a"]);
        assert_eq!(told(changes(&mut said, vec![r("a", 1), r("b", 3)])), ["a Some(1)"]);
    }
}
