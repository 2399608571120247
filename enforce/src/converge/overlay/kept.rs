//! The requests in force, on disk: an agent that starts again goes on with them, so that a restart changes nothing.
//!
//! One small JSON file below the state directory, replaced whole when something in it changed, and every now and then while
//! recommendations are taken, so that its time says how old they are. Another boot's file says nothing. Not owned: what is
//! made of it ([`super::Overlay`]).

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use evenkeel_log::{private, sealed};
use evenkeel_model::workload::{ContainerResources, Requested};
use serde::{Deserialize, Serialize};

use crate::overlay::Switch;

const FILE: &str = "overlay.json";
const VERSION: u32 = 1;
/// Larger files are not ours: some hundred bytes for each container of a node.
const MOST_BYTES: u64 = 8 << 20;

/// What is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StoredOverlay {
    version: u32,
    /// Kernel's boot id.
    boot: String,
    /// When it was written, microseconds since 1970.
    pub(super) saved_usec: u64,
    /// The panic switch, where it was on.
    pub(super) panic: Option<Switch>,
    /// Namespaces in which nothing is changed; a release before kept none.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) frozen: BTreeSet<String>,
    /// When the recommender's last word was made, microseconds since 1970.
    pub(super) made_usec: u64,
    pub(super) containers: Vec<StoredRequest>,
}

/// What is in force for one container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StoredRequest {
    pub(super) id: String,
    /// What was asked for: where that is another now, it wins.
    pub(super) asked: Requested,
    /// What is in force instead.
    pub(super) resources: ContainerResources,
}

impl StoredOverlay {
    pub(super) fn new(
        boot: &str,
        saved_usec: u64,
        panic: Option<Switch>,
        made_usec: u64,
        containers: Vec<StoredRequest>,
    ) -> Self {
        let (version, boot, frozen) = (VERSION, boot.to_owned(), BTreeSet::new());
        Self { version, boot, saved_usec, panic, frozen, made_usec, containers }
    }

    /// The same with namespaces in which nothing is changed.
    pub(super) fn freezing(self, frozen: BTreeSet<String>) -> Self {
        Self { frozen, ..self }
    }

    /// What an earlier run of this boot left, and whether the file is there and not as it was written: then requests that were
    /// asked for are taken. One of a release before has no checksum.
    pub(crate) fn read(state_dir: &Path, boot: &str) -> (Option<Self>, bool) {
        let file = path(state_dir);
        let bytes = match bytes(&file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return (None, false),
            Err(error) => {
                tracing::warn!(file = %file.display(), %error, "requests in force are not known; those asked for are taken");
                return (None, false);
            }
        };
        let body = match sealed::body(&bytes) {
            sealed::Body::Whole(body) | sealed::Body::Unsealed(body) => body,
            sealed::Body::Damaged => return (None, true),
        };
        match serde_json::from_slice::<Self>(body) {
            Ok(kept) if kept.version == VERSION => (Some(kept).filter(|kept| kept.boot == boot), false),
            Ok(kept) => {
                let version = kept.version;
                tracing::warn!(file = %file.display(), version, "written by a later release; requests asked for are taken");
                (None, false)
            }
            Err(_) => (None, true),
        }
    }

    /// Replaces the file, readable by its owner alone.
    ///
    /// # Errors
    /// When it cannot be written; the old one stays.
    pub(crate) fn write(&self, state_dir: &Path) -> io::Result<()> {
        private::replace(&path(state_dir), &sealed::file(&serde_json::to_vec(self)?), false)
    }
}

fn bytes(file: &Path) -> io::Result<Vec<u8>> {
    let open = private::open(file)?;
    if open.metadata()?.len() > MOST_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = Vec::new();
    open.take(MOST_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Forgets what is kept: recommendations are not taken any more, or everything was put back.
pub(crate) fn forget(state_dir: &Path) {
    let file = path(state_dir);
    if let Err(error) = fs::remove_file(&file)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(file = %file.display(), %error, "requests of an earlier run are not forgotten; remove the file");
    }
}

fn path(state_dir: &Path) -> PathBuf {
    state_dir.join(FILE)
}

#[cfg(test)]
mod tests {
    use evenkeel_model::units::MilliCpu;

    use super::*;

    #[test]
    fn what_is_kept_is_known_again_in_the_same_boot_only() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(StoredOverlay::read(dir.path(), "b1"), (None, false));
        let asked = ContainerResources { cpu_request: Some(MilliCpu::new(500)), ..Default::default() };
        let resources = ContainerResources { cpu_request: Some(MilliCpu::new(400)), ..asked };
        let standing =
            StoredRequest { id: "default/a/main".into(), asked: Requested::Stated(asked), resources };
        let panic = Some(Switch { reason: "drill".into(), revert: false });
        let kept = StoredOverlay::new("b1", 5, panic, 3, vec![standing]);
        kept.write(dir.path()).unwrap();
        kept.write(dir.path()).unwrap();
        assert_eq!(StoredOverlay::read(dir.path(), "b1"), (Some(kept.clone()), false));
        assert_eq!(StoredOverlay::read(dir.path(), "b2"), (None, false));
        let later = StoredOverlay { version: 2, ..kept.clone() };
        later.write(dir.path()).unwrap();
        assert_eq!(StoredOverlay::read(dir.path(), "b1"), (None, false));
        // Of a release before, whole and cut.
        let plain = serde_json::to_string(&kept).unwrap();
        fs::write(path(dir.path()), &plain).unwrap();
        assert_eq!(StoredOverlay::read(dir.path(), "b1"), (Some(kept.clone()), false));
        fs::write(path(dir.path()), &plain[..plain.len() - 9]).unwrap();
        assert_eq!(StoredOverlay::read(dir.path(), "b1"), (None, true));
        // Another number is no request in force.
        kept.write(dir.path()).unwrap();
        let written = fs::read_to_string(path(dir.path())).unwrap();
        fs::write(path(dir.path()), written.replacen("400", "900", 1)).unwrap();
        assert_eq!(StoredOverlay::read(dir.path(), "b1"), (None, true));
        // A link is not followed.
        let victim = dir.path().join("victim");
        fs::write(&victim, &plain).unwrap();
        forget(dir.path());
        std::os::unix::fs::symlink(&victim, path(dir.path())).unwrap();
        assert_eq!(StoredOverlay::read(dir.path(), "b1"), (None, false));
        std::os::unix::fs::symlink(&victim, path(dir.path()).with_extension("new")).unwrap();
        let _refused = kept.write(dir.path());
        assert_eq!(fs::read_to_string(&victim).unwrap(), plain);
        forget(dir.path());
        forget(dir.path());
        assert!(!path(dir.path()).exists());
    }
}
