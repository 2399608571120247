//! The life of a part without rights: it is confined, takes orders over the border it was given, and ends with it.
//!
//! Owned here: what such parts have in common. Not owned: what each does with an order.

use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;

use anyhow::Context as _;
use evenkeel_border::link::{Bounds, Channel, Link, Side};

use super::confine::confine;
use super::{Given, Part, ignore_signals};

/// Lives until the enforcing part ends; every channel that it opens is handed to `taken`.
///
/// # Errors
/// When it was not started by a starter, or cannot be confined or begin.
pub(super) fn live<T>(
    part: Part,
    given: &Given,
    (bounds, blocking): (Bounds, usize),
    taken: impl Fn(Link, Channel) -> T + Send + 'static,
) -> anyhow::Result<()>
where
    T: Future<Output = ()> + Send + 'static,
{
    confine(part, given)?;
    ignore_signals()?;
    let border = io::stdin().as_fd().try_clone_to_owned().context("no border on standard input")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(blocking)
        .build()
        .context("cannot start the asynchronous runtime")?;
    let why = runtime.block_on(async move {
        let (link, mut orders) =
            Link::start(border, Side::Second, bounds).context("no border on standard input")?;
        while let Some(channel) = orders.recv().await {
            tokio::spawn(taken(link.clone(), channel));
        }
        anyhow::Ok(link.gone().await)
    })?;
    runtime.shutdown_timeout(Duration::from_millis(100));
    tracing::debug!(part = part.name(), why, "a part ends");
    Ok(())
}
