//! A running agent and recommender, with a configuration and a store of their own.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use evenkeel_proto::bearer::Bearer;
use evenkeel_proto::line::Trust;
use evenkeel_tests::daemon::{Daemon, Program, Ready, free_port, http_get, http_get_at};
use rcgen::{CertificateParams, KeyPair, SanType};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

/// Everything below one directory.
pub(crate) struct Place {
    directory: TempDir,
}

impl Place {
    /// Makes it.
    pub(crate) fn new() -> Result<Place> {
        // Socket paths are at most 107 bytes long (unix(7)), so the directory is a short one.
        let directory =
            tempfile::Builder::new().prefix("ekb").tempdir().context("cannot make a directory")?;
        let place = Place { directory };
        std::fs::create_dir(place.manifests()).context("cannot make the manifest directory")?;
        Ok(place)
    }

    /// Where manifests are read from.
    pub(crate) fn manifests(&self) -> PathBuf {
        self.path("manifests")
    }

    /// The agent's socket.
    pub(crate) fn agent_socket(&self) -> PathBuf {
        self.path("agent.sock")
    }

    /// A path below it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn configuration(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.path(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

/// How nodes reach a recommender.
pub(crate) enum Line {
    /// By its Unix socket.
    Socket,
    /// By an address on loopback.
    Address { address: String, trust: Box<Trust>, bearer: Bearer },
}

/// What carries the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Carrier {
    Socket,
    Tcp,
    Tls,
}

/// A running recommender.
pub(crate) struct Recommender {
    daemon: Daemon,
    socket: PathBuf,
    line: Line,
}

/// Longest time between data written and its fdatasync begun, as the promise has it.
pub(crate) const SYNC: Duration = Duration::from_millis(200);

impl Recommender {
    /// Starts one whose store begins empty or where an earlier one in the same place left it. It inherits the calling
    /// thread's processors.
    pub(crate) fn start(place: &Place) -> Result<Recommender> {
        Recommender::start_with(place, "")
    }

    /// The same with more keys at the top of its configuration.
    pub(crate) fn start_with(place: &Place, keys: &str) -> Result<Recommender> {
        let socket = place.path("recommender.sock");
        let text = format!(
            "state_dir = {:?}\nlog.sync_interval = \"{}ms\"\n{keys}[serve]\nsocket = {socket:?}\n",
            place.path("recommender"),
            SYNC.as_millis(),
        );
        let line = Line::Socket;
        Ok(Recommender { daemon: daemon(place, &text, &socket)?, socket, line })
    }

    /// One whose nodes reach it by something else than its socket, each with the token of all nodes.
    pub(crate) fn start_over(place: &Place, carrier: Carrier) -> Result<Recommender> {
        if carrier == Carrier::Socket {
            return Recommender::start(place);
        }
        let (socket, port) = (place.path("recommender.sock"), free_port()?);
        let token = format!("evk_{}", "5".repeat(64));
        let bearer = place.configuration("fleet.token", &token)?;
        let hash: String = Sha256::digest(&token).iter().map(|byte| format!("{byte:02x}")).collect();
        let entry = format!("[[token]]\nname = \"fleet\"\nsha256 = \"{hash}\"\nnode = \"bench/*\"\n");
        let tokens = place.configuration("tokens.toml", &entry)?;
        let (tls, trust) = if carrier == Carrier::Tls { certified(place)? } else { Default::default() };
        let text = format!(
            "state_dir = {:?}\nlog.sync_interval = \"{}ms\"\n[access]\ntokens = {tokens:?}\n{tls}\
             [serve]\nsocket = {socket:?}\ngrpc = \"127.0.0.1:{port}\"\nmax_connections = 20000\n",
            place.path("recommender"),
            SYNC.as_millis(),
        );
        let scheme = if carrier == Carrier::Tls { "https" } else { "http" };
        let address = format!("{scheme}://127.0.0.1:{port}");
        let line = Line::Address { address, trust: Box::new(trust), bearer: Bearer::from_file(&bearer)? };
        Ok(Recommender { daemon: daemon(place, &text, &socket)?, socket, line })
    }

    /// How nodes reach it.
    pub(crate) fn line(&self) -> &Line {
        &self.line
    }

    /// Its process.
    pub(crate) fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    /// Its metrics.
    pub(crate) fn metrics(&self) -> Result<String> {
        page(http_get_at(&self.socket, "/metrics")?)
    }

    /// Its socket.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// The address of its gRPC services.
    pub(crate) fn address(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    /// Ends it in order.
    pub(crate) fn stop(self) -> Result<()> {
        self.daemon.stop()
    }

    /// Ends it without warning.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.daemon.signal(nix::sys::signal::Signal::SIGKILL)?;
        self.daemon.wait(evenkeel_tests::wait::PATIENCE).map(|_| ())
    }
}

fn daemon(place: &Place, text: &str, socket: &Path) -> Result<Daemon> {
    let config = place.configuration("recommender.toml", text)?;
    let ready = Ready::Http { socket: socket.to_owned(), path: "/readyz".into() };
    let program = Program::new("evenkeel-recommender")?.args(&["--config"]).path(&config).ready(ready);
    program.start(place.directory.path())
}

/// A certificate for loopback, which vouches for itself: the configuration of the one side, and what the other trusts.
fn certified(place: &Place) -> Result<(String, Trust)> {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).context("no certificate")?;
    params.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
    let key = KeyPair::generate().context("no key")?;
    let certificate = params.self_signed(&key).context("no certificate")?;
    let cert = place.configuration("tls.crt", &certificate.pem())?;
    let private = place.configuration("tls.key", &key.serialize_pem())?;
    std::fs::set_permissions(&private, std::fs::Permissions::from_mode(0o600)).context("no private key")?;
    let text = format!("[tls]\ncert = {cert:?}\nkey = {private:?}\n");
    Ok((text, Trust { ca: Some(cert), ..Trust::default() }))
}

/// A running agent.
pub(crate) struct Agent {
    daemon: Daemon,
    metrics: u16,
}

impl Agent {
    /// Starts one that reads the place's manifests and streams to the recommender, if there is one. Scores are
    /// pinned, so that one set too high by the measurement counts as wrong like one too low.
    pub(crate) fn start(place: &Place, recommender: Option<&Recommender>) -> Result<Agent> {
        Agent::start_with(place, recommender, "")
    }

    /// The same with more tables in its configuration.
    pub(crate) fn start_with(
        place: &Place,
        recommender: Option<&Recommender>,
        tables: &str,
    ) -> Result<Agent> {
        let metrics = free_port()?;
        let address = recommender.map_or_else(String::new, Recommender::address);
        let text = format!(
            "mode = \"enforce\"\nstate_dir = {:?}\n[roots]\nrun = {:?}\n[sources.manifests]\ndir = {:?}\n\
             [sources.cri]\nenabled = false\n\
             [converge]\nscore = \"pin\"\n[stream]\nrecommender = {address:?}\n\
             [serve]\nsocket = {:?}\nmetrics = \"127.0.0.1:{metrics}\"\n{tables}",
            place.path("agent"),
            place.directory.path(),
            place.manifests(),
            place.agent_socket(),
        );
        let config = place.configuration("agent.toml", &text)?;
        let ready = Ready::Socket(place.agent_socket());
        let program = Program::new("evenkeel-agent")?.args(&["--config"]).path(&config).ready(ready);
        Ok(Agent { daemon: program.start(place.directory.path())?, metrics })
    }

    /// Its process.
    pub(crate) fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    /// Its metrics.
    pub(crate) fn metrics(&self) -> Result<String> {
        page(http_get(self.metrics, "/metrics")?)
    }

    /// Ends it without warning.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.daemon.signal(nix::sys::signal::Signal::SIGKILL)?;
        self.daemon.wait(evenkeel_tests::wait::PATIENCE).map(|_| ())
    }

    /// Ends it in order.
    pub(crate) fn stop(self) -> Result<()> {
        self.daemon.stop()
    }
}

fn page((status, text): (u16, String)) -> Result<String> {
    anyhow::ensure!(status == 200, "/metrics answers {status}");
    Ok(text)
}
