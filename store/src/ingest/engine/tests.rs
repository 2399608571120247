//! What is acknowledged, while counting waits.

use evenkeel_model::sample::{Field, Sample};
use evenkeel_proto::frame::Encoder;
use evenkeel_proto::v1::stream_response::Message as Said;

use super::*;
use crate::config::Span;

const PATIENCE: Duration = Duration::from_secs(60);

/// A connection's end of the engine.
struct Agent {
    engine: Engine,
    id: ConnectionId,
    key: Arc<StreamKey>,
    replies: mpsc::UnboundedReceiver<Reply>,
    encoder: Encoder,
    sequence: u64,
}

impl Agent {
    /// Greets; where it is to go on.
    async fn connect(engine: &Engine) -> (Self, v1::Resume) {
        let hello = v1::Hello { cluster: "c".into(), node: "n".into(), epoch: 1, ..v1::Hello::default() };
        let (sender, replies) = mpsc::unbounded_channel();
        let (id, key) = (engine.connection(), Arc::new(StreamKey::of(&hello)));
        let greeting = IngestCommand::Hello { from: id, hello, owner: String::new(), replies: sender };
        engine.commands.send(greeting).await.unwrap();
        let mut agent =
            Self { engine: engine.clone(), id, key, replies, encoder: Encoder::new(), sequence: 0 };
        let Said::Resume(resume) = agent.heard().await else { panic!("no Resume") };
        agent.sequence = resume.last_seq;
        (agent, resume)
    }

    /// The next thing said, once it may be.
    async fn heard(&mut self) -> Said {
        loop {
            match tokio::time::timeout(PATIENCE, self.replies.recv()).await.unwrap().unwrap() {
                Reply::Say { mark, response } => {
                    let mut durable = self.engine.durable.clone();
                    tokio::time::timeout(PATIENCE, durable.wait_for(|upto| *upto >= mark))
                        .await
                        .unwrap()
                        .unwrap();
                    return response.message.unwrap();
                }
                Reply::Handled => {}
                other => panic!("{other:?}"),
            }
        }
    }

    async fn send(&mut self, is_key: bool) {
        let mut sample = Sample::new(Duration::from_secs(1));
        sample.set(Field::MemoryWorkingSetBytes, 1 << 20);
        let (mut bytes, time) = (Vec::new(), 1_700_000_000_000_000 + self.sequence * 1_000_000);
        self.encoder.encode_seconds(is_key, time, 1_000_000, &[(0, sample)], &mut bytes).unwrap();
        self.sequence += 1;
        let samples_crc32c = crc32c::crc32c(&bytes);
        let frame = v1::Frame {
            sequence: self.sequence,
            samples: bytes.into(),
            samples_crc32c,
            ..v1::Frame::default()
        };
        let frames = IngestCommand::Frames { from: self.id, key: Arc::clone(&self.key), frames: vec![frame] };
        self.engine.commands.send(frames).await.unwrap();
    }

    async fn acknowledged(&mut self, upto: u64) {
        loop {
            match self.heard().await {
                Said::Ack(ack) if ack.last_seq >= upto => return,
                Said::Ack(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_durable_is_acknowledged_while_counting_waits() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Settings::at(dir.path());
    config.ingest.count_within = Span::from_millis(1);
    let (store, _) = Store::open(&config).unwrap();
    let (engine, threads) = Engine::start(store, &config, WallClock::system()).unwrap();
    let (mut agent, resume) = Agent::connect(&engine).await;
    assert_eq!(resume.last_seq, 0);
    let key = Arc::clone(&agent.key);
    let counted = || engine.state().read().stream(&key).map_or(0, |stream| stream.position.last);

    // Somebody looks at the state for long.
    let study = engine.state().study();
    for _ in 0..5 {
        agent.send(true).await;
    }
    agent.acknowledged(5).await;
    assert_eq!(counted(), 0);
    // Who connects again goes on behind what was logged, and a frame twice is counted once.
    let (mut again, resume) = Agent::connect(&engine).await;
    assert_eq!(resume.last_seq, 5);
    again.sequence = 4;
    for _ in 0..2 {
        again.send(true).await;
    }
    again.acknowledged(6).await;
    // Coded against a frame that this connection never sent: that is known once it is counted.
    (again.encoder, again.sequence) = (Encoder::new(), 6);
    let mut unsent = Vec::new();
    again.encoder.encode_seconds(true, 1, 1_000_000, &[(7, Sample::default())], &mut unsent).unwrap();
    again.send(false).await;
    again.acknowledged(7).await;
    drop(study);
    let refused = loop {
        match again.heard().await {
            Said::Refused(refused) => break refused,
            Said::Ack(_) => {}
            other => panic!("{other:?}"),
        }
    };
    assert!(refused.sequence == 7 && refused.why.contains("cannot be read"), "{refused:?}");
    tokio::task::spawn_blocking(move || threads.stop()).await.unwrap();
    let state = engine.state().read();
    assert_eq!(state.stream(&again.key).map(|stream| stream.position.last), Some(7));
    assert_eq!((state.counters.frames, state.counters.unreadable), (7, 1));
    drop(state);

    // The checkpoint at the end has all of it.
    let (store, report) = Store::open(&config).unwrap();
    assert_eq!(report.records, 0);
    assert_eq!(store.state().read().counters.frames, 7);
}

fn hello(node: &str, epoch: u64) -> v1::Hello {
    v1::Hello { cluster: "c".into(), node: node.into(), epoch, ..v1::Hello::default() }
}

/// One node's many epochs made others' be forgotten, and whoever came back after his was forgotten lost it to the next.
#[test]
fn many_epochs_of_one_node_cost_others_neither_place_nor_owner() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Settings::at(dir.path());
    config.ingest.max_epochs = 20;
    let (mut store, _) = Store::open(&config).unwrap();
    let mut open = |node: &str, epoch: u64, owner: &str| {
        let now = 1_700_000_000_000_000;
        let hello = hello(node, epoch);
        let may = store.claim(now, &StreamKey::of(&hello), owner).unwrap();
        let last = store.hello(now, &hello).unwrap().last;
        if may && last == 0 {
            let frame = v1::Frame { sequence: 1, ..v1::Frame::default() };
            store.take(now, &StreamKey::of(&hello), &frame, true).unwrap();
        }
        (may, last)
    };
    assert_eq!(open("victim", 1, "one"), (true, 0));
    for epoch in 0..100 {
        assert_eq!(open("loud", epoch + 1, "loud"), (true, 0));
    }
    assert_eq!(open("victim", 1, "one"), (true, 1), "its place was kept");
    assert!(!open("victim", 1, "two").0);
    // Of many nodes with few each the one idle longest goes, and begins anew as its own.
    for node in 0..40 {
        open(&format!("node-{node}"), 1, "other");
    }
    assert_eq!(open("victim", 1, "one"), (true, 0));
    assert_eq!(open("victim", 1, "two"), (false, 1), "it is one's again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_nobody_counts_any_more_nothing_is_taken_and_readiness_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let config = Settings::at(dir.path());
    let (store, _) = Store::open(&config).unwrap();
    let (engine, threads) = Engine::start(store, &config, WallClock::system()).unwrap();
    // As a thread that ends by a fault leaves it.
    drop(engine.backlog.counting());
    let begun = Instant::now();
    while engine.health().log_trouble().is_none() {
        assert!(begun.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let trouble = engine.health().log_trouble().unwrap();
    assert!(trouble.contains("restart the recommender"), "{trouble}");
    let (sender, _replies) = mpsc::unbounded_channel();
    let (from, hello) = (engine.connection(), hello("n", 1));
    let greeting = IngestCommand::Hello { from, hello, owner: String::new(), replies: sender };
    assert!(engine.commands.send(greeting).await.is_err(), "nobody takes it");
    tokio::task::spawn_blocking(move || threads.stop()).await.unwrap();
}

#[test]
fn a_wish_that_waited_for_the_log_does_not_undo_a_later_one() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(&Settings::at(dir.path())).unwrap();
    let (state, of) = (store.state(), |switch| PanicSwitch::set(switch, String::new(), 7));
    let (on, off) = (of(Panic::Freeze), of(Panic::Off));
    let [first, second] = [&on, &off].map(|wished| state.wish_panic(wished.clone()));
    assert!(state.is_panic(), "off only when the log has it");
    let third = state.wish_panic(on.clone());
    for (switch, wish) in [(&on, first), (&off, second), (&on, third)] {
        state.tell_panic(switch.clone(), wish);
        assert!(state.is_panic(), "{wish:?}");
    }
    let last = state.wish_panic(off.clone());
    state.tell_panic(off, last);
    assert!(!state.is_panic());
}
