//! What the enforcing part gives the reader to do: manifests, one after the other, over the way that is kept here, and systemd's units.
//!
//! Owned here: its work, connecting it to the system bus, and taking in what it lists. Not owned: what of that is believed ([`super::units`]).

use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context as _;
use evenkeel_border::ask::{Connect, Failure};
use evenkeel_border::coded::Coded as _;
use evenkeel_border::found::Found;
use evenkeel_border::link::{Bounds, Channel, Link};
use evenkeel_border::order::{Order, Units};
use evenkeel_border::socket;
use evenkeel_enforce::shared::{SourceUpdate, UpdateSender, lock};
use evenkeel_enforce::systemd::bus::SOCKET;
use evenkeel_model::workload::{SourceKind, Workload};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::found::{hand_on, is_bounded, problem};
use super::keeper::{Duty, ending};
use super::starter::Starter;
use super::{Part, connector, units};
use crate::outward::Gate;
use crate::sources::shared;
use crate::sources::systemd::ADDRESS;

/// What the enforcing part takes of the reader, and keeps: what one manifest says, and all units.
const BOUNDS: Bounds =
    Bounds { theirs: 4, ours: 4, message: 16 << 20, waiting: 24 << 20, packets: 4_000, descriptors: false };
/// Connections to the bus are made so often at most.
const PAUSE: Duration = Duration::from_millis(200);

/// The work of the reader.
pub(crate) struct Reading {
    /// The way to it for manifests.
    pub gate: Gate,
    /// What it follows of systemd, and where what it lists goes.
    pub units: Option<(Units, UpdateSender)>,
    /// What connects it to the bus; none where it connects by itself.
    pub starter: Option<Arc<Starter>>,
    /// What was taken in last of systemd's units, which stands while there is no reader.
    pub known: Arc<Mutex<Vec<Arc<Workload>>>>,
}

impl Duty for Reading {
    const PART: Part = Part::Reader;
    const BOUNDS: Bounds = BOUNDS;

    fn begin(
        &self,
        link: &Link,
        asks: mpsc::Receiver<Channel>,
        tasks: &mut JoinSet<()>,
    ) -> anyhow::Result<mpsc::Receiver<String>> {
        self.gate.set(Some(link.clone()));
        tasks.spawn(connect_all(self.starter.clone(), asks));
        let Some((units, updates)) = self.units.clone() else {
            // Over only with the link.
            return Ok(ending(tasks, std::future::pending()));
        };
        let known = Arc::clone(&self.known);
        let link = link.clone();
        Ok(ending(tasks, async move {
            match follow(&link, units, &updates, &known).await {
                Ok(()) => "it found what it was not asked for".to_owned(),
                Err(error) => format!("no units are listed: {error:#}"),
            }
        }))
    }

    fn end(&self) {
        self.gate.set(None);
    }
}

/// Connects it to the system bus, and to nothing else.
async fn connect_all(starter: Option<Arc<Starter>>, mut asks: mpsc::Receiver<Channel>) {
    while let Some(channel) = asks.recv().await {
        let done = connected(&channel, starter.as_deref()).await;
        channel.end(done.map_err(|error| Failure { code: 14, message: format!("{error:#}") })).await;
        tokio::time::sleep(PAUSE).await;
    }
}

async fn connected(channel: &Channel, starter: Option<&Starter>) -> anyhow::Result<()> {
    let Connect(path) = Connect::of(&channel.receive().await?)?;
    anyhow::ensure!(path == SOCKET, "this is not the system bus");
    let starter = starter.context("a unit of its own connects by itself")?;
    // Otherwise a process would be started for nothing, again and again.
    anyhow::ensure!(Path::new(SOCKET).exists(), "there is no {SOCKET}");
    let (ours, theirs) = socket::pair().context("no socket to the one that connects")?;
    starter.order(Part::Connector, &theirs).context("the process that starts the others has ended")?;
    drop(theirs);
    let stream = tokio::task::spawn_blocking(move || connector::connected(&ours)).await??;
    channel.send_with(&[], Some(stream.as_fd())).await?;
    Ok(())
}

/// Takes what it lists until the border ends, or it lists what it was not asked for.
async fn follow(
    link: &Link,
    units: Units,
    updates: &UpdateSender,
    known: &Mutex<Vec<Arc<Workload>>>,
) -> anyhow::Result<()> {
    let channel = link.open().await?;
    channel.send(&Order::Units(units).message()).await?;
    loop {
        let found = Found::of(&channel.receive().await?)?;
        let is_asked = found.source == SourceKind::Systemd && found.address == ADDRESS;
        if !is_asked || !is_bounded(&found) {
            return Ok(());
        }
        hand_on(updates, taken(found, known).await?).await;
    }
}

async fn taken(found: Found, known: &Mutex<Vec<Arc<Workload>>>) -> anyhow::Result<SourceUpdate> {
    let Found { source, address, workloads, problems, healthy } = found;
    // Files are looked into.
    let (good, told) = tokio::task::spawn_blocking(move || units::judged(workloads, Path::new("/"))).await?;
    let mut known = lock(known);
    let workloads = shared(Some(&known), good);
    known.clone_from(&workloads);
    let problems = problems.into_iter().map(problem).chain(told).collect();
    Ok(SourceUpdate { source, address, workloads, problems, healthy })
}
