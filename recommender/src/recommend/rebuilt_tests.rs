//! A store that was lost and is rebuilt from what an engine outside was given: it answers as before, tier by tier.

use evenkeel_proto::v1;
use evenkeel_store::history::exchange::Batch;
use evenkeel_store::history::files::Outgoing;
use evenkeel_store::history::fill;
use evenkeel_store::key::Image;
use evenkeel_store::state::StoreState;

use super::Now;
use super::advice::AdviceSubject;
use super::tests::{DAY, Feed, HOUR, MINUTE, Site, chosen, empty};

/// What an engine has: everything that was offered to it.
#[derive(Default)]
struct Engine {
    all: Batch,
    turned: u32,
}

impl Engine {
    /// What the checkpoint thread does every half minute.
    fn offered(&mut self, state: &mut StoreState) {
        let now = state.clock().now();
        self.take(fill::batch_of_minutes(&state.history.take_fresh(500)));
        let turned = std::mem::replace(&mut self.turned, now);
        self.take(fill::parts(state, turned, now));
    }

    /// What a checkpoint does.
    fn sealed(&mut self, state: &mut StoreState) {
        let named = |(id, blocks)| Some((id, state.history.get(id)?.key.clone(), blocks));
        let minutes = state.history.pending().into_iter().filter_map(named).collect();
        let outgoing = Outgoing { applied: 0, minutes, sealed: state.past.outgoing() };
        self.take(fill::batch_of(&outgoing));
        let written = outgoing.minutes.into_iter().map(|(id, _, blocks)| (id, blocks.len(), Vec::new()));
        state.history.written(written.collect());
        state.past.written(outgoing.sealed.len());
    }

    fn take(&mut self, batch: Batch) {
        self.all.minutes.extend(batch.minutes);
        self.all.hours.extend(batch.hours);
        self.all.days.extend(batch.days);
        self.all.parts.extend(batch.parts);
        self.all.events.extend(batch.events);
    }

    /// Everything back into a store, in the order in which engines are read.
    fn rebuild(&self, state: &mut StoreState, engine: usize) {
        let Batch { minutes, hours, days, parts, events } = self.all.clone();
        for batch in [
            Batch { days, ..Batch::default() },
            Batch { parts, ..Batch::default() },
            Batch { hours, events, ..Batch::default() },
            Batch { minutes, ..Batch::default() },
        ] {
            fill::fill(state, engine, &batch);
        }
    }
}

fn asked(workload: &str, image: &str, command: Option<u64>) -> AdviceSubject {
    AdviceSubject {
        cluster: Some("c".into()),
        namespace: "shop".into(),
        workload: format!("deployment/{workload}"),
        container: "main".into(),
        image: Image::parse(image),
        command,
    }
}

/// An answer of each tier: the container's own, its command's, its tag's, its image's.
fn answers(feed: &Feed) -> Vec<v1::Recommendation> {
    let site = Site::new();
    let all = [
        asked("old", "web:1", Some(1)),
        asked("new", "web:1", Some(1)),
        asked("new", "web:1", Some(9)),
        asked("new", "web:7", None),
        asked("today", "job:1", None),
    ];
    all.iter()
        .flat_map(|one| feed.desk(&site).recommend(one, &Now::default(), None, Some(&chosen("goal"))))
        .collect()
}

fn close(a: u64, b: u64, part: f64) -> bool {
    a.abs_diff(b) as f64 <= part * a.max(b) as f64
}

#[test]
fn a_lost_store_answers_as_before_tier_by_tier() {
    let (mut feed, mut engine) = (Feed::new(), Engine::default());
    feed.state.history.offer_fresh();
    feed.start(("old", "web:1", Some(1)));
    let mut step = |feed: &mut Feed, length: u64, use_of: &dyn Fn(usize) -> (u64, u64)| {
        for minute in 0..length / MINUTE {
            feed.run(MINUTE, use_of);
            engine.offered(&mut feed.state);
            if minute % 30 == 0 {
                engine.sealed(&mut feed.state);
            }
        }
    };
    step(&mut feed, 3 * DAY + 9 * HOUR, &|_| (500, 300));
    // What is known since this morning alone, and a peak of the last hour: no day that has ended tells of them.
    feed.start(("today", "job:1", None));
    step(&mut feed, 100 * MINUTE, &|i| [(500, 300), (200, 80)][i]);
    step(&mut feed, 25 * MINUTE, &|i| [(1_500, 700), (400, 150)][i]);
    let before = answers(&feed);
    let tiers: Vec<&str> = before.iter().step_by(2).map(|r| r.tier.as_str()).collect();
    assert_eq!(tiers, ["own", "command", "image:tag", "image", "own"]);

    // Minutes came within two, and what is sealed once.
    let now = feed.state.clock().now();
    let newest = engine.all.minutes.iter().map(|minute| minute.minute).max().unwrap();
    assert!(now - newest <= 2, "{now} {newest}");
    let mut seen = std::collections::HashSet::new();
    let mut once =
        |m: &evenkeel_store::history::exchange::MinuteOf| seen.insert((m.subject.clone(), m.minute));
    assert!(engine.all.minutes.iter().all(&mut once), "no minute is offered twice");

    // The disk is gone. A second engine that has the same adds nothing.
    let samples =
        |r: &v1::Recommendation| (r.tier.clone(), r.request.unwrap_or(0), r.samples, r.span_seconds);
    for engines in 1..=2 {
        feed.state = empty();
        (0..engines).for_each(|_| fill::begin(&mut feed.state, now));
        (0..engines).for_each(|number| engine.rebuild(&mut feed.state, number));
        (0..engines).for_each(|_| fill::end(&mut feed.state));
        for (was, is) in before.iter().zip(&answers(&feed)) {
            let (was, is) = (samples(was), samples(is));
            let same = close(was.1, is.1, 0.03) && close(was.2, is.2, 0.02) && close(was.3, is.3, 0.02);
            assert!(was.0 == is.0 && same, "{engines} engines: {was:?} became {is:?}");
        }
    }
}

/// What is here is not filled again from what an engine has of it.
#[test]
fn a_store_that_was_not_lost_stays_as_it_is() {
    let (mut feed, mut engine) = (Feed::new(), Engine::default());
    feed.state.history.offer_fresh();
    feed.start(("old", "web:1", Some(1)));
    for _ in 0..150 {
        feed.run(MINUTE, |_| (500, 300));
        engine.offered(&mut feed.state);
        engine.sealed(&mut feed.state);
    }
    let before = answers(&feed);
    let now = feed.state.clock().now();
    fill::begin(&mut feed.state, now);
    // Extents tell of what is in files; none were kept here, so only what is open is looked at.
    let open = Batch { parts: engine.all.parts.clone(), ..Batch::default() };
    assert_eq!(fill::fill(&mut feed.state, 0, &open), 0);
    fill::end(&mut feed.state);
    assert_eq!(answers(&feed), before);
}
