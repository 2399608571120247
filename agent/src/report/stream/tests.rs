//! The client against a recommender in this process that cuts, forgets and refuses, over real sockets.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Mutex;

use evenkeel_model::rollup::Rollup;
use evenkeel_model::sample::Sample;
use evenkeel_proto::frame::{Decoder, Visitor};
use evenkeel_proto::v1::ingest_service_server::{IngestService, IngestServiceServer};
use tokio_stream::Stream;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request as Call, Response as Answer, Status, Streaming};

use super::*;
use crate::decisions::Decisions;
use crate::report::frames::Framer;
use crate::report::kept::Kept;
use crate::report::spool::Spool;
use crate::report::test_support::{configured, context, first_tick, tick};

/// What the recommender knows of one epoch.
#[derive(Default)]
pub(super) struct Known {
    pub(super) last: u64,
    pub(super) decoder: Decoder,
    pub(super) counted: Counted,
    pub(super) slots: BTreeSet<u32>,
    /// A sample came for a slot that had not been announced.
    pub(super) strangers: usize,
}

#[derive(Default)]
pub(super) struct Counted {
    pub(super) seconds: BTreeMap<(u32, u64), u32>,
    /// Samples of the frame being decoded.
    pub(super) fresh: Vec<(u32, u64)>,
}

impl Visitor for Counted {
    fn sample(&mut self, slot: u32, time_usec: u64, _: &Sample, _: Option<&Sample>) {
        self.fresh.push((slot, time_usec / 1_000_000));
    }
    fn rollup(&mut self, _: u32, _: u64, _: &Rollup) {}
}

#[derive(Default)]
pub(super) struct State {
    pub(super) epochs: BTreeMap<u64, Known>,
    /// After how many frames the next connections are cut, and whether the last frame is still counted.
    pub(super) cuts: Vec<(usize, bool)>,
    pub(super) refuse: BTreeSet<u64>,
    pub(super) refused: usize,
    /// Epochs that take nothing any more.
    pub(super) over: BTreeSet<u64>,
    pub(super) hellos: usize,
    /// When the next streams' tokens end, and the newer ones that came.
    pub(super) token_ends: u64,
    pub(super) renewed: Vec<String>,
    /// Whether it says that it leads.
    pub(super) leading: Option<v1::Leading>,
    /// What it says with its next answers.
    pub(super) says: Vec<Response>,
    /// What the last one said the node has to give.
    pub(super) allocatable: BTreeMap<String, String>,
}

#[derive(Clone, Default)]
pub(super) struct Fake {
    pub(super) state: Arc<Mutex<State>>,
    pub(super) changed: Arc<tokio::sync::Notify>,
}

type Replies = mpsc::Sender<Result<v1::StreamResponse, Status>>;

impl Fake {
    async fn serve(self, mut requests: Streaming<v1::StreamRequest>, replies: Replies) {
        let cut = lock(&self.state).cuts.pop();
        let (mut epoch, mut left) = (0, cut);
        while let Ok(Some(request)) = requests.message().await {
            let answers = match request.message {
                Some(Request::Hello(hello)) => {
                    epoch = hello.epoch;
                    if lock(&self.state).over.contains(&epoch) {
                        let _gone = replies.send(Err(Status::already_exists("of another identity"))).await;
                        return;
                    }
                    lock(&self.state).allocatable = hello.facts.unwrap_or_default().allocatable;
                    vec![self.hello(epoch)]
                }
                Some(Request::Frames(frames)) => {
                    let mut answers = Vec::new();
                    for frame in frames.frames {
                        if let Some((frames, count_last)) = &mut left {
                            if *frames == 0 {
                                if *count_last {
                                    self.take(epoch, &frame);
                                }
                                return;
                            }
                            *frames -= 1;
                        }
                        answers.push(self.take(epoch, &frame));
                    }
                    answers
                }
                Some(Request::Renewal(renewal)) => {
                    lock(&self.state).renewed.push(renewal.token);
                    vec![Response::Renewed(v1::Renewed::default())]
                }
                Some(Request::Pong(_)) | None => Vec::new(),
            };
            let said = std::mem::take(&mut lock(&self.state).says);
            let answers = answers.into_iter().chain(said);
            for message in answers {
                if replies.send(Ok(v1::StreamResponse { message: Some(message) })).await.is_err() {
                    return;
                }
            }
            self.changed.notify_one();
        }
    }

    fn hello(&self, epoch: u64) -> Response {
        let mut state = lock(&self.state);
        state.hellos += 1;
        let known = state.epochs.get(&epoch);
        Response::Resume(v1::Resume {
            epoch,
            last_seq: known.map_or(0, |k| k.last),
            credits: 16,
            knows_slots: known.is_some_and(|k| !k.slots.is_empty()),
            token_ends: state.token_ends,
            leading: state.leading.clone(),
        })
    }

    fn take(&self, epoch: u64, frame: &v1::Frame) -> Response {
        let mut state = lock(&self.state);
        let refuse = state.refuse.remove(&frame.sequence);
        let known = state.epochs.entry(epoch).or_default();
        let sequence = frame.sequence;
        if sequence > known.last {
            known.last = sequence;
            known.slots.extend(frame.announced.iter().map(|a| a.slot));
            known.counted.fresh.clear();
            if refuse || known.decoder.decode(&frame.samples, &mut known.counted).is_err() {
                known.decoder.reset();
                state.refused += 1;
                let (why, remedy) = ("damaged".to_owned(), "go on".to_owned());
                return Response::Refused(v1::Refused { epoch, sequence, why, remedy });
            }
            for at in std::mem::take(&mut known.counted.fresh) {
                known.strangers += usize::from(!known.slots.contains(&at.0));
                *known.counted.seconds.entry(at).or_default() += 1;
            }
        }
        Response::Ack(v1::Ack { epoch, last_seq: known.last })
    }

    /// Waits until the recommender has all of an epoch up to `last`.
    pub(super) async fn reaches(&self, epoch: u64, last: u64) {
        let reached = async {
            while lock(&self.state).epochs.get(&epoch).is_none_or(|k| k.last < last) {
                self.changed.notified().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), reached).await.expect("frames do not arrive");
    }
}

#[tonic::async_trait]
impl IngestService for Fake {
    type StreamStream = Pin<Box<dyn Stream<Item = Result<v1::StreamResponse, Status>> + Send>>;

    async fn stream(
        &self,
        call: Call<Streaming<v1::StreamRequest>>,
    ) -> Result<Answer<Self::StreamStream>, Status> {
        let (replies, receiver) = mpsc::channel(64);
        tokio::spawn(self.clone().serve(call.into_inner(), replies));
        Ok(Answer::new(Box::pin(ReceiverStream::new(receiver))))
    }
}

/// A served fake and where it listens.
pub(super) async fn fake() -> (Fake, String) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let fake = Fake::default();
    let service = IngestServiceServer::new(fake.clone());
    let server = tonic::transport::Server::builder().add_service(service);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    (fake, address)
}

pub(super) struct Agent {
    pub(super) context: Arc<Context>,
    pub(super) outbox: Arc<Outbox>,
    pub(super) framer: Framer,
    pub(super) second: u64,
    pub(super) clients: Vec<tokio::task::JoinHandle<()>>,
}

impl Agent {
    fn new(dir: &std::path::Path, epoch: u64, address: &str) -> Self {
        Self::with(dir, context(dir, epoch, address))
    }

    pub(super) fn with(dir: &std::path::Path, context: Arc<Context>) -> Self {
        let epoch = context.epoch;
        let names = context.config.stream.recommenders.clone();
        let spool = Spool::open(&dir.join("spool"), epoch, 8 << 20, &names).unwrap();
        let outbox = Arc::new(Outbox::new(spool, names.len()));
        Self { context, outbox, framer: Framer::default(), second: 0, clients: Vec::new() }
    }

    pub(super) fn connect(&mut self) {
        let decisions = Arc::new(Decisions::in_memory(Some(Kept::in_memory(1))));
        let leaders = Arc::new(Leaders::of(self.context.config.stream.recommenders.len()));
        for at in 0..self.context.config.stream.recommenders.len() {
            let (context, outbox) = (Arc::clone(&self.context), Arc::clone(&self.outbox));
            let client = Client::new(context, outbox, Arc::clone(&decisions), at, Arc::clone(&leaders));
            self.clients.push(tokio::spawn(client.run()));
        }
    }

    pub(super) fn report(&mut self, seconds: u64) -> u64 {
        for _ in 0..seconds {
            self.second += 1;
            let make = if self.second == 1 { first_tick } else { tick };
            if self.outbox.take_key_wish() {
                self.framer.start_anew();
            }
            let frame = self.framer.frame(&make(self.second, 1..4), &[], Vec::new()).unwrap();
            self.outbox.with(|spool| spool.append(frame)).unwrap();
            self.outbox.ring();
        }
        self.second
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.clients.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

pub(super) fn each_second_once(fake: &Fake, epoch: u64, seconds: std::ops::RangeInclusive<u64>) {
    let state = lock(&fake.state);
    let known = &state.epochs[&epoch];
    let want: BTreeMap<(u32, u64), u32> =
        (1..4).flat_map(|s| seconds.clone().map(move |t| ((s, t), 1))).collect();
    assert_eq!(known.counted.seconds, want);
    assert_eq!(known.strangers, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_second_counts_once_through_cuts_and_an_earlier_run_comes_first() {
    let dir = tempfile::tempdir().unwrap();
    let (fake, address) = fake().await;
    Agent::new(dir.path(), 5, &address).report(150);
    lock(&fake.state).cuts = vec![(33, true), (0, false), (70, true), (20, false)];
    let mut agent = Agent::new(dir.path(), 9, &address);
    agent.report(100);
    agent.connect();
    fake.reaches(9, 100).await;
    let last = agent.report(30);
    fake.reaches(9, last).await;
    each_second_once(&fake, 5, 1..=150);
    each_second_once(&fake, 9, 1..=130);
    assert_eq!(agent.outbox.with(|spool| spool.epochs(0)), [9], "the earlier run is delivered and gone");
    assert!(lock(&fake.state).hellos >= 6);
    assert!(agent.context.stats.frames_sent.get() >= 280);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recommender_that_lost_everything_is_told_the_slots_again() {
    let dir = tempfile::tempdir().unwrap();
    let (fake, address) = fake().await;
    let mut agent = Agent::new(dir.path(), 9, &address);
    let last = agent.report(130);
    lock(&fake.state).cuts = vec![(140, true)];
    agent.connect();
    fake.reaches(9, last).await;
    // Its memory goes, and with the frames to come the connection.
    lock(&fake.state).epochs.clear();
    let last = agent.report(70);
    fake.reaches(9, last).await;
    let state = lock(&fake.state);
    let known = &state.epochs[&9];
    let seconds: BTreeSet<u64> = known.counted.seconds.keys().map(|(_, second)| *second).collect();
    assert_eq!(known.slots, BTreeSet::from([1, 2, 3]));
    assert_eq!(known.strangers, 0);
    assert!(known.counted.seconds.values().all(|times| *times == 1));
    assert!(seconds.is_superset(&(181..=200).collect()), "{seconds:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_frame_is_passed_over_and_a_key_frame_follows() {
    let dir = tempfile::tempdir().unwrap();
    let (fake, address) = fake().await;
    lock(&fake.state).refuse.insert(7);
    let mut agent = Agent::new(dir.path(), 9, &address);
    agent.connect();
    fake.reaches(9, agent.report(10)).await;
    let mut last = agent.second;
    // The wish for a key frame comes back with the refusal, at its own pace.
    let healed = |last: u64| {
        let state = lock(&fake.state);
        state.epochs[&9].counted.seconds.contains_key(&(1, last))
    };
    while !healed(last) {
        last = agent.report(1);
        fake.reaches(9, last).await;
        assert!(last < 60, "no key frame came before its time");
    }
    assert!(lock(&fake.state).refused >= 1);
}

/// Somebody else spoke in this agent's name, or its machine was set back: the recommender claims what it never got.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_beyond_what_was_sent_ends_the_epoch_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (fake, address) = fake().await;
    let mut agent = Agent::new(dir.path(), 9, &address);
    agent.connect();
    fake.reaches(9, agent.report(30)).await;
    let acknowledged = || agent.context.stats.streams.with(0, |state| state.last_acknowledged);
    while acknowledged() < 30 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    {
        let mut state = lock(&fake.state);
        state.epochs.get_mut(&9).unwrap().last = 30_000_000;
    }
    let last = agent.report(40);
    let renewed = || *lock(&agent.context.stats.epoch);
    while renewed().is_none_or(|epoch| epoch == 9) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let new = renewed().unwrap();
    // Seconds 1 to 30 were acknowledged in the old epoch; the rest counts in the new one.
    fake.reaches(new, last - 30).await;
    let state = lock(&fake.state);
    let seconds: BTreeSet<u64> = state.epochs[&9].counted.seconds.keys().map(|(_, second)| *second).collect();
    let more: BTreeSet<u64> = state.epochs[&new].counted.seconds.keys().map(|(_, second)| *second).collect();
    assert_eq!(seconds.union(&more).copied().collect::<Vec<_>>(), (1..=last).collect::<Vec<_>>());
    assert_eq!(agent.context.stats.epochs_renewed.get(), 1);
    assert_eq!(state.epochs[&new].strangers, 0, "containers are announced again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_node_has_to_give_is_told_and_told_again_when_a_reload_changes_it() {
    let dir = tempfile::tempdir().unwrap();
    let (fake, address) = fake().await;
    let mut agent = Agent::new(dir.path(), 9, &address);
    agent.connect();
    fake.reaches(9, agent.report(3)).await;
    assert_eq!(lock(&fake.state).allocatable, BTreeMap::new(), "the size is told apart");

    let more =
        "[node.allocatable]\n\"example.com/x\" = 4\n[node.reserve]\ncpu = \"500m\"\n\"example.com/x\" = 1\n";
    let new = configured(tempfile::tempdir().unwrap().path(), 9, more);
    let written = serde_json::json!({"node": {"allocatable": {"example.com/x": 4}}});
    agent.context.reload.take(&agent.context.enforce.live, new.config.clone(), &written);
    let told = || lock(&fake.state).allocatable.clone();
    while told().is_empty() {
        fake.reaches(9, agent.report(1)).await;
    }
    let expected = [("cpu", "1500m"), ("example.com/x", "3")];
    assert_eq!(told(), expected.map(|(name, amount)| (name.to_owned(), amount.to_owned())).into());
    let last = agent.report(20);
    fake.reaches(9, last).await;
    each_second_once(&fake, 9, 1..=last);
    assert_eq!(lock(&fake.state).hellos, 2);
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    std::fs::set_permissions(to, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Seconds counted of the first container, over all epochs.
fn counted(fake: &Fake) -> BTreeSet<u64> {
    let state = lock(&fake.state);
    let seconds = state.epochs.values().flat_map(|known| known.counted.seconds.keys());
    seconds.filter(|(slot, _)| *slot == 1).map(|(_, second)| *second).collect()
}

/// Waits until every second up to `last` was counted.
pub(super) async fn all_counted(fake: &Fake, last: u64) {
    let all = async {
        while !counted(fake).is_superset(&(1..=last).collect()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all).await.expect("every second arrives");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_directory_that_was_rolled_back_goes_on_and_loses_nothing_from_then_on() {
    let (dir, saved) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (fake, address) = fake().await;
    let mut agent = Agent::new(dir.path(), 9, &address);
    agent.report(30);
    copy(dir.path(), saved.path());
    agent.connect();
    fake.reaches(9, agent.report(30)).await;
    drop(agent);
    // The machine is as it was at second 30; the recommender has 60 of that run.
    let mut agent = Agent::new(saved.path(), 11, &address);
    agent.second = 60;
    agent.framer = Framer::default();
    agent.connect();
    let last = agent.report(40);
    all_counted(&fake, last).await;
    assert_eq!(agent.context.stats.epochs_renewed.get(), 1, "the old run's frames go on under another name");
    // This run's own epoch is not touched.
    assert_eq!(lock(&fake.state).epochs[&11].last, 40);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_epoch_that_is_of_another_identity_goes_on_under_another_name() {
    let dir = tempfile::tempdir().unwrap();
    let (fake, address) = fake().await;
    lock(&fake.state).over.insert(9);
    let mut agent = Agent::new(dir.path(), 9, &address);
    let last = agent.report(20);
    agent.connect();
    all_counted(&fake, last).await;
    let last = agent.report(20);
    all_counted(&fake, last).await;
    assert_eq!(agent.context.stats.epochs_renewed.get(), 1);
    assert!(!lock(&fake.state).epochs.contains_key(&9));
}
