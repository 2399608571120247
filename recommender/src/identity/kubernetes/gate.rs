//! How much the API server is asked: strangers cannot have this program flood it.

use std::future::Future;
use std::time::{Duration, Instant};

use evenkeel_kubernetes::Silence;
use tokio::sync::Semaphore;

use crate::identity::rate::Rates;

/// Questions that are on their way at once.
const AT_ONCE: usize = 16;
/// Questions that wait for one of these places; one more is not asked.
const WAITING: usize = 512;
/// Questions a second for one address that shows tokens nobody knew, or for one user, in bursts of ten seconds' worth.
const OF_ONE: u32 = 20;
/// The same of all callers.
const OF_ALL: u32 = 50;
/// Of what was answered well before, and of renewals: 16,384 good answers, each asked again in a minute, are 273 a second.
const OF_KNOWN: u32 = 500;

/// The way to the API server.
#[derive(Debug)]
pub(super) struct ApiServerGate {
    waiting: Semaphore,
    asking: Semaphore,
    of_one: Rates,
    of_all: Rates,
    patience: Duration,
}

impl ApiServerGate {
    /// Where a place is waited for as long as an answer.
    pub(super) fn new(patience: Duration) -> Self {
        Self::with(OF_ALL, patience)
    }

    /// For what the API server answered well before, which strangers can neither use up nor bring about.
    pub(super) fn of_known(patience: Duration) -> Self {
        Self::with(OF_KNOWN, patience)
    }

    fn with(of_all: u32, patience: Duration) -> Self {
        Self {
            waiting: Semaphore::new(WAITING),
            asking: Semaphore::new(AT_ONCE),
            of_one: Rates::new(OF_ONE),
            of_all: Rates::new(of_all),
            patience,
        }
    }

    /// Asks, where there is room for one more question. `of` is whom it is asked for.
    ///
    /// # Errors
    /// When there is no room, or no answer.
    pub(super) async fn pass<T>(
        &self,
        of: Option<&str>,
        question: impl Future<Output = Result<T, Silence>>,
    ) -> Result<T, Silence> {
        let busy = |why: &str| Silence { why: why.to_owned() };
        let now = Instant::now();
        if let Some(caller) = of {
            let taken = self.of_one.take(caller, 0, now);
            taken.map_err(|_| busy("this caller had it asked too often"))?;
        }
        self.of_all.take("", 0, now).map_err(|_| busy("it is asked as often as it may be"))?;
        let _waiting = self.waiting.try_acquire().map_err(|_| busy("too many questions wait for it"))?;
        let place = tokio::time::timeout(self.patience, self.asking.acquire()).await;
        let _place =
            place.ok().and_then(Result::ok).ok_or_else(|| busy("the questions before got no answer"))?;
        question.await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn an_address_with_made_up_tokens_is_asked_about_a_bounded_number_of_times() {
        let (gate, asked) = (ApiServerGate::new(Duration::from_secs(1)), AtomicUsize::new(0));
        let question = || async {
            asked.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        for _ in 0..10_000 {
            let _busy = gate.pass(Some("address 10.0.0.1"), question()).await;
        }
        let of_one = asked.load(Ordering::Relaxed);
        assert!((200..400).contains(&of_one), "{of_one}");
        assert!(gate.pass(Some("address 10.0.0.2"), question()).await.is_ok(), "others are heard");
        for other in 3..100 {
            for _ in 0..100 {
                let _busy = gate.pass(Some(&format!("address 10.0.0.{other}")), question()).await;
            }
        }
        let of_all = asked.load(Ordering::Relaxed);
        assert!((500..1000).contains(&of_all), "{of_all}");
    }
}
