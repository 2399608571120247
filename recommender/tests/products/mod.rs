//! Real engines on loopback, each with a directory and ports of its own; ended by their own process id.

pub(crate) mod program;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use evenkeel_recommender::config::{EngineKind, EngineSection};
use evenkeel_tests::daemon::free_port;
use evenkeel_tests::{machine, skip};

/// Longer than any of them takes to start on a slow machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// Which engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Product {
    Prometheus,
    /// One that takes nothing out of order.
    StrictPrometheus,
    /// One behind TLS and a password.
    ClosedPrometheus,
    VictoriaMetrics,
    InfluxDb,
}

impl Product {
    fn program(self) -> &'static str {
        match self {
            Self::Prometheus | Self::StrictPrometheus | Self::ClosedPrometheus => "prometheus",
            Self::VictoriaMetrics => "victoria-metrics",
            Self::InfluxDb => "influxd",
        }
    }

    /// Path that answers 2xx once it is ready.
    fn ready(self) -> &'static str {
        match self {
            Self::Prometheus | Self::StrictPrometheus | Self::ClosedPrometheus => "/-/ready",
            Self::VictoriaMetrics => "/health",
            Self::InfluxDb => "/ping",
        }
    }

    fn command(self, dir: &Path, port: u16, second: u16) -> Command {
        let mut command = Command::new(self.program());
        let at = format!("127.0.0.1:{port}");
        match self {
            Self::VictoriaMetrics => {
                command.arg(format!("-storageDataPath={}", dir.join("data").display()));
                command.arg(format!("-httpListenAddr={at}")).arg("-retentionPeriod=3");
            }
            Self::InfluxDb => {
                let config = format!(
                    "reporting-disabled = true\nbind-address = \"127.0.0.1:{second}\"\n[meta]\ndir = \"{0}/meta\"\n\
                     [data]\ndir = \"{0}/data\"\nwal-dir = \"{0}/wal\"\nindex-version = \"tsi1\"\n\
                     [http]\nbind-address = \"{at}\"\nlog-enabled = false\n[monitor]\nstore-enabled = false\n",
                    dir.display()
                );
                fs::write(dir.join("influx.conf"), config).unwrap();
                command.arg("-config").arg(dir.join("influx.conf"));
            }
            _ => {
                let window = "storage:\n  tsdb:\n    out_of_order_time_window: 31d\n";
                let config = if self == Self::StrictPrometheus { "" } else { window };
                fs::write(dir.join("p.yml"), format!("global: {{}}\n{config}")).unwrap();
                command.arg(format!("--config.file={}", dir.join("p.yml").display()));
                command.arg(format!("--storage.tsdb.path={}", dir.join("data").display()));
                command.arg("--storage.tsdb.retention.time=90d");
                command.arg(format!("--web.listen-address={at}")).arg("--web.enable-remote-write-receiver");
                if self == Self::ClosedPrometheus {
                    closed(dir);
                    command.arg(format!("--web.config.file={}", dir.join("web.yml").display()));
                    command.arg("--web.external-url=https://localhost/prom");
                }
            }
        }
        command
    }
}

/// A certificate for `localhost` by an authority of its own, and a password.
fn closed(dir: &Path) {
    let script = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem \
                  -days 2 -subj /CN=test-ca -addext basicConstraints=critical,CA:TRUE && \
                  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout server.key -out server.csr \
                  -subj /CN=localhost && printf 'subjectAltName=DNS:localhost,IP:127.0.0.1' > ext && \
                  openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext \
                  -out server.pem";
    let done = Command::new("sh").args(["-c", script]).current_dir(dir).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    // bcrypt of "sesame".
    let hash = "$2b$04$abcdefghijklmnopqrstuuinwY/tkBVrn3xrxQI/TgnMHhkvl85RW";
    let text = format!(
        "tls_server_config:\n  cert_file: {0}/server.pem\n  key_file: {0}/server.key\nbasic_auth_users:\n  keel: {hash}\n",
        dir.display()
    );
    fs::write(dir.join("web.yml"), text).unwrap();
}

/// A running engine.
pub(crate) struct Running {
    product: Product,
    dir: tempfile::TempDir,
    child: Child,
    port: u16,
}

impl Running {
    /// Starts one with nothing in it.
    pub(crate) fn start(product: Product) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (child, port) = spawn(product, dir.path());
        Self { product, dir, child, port }
    }

    /// What it has logged.
    pub(crate) fn told(&self) -> String {
        told(self.dir.path())
    }

    /// Its directory.
    pub(crate) fn dir(&self) -> PathBuf {
        self.dir.path().to_owned()
    }

    /// Where it is, as the configuration says it.
    pub(crate) fn section(&self) -> EngineSection {
        let (kind, url) = match self.product {
            Product::InfluxDb => (EngineKind::Influxdb, format!("http://127.0.0.1:{}", self.port)),
            Product::ClosedPrometheus => {
                (EngineKind::Prometheus, format!("https://localhost:{}/prom", self.port))
            }
            _ => (EngineKind::Prometheus, format!("http://127.0.0.1:{}", self.port)),
        };
        EngineSection::new(kind, url)
    }

    /// SIGKILL, and a new start on what is on the disk.
    pub(crate) fn kill_and_start(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        (self.child, self.port) = spawn(self.product, self.dir.path());
    }

    /// SIGTERM, its end, and a new start.
    pub(crate) fn restart(&mut self) {
        let pid = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        self.child.wait().unwrap();
        (self.child, self.port) = spawn(self.product, self.dir.path());
    }

    /// SIGKILL, and nothing listens any more.
    pub(crate) fn end(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it where it was before.
    pub(crate) fn start_again(&mut self) {
        self.child = spawn_at(self.product, self.dir.path(), self.port).expect("the port is free again");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Errors mean that it has ended already.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Starts a program on a free port; on another where somebody was quicker.
fn spawn(product: Product, dir: &Path) -> (Child, u16) {
    for _ in 0..5 {
        let port = free_port().unwrap();
        if let Some(child) = spawn_at(product, dir, port) {
            return (child, port);
        }
    }
    panic!("{product:?} does not start: {}", told(dir));
}

/// Starts a program and waits until it is ready; nothing where it ends.
fn spawn_at(product: Product, dir: &Path, port: u16) -> Option<Child> {
    let log = fs::OpenOptions::new().create(true).append(true).open(dir.join("log")).unwrap();
    let mut command = product.command(dir, port, free_port().unwrap());
    command.current_dir(dir).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    let mut child = command.spawn().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "{product:?} is not ready: {}", told(dir));
        // A stranger's answer at this port is none of its own: it has ended by then.
        if is_ready(product, dir, port) && child.try_wait().unwrap().is_none() {
            return Some(child);
        }
        thread::sleep(Duration::from_millis(20));
    }
    None
}

fn told(dir: &Path) -> String {
    fs::read_to_string(dir.join("log")).unwrap_or_default()
}

fn is_ready(product: Product, dir: &Path, port: u16) -> bool {
    if product == Product::ClosedPrometheus {
        // Said once the port is its own. That it answers "not yet" for a while is left to who asks.
        return told(dir).contains(&format!("\"Listening on\" address=127.0.0.1:{port}"));
    }
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let ask = format!("GET {} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", product.ready());
    let mut answer = String::new();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream.write_all(ask.as_bytes()).is_ok()
        && stream.read_to_string(&mut answer).is_ok()
        && answer.starts_with("HTTP/1.1 2")
}

/// Whether the program is there; says loudly that it is not, and fails where `CI` is set.
pub(crate) fn is_here(product: Product) -> bool {
    let missing = machine::missing(&[product.program()]);
    if let Some(program) = missing {
        skip::report(&format!("{product:?}"), &format!("{program}: scripts/test engines installs it"));
    }
    missing.is_none()
}
