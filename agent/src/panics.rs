//! Panics: each is a defect of the agent, told once where it happens and shown for as long as the agent runs.
//!
//! Owned here: the hook that counts and logs, what status shows, and starting an asynchronous task again. A thread that
//! panics ends the agent, and its service manager starts it again. Not owned: the tasks.

use std::panic::PanicHookInfo;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use evenkeel_enforce::converge::board::NodeKnob;
use evenkeel_enforce::shared::lock;

/// Pause before a task that panicked is started again, so that one that always does costs nothing.
const PAUSE: Duration = Duration::from_secs(1);

static COUNT: AtomicU64 = AtomicU64::new(0);
static LAST: Mutex<Option<String>> = Mutex::new(None);

/// Replaces the standard hook: one line in the log, where it is read, and no stack trace. Resolving one would keep some
/// 35 MiB of symbols in memory for good.
pub(crate) fn install() {
    std::panic::set_hook(Box::new(record));
}

/// Panics since the agent started.
pub(crate) fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// What status shows of them; `None` while there was none.
pub(crate) fn shown() -> Option<NodeKnob> {
    let last = lock(&LAST).clone()?;
    Some(NodeKnob {
        name: "panics",
        state: "fail",
        why: format!("{} since the agent started, the last: {last}", count()),
        remedy: "report it as a defect with the agent's log; what panicked was started again".into(),
    })
}

fn record(info: &PanicHookInfo<'_>) {
    let place = info.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
    let words = info.payload_as_str().unwrap_or("no message");
    let thread = std::thread::current();
    let text = format!("thread '{}' panicked at {place}: {words}", thread.name().unwrap_or("unnamed"));
    COUNT.fetch_add(1, Ordering::Relaxed);
    tracing::error!("{text}");
    *lock(&LAST) = Some(text);
}

/// Runs a task that has no end of its own, again after each panic. Must be called on the asynchronous runtime.
pub(crate) async fn restarted<F: Future<Output = ()> + Send + 'static>(
    task: &'static str,
    start: impl Fn() -> F,
) {
    restarted_after(PAUSE, task, start).await;
}

async fn restarted_after<F: Future<Output = ()> + Send + 'static>(
    pause: Duration,
    task: &'static str,
    start: impl Fn() -> F,
) {
    loop {
        match tokio::spawn(start()).await {
            Ok(()) => return,
            Err(error) if error.is_panic() => {
                tracing::error!(task, ?pause, "a task panicked; it is started again");
                tokio::time::sleep(pause).await;
            }
            // The runtime is ending.
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[tokio::test]
    async fn a_task_that_panics_is_counted_shown_and_started_again() {
        // Beside the standard hook, which other tests of this process need.
        let standard = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            record(info);
            standard(info);
        }));
        let (before, starts) = (count(), Arc::new(AtomicU64::new(0)));
        let counted = Arc::clone(&starts);
        restarted_after(Duration::ZERO, "test", move || {
            let start = counted.fetch_add(1, Ordering::Relaxed);
            async move {
                assert!(start >= 2, "start number {start} fails");
            }
        })
        .await;
        assert_eq!(starts.load(Ordering::Relaxed), 3);
        assert!(count() >= before + 2);
        let shown = shown().unwrap();
        assert!(shown.why.contains("panicked at agent/src/panics.rs"), "{}", shown.why);
        assert_eq!((shown.name, shown.state), ("panics", "fail"));
    }
}
