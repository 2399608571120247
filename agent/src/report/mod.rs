//! The report thread: frames, spool, live use; and the stream client.

use std::sync::Arc;
use std::thread::JoinHandle;

use crate::decisions::DecisionLog;
use crate::sample::Ticks;
use crate::shared::{Context, Heartbeat, LiveBus};

/// Starts the report thread and, on `runtime`, the stream client.
///
/// # Errors
/// When the thread cannot be made or the spool cannot be opened.
pub(crate) fn start(
    context: &Arc<Context>,
    ticks: Ticks,
    decisions: &Arc<DecisionLog>,
    live: LiveBus,
    heartbeat: Arc<Heartbeat>,
    runtime: &tokio::runtime::Handle,
) -> anyhow::Result<JoinHandle<()>> {
    let _ = (context, ticks, decisions, live, heartbeat, runtime);
    anyhow::bail!("not built")
}
