//! What the enforcing part gives the reader to do: manifests, one after the other, over the way that is kept here. The reader asks nothing.

use evenkeel_border::link::{Bounds, Channel, Link};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Part;
use super::keeper::{Duty, ending};
use crate::outward::Gate;

/// What the enforcing part takes of the reader, and keeps: what one manifest says.
const BOUNDS: Bounds =
    Bounds { theirs: 0, ours: 4, message: 16 << 20, waiting: 24 << 20, packets: 4_000, descriptors: false };

/// The work of the reader.
pub(crate) struct Reading {
    /// The way to it for manifests.
    pub gate: Gate,
}

impl Duty for Reading {
    const PART: Part = Part::Reader;
    const BOUNDS: Bounds = BOUNDS;

    fn begin(
        &self,
        link: &Link,
        _: mpsc::Receiver<Channel>,
        tasks: &mut JoinSet<()>,
    ) -> anyhow::Result<mpsc::Receiver<String>> {
        self.gate.set(Some(link.clone()));
        // Over only with the link.
        Ok(ending(tasks, std::future::pending()))
    }

    fn end(&self) {
        self.gate.set(None);
    }
}
