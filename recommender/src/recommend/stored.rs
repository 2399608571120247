//! Owns the recommendations kept of every workload: made anew in the background, in slices that hold ingest up for no more
//! than a few milliseconds each, told to watchers, and written beside the state, so that a recommender that has just
//! started answers before it has read its history back, and its rules keep to what they said before.
//!
//! The file is replaced whole: written beside, synced, renamed. It begins with `EVKEELRS`, a version, the CRC32C of the
//! rest and the time it was written; the rest is one protobuf message. A file that is damaged or of another version is
//! ignored: its content is made anew within a pass.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use evenkeel_log::private;
use evenkeel_model::key::ContainerKey;
use evenkeel_proto::v1;
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::evidence::Evidence;
use evenkeel_store::pace::Pace;
use prost::Message;
use tokio::sync::watch;
use tracing::{debug, warn};

use super::advice::{AdviceSubject, Amounts, index, largest_node};
use super::rules::Chosen;
use super::{Desk, list, predefined};
use crate::acting::Meant;
use crate::api::Context;
use crate::policy::status::Pass;

const MAGIC: [u8; 8] = *b"EVKEELRS";
const VERSION: u32 = 1;
const HEADER: usize = 24;

/// How often what is kept is written.
const SAVE_EVERY: Duration = Duration::from_secs(60);

/// A container, and the name of a resource.
pub(crate) type Place = (ContainerKey, String);

/// Whose a recommendation is, and of what.
pub(crate) fn place(r: &v1::Recommendation) -> Place {
    (r.into(), r.resource.clone())
}

/// What is kept.
#[derive(Debug)]
pub struct Stored {
    file: PathBuf,
    kept: RwLock<Arc<StoredRecommendations>>,
    /// What nodes are told of it.
    meant: RwLock<Arc<Meant>>,
    /// A pass of this run kept within what namespaces of the followed cluster allow; then all do.
    is_bounded: AtomicBool,
    /// Number of the last pass; 0 before the first of this run.
    passes: watch::Sender<u64>,
    /// How long the last pass took, microseconds.
    pass_usec: AtomicU64,
}

/// What a pass recommended.
#[derive(Debug, Default)]
pub struct StoredRecommendations {
    all: BTreeMap<Place, v1::Recommendation>,
    made_usec: u64,
    /// Of which there is any.
    clusters: BTreeSet<String>,
    /// By image and resource, the place of the recommendation that rests on most: the first of equals.
    images: HashMap<String, [Option<Place>; 2]>,
}

impl StoredRecommendations {
    fn new(all: impl IntoIterator<Item = v1::Recommendation>, made_usec: u64) -> Self {
        let all: BTreeMap<Place, v1::Recommendation> = all.into_iter().map(|r| (place(&r), r)).collect();
        let clusters = all.values().map(|r| r.cluster.clone()).collect();
        let mut best: HashMap<(&str, usize), (u64, &Place)> = HashMap::new();
        for (place, r) in all.iter().filter(|(_, r)| r.request.is_some()) {
            let Some(resource) = Resource::ALL.into_iter().find(|of| of.as_str() == r.resource) else {
                continue;
            };
            let evidence = Evidence { span_seconds: r.span_seconds, minutes: r.samples }.seconds();
            let known = best.entry((&r.image, index(resource))).or_insert((evidence, place));
            if evidence > known.0 {
                *known = (evidence, place);
            }
        }
        let mut images: HashMap<String, [Option<Place>; 2]> = HashMap::new();
        for ((image, resource), (_, place)) in best {
            images.entry(image.to_owned()).or_default()[resource] = Some(place.clone());
        }
        Self { all, made_usec, clusters, images }
    }

    /// The one of a container, in whichever cluster, or else of the container of its image that rests on most, which is
    /// told by the second. Looked up, since a pod that somebody sends may have thousands of containers.
    fn like(&self, asked: &AdviceSubject, resource: Resource) -> Option<(&v1::Recommendation, bool)> {
        let own = self.clusters.iter().find_map(|cluster| {
            let key = ContainerKey::new(&**cluster, &*asked.namespace, &*asked.workload, &*asked.container);
            self.all.get(&(key, resource.as_str().to_owned())).filter(|r| r.request.is_some())
        });
        let others =
            || self.all.get(self.images.get(&asked.image.as_ref()?.to_string())?[index(resource)].as_ref()?);
        own.map(|r| (r, false)).or_else(|| others().map(|r| (r, true)))
    }

    /// Every recommendation, by its place.
    pub(crate) fn all(&self) -> impl Iterator<Item = &v1::Recommendation> {
        self.all.values()
    }

    #[cfg(test)]
    pub(crate) fn of(all: impl IntoIterator<Item = v1::Recommendation>) -> Self {
        Self::new(all, 0)
    }

    /// What a rule said of a container, uncapped, in the units of requests. Image and command play no part: a roll-out goes
    /// on from where the one before was. A value that stood in because the rule knew nothing is none of its own.
    pub(super) fn said(&self, asked: &AdviceSubject, rule: &Chosen) -> Amounts {
        Resource::ALL.map(|resource| {
            let cluster = asked.cluster.as_deref()?;
            let key = ContainerKey::new(cluster, &*asked.namespace, &*asked.workload, &*asked.container);
            let said = self.all.get(&(key, resource.as_str().to_owned()))?;
            said.raw.filter(|_| said.rule_crc32c == rule.checksum() && said.tier != predefined::TIER)
        })
    }
}

impl Stored {
    /// What the run before has left in a file.
    pub fn open(file: PathBuf) -> Self {
        let kept = match read(&file) {
            Ok(kept) => kept,
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    warn!(%error, file = %file.display(), "the recommendations of the run before are not used");
                }
                StoredRecommendations::default()
            }
        };
        Self {
            file,
            kept: RwLock::new(Arc::new(kept)),
            meant: RwLock::default(),
            is_bounded: AtomicBool::new(false),
            passes: watch::Sender::new(0),
            pass_usec: AtomicU64::new(0),
        }
    }

    #[cfg(test)]
    pub(crate) fn write_for_tests(file: &Path, all: Vec<v1::Recommendation>, made_usec: u64) {
        write(file, &StoredRecommendations::new(all, made_usec)).unwrap();
    }

    /// What the last pass recommended, or before the first one the run before.
    pub(crate) fn kept(&self) -> Arc<StoredRecommendations> {
        Arc::clone(&self.kept.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What nodes are to be told, as of the last pass.
    pub(crate) fn meant(&self) -> Arc<Meant> {
        Arc::clone(&self.meant.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether what the last pass recommended keeps within what namespaces of the followed cluster allow; nothing else is acted on.
    pub(crate) fn is_bounded(&self) -> bool {
        self.is_bounded.load(Ordering::Acquire)
    }

    /// How many passes there were, and how long the last one took.
    pub fn passed(&self) -> (u64, Duration) {
        (*self.passes.borrow(), Duration::from_micros(self.pass_usec.load(Ordering::Relaxed)))
    }

    /// Told of every pass.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.passes.subscribe()
    }

    /// All of a namespace, or of all, with their age.
    pub fn all(&self, namespace: &str, now_usec: u64) -> Vec<v1::Recommendation> {
        let kept = self.kept();
        let wanted = kept.all.values().filter(|r| namespace.is_empty() || r.namespace == namespace);
        wanted.map(|r| aged(r, kept.made_usec, now_usec)).collect()
    }

    /// The one of a container, or else of the container of its image that rests on most.
    pub fn like(
        &self,
        asked: &AdviceSubject,
        resource: Resource,
        now_usec: u64,
    ) -> Option<v1::Recommendation> {
        let kept = self.kept();
        let (found, is_others) = kept.like(asked, resource)?;
        let mut found = aged(found, kept.made_usec, now_usec);
        if is_others {
            "image:tag".clone_into(&mut found.tier);
        }
        Some(found)
    }

    /// Makes everything anew. Returns how many containers there were; nothing when stopped in between.
    pub fn pass(&self, context: &Context, stopped: impl Fn() -> bool) -> Option<usize> {
        let began = Instant::now();
        let is_bounded = context.knows_bounds();
        let (set, before) = (context.policies.set(), self.kept());
        let (lines, largest) = {
            let state = context.engine.state().study();
            (list::lines(&state, ""), largest_node(&state))
        };
        let made_usec = context.engine.now_usec();
        let (mut all, mut pass) = (Vec::new(), Pass::default());
        // It watches for its own end.
        let wanted = super::StillWanted::default();
        let mut rest = lines.iter();
        let (mut next, mut pace) = (rest.next(), Pace::start());
        while next.is_some() {
            if stopped() {
                return None;
            }
            let state = context.engine.state().study();
            let desk = Desk {
                advisor: &context.advisor,
                policies: &set,
                before: &before,
                state: &state,
                now_usec: context.engine.now_usec(),
                largest,
                frozen: false,
                wanted: &wanted,
            };
            while let Some(line) = next {
                let (recommendations, selecting) = list::recommend(&desk, line, &[]);
                pass.take(&selecting, &recommendations);
                all.extend(recommendations);
                next = rest.next();
                if pace.is_due() {
                    break;
                }
            }
            // Ingest goes on meanwhile: a lock that is taken again at once is not had by those who wait for it.
            drop(state);
            pace.rest();
        }
        let kept = StoredRecommendations::new(all, made_usec);
        context.policies.statuses.replace(pass.statuses(&set));
        // Of clusters that are not followed nothing more will be known.
        let told = kept.all.values().filter(|r| is_bounded || !context.is_followed(&r.cluster));
        let meant = Meant::of(&self.meant(), told, &context.config.now().acting, kept.made_usec);
        *self.meant.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(meant);
        *self.kept.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(kept);
        self.is_bounded.fetch_or(is_bounded, Ordering::Release);
        self.pass_usec
            .store(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.passes.send_modify(|number| *number += 1);
        Some(lines.len())
    }

    /// Passes until stopped, then writes what is kept.
    pub fn run(&self, context: &Context, stopped: impl Fn() -> bool) {
        const LOOK: Duration = Duration::from_millis(50);
        let every = context.config.now().recommend.watch_interval.get();
        let mut saved = Instant::now();
        while !stopped() {
            let began = Instant::now();
            if let Some(containers) = self.pass(context, &stopped) {
                debug!(
                    containers,
                    millis = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
                    "recommendations were made anew"
                );
            }
            if saved.elapsed() > SAVE_EVERY {
                saved = Instant::now();
                self.save();
            }
            // What was made before it was known how much pods may have is not acted on: it is made anew at once.
            let is_due = || began.elapsed() >= every || !self.is_bounded() && context.knows_bounds();
            while !stopped() && !is_due() {
                std::thread::sleep(LOOK);
            }
        }
        self.save();
    }

    fn save(&self) {
        if let Err(error) = write(&self.file, &self.kept()) {
            warn!(%error, file = %self.file.display(), "recommendations were not written for the next start");
        }
    }
}

/// With its age now.
fn aged(r: &v1::Recommendation, made_usec: u64, now_usec: u64) -> v1::Recommendation {
    let age_seconds = r.age_seconds + now_usec.saturating_sub(made_usec) / 1_000_000;
    v1::Recommendation { age_seconds, ..r.clone() }
}

fn write(path: &Path, kept: &StoredRecommendations) -> io::Result<()> {
    let recommendations = kept.all.values().cloned().collect();
    let body = v1::ListRecommendationsResponse { recommendations, ..Default::default() }.encode_to_vec();
    let mut bytes = Vec::with_capacity(HEADER + body.len());
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(kept.made_usec.to_le_bytes());
    bytes.extend(body);
    let crc = crc32c::crc32c(&bytes[16..]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    private::replace(path, &bytes, true)
}

fn read(path: &Path) -> io::Result<StoredRecommendations> {
    let bytes = private::read(path)?;
    let damaged = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let Some((header, body)) = bytes.split_first_chunk::<HEADER>() else {
        return Err(damaged("it is cut off"));
    };
    let u32_at = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    if header[..8] != MAGIC || u32_at(12) != crc32c::crc32c(&bytes[16..]) {
        return Err(damaged("it does not match its checksum"));
    }
    if u32_at(8) != VERSION {
        return Err(damaged("it is of another version"));
    }
    let message = v1::ListRecommendationsResponse::decode(body).map_err(|e| damaged(&e.to_string()))?;
    let made_usec = u64::from(u32_at(16)) | u64::from(u32_at(20)) << 32;
    Ok(StoredRecommendations::new(message.recommendations, made_usec))
}

#[cfg(test)]
mod tests {
    use evenkeel_rightsizing::history::History;
    use evenkeel_rightsizing::rule::{Answer, Question, Rule};

    use super::*;
    use crate::config::Config;
    use crate::recommend::advice::Advisor;
    use crate::recommend::rules;
    use evenkeel_store::key::Image;
    use evenkeel_store::state::history::HistoryBounds;
    use evenkeel_store::state::{Limits, StoreState};

    fn recommendation(workload: &str, request: u64) -> v1::Recommendation {
        v1::Recommendation {
            namespace: "n".into(),
            workload: workload.into(),
            container: "c".into(),
            resource: "cpu".into(),
            request: Some(request),
            image: "docker.io/library/web:1".into(),
            ..v1::Recommendation::default()
        }
    }

    #[test]
    fn what_a_rule_said_in_the_run_before_is_its_own_whatever_capped_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("recommendations");
        let chosen = |name: &str, over: Option<f64>| {
            let goals = evenkeel_rightsizing::policy::Goals { cpu_over: over, ..Default::default() };
            rules::choose(name, &Default::default(), &goals, &Default::default()).unwrap()
        };
        let goal = chosen("goal", None);
        let cpu = v1::Recommendation {
            cluster: "c".into(),
            raw: Some(260),
            tier: "own".into(),
            rule: "goal".into(),
            rule_crc32c: goal.checksum(),
            ..recommendation("web", 100)
        };
        let memory = v1::Recommendation {
            resource: "memory".into(),
            raw: Some(1 << 20),
            tier: predefined::TIER.into(),
            ..cpu.clone()
        };
        Stored::write_for_tests(&file, vec![cpu, memory], 1);
        let kept = Stored::open(file).kept();
        let asked = |cluster: Option<&str>, workload: &str| AdviceSubject {
            cluster: cluster.map(str::to_owned),
            namespace: "n".into(),
            workload: workload.into(),
            container: "c".into(),
            command: Some(2),
            image: Image::parse("web:2"),
        };
        let table = [
            ("after a roll-out", Some("c"), "web", &goal, [Some(260), None]),
            ("another rule", Some("c"), "web", &chosen("vpa", None), [None; 2]),
            ("other parameters", Some("c"), "web", &chosen("goal", Some(0.05)), [None; 2]),
            ("another workload", Some("c"), "db", &goal, [None; 2]),
            ("another cluster", Some("d"), "web", &goal, [None; 2]),
            ("all clusters", None, "web", &goal, [None; 2]),
        ];
        for (what, cluster, workload, rule, want) in table {
            assert_eq!(kept.said(&asked(cluster, workload), rule), want, "{what}");
        }
    }

    /// A rule that keeps to what it said, whatever was seen.
    struct Firm;

    impl Rule for Firm {
        fn name(&self) -> &'static str {
            "firm"
        }

        fn recommend(&self, question: &Question, _: &dyn History) -> Answer {
            Answer { request: question.previous, tier: "own".into(), ..Answer::none() }
        }
    }

    #[test]
    fn a_rule_goes_on_after_a_restart_with_what_it_said_before() {
        let dir = tempfile::tempdir().unwrap();
        let (file, firm) = (dir.path().join("recommendations"), Chosen::new(Firm, &(), ""));
        let said = v1::Recommendation {
            cluster: "c".into(),
            raw: Some(260),
            rule_crc32c: firm.checksum(),
            ..recommendation("web", 100)
        };
        Stored::write_for_tests(&file, vec![said], 1);
        let before = Stored::open(file).kept();
        let history = HistoryBounds { retention_minutes: 1, series: 1, of_node: 1 };
        let state = StoreState::new(Limits {
            history,
            epochs: 1,
            containers: 1,
            per_node: 1,
            names_per_minute: 1,
            kills_per_hour: 500,
            gone_minutes: 1,
            events: 1,
            subjects: 1,
            start_usec: 0,
        });
        let asked = AdviceSubject {
            cluster: Some("c".into()),
            namespace: "n".into(),
            workload: "web".into(),
            container: "c".into(),
            ..AdviceSubject::default()
        };
        let advisor = Advisor::new(&Config::default().recommend).unwrap();
        let raw = advisor.raw(&state, &before, 0, &asked, &firm, [None; 2]);
        assert_eq!(raw.answers.each_ref().map(|answer| answer.request), [Some(260), None]);
    }

    #[test]
    fn what_is_like_a_container_is_its_own_of_any_cluster_or_what_rests_on_most() {
        let of = |cluster: &str, workload: &str, request: Option<u64>, samples: u64| v1::Recommendation {
            cluster: cluster.into(),
            request,
            samples,
            span_seconds: samples * 60,
            ..recommendation(workload, 0)
        };
        let kept = StoredRecommendations::of([
            of("a", "web", None, 90),
            of("b", "web", Some(1), 10),
            of("b", "x", Some(2), 20),
            of("c", "w", Some(3), 20),
        ]);
        let like = |workload: &str, image: &str, resource| {
            let asked = AdviceSubject {
                namespace: "n".into(),
                workload: workload.into(),
                container: "c".into(),
                image: Image::parse(image),
                ..AdviceSubject::default()
            };
            kept.like(&asked, resource).map(|(r, is_others)| (r.request, is_others))
        };
        assert_eq!(like("web", "web:1", Resource::Cpu), Some((Some(1), false)));
        assert_eq!(like("new", "web:1", Resource::Cpu), Some((Some(2), true)));
        assert_eq!(like("new", "web:2", Resource::Cpu), None);
        assert_eq!(like("web", "web:1", Resource::Memory), None);
    }

    #[test]
    fn what_is_written_is_read_and_damage_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("recommendations");
        let all = [recommendation("a", 1), recommendation("b", 2)];
        write(&file, &StoredRecommendations::new(all, 5_000_000)).unwrap();
        let stored = Stored::open(file.clone());
        let seen: Vec<_> =
            stored.all("", 65_000_000).iter().map(|r| (r.workload.clone(), r.age_seconds)).collect();
        assert_eq!(seen, [("a".to_owned(), 60), ("b".to_owned(), 60)]);
        let asked = |workload: &str, image: &str| AdviceSubject {
            namespace: "n".into(),
            workload: workload.into(),
            container: "c".into(),
            image: Image::parse(image),
            ..AdviceSubject::default()
        };
        let like = |asked: &AdviceSubject| stored.like(asked, Resource::Cpu, 0).and_then(|r| r.request);
        assert_eq!(like(&asked("b", "other")), Some(2));
        assert_eq!(like(&asked("new", "web:1")), Some(1));
        assert_eq!(like(&asked("new", "other")), None);
        assert_eq!(stored.like(&asked("b", "web:1"), Resource::Memory, 0), None);
        let good = std::fs::read(&file).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            std::fs::write(&file, &bad).unwrap();
            assert!(read(&file).is_err(), "byte {at}");
            std::fs::write(&file, &good[..at]).unwrap();
            assert!(read(&file).is_err(), "length {at}");
        }
    }
}
