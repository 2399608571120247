//! The requests in force, on disk: an agent that starts again goes on with them, so that a restart changes nothing.
//!
//! One small JSON file below the state directory, replaced whole when something in it changed, and every now and then while
//! recommendations are taken, so that its time says how old they are. Another boot's file says nothing. Not owned: what is
//! made of it ([`super::Overlay`]).

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

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
pub(crate) struct Kept {
    version: u32,
    /// Kernel's boot id.
    boot: String,
    /// When it was written, microseconds since 1970.
    pub(super) saved_usec: u64,
    /// The panic switch, where it was on.
    pub(super) panic: Option<Switch>,
    /// When the recommender's last word was made, microseconds since 1970.
    pub(super) made_usec: u64,
    pub(super) containers: Vec<Standing>,
}

/// What is in force for one container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Standing {
    pub(super) id: String,
    /// What was asked for: where that is another now, it wins.
    pub(super) asked: Requested,
    /// What is in force instead.
    pub(super) resources: ContainerResources,
}

impl Kept {
    pub(super) fn new(
        boot: &str,
        saved_usec: u64,
        panic: Option<Switch>,
        made_usec: u64,
        containers: Vec<Standing>,
    ) -> Self {
        Self { version: VERSION, boot: boot.to_owned(), saved_usec, panic, made_usec, containers }
    }

    /// What an earlier run of this boot left. Nothing where there is no file; one that cannot be used is said.
    pub(crate) fn read(state_dir: &Path, boot: &str) -> Option<Self> {
        let file = path(state_dir);
        let text = match fs::metadata(&file).and_then(|m| {
            if m.len() > MOST_BYTES {
                Err(io::ErrorKind::FileTooLarge.into())
            } else {
                fs::read_to_string(&file)
            }
        }) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(file = %file.display(), %error, "requests in force are not known; those asked for are taken");
                return None;
            }
        };
        match serde_json::from_str::<Self>(&text) {
            Ok(kept) if kept.version == VERSION => Some(kept).filter(|kept| kept.boot == boot),
            Ok(kept) => {
                let version = kept.version;
                tracing::warn!(file = %file.display(), version, "written by a later release; requests asked for are taken");
                None
            }
            Err(error) => {
                tracing::warn!(file = %file.display(), %error, "damaged; requests asked for are taken");
                None
            }
        }
    }

    /// Replaces the file, readable by its owner alone.
    ///
    /// # Errors
    /// When it cannot be written; the old one stays.
    pub(crate) fn write(&self, state_dir: &Path) -> io::Result<()> {
        let file = path(state_dir);
        let aside = file.with_extension("new");
        let mut out =
            fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
        out.write_all(serde_json::to_string(self)?.as_bytes())?;
        fs::rename(&aside, &file)
    }
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
        assert_eq!(Kept::read(dir.path(), "b1"), None);
        let asked = ContainerResources { cpu_request: Some(MilliCpu::new(500)), ..Default::default() };
        let resources = ContainerResources { cpu_request: Some(MilliCpu::new(400)), ..asked };
        let standing = Standing { id: "default/a/main".into(), asked: Requested::Stated(asked), resources };
        let panic = Some(Switch { reason: "drill".into(), revert: false });
        let kept = Kept::new("b1", 5, panic, 3, vec![standing]);
        kept.write(dir.path()).unwrap();
        kept.write(dir.path()).unwrap();
        assert_eq!(Kept::read(dir.path(), "b1"), Some(kept.clone()));
        assert_eq!(Kept::read(dir.path(), "b2"), None);
        let later = Kept { version: 2, ..kept };
        later.write(dir.path()).unwrap();
        assert_eq!(Kept::read(dir.path(), "b1"), None);
        fs::write(path(dir.path()), "{\"version\": 1").unwrap();
        assert_eq!(Kept::read(dir.path(), "b1"), None);
        forget(dir.path());
        forget(dir.path());
        assert!(!path(dir.path()).exists());
    }
}
