//! What is known of the node's pods, on disk: an agent that starts while the recommender is away goes on with it.
//!
//! One JSON file below the state directory, replaced whole. That of another node says nothing, and goes.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use evenkeel_log::{private, sealed};
use evenkeel_model::node::NodeKey;
use evenkeel_model::pod::PodRequirements;
use evenkeel_proto::pods::NodePods;
use serde::{Deserialize, Serialize};

const FILE: &str = "pods.json";
const VERSION: u32 = 1;
/// Larger files are not ours: about a kilobyte for each pod of a node, as the recommender and as the kubelet tell it.
const MOST_BYTES: u64 = 64 << 20;

/// What is kept.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StoredPods {
    version: u32,
    cluster: String,
    node: String,
    run: u64,
    generation: u64,
    /// When something in it changed last, microseconds since 1970.
    pub(super) changed_usec: u64,
    pods: Vec<PodRequirements>,
    /// Of the kubelet, where it is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) kubelet: Option<StoredList>,
}

/// What the kubelet listed.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StoredList {
    /// When it had answered last, microseconds since 1970.
    pub(super) read_usec: u64,
    pods: Vec<PodRequirements>,
}

impl StoredList {
    pub(super) fn new(known: &NodePods, read_usec: u64) -> Self {
        Self { read_usec, pods: all(known) }
    }

    pub(super) fn pods(self) -> NodePods {
        NodePods::new(1, 0, self.pods)
    }
}

fn all(known: &NodePods) -> Vec<PodRequirements> {
    known.pods().values().map(|pod| (**pod).clone()).collect()
}

impl StoredPods {
    pub(super) fn new(
        node: &NodeKey,
        known: &NodePods,
        changed_usec: u64,
        kubelet: Option<StoredList>,
    ) -> Self {
        let of = known.known();
        Self {
            version: VERSION,
            cluster: node.cluster.clone(),
            node: node.node.clone(),
            run: of.run,
            generation: of.generation,
            changed_usec,
            pods: all(known),
            kubelet,
        }
    }

    pub(super) fn pods(self) -> NodePods {
        NodePods::new(self.run, self.generation, self.pods)
    }

    /// What an earlier run left for this node, and whether the file is there and not as it was written.
    pub(super) fn read(state_dir: &Path, node: &NodeKey) -> (Option<Self>, bool) {
        let file = path(state_dir);
        let bytes = match bytes(&file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return (None, false),
            Err(error) => {
                tracing::warn!(file = %file.display(), %error, "pods of an earlier run are not known");
                return (None, false);
            }
        };
        let sealed::Body::Whole(body) = sealed::body(&bytes) else { return (None, true) };
        match serde_json::from_slice::<Self>(body) {
            Ok(kept) if kept.version != VERSION => {
                let version = kept.version;
                tracing::warn!(file = %file.display(), version, "written by a later release; pods are told anew");
                (None, false)
            }
            Ok(kept) if (&kept.cluster, &kept.node) != (&node.cluster, &node.node) => {
                tracing::info!(
                    cluster = kept.cluster,
                    node = kept.node,
                    "pods of another node are forgotten"
                );
                if let Err(error) = fs::remove_file(&file) {
                    tracing::debug!(file = %file.display(), %error, "ignoring: it stays");
                }
                (None, false)
            }
            Ok(kept) => (Some(kept), false),
            Err(_) => (None, true),
        }
    }

    /// Replaces the file, readable by its owner alone.
    ///
    /// # Errors
    /// When it cannot be written; the old one stays.
    pub(super) fn write(&self, state_dir: &Path) -> io::Result<()> {
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

fn path(state_dir: &Path) -> PathBuf {
    state_dir.join(FILE)
}
