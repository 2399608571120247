//! What the enforcing part gives the network's to do, and answers it.

use std::fs::File as Opened;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use evenkeel_border::coded::{Bytes, Coded as _};
use evenkeel_border::link::{Bounds, Channel, Link, Pace};
use evenkeel_border::order::{Address, At, ChangedFile, Order, Serve, ServedFile, Tls};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Part;
use super::keeper::{Duty, ending};
use crate::config::{Config, sections::trust::Guard};
use crate::outward::Gate;
use crate::serve::{Local, answers};

/// What the enforcing part takes of the network's, and keeps: questions of a few dozen people, and of each recommender the largest message
/// it may send (the requirements of 4,096 pods).
const BOUNDS: Bounds = Bounds {
    theirs: 256,
    ours: 64,
    message: 16 << 20,
    waiting: 24 << 20,
    packets: 4_000,
    descriptors: false,
};
/// Questions a second; more wait.
const ASKS: u32 = 100;
/// Largest file that it is served with.
const MOST_BYTES: u64 = 1 << 20;
/// Those are looked at so often.
const LOOK: Duration = Duration::from_secs(1);

/// The work of the network's part.
pub(crate) struct NetworkWork {
    /// The way to it for streams.
    pub gate: Gate,
    /// What it is answered from.
    pub local: Local,
    /// The agent's socket, which stays open here while there is no part.
    pub socket: UnixListener,
    /// Definitions of resource types as written, JSON.
    pub types: String,
}

impl Duty for NetworkWork {
    const PART: Part = Part::Network;
    const BOUNDS: Bounds = BOUNDS;

    fn begin(
        &self,
        link: &Link,
        asks: mpsc::Receiver<Channel>,
        tasks: &mut JoinSet<()>,
    ) -> anyhow::Result<mpsc::Receiver<String>> {
        self.gate.set(Some(link.clone()));
        tasks.spawn(answer(self.local.clone(), asks));
        let config = &self.local.agent().context.config;
        let files = AddressFiles::of(config);
        let order = files.order(config, self.types.clone());
        let socket = self.socket.try_clone().context("no descriptor of the agent's socket")?;
        Ok(ending(tasks, files.serve(link.clone(), order, socket)))
    }

    fn end(&self) {
        self.gate.set(None);
    }
}

/// Answers what is asked, at a bounded pace.
async fn answer(local: Local, mut asks: mpsc::Receiver<Channel>) {
    let (mut pace, mut answering) = (Pace::new(ASKS), JoinSet::new());
    loop {
        tokio::select! {
            asked = asks.recv() => {
                let Some(channel) = asked else { return };
                pace.wait().await;
                let local = local.clone();
                answering.spawn(async move { answers::answer(&local, channel).await });
            }
            Some(_) = answering.join_next() => {}
        }
    }
}

/// The files that addresses are served with.
#[derive(Debug, Clone)]
struct AddressFiles(Vec<(ServedFile, PathBuf)>);

/// Tells one state of a file from another.
type Print = Option<(u64, u64, i64, i64)>;

impl AddressFiles {
    fn of(config: &Config) -> Self {
        let rules = &config.trust;
        let mut files = Vec::new();
        if let Some(tls) = &rules.files {
            files.extend([(ServedFile::Cert, tls.cert.clone()), (ServedFile::Key, tls.key.clone())]);
            let authorities = tls.client_ca.iter().zip(0_u8..);
            files.extend(authorities.map(|(path, at)| (ServedFile::ClientCa(at), path.clone())));
        }
        files.extend(rules.service.token.clone().map(|path| (ServedFile::ServiceToken, path)));
        files.extend(rules.metrics.token.clone().map(|path| (ServedFile::MetricsToken, path)));
        Self(files)
    }

    fn bytes(&self, file: ServedFile) -> Option<Bytes> {
        let (_, path) = self.0.iter().find(|(known, _)| *known == file)?;
        // One that cannot be read holds nothing, by which nobody is let in; it is looked at again.
        Some(Bytes(read(path).unwrap_or_default()))
    }

    /// What is to be served.
    fn order(&self, config: &Config, types: String) -> Serve {
        let (serve, rules) = (&config.serve, &config.trust);
        let address = |at: Option<std::net::SocketAddr>, tls: bool, token: ServedFile| {
            Some(Address { at: At(at?), tls, token: self.bytes(token) })
        };
        let is_served = |guard: &Guard| guard.tls && rules.files.is_some();
        let tls = rules.files.as_ref().map(|files| Tls {
            cert: self.bytes(ServedFile::Cert).unwrap_or_default(),
            key: self.bytes(ServedFile::Key).unwrap_or_default(),
            client_ca: (0_u8..)
                .zip(&files.client_ca)
                .filter_map(|(at, _)| self.bytes(ServedFile::ClientCa(at)))
                .collect(),
        });
        Serve {
            socket: true,
            service: address(serve.address, is_served(&rules.service), ServedFile::ServiceToken),
            metrics: address(serve.metrics, is_served(&rules.metrics), ServedFile::MetricsToken),
            dashboard: address(serve.dashboard, is_served(&rules.service), ServedFile::ServiceToken),
            tls,
            types,
        }
    }

    /// Orders to serve, and tells of files that change. Ends with the link, or when nothing is served.
    async fn serve(self, link: Link, order: Serve, socket: UnixListener) -> String {
        let mut prints: Vec<Print> = self.0.iter().map(|(_, path)| print(path)).collect();
        let served = async {
            let channel = link.open().await?;
            channel.send_with(&Order::Serve(order).message(), Some(socket.as_fd())).await?;
            loop {
                tokio::select! {
                    () = tokio::time::sleep(LOOK) => {}
                    ended = channel.receive() => return ended.map(drop),
                }
                for (at, (file, path)) in self.0.iter().enumerate() {
                    let now = print(path);
                    if prints.get(at) == Some(&now) {
                        continue;
                    }
                    let Some(bytes) = self.bytes(*file) else { continue };
                    channel.send(&ChangedFile { file: *file, now: bytes }.message()).await?;
                    if let Some(print) = prints.get_mut(at) {
                        *print = now;
                    }
                }
            }
        };
        match served.await {
            Err(ended) => format!("nothing is served: {ended}"),
            Ok(()) => "it answered what it was not asked".to_owned(),
        }
    }
}

fn print(path: &Path) -> Print {
    let facts = std::fs::metadata(path).ok()?;
    Some((facts.ino(), facts.len(), facts.mtime(), facts.mtime_nsec()))
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    Opened::open(path)?.take(MOST_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}
