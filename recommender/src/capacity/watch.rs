//! Owns questions asked again and again: when each is due, what its answers were, and how they change.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use evenkeel_capacity::question::Question;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{info, warn};

use super::kept::{Kept, Point, Trend, trend};
use super::read::{self, Asked};
use super::{EstimateError, estimate};
use crate::api::Context;
use crate::config::{CapacitySection, WatchSection};
use crate::ingest::engine::now_usec;
use crate::serve::ended;

/// A pod's file is never larger.
const POD_BYTES: u64 = 2 << 20;

/// The answers so far, and what went wrong last; shared by the loop and the interfaces.
#[derive(Debug, Clone)]
pub(crate) struct Watched(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    kept: Kept,
    trouble: BTreeMap<String, String>,
    path: PathBuf,
}

/// One question with what is known of it.
pub(crate) struct Line {
    /// Name.
    pub(crate) question: String,
    /// Time between two answers, seconds.
    pub(crate) interval_seconds: u64,
    /// Answers, oldest first.
    pub(crate) points: Vec<Point>,
    /// How they change; nothing with too few.
    pub(crate) trend: Option<Trend>,
    /// Why the last attempt failed.
    pub(crate) trouble: Option<String>,
}

impl Watched {
    /// With what was kept before; a file that cannot be used is set aside.
    pub(crate) fn open(path: PathBuf) -> Self {
        let kept = Kept::read(&path).unwrap_or_else(|error| {
            let aside = path.with_extension("damaged");
            warn!(path = %path.display(), %error, aside = %aside.display(), "the answers kept cannot be read; beginning anew");
            if let Err(error) = std::fs::rename(&path, &aside) {
                warn!(%error, "they cannot be set aside either");
            }
            Kept::default()
        });
        Self(Arc::new(Mutex::new(Inner { kept, trouble: BTreeMap::new(), path })))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The configured questions.
    pub(crate) fn lines(&self, config: &CapacitySection) -> Vec<Line> {
        let inner = self.inner();
        let line = |watch: &WatchSection| {
            let points = inner.kept.series.get(&watch.name);
            Line {
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
    fn answered(&self, question: &str, answer: Result<Point, String>, most: usize) {
        let (kept, path) = {
            let mut inner = self.inner();
            match answer {
                Ok(point) => {
                    inner.trouble.remove(question);
                    inner.kept.add(question, point, most);
                }
                Err(why) => {
                    if inner.trouble.get(question) != Some(&why) {
                        warn!(question, why, "a watched question was not answered");
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
    let watches = context.config.capacity.watch.clone();
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
            answer = ask(&context, watch) => answer,
            () = ended(stopping.clone()) => return,
        };
        let watched = context.watched.clone();
        let (name, most) = (watch.name.clone(), context.config.capacity.points);
        // A fault there is told by the runtime; the next answer is kept again.
        let _kept = tokio::task::spawn_blocking(move || watched.answered(&name, answer, most)).await;
        // Answers that take longer than the interval do not pile up.
        due[next] = (due[next] + watch.interval.get()).max(Instant::now() + Duration::from_secs(1));
    }
}

async fn ask(context: &Context, watch: &WatchSection) -> Result<Point, String> {
    let (asking, path) = (context.clone(), watch.pod.clone());
    let work = move |wanted: &super::pool::Wanted| {
        let shapes = pods(&path).map_err(EstimateError::Unreadable)?;
        let asked = Asked { question: Question { shapes, ..Question::default() }, ..Asked::default() };
        estimate(&asking, asked, wanted)
    };
    let waiting = context.capacity.submit(work).map_err(|busy| busy.to_string())?;
    let answer = timeout(context.config.capacity.timeout.get(), waiting.answer()).await;
    let whole = answer
        .map_err(|_| "it took longer than capacity.timeout".to_owned())?
        .ok_or("a fault in the program; see the log")?
        .map_err(|error| error.to_string())?;
    Ok(Point { time_usec: now_usec(), count: whole.answer.count, binding: whole.answer.binding })
}

fn pods(path: &std::path::Path) -> Result<Vec<evenkeel_capacity::answer::Shape>, String> {
    use std::io::Read as _;
    let at = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let file = std::fs::File::open(path).map_err(|error| at(&error))?;
    let mut text = String::new();
    file.take(POD_BYTES).read_to_string(&mut text).map_err(|error| at(&error))?;
    read::pods(&text).map_err(|why| at(&why))
}
