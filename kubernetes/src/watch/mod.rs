//! A cluster's objects followed as they change: each kind is listed in pages and watched from there, by a task of its own.
//!
//! Owned here: what is asked, how often, and what an answer means for the next question. Not owned: what is kept of the objects
//! ([`crate::View`]).

mod answer;
mod cut;
mod follow;
mod pace;
mod status;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;

pub use pace::Pace;
pub use status::{Counts, KindStatus, State};

use crate::connect::{ConnectError, Source, client};
use crate::kinds::KINDS;
use crate::view::View;
use follow::Follower;

/// A cluster that is being followed, until this is dropped.
#[derive(Debug)]
pub struct Watching {
    view: Arc<View>,
    kinds: Vec<Arc<Mutex<KindStatus>>>,
    _tasks: JoinSet<()>,
}

impl Watching {
    /// Begins to follow all kinds.
    ///
    /// # Errors
    /// When it is not told where the API server is, or credentials cannot be used. An API server that does not answer is none.
    pub async fn start(source: &Source, pace: Pace) -> Result<Self, ConnectError> {
        let connection = client(source, None).await?;
        let (view, mut tasks) = (Arc::new(View::default()), JoinSet::new());
        let follow = |kind| {
            let status = Arc::new(Mutex::new(KindStatus::new(kind)));
            let (source, view) = (source.clone(), Arc::clone(&view));
            let follower = Follower { source, kind, view, pace, status: Arc::clone(&status) };
            tasks.spawn(follower.run(connection.clone()));
            status
        };
        let kinds = KINDS.iter().map(follow).collect();
        Ok(Self { view, kinds, _tasks: tasks })
    }

    /// What is known.
    #[must_use]
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// Whether what is known of a kind is up to date: changes arrive, and something was heard no longer ago than this.
    #[must_use]
    pub fn is_current(&self, kind: &str, within: Duration) -> bool {
        self.kinds.iter().any(|status| {
            let status = status.lock().unwrap_or_else(PoisonError::into_inner);
            let is_heard = status.heard_ago().is_some_and(|ago| ago <= within);
            status.kind.name == kind && status.state == State::Watching && is_heard
        })
    }

    /// How it stands with each kind.
    #[must_use]
    pub fn status(&self) -> Vec<KindStatus> {
        self.kinds
            .iter()
            .map(|status| status.lock().unwrap_or_else(PoisonError::into_inner).clone())
            .collect()
    }
}
