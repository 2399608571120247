//! What the starter says of each part.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

use anyhow::Context as _;
use tokio::sync::mpsc;

use super::super::Part;
use super::super::starter::{Said, Starter};
use super::{PartSupervisor, Way};

/// What the starter says of each part, from a thread that waits for it.
pub(crate) struct Heard {
    starter: Arc<Starter>,
    said: BTreeMap<Part, mpsc::Receiver<Said>>,
}

impl Heard {
    /// Begins to listen.
    ///
    /// # Errors
    /// When the thread cannot be made.
    pub(crate) fn of(starter: Starter) -> anyhow::Result<Self> {
        let (starter, mut senders, mut said) = (Arc::new(starter), BTreeMap::new(), BTreeMap::new());
        for part in Part::STARTED {
            let (sender, receiver) = mpsc::channel(8);
            senders.insert(part, sender);
            said.insert(part, receiver);
        }
        let listened = Arc::clone(&starter);
        let listening = move || {
            while let Ok((part, said)) = listened.said() {
                let Some(sender) = senders.get(&part) else { continue };
                if sender.blocking_send(said).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new()
            .name("starter".to_owned())
            .spawn(listening)
            .context("cannot start a thread")?;
        Ok(Self { starter, said })
    }

    /// What starts parts.
    pub(crate) fn starter(&self) -> Arc<Starter> {
        Arc::clone(&self.starter)
    }

    /// Of one part; each is kept once.
    pub(crate) fn take(&mut self, part: Part) -> anyhow::Result<PartSupervisor> {
        let said = self.said.remove(&part).context("a part is kept once")?;
        Ok(PartSupervisor { way: Way::Starter { starter: Arc::clone(&self.starter), said }, pid: None })
    }
}
