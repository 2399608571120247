//! The life of a part without rights: it is confined, takes orders over the border it was given, and ends with it.
//!
//! Owned here: what such parts have in common: showing that they live, and how an order ends. Not owned: what each does with an order.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use evenkeel_border::ask::Failure;
use evenkeel_border::coded::Coded as _;
use evenkeel_border::link::{Bounds, Channel, Link, Side};
use evenkeel_border::order::Order;
use evenkeel_enforce::node::GIVE_BACK;
use tonic::Status;

use super::activation::{Manager, border};
use super::confine::confine;
use super::{Given, Part, ignore_signals};
use crate::serve::answers::failure;

/// What a part does with orders of the enforcing one.
pub(super) trait Obeys: Send + Sync + 'static {
    /// Carries one out, and answers over the channel. Whether the part lives is asked before that.
    fn obey(
        &self,
        order: Order,
        descriptor: Option<OwnedFd>,
        link: &Link,
        channel: &Channel,
    ) -> impl Future<Output = anyhow::Result<()>> + Send;
}

/// Why an order is not carried out.
pub(super) fn not_ours() -> anyhow::Error {
    anyhow::anyhow!("this is for another part to do")
}

/// Lives until the enforcing part ends.
///
/// # Errors
/// When it has no border, or cannot be confined or begin.
pub(super) fn live(
    part: Part,
    given: &Given,
    bounds: Bounds,
    blocking: usize,
    obeys: impl Obeys,
) -> anyhow::Result<()> {
    // Afterwards it makes no socket of this machine any more.
    let (border, manager) = (border(given)?, Manager::find());
    confine(part, given)?;
    ignore_signals(given)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(blocking)
        .build()
        .context("cannot start the asynchronous runtime")?;
    let why = runtime.block_on(async move {
        let (link, mut orders) =
            Link::start(border, Side::Second, bounds).context("the border cannot be used")?;
        tokio::spawn(async {
            if let Some(manager) = manager {
                manager.told().await;
            }
        });
        tokio::spawn(stay_small());
        let obeys = Arc::new(obeys);
        while let Some(channel) = orders.recv().await {
            tokio::spawn(taken(Arc::clone(&obeys), link.clone(), channel));
        }
        anyhow::Ok(link.gone().await)
    })?;
    runtime.shutdown_timeout(Duration::from_millis(100));
    tracing::debug!(part = part.name(), why, "a part ends");
    Ok(())
}

/// Gives memory back as the enforcing part does.
async fn stay_small() {
    loop {
        tokio::time::sleep(GIVE_BACK).await;
        crate::allocator::give_back();
    }
}

async fn taken(obeys: Arc<impl Obeys>, link: Link, channel: Channel) {
    let Ok((message, descriptor)) = channel.receive_with().await else { return };
    let done = match Order::of(&message) {
        Ok(Order::Alive) => alive(&channel).await,
        Ok(order) => obeys.obey(order, descriptor, &link, &channel).await,
        Err(error) => Err(error.into()),
    };
    if let Err(error) = &done {
        tracing::debug!(error = format!("{error:#}"), "an order ended");
    }
    channel.end(done.map_err(|error| told(&error))).await;
}

/// Sends every message back.
async fn alive(channel: &Channel) -> anyhow::Result<()> {
    loop {
        let message = channel.receive().await?;
        channel.send(&message).await?;
    }
}

/// The end of an order in the border's words: a recommender's refusal as it is.
fn told(error: &anyhow::Error) -> Failure {
    match error.chain().find_map(|cause| cause.downcast_ref::<Status>()) {
        Some(status) => failure(status),
        None => failure(&Status::unavailable(format!("{error:#}"))),
    }
}
