//! The addresses that the enforcing part orders to be served.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use evenkeel_border::coded::{Bytes, Coded as _};
use evenkeel_border::link::{Channel, Link};
use evenkeel_border::order::{self, Address, ChangedFile, Serve, ServedFile};
use evenkeel_net::tls::{Tls, TlsFiles};

use super::super::reader::resource_types;
use super::files::MemoryFile;
use crate::serve::{self, Answers, Door, Listening};

/// Files of certificates are looked at so often.
const LOOK: Duration = Duration::from_secs(1);

/// What is served with, which may change.
#[derive(Default)]
struct ServedFiles {
    cert: Option<MemoryFile>,
    key: Option<MemoryFile>,
    client_ca: Vec<MemoryFile>,
    service_token: Option<MemoryFile>,
    metrics_token: Option<MemoryFile>,
}

impl ServedFiles {
    fn of(serve: &Serve) -> anyhow::Result<Self> {
        let token = |address: &Option<Address>| {
            let token = address.as_ref().and_then(|address| address.token.as_ref());
            token.map(|bytes| MemoryFile::new(&bytes.0)).transpose()
        };
        let mut kept = Self {
            service_token: token(&serve.service)?,
            metrics_token: token(&serve.metrics)?,
            ..Self::default()
        };
        if kept.service_token.is_none() {
            kept.service_token = token(&serve.dashboard)?;
        }
        if let Some(order::Tls { cert, key, client_ca }) = &serve.tls {
            kept.cert = Some(MemoryFile::new(&cert.0)?);
            kept.key = Some(MemoryFile::new(&key.0)?);
            kept.client_ca = client_ca.iter().map(|ca| MemoryFile::new(&ca.0)).collect::<Result<_, _>>()?;
        }
        Ok(kept)
    }

    fn tls(&self) -> anyhow::Result<Option<Arc<Tls>>> {
        let path = |held: &MemoryFile| held.path().to_owned();
        let (Some(cert), Some(key)) = (&self.cert, &self.key) else { return Ok(None) };
        let client_ca = self.client_ca.iter().map(path).collect();
        let files = TlsFiles { cert: path(cert), key: path(key), client_ca, cluster_ca: None };
        Ok(Some(Arc::new(Tls::open(files).context("cannot serve TLS")?)))
    }

    fn change(&self, ChangedFile { file, now: Bytes(now) }: &ChangedFile) {
        let held = match file {
            ServedFile::Cert => self.cert.as_ref(),
            ServedFile::Key => self.key.as_ref(),
            ServedFile::ClientCa(at) => self.client_ca.get(usize::from(*at)),
            ServedFile::ServiceToken => self.service_token.as_ref(),
            ServedFile::MetricsToken => self.metrics_token.as_ref(),
        };
        if let Some(Err(error)) = held.map(|held| held.set(now)) {
            tracing::error!(%error, ?file, "a file that changed is not taken over");
        }
    }
}

/// Serves until the border ends.
///
/// # Errors
/// When the order is none, or its files cannot be served with.
pub(super) async fn run(
    serve: Serve,
    socket: Option<OwnedFd>,
    link: &Link,
    changes: &Channel,
) -> anyhow::Result<()> {
    let kept = ServedFiles::of(&serve)?;
    let tls = kept.tls()?;
    let types = resource_types(&serve.types)?;
    let what = (Answers::There(link.clone()), Arc::new(types));
    let certificates = !kept.client_ca.is_empty();
    let listening = |address: &Address, token: &Option<MemoryFile>| Listening {
        address: address.at.0,
        door: Door::asking(token.as_ref().map(path), address.tls && certificates),
        tls: tls.clone().filter(|_| address.tls),
    };
    if let Some(socket) = socket {
        let listener = std::os::unix::net::UnixListener::from(socket);
        tokio::spawn(logged(
            "serve.socket",
            serve::serve_unix(what.0.clone(), Arc::clone(&what.1), listener, std::future::pending()),
        ));
    }
    if let Some(address) = &serve.service {
        let at = listening(address, &kept.service_token);
        tokio::spawn(logged(
            "serve.address",
            serve::serve_tcp(what.0.clone(), Arc::clone(&what.1), at, std::future::pending()),
        ));
    }
    if let Some(address) = &serve.metrics {
        let at = listening(address, &kept.metrics_token);
        tokio::spawn(logged("serve.metrics", serve::metrics::serve(what.0.clone(), at)));
    }
    if let Some(address) = &serve.dashboard {
        let at = listening(address, &kept.service_token);
        tokio::spawn(logged("serve.dashboard", serve::pages::serve(what.0.clone(), at)));
    }
    let mut look = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            changed = changes.receive() => {
                let Ok(message) = changed else { return Ok(()) };
                kept.change(&ChangedFile::of(&message)?);
            }
            _ = look.tick() => if let Some(tls) = &tls { tls.look() },
        }
    }
}

fn path(held: &MemoryFile) -> PathBuf {
    held.path().to_owned()
}

async fn logged(what: &'static str, task: impl Future<Output = anyhow::Result<()>>) {
    if let Err(error) = task.await {
        tracing::error!(what, error = format!("{error:#}"), "not served; everything else goes on");
    }
}
