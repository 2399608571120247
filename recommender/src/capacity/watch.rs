//! Owns questions asked again and again: when each is due, what its answers were, and how they change.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{info, warn};

use super::kept::{AnswerHistory, Point, Trend, trend};
use super::read::{self, CapacityRequest};
use super::{EstimateError, estimate};
use crate::api::Context;
use crate::config::{CapacitySection, WatchSection};
use crate::serve::ended;

/// A pod's file is never larger.
const POD_BYTES: u64 = 2 << 20;

/// The answers so far, and what went wrong last; shared by the loop and the interfaces.
#[derive(Debug, Clone)]
pub(crate) struct Watched(Arc<Mutex<WatchedAnswers>>);

#[derive(Debug)]
struct WatchedAnswers {
    kept: AnswerHistory,
    trouble: BTreeMap<String, MissingAnswer>,
    path: PathBuf,
}

/// One question with what is known of it.
pub(crate) struct WatchedQuestion {
    /// Name.
    pub(crate) question: String,
    /// Time between two answers, seconds.
    pub(crate) interval_seconds: u64,
    /// Answers, oldest first.
    pub(crate) points: Vec<Point>,
    /// How they change; nothing with too few.
    pub(crate) trend: Option<Trend>,
    /// Why there was no answer last.
    pub(crate) trouble: Option<MissingAnswer>,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MissingAnswer {
    /// It would be of a part of the cluster, or of another time: asked again within a second.
    Waiting(String),
    /// The attempt failed.
    Failed(String),
}

impl MissingAnswer {
    /// For people.
    pub(crate) fn why(&self) -> &str {
        match self {
            Self::Waiting(why) | Self::Failed(why) => why,
        }
    }
}

impl Watched {
    /// With what was kept before; a file that is damaged is set aside.
    ///
    /// # Errors
    /// When the system does not let the file be read.
    pub(crate) fn open(path: PathBuf) -> io::Result<Self> {
        let kept = match AnswerHistory::read(&path) {
            Ok(kept) => kept,
            Err(error) if error.raw_os_error().is_some() => return Err(error),
            Err(error) => {
                let aside = path.with_extension("damaged");
                warn!(path = %path.display(), %error, aside = %aside.display(), "the answers kept cannot be read; beginning anew");
                if let Err(error) = std::fs::rename(&path, &aside) {
                    warn!(%error, "they cannot be set aside either");
                }
                AnswerHistory::default()
            }
        };
        Ok(Self(Arc::new(Mutex::new(WatchedAnswers { kept, trouble: BTreeMap::new(), path }))))
    }

    fn inner(&self) -> MutexGuard<'_, WatchedAnswers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The configured questions.
    pub(crate) fn lines(&self, config: &CapacitySection) -> Vec<WatchedQuestion> {
        let inner = self.inner();
        let line = |watch: &WatchSection| {
            let points = inner.kept.series.get(&watch.name);
            WatchedQuestion {
                question: watch.name.clone(),
                interval_seconds: watch.interval.get().as_secs(),
                points: points.map(|points| points.iter().cloned().collect()).unwrap_or_default(),
                trend: points.and_then(|points| trend(points, config.trend_window.as_usec())),
                trouble: inner.trouble.get(&watch.name).cloned(),
            }
        };
        config.watch.iter().map(line).collect()
    }

    /// Takes an answer in and makes it durable; blocks on the disk.
    fn answered(&self, question: &str, answer: Result<Point, MissingAnswer>, most: usize) {
        let (kept, path) = {
            let mut inner = self.inner();
            match answer {
                Ok(point) => {
                    inner.trouble.remove(question);
                    inner.kept.add(question, point, most);
                }
                Err(why) => {
                    let before = inner.trouble.get(question);
                    match &why {
                        MissingAnswer::Failed(text) if before != Some(&why) => {
                            warn!(question, why = text, "a watched question was not answered");
                        }
                        MissingAnswer::Waiting(text)
                            if !matches!(before, Some(MissingAnswer::Waiting(_))) =>
                        {
                            info!(question, why = text, "a watched question is asked later");
                        }
                        _ => {}
                    }
                    inner.trouble.insert(question.to_owned(), why);
                    return;
                }
            }
            (inner.kept.clone(), inner.path.clone())
        };
        if let Err(error) = kept.write(&path) {
            warn!(path = %path.display(), %error, "the answers to watched questions were not kept");
        }
    }
}

/// Asks every question when it is due, until the process stops.
pub(crate) async fn run(context: Context, stopping: watch::Receiver<bool>) {
    let watches = context.config.now().capacity.watch.clone();
    if watches.is_empty() {
        return;
    }
    info!(questions = watches.len(), "asking watched questions");
    let mut due: Vec<Instant> = watches.iter().map(|_| Instant::now()).collect();
    loop {
        let Some(next) = (0..due.len()).min_by_key(|at| due[*at]) else { return };
        tokio::select! {
            () = sleep_until(due[next]) => {}
            () = ended(stopping.clone()) => return,
        }
        let watch = &watches[next];
        let answer = tokio::select! {
            answer = answer(&context, watch) => answer,
            () = ended(stopping.clone()) => return,
        };
        let waits = matches!(answer, Err(MissingAnswer::Waiting(_)));
        let watched = context.watched.clone();
        let (name, most) = (watch.name.clone(), context.config.now().capacity.points);
        // A fault there is told by the runtime; the next answer is kept again.
        let _kept = tokio::task::spawn_blocking(move || watched.answered(&name, answer, most)).await;
        // Answers that take longer than the interval do not pile up.
        let soon = Instant::now() + Duration::from_secs(1);
        due[next] = if waits { soon } else { (due[next] + watch.interval.get()).max(soon) };
    }
}

async fn answer(context: &Context, watch: &WatchSection) -> Result<Point, MissingAnswer> {
    if let Some(why) = not_yet(context) {
        return Err(MissingAnswer::Waiting(why));
    }
    ask(context, watch).await.map_err(MissingAnswer::Failed)
}

/// Why an answer now would not be one about the cluster: nodes known before have not connected again (after a start, or
/// because their agents were started), and are not gone yet; or the time of it is not known.
fn not_yet(context: &Context) -> Option<String> {
    /// Names told.
    const TOLD: usize = 3;
    let (health, most) = (context.engine.health(), context.config.now().ingest.gone_after.get());
    if health.clock_doubt().is_some() && health.clock_correction() == 0 {
        return health.clock_trouble();
    }
    let state = context.engine.state().read();
    let mut known = 0;
    let mut away = Vec::new();
    for (key, node) in state.nodes().filter(|(key, node)| state.current(key, node).is_some_and(|s| s.counts))
    {
        known += usize::from(node.facts.is_some());
        if node.facts.is_some() && health.away(key).is_some_and(|away| away < most) {
            away.push(key.node.as_str());
        }
    }
    let bound = format!("it is asked after {}s at the latest (ingest.gone_after)", most.as_secs());
    if known == 0 && health.uptime() < most {
        return Some(format!("no node has reported yet; {bound}"));
    }
    let (number, more) = (away.len(), if away.len() > TOLD { ", ..." } else { "" });
    away.truncate(TOLD);
    (number > 0).then(|| {
        format!("{number} of {known} known nodes are not connected ({}{more}); {bound}", away.join(", "))
    })
}

async fn ask(context: &Context, watch: &WatchSection) -> Result<Point, String> {
    let (asking, path) = (context.clone(), watch.pod.clone());
    let work = move |wanted: &super::pool::StillWanted| {
        let mut asked = CapacityRequest::default();
        asked.question.asks(pods(&path).map_err(EstimateError::Unreadable)?);
        estimate(&asking, asked, wanted)
    };
    let waiting = context.capacity.submit(work).map_err(|busy| busy.to_string())?;
    let answer = timeout(context.config.now().capacity.timeout.get(), waiting.answer()).await;
    let whole = answer
        .map_err(|_| "it took longer than capacity.timeout".to_owned())?
        .ok_or("a fault in the program; see the log")?
        .map_err(|error| error.to_string())?;
    Ok(Point {
        time_usec: context.engine.now_usec(),
        count: whole.answer.count,
        binding: whole.answer.binding,
    })
}

fn pods(path: &std::path::Path) -> Result<evenkeel_capacity::load::Manifest, String> {
    use std::io::Read as _;
    let at = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let file = std::fs::File::open(path).map_err(|error| at(&error))?;
    let mut text = String::new();
    file.take(POD_BYTES).read_to_string(&mut text).map_err(|error| at(&error))?;
    read::pods(&text).map_err(|why| at(&why))
}
