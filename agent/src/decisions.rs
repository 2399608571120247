//! The decision log with its ways out of enforcement: live watchers, and what must arrive at the recommender.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use evenkeel_enforce::decisions::{DecisionLog, History, KeepsDecisions, Tell};
use evenkeel_log::LogError;
use evenkeel_model::decision::Decision;
use tokio::sync::broadcast;

use crate::report::kept::Kept;

/// Decisions a slow watcher may lag behind before it is told how many it missed.
const WATCH_CAP: usize = 256;

/// The decision log; what is recorded there is told here.
pub(crate) struct Decisions {
    log: Arc<DecisionLog>,
    live: broadcast::Sender<Arc<Decision>>,
    /// What must arrive, where somebody takes decisions for a stream.
    kept: Option<Arc<Kept>>,
}

impl Decisions {
    /// A log kept in `dir`; `kept` as in [`DecisionLog::open`].
    ///
    /// # Errors
    /// When the directory cannot be used or another agent has it open.
    pub(crate) fn open(dir: &Path, kept: Option<Kept>) -> Result<Self, LogError> {
        Self::with(kept, |keeps, tell| DecisionLog::open(dir, keeps, tell))
    }

    /// A log in memory alone, for a run that may not keep state.
    pub(crate) fn in_memory(kept: Option<Kept>) -> Self {
        let made = Self::with::<std::convert::Infallible>(kept, |keeps, tell| {
            Ok(DecisionLog::in_memory(keeps, tell))
        });
        match made {
            Ok(made) => made,
        }
    }

    fn with<E>(
        kept: Option<Kept>,
        make: impl FnOnce(Option<Arc<dyn KeepsDecisions>>, Tell) -> Result<DecisionLog, E>,
    ) -> Result<Self, E> {
        let kept = kept.map(Arc::new);
        let keeps = kept.clone().map(|kept| kept as Arc<dyn KeepsDecisions>);
        let live = broadcast::Sender::new(WATCH_CAP);
        let sender = live.clone();
        // Without watchers there is nobody to send to.
        let log = make(keeps, Box::new(move |decision| drop(sender.send(Arc::clone(decision)))))?;
        Ok(Self { log: Arc::new(log), live, kept })
    }

    /// The log itself, for enforcement.
    pub(crate) fn log(&self) -> Arc<DecisionLog> {
        Arc::clone(&self.log)
    }

    /// Everything from number `from` on, and the live decisions after it.
    pub(crate) fn watch(&self, from: u64) -> (History, broadcast::Receiver<Arc<Decision>>) {
        self.log.watch(from, || self.live.subscribe())
    }

    /// What must arrive; `None` where nobody streams.
    pub(crate) fn kept(&self) -> Option<&Kept> {
        self.kept.as_deref()
    }
}

impl Deref for Decisions {
    type Target = DecisionLog;

    fn deref(&self) -> &DecisionLog {
        &self.log
    }
}
