//! Several recommenders: each gets every frame, and what changes the node is taken from the one that leads.

use super::tests::{Agent, Fake, all_counted, each_second_once, fake};
use super::*;

/// An agent that streams to all of these.
fn agent(dir: &std::path::Path, addresses: &[&str]) -> Agent {
    let text = format!("state_dir = {:?}\n[stream]\nrecommender = {addresses:?}\n", dir.join("state"));
    Agent::with(dir, crate::report::test_support::configured(dir, 9, &text))
}

fn overlay(reason: &str) -> Response {
    Response::Overlay(v1::Overlay {
        panic: true,
        panic_reason: reason.to_owned(),
        valid_seconds: 3600,
        ..v1::Overlay::default()
    })
}

fn leading(leads: bool, term: u64) -> v1::Leading {
    v1::Leading { leads, term, leader: String::new() }
}

/// Goes on reporting until the node was told this, and by nobody else something else.
async fn told(agent: &mut Agent, fakes: [&Fake; 2], reason: &str) {
    let said = |agent: &Agent| {
        let last = agent.context.enforce.overlays.last();
        last.and_then(|last| last.panic).map(|switch| switch.reason).unwrap_or_default()
    };
    while said(agent) != reason {
        assert!(agent.second < 1_000, "{} instead of {reason}", said(agent));
        let last = agent.report(1);
        for fake in fakes {
            fake.reaches(9, last).await;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_get_each_second_and_only_the_leader_of_the_newest_term_is_heard() {
    let dir = tempfile::tempdir().unwrap();
    let ((one, first), (other, second)) = (fake().await, fake().await);
    let mut agent = agent(dir.path(), &[&first, &second]);
    (lock(&one.state).leading, lock(&other.state).leading) =
        (Some(leading(true, 1)), Some(leading(false, 1)));
    (lock(&one.state).says, lock(&other.state).says) = (vec![overlay("one")], vec![overlay("a follower")]);
    agent.connect();
    told(&mut agent, [&one, &other], "one").await;
    let leads = |agent: &Agent| agent.context.stats.streams.all().iter().map(|s| s.leads).collect::<Vec<_>>();
    assert_eq!(leads(&agent), [true, false]);
    // The other one takes over, while the first believes that it leads.
    lock(&other.state).says = vec![Response::Leading(leading(true, 2)), overlay("other")];
    told(&mut agent, [&one, &other], "other").await;
    lock(&one.state).says = vec![overlay("too late")];
    let last = agent.report(20);
    for fake in [&one, &other] {
        fake.reaches(9, last).await;
    }
    lock(&other.state).says = vec![overlay("other again")];
    told(&mut agent, [&one, &other], "other again").await;
    assert_eq!(leads(&agent), [false, true]);
    for fake in [&one, &other] {
        each_second_once(fake, 9, 1..=agent.second);
    }
}

/// One is away for a while, is cut off, and takes nothing more of the epoch; the other one notices nothing of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_epoch_that_one_ends_goes_on_for_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let ((one, first), (other, second)) = (fake().await, fake().await);
    let mut agent = agent(dir.path(), &[&first, &second]);
    lock(&other.state).over.insert(9);
    lock(&other.state).cuts = vec![(25, true), (0, false)];
    agent.report(100);
    agent.connect();
    all_counted(&one, 100).await;
    all_counted(&other, 100).await;
    let last = agent.report(90);
    all_counted(&one, last).await;
    all_counted(&other, last).await;
    assert_eq!(agent.context.stats.epochs_renewed.get(), 1);
    assert!(!lock(&other.state).epochs.contains_key(&9));
    for fake in [&one, &other] {
        let state = lock(&fake.state);
        let counts = state.epochs.values().flat_map(|known| known.counted.seconds.values());
        assert!(counts.copied().all(|times| times == 1), "no second counts twice");
        assert!(state.epochs.values().all(|known| known.strangers == 0));
    }
    while agent.outbox.with(|spool| spool.epochs(0).len() + spool.epochs(1).len()) > 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
