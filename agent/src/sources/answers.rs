//! What a runtime or engine answered about single containers and sandboxes, asked side by side.
//!
//! Owned here: who is asked again and when, how many questions are open at one time, and what is kept while a question
//! has no answer. A container whose question fails or hangs keeps its last details; nobody waits for it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use evenkeel_enforce::shared::SourceProblem;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;

use crate::shared::Rescan;

/// Asking a known container again: its resources may have been updated in place, which no event tells.
const STATUS_PERIOD: Duration = Duration::from_secs(60);
/// First and longest wait before a question that failed is asked again.
const AGAIN: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));
/// A container that was rewritten is asked about until so long after it was seen: a runtime that resizes in place writes
/// the cgroup first and its own record afterwards.
const RESIZING: Duration = Duration::from_millis(400);
/// Questions open at one time. Those that hang stay open for ten seconds, so that many of them slow down the others
/// and do not stop them.
const OPEN_AT_ONCE: usize = 32;

/// Why one container or sandbox could not be asked about; the others go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DetailsError {
    /// It ended between two calls.
    Gone,
    /// The call failed, in the runtime's words.
    Failed(String),
    /// The answer is of no use.
    Strange(SourceProblem),
}

/// A question on its way.
pub(super) type Question<D> = BoxFuture<'static, Result<D, DetailsError>>;

/// All answers of one runtime, each of which gives details `D`.
pub(super) struct RuntimeAnswers<D> {
    known: HashMap<String, KnownDetails<D>>,
    open: FuturesUnordered<BoxFuture<'static, (String, Result<D, DetailsError>)>>,
    /// Somebody was not asked about for want of room.
    is_short: bool,
}

struct KnownDetails<D> {
    asked: Instant,
    is_open: bool,
    failures: u32,
    details: Option<D>,
    problem: Option<SourceProblem>,
}

impl<D> Default for RuntimeAnswers<D> {
    fn default() -> Self {
        Self { known: HashMap::new(), open: FuturesUnordered::new(), is_short: false }
    }
}

impl<D: 'static> RuntimeAnswers<D> {
    /// Forgets everybody who is not listed any more.
    pub(super) fn keep(&mut self, is_listed: impl Fn(&str) -> bool) {
        self.known.retain(|id, _| is_listed(id));
    }

    /// Questions to a connection that has ended are not answered.
    pub(super) fn drop_open(&mut self) {
        self.open.clear();
        for known in self.known.values_mut() {
            known.is_open = false;
        }
    }

    /// Asks about one container or sandbox if it is due and there is room.
    pub(super) fn ask(
        &mut self,
        id: &str,
        rescan: &Rescan,
        now: Instant,
        question: impl FnOnce() -> Question<D>,
    ) {
        let known = self.known.get(id);
        let is_due = known.is_none_or(|known| {
            let since = known.asked.checked_sub(RESIZING).unwrap_or(known.asked);
            let is_old = now.duration_since(known.asked) >= known.again();
            !known.is_open && (is_old || rescan.asked_since(id, since))
        });
        let is_full = self.open.len() >= OPEN_AT_ONCE;
        self.is_short |= is_due && is_full;
        if !is_due || is_full {
            return;
        }
        let known = self.known.entry(id.to_owned()).or_insert_with(|| KnownDetails {
            asked: now,
            is_open: true,
            failures: 0,
            details: None,
            problem: None,
        });
        (known.asked, known.is_open) = (now, true);
        let (question, id) = (question(), id.to_owned());
        self.open.push(Box::pin(async move { (id, question.await) }));
    }

    /// Whether somebody was not asked about for want of room since this was last asked.
    pub(super) fn take_short(&mut self) -> bool {
        std::mem::take(&mut self.is_short)
    }

    /// Waits for the next answer and takes it in; never ends while no question is open.
    pub(super) async fn next(&mut self) {
        let Some((id, answer)) = self.open.next().await else { return std::future::pending().await };
        // No longer listed when it is not known.
        if let Some(known) = self.known.get_mut(&id) {
            known.take(&id, answer);
        }
    }

    /// True while somebody about whom nothing is known yet is being asked about, or waits for room.
    pub(super) fn has_news_open<'a>(&self, mut listed: impl Iterator<Item = &'a str>) -> bool {
        listed.any(|id| self.known.get(id).is_none_or(|known| known.is_open && known.details.is_none()))
    }

    /// What is known of one container or sandbox, and what is wrong with it.
    pub(super) fn of(&self, id: &str) -> (Option<&D>, Option<&SourceProblem>) {
        self.known.get(id).map_or((None, None), |known| (known.details.as_ref(), known.problem.as_ref()))
    }
}

impl<D> KnownDetails<D> {
    fn again(&self) -> Duration {
        match self.failures {
            0 => STATUS_PERIOD,
            failures => (AGAIN.0 * 2_u32.saturating_pow(failures - 1)).min(AGAIN.1),
        }
    }

    fn take(&mut self, id: &str, answer: Result<D, DetailsError>) {
        self.is_open = false;
        let why = match answer {
            Ok(details) => {
                self.details = Some(details);
                self.problem = None;
                self.failures = 0;
                return;
            }
            // The next listing will not have it; what it was stays until then.
            Err(DetailsError::Gone) => "it ended meanwhile".to_owned(),
            Err(DetailsError::Failed(why)) => why,
            Err(DetailsError::Strange(problem)) => {
                self.failures = self.failures.saturating_add(1);
                self.problem = Some(problem);
                return;
            }
        };
        self.failures = self.failures.saturating_add(1);
        let keeps =
            if self.details.is_some() { "what it said before stays in force" } else { "it is left alone" };
        self.problem = Some(SourceProblem {
            what: "read the runtime's record".into(),
            where_: format!("container {id}"),
            why,
            remedy: format!("{keeps}, and it is asked again; the runtime's log may say more"),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(asked: Instant) -> KnownDetails<&'static str> {
        KnownDetails { asked, is_open: true, failures: 0, details: None, problem: None }
    }

    #[test]
    fn whoever_cannot_be_asked_about_keeps_its_last_details() {
        let mut known = known(Instant::now());
        known.take("c1", Ok("/a"));
        for answer in [
            DetailsError::Gone,
            DetailsError::Failed("ContainerStatus failed: Unknown: shim is dead".into()),
            DetailsError::Failed(
                "ContainerStatus failed: DeadlineExceeded: context deadline exceeded".into(),
            ),
        ] {
            known.take("c1", Err(answer));
            let problem = known.problem.clone().unwrap();
            assert_eq!((known.details, problem.where_.as_str()), (Some("/a"), "container c1"));
            assert!(problem.remedy.contains("stays in force"));
        }
        known.take("c1", Ok("/b"));
        assert_eq!((known.details, known.problem, known.failures), (Some("/b"), None, 0));
    }

    #[test]
    fn what_fails_is_asked_again_with_growing_pauses() {
        let mut known = known(Instant::now());
        let pauses: Vec<u64> = (0..7)
            .map(|_| {
                known.take("c1", Err(DetailsError::Failed("no".into())));
                known.again().as_secs()
            })
            .collect();
        assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60]);
    }
}
