//! The part that reads what people write: manifests that it is handed as their bytes, unit files, and what systemd tells of units.
//!
//! Owned here: its life, and taking orders. YAML and JSON of manifests end in this process, and messages of the system bus, which it has as
//! nobody and not as root. It has neither a network nor a runtime's socket: whoever takes it over can say of manifests and units
//! alone what is not so, and only within what the enforcing part believes of them. Not owned: what is read
//! ([`crate::sources::manifests`], [`crate::sources::systemd`]).

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use anyhow::Context as _;
use evenkeel_border::coded::Coded as _;
use evenkeel_border::found::Read;
use evenkeel_border::link::{Bounds, Channel, Link};
use evenkeel_border::order::{self, Manifest, Order};
use evenkeel_enforce::shared::{SOURCE_UPDATES_CAP, UpdateSender, Waker};
use evenkeel_host::cgroup::CgroupTree;
use evenkeel_host::roots::Roots;
use evenkeel_model::resource_type::ResourceTypes;
use tokio::sync::oneshot;

use super::connector::Helper;
use super::found::{crossing, heard, tell};
use super::life::{Obeys, live, not_ours};
use super::starter::Logging;
use super::{Given, Part};
use crate::config::scalar::Definitions;
use crate::config::sections::systemd::{Enabled, Units};
use crate::sources::manifests::parse;
use crate::sources::reach::Reach;
use crate::sources::systemd;

/// What this part takes of the enforcing one: a manifest, a connection, and a question whether it lives.
const BOUNDS: Bounds =
    Bounds { theirs: 16, ours: 4, message: 16 << 20, waiting: 24 << 20, packets: 0, descriptors: true };

/// Where the kernel shows what is mounted.
const PROC: &str = "/proc";

/// Lives until the enforcing part ends.
///
/// # Errors
/// When it has no border, or cannot be confined or begin.
pub(crate) fn run(given: &Given, logging: &Logging) -> anyhow::Result<()> {
    // Before it is confined, which keeps it from seeing what is mounted. Without the tree units are listed all the same.
    let cgroup = given.readable.first();
    let tree = cgroup.and_then(|cgroup| CgroupTree::open(&Roots::new(PROC, cgroup)).ok()).map(Arc::new);
    // What has no starter starts by itself what connects it to the bus, while it may.
    let helper = given.border.is_some().then(|| Helper::start(given, logging)).transpose()?.map(Arc::new);
    live(Part::Reader, given, BOUNDS, 1, Reader { tree, helper })
}

struct Reader {
    tree: Option<Arc<CgroupTree>>,
    /// What connects to the bus where the enforcing part has nobody for it.
    helper: Option<Arc<Helper>>,
}

impl Obeys for Reader {
    async fn obey(
        &self,
        order: Order,
        _: Option<OwnedFd>,
        link: &Link,
        channel: &Channel,
    ) -> anyhow::Result<()> {
        match order {
            Order::Manifest(manifest) => Ok(channel.send(&read(&manifest)?.message()).await?),
            Order::Units(units) => self.followed(units, link, channel).await,
            _ => Err(not_ours()),
        }
    }
}

impl Reader {
    /// Follows units, and says what there is until the border ends.
    async fn followed(&self, units: order::Units, link: &Link, channel: &Channel) -> anyhow::Result<()> {
        let order::Units { slices, is_named } = units;
        let enabled = if is_named { Enabled::Yes } else { Enabled::Auto };
        let waker = Waker::new().context("no descriptor for a bell")?;
        let (sender, updates) = sync_channel(SOURCE_UPDATES_CAP);
        let updates_of = UpdateSender { sender, waker };
        let (units, tree) = (Units { enabled, slices }, self.tree.clone());
        let mut gone = self.helper.as_ref().map(|helper| helper.gone()).transpose()?;
        let reach = self.helper.clone().map_or_else(|| Reach::There(link.clone()), Reach::Helped);
        tokio::spawn(crate::panics::restarted("systemd", move || {
            systemd::run(units.clone(), tree.clone(), reach.clone(), updates_of.clone())
        }));
        let mut found = heard(updates)?;
        loop {
            tokio::select! {
                update = found.recv() => tell(channel, update).await?,
                () = ended(&mut gone) => anyhow::bail!("the process that connects to the system bus has ended"),
                // It is told nothing more but the end.
                word = channel.receive() => return word.map(drop).map_err(Into::into),
            }
        }
    }
}

/// Waits for an end that may never come.
async fn ended(gone: &mut Option<oneshot::Receiver<()>>) {
    match gone {
        // Nothing is sent: it comes when the sender is gone.
        Some(gone) => drop(gone.await),
        None => std::future::pending().await,
    }
}

fn read(manifest: &Manifest) -> anyhow::Result<Read> {
    let types = resource_types(&manifest.types)?;
    let (workloads, problems) = parse(&manifest.text.0, &manifest.place, &types);
    Ok(Read { workloads, problems: problems.into_iter().map(crossing).collect() })
}

/// Resource types from their definitions, JSON.
///
/// # Errors
/// When they are none.
pub(super) fn resource_types(definitions: &str) -> anyhow::Result<ResourceTypes> {
    let definitions: Definitions =
        serde_json::from_str(definitions).context("definitions of resource types")?;
    ResourceTypes::with(&definitions.0).map_err(|errors| {
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        anyhow::anyhow!("definitions of resource types: {}", texts.join("; "))
    })
}
