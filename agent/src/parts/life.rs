//! The life of a part without rights: it is confined, takes orders over the border it was given, and ends with it.
//!
//! Owned here: what such parts have in common. Not owned: what each does with an order.

use std::time::Duration;

use anyhow::Context as _;
use evenkeel_border::link::{Bounds, Channel, Link, Side};
use evenkeel_enforce::node::GIVE_BACK;

use super::activation::{Manager, border};
use super::confine::confine;
use super::{Given, Part, ignore_signals};

/// Lives until the enforcing part ends; every channel that it opens is handed to `taken`.
///
/// # Errors
/// When it has no border, or cannot be confined or begin.
pub(super) fn live<T>(
    part: Part,
    given: &Given,
    (bounds, blocking): (Bounds, usize),
    taken: impl Fn(Link, Channel) -> T + Send + 'static,
) -> anyhow::Result<()>
where
    T: Future<Output = ()> + Send + 'static,
{
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
        while let Some(channel) = orders.recv().await {
            tokio::spawn(taken(link.clone(), channel));
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
