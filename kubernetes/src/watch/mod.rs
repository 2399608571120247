//! A cluster's objects followed as they change: each kind is listed in pages and watched from there, by a task of its own.
//!
//! Owned here: what is asked, how often, and what an answer means for the next question. Not owned: what is kept of the objects
//! ([`crate::ClusterView`]).

pub(crate) mod answer;
pub(crate) mod cut;
pub(crate) mod follow;
mod pace;
mod status;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;

pub use pace::Pace;
pub use status::{KindStatus, WatchCounts, WatchState};

use crate::connect::{ApiSource, ConnectError, client};
use crate::kinds::{ApiKind, BOUNDS, KINDS};
use crate::view::ClusterView;
use follow::Follower;
pub(crate) use follow::escaped;

/// What keeps the objects that arrive. Each takes an object as JSON, and says why it cannot be understood; what was known of it stays then.
pub(crate) trait Takes: fmt::Debug + Send + Sync {
    /// A list begins; its mark.
    fn begin(&self, kind: &'static ApiKind) -> u32;
    /// A list is whole: what was not in it is gone. How many objects there are.
    fn end(&self, kind: &'static ApiKind, mark: u32) -> usize;
    /// An object of a list.
    fn put(&self, kind: &'static ApiKind, json: &[u8], mark: u32) -> Result<(), String>;
    /// An object that is new or changed.
    fn put_now(&self, kind: &'static ApiKind, json: &[u8]) -> Result<(), String>;
    /// An object that is gone.
    fn remove(&self, kind: &'static ApiKind, json: &[u8]) -> Result<(), String>;
    /// How many objects of a kind there are.
    fn count(&self, kind: &'static ApiKind) -> usize;
}

impl Takes for ClusterView {
    fn begin(&self, kind: &'static ApiKind) -> u32 {
        Self::begin(self, kind)
    }
    fn end(&self, kind: &'static ApiKind, mark: u32) -> usize {
        Self::end(self, kind, mark)
    }
    fn put(&self, kind: &'static ApiKind, json: &[u8], mark: u32) -> Result<(), String> {
        Self::put(self, kind, json, mark)
    }
    fn put_now(&self, kind: &'static ApiKind, json: &[u8]) -> Result<(), String> {
        Self::put_now(self, kind, json)
    }
    fn remove(&self, kind: &'static ApiKind, json: &[u8]) -> Result<(), String> {
        Self::remove(self, kind, json)
    }
    fn count(&self, kind: &'static ApiKind) -> usize {
        Self::count(self, kind)
    }
}

/// Kinds that are followed, each by a task, until this is dropped.
#[derive(Debug)]
pub(crate) struct Followed {
    kinds: Vec<Arc<Mutex<KindStatus>>>,
    _tasks: JoinSet<()>,
}

impl Followed {
    /// Begins to follow kinds.
    ///
    /// # Errors
    /// As [`Watching::start`].
    pub(crate) async fn start(
        source: &ApiSource,
        pace: Pace,
        kinds: &'static [ApiKind],
        takes: Arc<dyn Takes>,
    ) -> Result<Self, ConnectError> {
        let connection = client(source, None).await?;
        let mut tasks = JoinSet::new();
        let follow = |kind| {
            let status = Arc::new(Mutex::new(KindStatus::new(kind)));
            let (source, takes) = (source.clone(), Arc::clone(&takes));
            let follower = Follower { source, kind, takes, pace, status: Arc::clone(&status) };
            tasks.spawn(follower.run(connection.clone()));
            status
        };
        Ok(Self { kinds: kinds.iter().map(follow).collect(), _tasks: tasks })
    }

    /// How it stands with each kind.
    pub(crate) fn status(&self) -> Vec<KindStatus> {
        self.kinds
            .iter()
            .map(|status| status.lock().unwrap_or_else(PoisonError::into_inner).clone())
            .collect()
    }
}

/// A cluster that is being followed, until this is dropped.
#[derive(Debug)]
pub struct Watching {
    view: Arc<ClusterView>,
    followed: Followed,
}

impl Watching {
    /// Begins to follow all kinds.
    ///
    /// # Errors
    /// When it is not told where the API server is, or credentials cannot be used. An API server that does not answer is none.
    pub async fn start(source: &ApiSource, pace: Pace) -> Result<Self, ConnectError> {
        Self::of(source, pace, &KINDS).await
    }

    /// Begins to follow limit ranges and quotas alone.
    ///
    /// # Errors
    /// As [`Watching::start`].
    pub async fn bounds(source: &ApiSource, pace: Pace) -> Result<Self, ConnectError> {
        Self::of(source, pace, &BOUNDS).await
    }

    async fn of(source: &ApiSource, pace: Pace, kinds: &'static [ApiKind]) -> Result<Self, ConnectError> {
        let view = Arc::new(ClusterView::default());
        let takes: Arc<dyn Takes> = Arc::<ClusterView>::clone(&view);
        let followed = Followed::start(source, pace, kinds, takes).await?;
        Ok(Self { view, followed })
    }

    /// What is known.
    #[must_use]
    pub fn view(&self) -> &Arc<ClusterView> {
        &self.view
    }

    /// Whether what is known of a kind is up to date: changes arrive, and something was heard no longer ago than this.
    #[must_use]
    pub fn is_current(&self, kind: &str, within: Duration) -> bool {
        self.followed.kinds.iter().any(|status| {
            let status = status.lock().unwrap_or_else(PoisonError::into_inner);
            let is_heard = status.heard_ago().is_some_and(|ago| ago <= within);
            status.kind.name == kind && status.state == WatchState::Watching && is_heard
        })
    }

    /// How it stands with each kind.
    #[must_use]
    pub fn status(&self) -> Vec<KindStatus> {
        self.followed.status()
    }
}
