//! The part that talks with container runtimes and engines: it is handed connections to their sockets, and says what it found.
//!
//! Owned here: its life, and taking orders. What runtimes say ends in this process: gRPC, HTTP, JSON. Not owned: what is made of it
//! ([`crate::sources`]).

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use anyhow::Context as _;
use evenkeel_border::coded::Coded as _;
use evenkeel_border::link::{Bounds, Channel, Link};
use evenkeel_border::order::{Follow, Order, Stop, Word};
use evenkeel_enforce::shared::{SOURCE_UPDATES_CAP, UpdateSender, Waker};
use evenkeel_model::units::Bytes;

use super::found::{heard, tell};
use super::life::{Obeys, live, not_ours};
use super::{Given, Part};
use crate::pods::Pods;
use crate::shared::Rescan;
use crate::sources::cri::{self, Stopped};
use crate::sources::reach::Reach;
use crate::sources::{Terms, engines};

/// What this part takes of the enforcing one: what the API server says of 4,096 pods, and connections.
const BOUNDS: Bounds =
    Bounds { theirs: 16, ours: 256, message: 16 << 20, waiting: 64 << 20, packets: 0, descriptors: true };

/// Lives until the enforcing part ends.
///
/// # Errors
/// When it has no border, or cannot be confined or begin.
pub(crate) fn run(given: &Given) -> anyhow::Result<()> {
    live(Part::Runtime, given, BOUNDS, 2, Runtime)
}

struct Runtime;

impl Obeys for Runtime {
    async fn obey(
        &self,
        order: Order,
        _: Option<OwnedFd>,
        link: &Link,
        channel: &Channel,
    ) -> anyhow::Result<()> {
        match order {
            Order::Follow(follow) => followed(follow, link, channel).await,
            Order::Stop(Stop { socket, id, within_ms }) => {
                let (socket, within) = (PathBuf::from(socket), Duration::from_millis(within_ms));
                let stopped = cri::stop_sandbox(&socket, &Reach::There(link.clone()), &id, within).await;
                let is_done = matches!(stopped.map_err(anyhow::Error::msg)?, Stopped::Done);
                Ok(channel.send(&is_done.message()).await?)
            }
            _ => Err(not_ours()),
        }
    }
}

/// Follows what it is told to, and says what it finds until the border ends.
async fn followed(follow: Follow, link: &Link, channel: &Channel) -> anyhow::Result<()> {
    let Follow { cri, engines, roots, capacity, trusted } = follow;
    let waker = Waker::new().context("no descriptor for a bell")?;
    let (sender, updates) = sync_channel(SOURCE_UPDATES_CAP);
    let (updates_of, rescan, pods) =
        (UpdateSender { sender, waker }, Rescan::default(), Arc::new(Pods::none()));
    let terms = Terms { capacity: Bytes::new(capacity), trusted };
    let reach = Reach::There(link.clone());
    for socket in cri {
        let setup = cri::Setup {
            socket: socket.into(),
            terms: terms.clone(),
            pods: Arc::clone(&pods),
            reach: reach.clone(),
        };
        let (updates, rescan) = (updates_of.clone(), rescan.clone());
        tokio::spawn(crate::panics::restarted("cri", move || {
            cri::run(setup.clone(), updates.clone(), rescan.clone())
        }));
    }
    let setup = engines::Setup {
        sockets: engines.map(|(docker, podman)| [docker.into(), podman.into()]),
        terms,
        roots: roots.into_iter().map(PathBuf::from).collect(),
        reach,
    };
    let bell = rescan.clone();
    tokio::spawn(crate::panics::restarted("names", move || {
        engines::run(setup.clone(), updates_of.clone(), bell.clone())
    }));
    let mut found = heard(updates)?;
    loop {
        tokio::select! {
            update = found.recv() => tell(channel, update).await?,
            word = channel.receive() => match Word::of(&word?)? {
                Word::Rescan(asked) => {
                    let bell = rescan.bell();
                    asked.iter().for_each(|id| bell.ask_about(id));
                    bell.ring();
                }
                Word::Pods(told) => pods.take(told),
            },
        }
    }
}
