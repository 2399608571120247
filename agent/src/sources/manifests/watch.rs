//! Being told when a directory changes: inotify on the directory and nothing below it.
//!
//! A small thread waits in the kernel and rings; it lives as long as the process. (The event loop could watch the
//! descriptor itself only through an unsafe registration, which one thread is not worth.)

use std::path::Path;
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::sync::Notify;

/// A watch on one directory; where the kernel gives none, [`Watch::changed`] never returns and the period holds.
pub(super) struct Watch {
    inotify: Option<Arc<Inotify>>,
    changed: Arc<Notify>,
}

impl Watch {
    pub(super) fn new(dir: &Path) -> Self {
        let changed = Arc::new(Notify::new());
        let inotify = start(Arc::clone(&changed))
            .inspect_err(|error| tracing::warn!(%error, "manifest changes are noticed by listing only"))
            .ok();
        let watch = Self { inotify, changed };
        watch.renew(dir);
        watch
    }

    /// Watches again after the directory was made or replaced; one watched already costs one system call.
    pub(super) fn renew(&self, dir: &Path) {
        let flags = AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF;
        if let Some(Err(error)) = self.inotify.as_ref().map(|i| i.add_watch(dir, flags)) {
            tracing::debug!(dir = %dir.display(), %error, "ignoring that the directory cannot be watched yet");
        }
    }

    /// Returns once something changed; all changes so far are taken as one.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}

fn start(changed: Arc<Notify>) -> std::io::Result<Arc<Inotify>> {
    let inotify = Arc::new(Inotify::init(InitFlags::IN_CLOEXEC)?);
    let reader = Arc::clone(&inotify);
    std::thread::Builder::new().name("manifests".into()).spawn(move || {
        loop {
            match reader.read_events() {
                Ok(_) => changed.notify_one(),
                Err(Errno::EINTR) => {}
                Err(error) => {
                    tracing::warn!(%error, "manifest changes are noticed by listing only");
                    return;
                }
            }
        }
    })?;
    Ok(inotify)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_written_file_and_a_replaced_directory_are_noticed() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("m");
        std::fs::create_dir(&dir).unwrap();
        let watch = Watch::new(&dir);
        std::fs::write(dir.join("a.yaml"), "x").unwrap();
        watch.changed().await;
        std::fs::remove_file(dir.join("a.yaml")).unwrap();
        std::fs::remove_dir(&dir).unwrap();
        watch.changed().await;
        std::fs::create_dir(&dir).unwrap();
        watch.renew(&dir);
        std::fs::write(dir.join("b.yaml"), "x").unwrap();
        watch.changed().await;
    }
}
