//! What parts find, on both sides of the border: how it is sent, and how much of it is taken.
//!
//! Owned here: what the runtime's part and the reader have in common. Not owned: what is believed of it ([`super::followed`], [`super::units`]).

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use anyhow::Context as _;
use evenkeel_border::coded::Coded as _;
use evenkeel_border::found::{Found, Problem};
use evenkeel_border::link::Channel;
use evenkeel_enforce::shared::{SourceProblem, SourceUpdate, UpdateSender};
use tokio::sync::mpsc;

/// Containers and problems of one source at most.
pub(super) const MOST: usize = 10_000;
/// Longest text of a problem.
pub(super) const MOST_TEXT: usize = 4 << 10;
/// Where the converge thread is behind, it is tried again after this.
const BEHIND: Duration = Duration::from_millis(50);

/// What sources send, from a thread that waits for it: they are the same where they send to the converge thread.
pub(super) fn heard(updates: Receiver<SourceUpdate>) -> anyhow::Result<mpsc::Receiver<SourceUpdate>> {
    let (sender, receiver) = mpsc::channel(1);
    let hearing = move || {
        while let Ok(update) = updates.recv() {
            if sender.blocking_send(update).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("found".to_owned()).spawn(hearing).context("cannot start a thread")?;
    Ok(receiver)
}

/// Sends what was found; `None` is what comes after the last.
pub(super) async fn tell(channel: &Channel, update: Option<SourceUpdate>) -> anyhow::Result<()> {
    let SourceUpdate { source, address, workloads, problems, healthy } =
        update.context("the sources ended")?;
    let found = Found {
        source,
        address,
        workloads: workloads.into_iter().map(Arc::unwrap_or_clone).collect(),
        problems: problems.into_iter().map(crossing).collect(),
        healthy,
    };
    Ok(channel.send(&found.message()).await?)
}

/// Whether it is no more than one source finds.
pub(super) fn is_bounded(found: &Found) -> bool {
    found.workloads.len() <= MOST && found.problems.len() <= MOST
}

/// Hands on what was taken in; where the converge thread is behind, the part waits with what it finds next.
pub(super) async fn hand_on(updates: &UpdateSender, mut update: SourceUpdate) {
    while let Err(back) = updates.send(update) {
        tokio::time::sleep(BEHIND).await;
        update = back;
    }
}

/// A problem as it crosses the border.
pub(super) fn crossing(SourceProblem { what, where_, why, remedy }: SourceProblem) -> Problem {
    Problem { what, where_, why, remedy }
}

/// A problem that crossed it, no longer than it may be.
pub(crate) fn problem(Problem { what, where_, why, remedy }: Problem) -> SourceProblem {
    let cut = |text: String| text.chars().take(MOST_TEXT).collect();
    SourceProblem { what: cut(what), where_: cut(where_), why: cut(why), remedy: cut(remedy) }
}
