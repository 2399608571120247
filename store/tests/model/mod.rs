//! An agent that keeps its frames until they are acknowledged, and knows which of its ticks have to count.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evenkeel_model::sample::{Field, Sample};
use evenkeel_proto::frame::{Encoder, Folder};
use evenkeel_proto::v1;
use evenkeel_store::key::StreamKey;
use evenkeel_store::state::StoreState;

pub(crate) const SLOTS: [u32; 2] = [3, 8];
/// Ten seconds between ticks, so that few of them make a minute.
pub(crate) const TICK_USEC: u64 = 10_000_000;
pub(crate) const START_USEC: u64 = 1_700_000_000_000_000;

/// What the agent keeps of one epoch.
pub(crate) struct Epoch {
    pub(crate) key: StreamKey,
    pub(crate) encoder: Encoder,
    pub(crate) needs_key: bool,
    pub(crate) ticks: u64,
    /// Kept until acknowledged, by sequence.
    pub(crate) frames: BTreeMap<u64, v1::Frame>,
    pub(crate) next_sequence: u64,
    pub(crate) acknowledged: u64,
    /// Highest sequence ever handed over; frames above it may be folded.
    pub(crate) sent: u64,
    /// Where this connection goes on; `None` = not connected.
    pub(crate) cursor: Option<u64>,
    pub(crate) resumed: bool,
    pub(crate) announced: bool,
    pub(crate) cpu_usec: u64,
    /// Minute of every tick that may count, by tick; damaged ones are taken out.
    pub(crate) expected: BTreeMap<u64, u64>,
    /// Frames refused since the last handshake; lost for good only if the recommender still knows of it then.
    pub(crate) refused: BTreeSet<u64>,
    /// Ticks of every frame.
    pub(crate) ticks_of: BTreeMap<u64, Vec<u64>>,
}

impl Epoch {
    pub(crate) fn new(number: u64) -> Self {
        Self {
            key: StreamKey { cluster: "c".into(), node: "n".into(), epoch: number },
            encoder: Encoder::new(),
            needs_key: true,
            ticks: 0,
            frames: BTreeMap::new(),
            next_sequence: 1,
            acknowledged: 0,
            sent: 0,
            cursor: None,
            resumed: false,
            announced: false,
            cpu_usec: 0,
            expected: BTreeMap::new(),
            refused: BTreeSet::new(),
            ticks_of: BTreeMap::new(),
        }
    }

    pub(crate) fn hello(&self) -> v1::Hello {
        let StreamKey { cluster, node, epoch } = self.key.clone();
        v1::Hello { cluster, node, epoch, version: "test".into(), ..v1::Hello::default() }
    }

    pub(crate) fn measure(&mut self, now: u64, key: bool) {
        let samples: Vec<(u32, Sample)> = SLOTS
            .iter()
            .map(|slot| {
                let mut sample = Sample::new(Duration::from_micros(TICK_USEC));
                sample.set(Field::CpuUsageUsec, self.cpu_usec + u64::from(*slot));
                sample.set(Field::MemoryWorkingSetBytes, 4096 * (self.ticks + 1));
                (*slot, sample)
            })
            .collect();
        self.cpu_usec += TICK_USEC / 4;
        let mut bytes = Vec::new();
        let key = key || std::mem::take(&mut self.needs_key);
        self.encoder.encode_seconds(key, now, TICK_USEC as u32, &samples, &mut bytes).unwrap();
        let announced = if std::mem::replace(&mut self.announced, true) { vec![] } else { self.announce() };
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.expected.insert(self.ticks, now / 60_000_000);
        self.ticks_of.insert(sequence, vec![self.ticks]);
        self.ticks += 1;
        self.keep(v1::Frame { sequence, samples: bytes.into(), announced, ..v1::Frame::default() });
    }

    pub(crate) fn announce(&self) -> Vec<v1::Announcement> {
        let identity = |slot: u32| v1::ContainerIdentity {
            namespace: "test".into(),
            workload: format!("epoch-{}", self.key.epoch),
            container: format!("slot-{slot}"),
            image: "web:1".into(),
            ..v1::ContainerIdentity::default()
        };
        SLOTS.iter().map(|slot| v1::Announcement { slot: *slot, identity: Some(identity(*slot)) }).collect()
    }

    pub(crate) fn keep(&mut self, mut frame: v1::Frame) {
        frame.samples_crc32c = crc32c::crc32c(&frame.samples);
        self.frames.insert(frame.sequence, frame);
    }

    /// Folds the longest run of frames that were never sent and begin with a key frame.
    pub(crate) fn fold(&mut self) {
        let unsent: Vec<u64> = self.frames.range(self.sent + 1..).map(|(s, _)| *s).collect();
        let is_key = |s: &&u64| evenkeel_proto::frame::peek(&self.frames[s].samples).unwrap().key;
        let Some(first) = unsent.iter().find(is_key).copied() else { return };
        let run: Vec<u64> = unsent.into_iter().filter(|s| *s >= first).collect();
        if run.len() < 2 {
            return;
        }
        let mut folder = Folder::new();
        let mut folded = v1::Frame::default();
        let mut ticks = Vec::new();
        let mut oldest = first;
        for sequence in &run {
            let frame = self.frames.remove(sequence).unwrap();
            folder.add(&frame.samples).unwrap();
            folded.announced.extend(frame.announced);
            if *sequence == first && frame.replaces_first > 0 {
                oldest = frame.replaces_first;
            }
            ticks.extend(self.ticks_of.remove(sequence).unwrap());
        }
        let mut bytes = Vec::new();
        folder.finish(&mut bytes).unwrap();
        (folded.sequence, folded.replaces_first, folded.samples) =
            (*run.last().unwrap(), oldest, bytes.into());
        self.ticks_of.insert(folded.sequence, ticks);
        self.keep(folded);
        self.needs_key = true;
    }

    /// The frame was given up by both sides.
    pub(crate) fn give_up(&mut self, sequence: u64) {
        for tick in self.ticks_of.remove(&sequence).unwrap_or_default() {
            self.expected.remove(&tick);
        }
    }
}

/// Samples counted for one container, by minute.
pub(crate) fn counted(state: &StoreState, key: &StreamKey, slot: u32) -> BTreeMap<u64, u64> {
    use evenkeel_rightsizing::Resource;
    use evenkeel_store::state::history::{History, Select};
    let mut counted: BTreeMap<u64, u64> = BTreeMap::new();
    let workload = format!("epoch-{}", key.epoch);
    let container = format!("slot-{slot}");
    let series =
        state.history.all().filter(|(_, s)| s.key.of.workload == workload && s.key.of.container == container);
    for (id, _) in series {
        for entry in state.history.entries(Select::One(id), Resource::Memory, 0) {
            *counted.entry(u64::from(entry.minute)).or_default() += u64::from(entry.count);
        }
        for (_, slot) in state.followed_of(id) {
            if let Some((minute, rollup)) = slot.open {
                *counted.entry(u64::from(minute)).or_default() += rollup.memory_bytes.count;
            }
        }
    }
    counted
}

/// Milliseconds in the memory histograms of one container: of its hours, and of its days.
pub(crate) fn weighed(state: &StoreState, key: &StreamKey, slot: u32) -> [u64; 2] {
    use evenkeel_rightsizing::Resource;
    use evenkeel_rightsizing::history::{History, Scope};
    use evenkeel_store::history::{HistoryView, ViewTarget};
    let (workload, container) = (format!("epoch-{}", key.epoch), format!("slot-{slot}"));
    let of = ViewTarget {
        cluster: None,
        namespace: "test",
        workload: &workload,
        container: &container,
        image: None,
        command: None,
    };
    let view = HistoryView::new(state, of, Resource::Memory);
    let hours = view.hours(Scope::Own, 0).iter().map(|hour| hour.all.total()).sum();
    [hours, view.days(Scope::Own, 0).iter().map(|day| day.all.total()).sum()]
}
