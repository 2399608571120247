//! What the API server said: each answer holds for a while, and a good one longer where the server is silent.
//!
//! One question is asked once at a time, however many wait for its answer. Good answers and refusals have rooms of their own, so that
//! whoever makes up tokens pushes out refusals alone.

use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use evenkeel_kubernetes::Silence;

use crate::identity::recent::Recent;

/// Good answers kept: a token of each agent that `ingest.max_streams` allows by default, and of people.
const GOOD: usize = 16_384;
/// Refusals kept.
const BAD: usize = 1_024;
/// How long a refusal holds at most.
const BAD_HOLDS: Duration = Duration::from_secs(10);
/// A silent server is not asked the same again before.
const AGAIN: Duration = Duration::from_secs(5);

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ApiAnswer<V> {
    /// What was found.
    Yes(V),
    /// Why not, for people.
    No(String),
}

/// Answers by question.
#[derive(Debug)]
pub(super) struct AnswerCache<K, V> {
    hold: Duration,
    good: Mutex<Recent<K, Good<V>>>,
    bad: Mutex<Recent<K, (Instant, String)>>,
    turns: Mutex<HashMap<K, Arc<tokio::sync::Mutex<()>>>>,
}

#[derive(Debug)]
struct Good<V> {
    value: V,
    at: Instant,
    /// The server was silent: the value holds at least until then.
    silent_until: Option<Instant>,
}

impl<K: Clone + Eq + Hash, V: Clone> AnswerCache<K, V> {
    /// Each of which holds so long.
    pub(super) fn new(hold: Duration) -> Self {
        Self {
            hold,
            good: Mutex::new(Recent::new(GOOD)),
            bad: Mutex::new(Recent::new(BAD)),
            turns: Mutex::default(),
        }
    }

    /// The answer to a question: a known one that holds, else what is asked for. Where that is silence, the last good
    /// answer as long as `still` says so.
    ///
    /// # Errors
    /// When there is neither.
    pub(super) async fn get(
        &self,
        key: &K,
        still: impl Fn(&V) -> bool + Send,
        ask: impl Future<Output = Result<ApiAnswer<V>, Silence>> + Send,
    ) -> Result<ApiAnswer<V>, Silence> {
        if let Some(said) = self.known(key, self.hold, &still) {
            return Ok(said);
        }
        let turn = Turn::of(self, key);
        let _mine = turn.lock.lock().await;
        // Whoever was before may have asked the same.
        if let Some(said) = self.known(key, self.hold, &still) {
            return Ok(said);
        }
        match ask.await {
            Ok(said) => {
                self.keep(key, &said);
                Ok(said)
            }
            Err(silence) => self.last(key, still).map(ApiAnswer::Yes).ok_or(silence),
        }
    }

    /// Whether there was a good answer, however long ago.
    pub(super) fn was_good(&self, key: &K) -> bool {
        lock(&self.good).get(key).is_some()
    }

    /// A known answer, if it is at most so old. A refusal that is no older counts before a good answer.
    pub(super) fn known(&self, key: &K, hold: Duration, still: impl Fn(&V) -> bool) -> Option<ApiAnswer<V>> {
        let now = Instant::now();
        let bad = lock(&self.bad);
        let refused = bad.get(key).filter(|(at, _)| now.duration_since(*at) < BAD_HOLDS.min(hold));
        if let Some((_, why)) = refused {
            return Some(ApiAnswer::No(why.clone()));
        }
        drop(bad);
        let mut good = lock(&self.good);
        let found = good.seen(key, now)?;
        let is_held = found.silent_until.is_some_and(|until| now < until) && still(&found.value);
        let fresh = now.duration_since(found.at) < hold || is_held;
        fresh.then(|| ApiAnswer::Yes(found.value.clone()))
    }

    fn keep(&self, key: &K, said: &ApiAnswer<V>) {
        let now = Instant::now();
        match said {
            ApiAnswer::Yes(value) => {
                let good = Good { value: value.clone(), at: now, silent_until: None };
                lock(&self.good).put(key, now, good);
                lock(&self.bad).remove(key);
            }
            ApiAnswer::No(why) => {
                lock(&self.good).remove(key);
                lock(&self.bad).put(key, now, (now, why.clone()));
            }
        }
    }

    /// The last good answer, which then holds a little longer.
    fn last(&self, key: &K, still: impl Fn(&V) -> bool) -> Option<V> {
        let now = Instant::now();
        let mut good = lock(&self.good);
        let found = good.seen(key, now).filter(|found| still(&found.value))?;
        found.silent_until = Some(now + AGAIN);
        Some(found.value.clone())
    }

    /// How many good answers and refusals are kept.
    #[cfg(test)]
    fn len(&self) -> (usize, usize) {
        (lock(&self.good).len(), lock(&self.bad).len())
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The turn to ask a question; forgotten with the last who waits for it.
struct Turn<'a, K: Eq + Hash, V> {
    answers: &'a AnswerCache<K, V>,
    key: K,
    lock: Arc<tokio::sync::Mutex<()>>,
}

impl<'a, K: Clone + Eq + Hash, V> Turn<'a, K, V> {
    fn of(answers: &'a AnswerCache<K, V>, key: &K) -> Self {
        let lock = Arc::clone(lock(&answers.turns).entry(key.clone()).or_default());
        Self { answers, key: key.clone(), lock }
    }
}

impl<K: Eq + Hash, V> Drop for Turn<'_, K, V> {
    fn drop(&mut self) {
        let mut turns = lock(&self.answers.turns);
        // The map's and this one.
        if Arc::strong_count(&self.lock) <= 2 {
            turns.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn silence() -> Silence {
        Silence { why: "asleep".into() }
    }

    #[tokio::test]
    async fn one_question_is_asked_once_for_all_who_wait() {
        let (answers, asked) = (AnswerCache::new(Duration::from_secs(60)), AtomicUsize::new(0));
        let ask = || async {
            answers
                .get(&1, |_| true, async {
                    asked.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                    Ok(ApiAnswer::Yes("anna"))
                })
                .await
        };
        let all = futures::future::join_all((0..50).map(|_| ask())).await;
        assert!(all.iter().all(|said| *said == Ok(ApiAnswer::Yes("anna"))));
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        assert!(lock(&answers.turns).is_empty());
    }

    #[tokio::test]
    async fn the_last_good_answer_outlives_silence_and_no_refusal() {
        let answers = AnswerCache::new(Duration::ZERO);
        let get = |said: Result<ApiAnswer<u8>, Silence>, still: bool| {
            let answers = &answers;
            async move { answers.get(&1, |_| still, async { said }).await }
        };
        assert_eq!(get(Err(silence()), true).await, Err(silence()), "nothing was ever known");
        assert_eq!(get(Ok(ApiAnswer::Yes(7)), true).await, Ok(ApiAnswer::Yes(7)));
        assert_eq!(get(Err(silence()), true).await, Ok(ApiAnswer::Yes(7)));
        assert_eq!(get(Err(silence()), false).await, Err(silence()), "its token has ended");
        // While it is silent, it is not asked each time.
        assert_eq!(get(Ok(ApiAnswer::No("gone".into())), true).await, Ok(ApiAnswer::Yes(7)));
        let answers = AnswerCache::new(Duration::ZERO);
        answers.keep(&1, &ApiAnswer::Yes(7));
        answers.keep(&1, &ApiAnswer::No("gone".into()));
        let said = answers.get(&1, |_| true, async { Err(silence()) }).await;
        assert_eq!(said, Err(silence()), "what was refused since is no good answer");
    }

    #[tokio::test]
    async fn refusals_are_bounded_and_push_out_no_good_answer() {
        let answers = AnswerCache::new(Duration::from_secs(60));
        answers.keep(&0, &ApiAnswer::Yes(()));
        for key in 1..=2 * BAD {
            answers.keep(&key, &ApiAnswer::No(String::new()));
        }
        assert_eq!(answers.len(), (1, BAD));
        for key in 0..=GOOD {
            answers.keep(&key, &ApiAnswer::Yes(()));
        }
        assert_eq!(answers.len().0, GOOD);
    }
}
