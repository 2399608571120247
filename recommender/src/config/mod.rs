//! Owns the configuration: its values, defaults (each in one place, with unit and origin), checks and sources.
//!
//! Flags go over environment, environment over files (`recommender.toml`, then `recommender.d/*.toml` in the order of
//! their names). An unknown key is an error. Merging, units and the form of errors are `evenkeel-settings`'; the sections of
//! what is kept are in `evenkeel_store::config`.

mod access;
mod acting;
mod audit;
mod capacity;
mod dashboard;
mod kubernetes;
mod live;
mod load;
mod node_name;
mod recommend;
mod tls;
mod updater;
mod webhook;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use evenkeel_model::resource_type::{Definition, ResourceTypes};
use evenkeel_store::config::Settings;
pub use evenkeel_store::config::{
    EngineKind, EngineSection, HeaderValue, HistorySection, Ingest, LogSection, Retention, SecretFrom,
};

pub use access::{AccessSection, CertificateSection};
pub use acting::ActingSection;
pub use audit::AuditSection;
pub use capacity::{CapacitySection, WatchSection};
pub use dashboard::DashboardSection;
pub use evenkeel_settings::{ConfigError, ConfigErrors, Size, Span};
pub use kubernetes::KubernetesSection;
pub use live::LiveConfig;
pub(crate) use load::values;
pub use load::{Sources, load};
pub use node_name::NodeNameSection;
pub use recommend::{GoalsSection, LimitRangeSection, Recommend, ScopeSection, TierSection};
pub use tls::TlsSection;
pub use updater::{UpdaterMode, UpdaterSection};
pub use webhook::{WebhookMode, WebhookSection};

/// Everything that can be configured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Directory of everything kept: the ingest log and the checkpoint.
    pub state_dir: PathBuf,
    /// Files and directories of policies (`*.yaml`, `*.yml`, `*.json`), read at start and when they change. What is not
    /// there is no error.
    pub policies: Vec<PathBuf>,
    /// Files and directories (`*.yaml`, `*.yml`, `*.json`) of Kubernetes objects that agents do not report, as
    /// `kubectl get limitranges,resourcequotas -A -o yaml` or `evenkeel snapshot` writes them. Limit ranges and quotas cap what is
    /// recommended; they and the rest (classes, volumes, ...) bound questions about what agents report, where a kind of which there
    /// is one here is taken as complete. Nodes and pods in them do not count. Read at start and when they change. What is not there
    /// is no error.
    pub objects: Vec<PathBuf>,
    /// The panic switch: recommendations change nothing, running containers keep the requests in force, classes are
    /// enforced. It is on until the key is taken back.
    pub panic: bool,
    /// A file that does the same while it is there; empty for none.
    pub panic_file: PathBuf,
    /// Serve addresses other machines can reach without encryption. Everything asked and answered, tokens included, can
    /// then be read and changed on the way; it is said in `/readyz`, `/metrics` and, each hour, the log.
    pub insecure: bool,
    /// The socket, addresses and limits of the interfaces.
    pub serve: Serve,
    /// Who may ask.
    pub access: AccessSection,
    /// The record of changes.
    pub audit: AuditSection,
    /// The pages.
    pub dashboard: DashboardSection,
    /// The Kubernetes cluster whose users and nodes are known.
    pub kubernetes: KubernetesSection,
    /// Encryption of addresses.
    pub tls: TlsSection,
    /// The ingest log and its checkpoints.
    pub log: LogSection,
    /// What agents may send.
    pub ingest: Ingest,
    /// How many things are known at once.
    pub history: HistorySection,
    /// How long the past is kept, and in how much room.
    pub retention: Retention,
    /// The rule that answers.
    pub recommend: Recommend,
    /// Resource types by name, as the agents' configuration has them: the quantization of cpu and memory is that of recommended
    /// requests.
    #[schemars(with = "BTreeMap<String, BTreeMap<String, serde_json::Value>>")]
    pub resources: BTreeMap<String, Definition>,
    /// What running containers are given.
    pub acting: ActingSection,
    /// How many more pods fit.
    pub capacity: CapacitySection,
    /// The admission webhook, a program of its own.
    pub webhook: WebhookSection,
    /// Files that were read, in order.
    #[serde(skip)]
    #[schemars(skip)]
    pub files: Vec<PathBuf>,
    /// What a person should know: values given under former names, files that are not read.
    #[serde(skip)]
    #[schemars(skip)]
    pub warnings: Vec<String>,
}

/// The socket, addresses and limits of the interfaces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Serve {
    /// Unix socket of gRPC and HTTP, for this machine; empty = none. Everybody may connect; the kernel says who it is, and
    /// `access` what they may. Where a service manager hands a socket over, that one.
    pub socket: PathBuf,
    /// gRPC address, such as "127.0.0.1:9520"; none without. Callers are named by tokens (`access.tokens`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grpc: Option<SocketAddr>,
    /// HTTP address, such as "127.0.0.1:9521"; none without. Callers are named by tokens (`access.tokens`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<SocketAddr>,
    /// Host names by which clients call the HTTP address, beside `localhost` and addresses; others are refused, since a web
    /// page could have its own name point here.
    pub hosts: Vec<String>,
    /// Threads that serve the network; the log has its own.
    pub workers: usize,
    /// A request that takes longer is answered with 504 (HTTP) or DEADLINE_EXCEEDED.
    pub request_timeout: Span,
    /// Largest HTTP request body, and largest question over gRPC.
    pub max_body: Size,
    /// Open HTTP connections, and gRPC connections beside those of ingest.max_streams agents. One address, or user of the
    /// socket, has at most half; where there are more, the one that has waited longest for a request is closed.
    pub max_connections: usize,
    /// On SIGTERM, open requests have this long to end.
    pub drain: Span,
    /// On SIGTERM, and before that, everything is answered as before for so long, while `/readyz` says no: time for whoever passes requests
    /// on, such as a Service, to send them to another recommender.
    pub linger: Span,
    /// Nodes, namespaces and workloads' containers whose amounts are on `/metrics`, of each kind; of more, the first by name
    /// (`rows_left_out` tells how many are not). 0 = none.
    pub metric_rows: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            state_dir: PathBuf::from("/var/lib/evenkeel/recommender"),
            policies: vec![PathBuf::from("/etc/evenkeel/policies")],
            objects: vec![PathBuf::from("/etc/evenkeel/objects")],
            files: Vec::new(),
            warnings: Vec::new(),
            panic: false,
            panic_file: PathBuf::from("/etc/evenkeel/panic"),
            insecure: false,
            serve: Serve::default(),
            access: AccessSection::default(),
            audit: AuditSection::default(),
            dashboard: DashboardSection::default(),
            kubernetes: KubernetesSection::default(),
            tls: TlsSection::default(),
            log: LogSection::default(),
            ingest: Ingest::default(),
            history: HistorySection::default(),
            retention: Retention::default(),
            recommend: Recommend::default(),
            resources: BTreeMap::new(),
            acting: ActingSection::default(),
            capacity: CapacitySection::default(),
            webhook: WebhookSection::default(),
        }
    }
}

impl Default for Serve {
    fn default() -> Self {
        Self {
            socket: PathBuf::from("/run/evenkeel/recommender.sock"),
            grpc: None,
            http: None,
            hosts: Vec::new(),
            // One receives while another answers a question; ingest itself needs a third of a core at 300,000/s.
            workers: 2,
            // The longest question, all recommendations of a full history, takes a few seconds.
            request_timeout: Span::from_secs(10),
            // etcd's limit of an object is 1.5 MiB; a pod is never larger.
            max_body: Size::from_mib(2),
            // Prometheus, webhooks and people keep a handful each.
            max_connections: 512,
            drain: Span::from_secs(5),
            // Alone, there is no other one to be sent to.
            linger: Span::from_secs(0),
            // Of each kind at most 200 KiB of text, which Prometheus takes every 15 s without notice.
            metric_rows: 200,
        }
    }
}

impl Config {
    /// What contradicts itself or lies outside what works: key, and what is wrong with it. Empty when all is well.
    pub fn problems(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let mut check = |ok: bool, key, what: &str| {
            if !ok {
                found.push((key, what.to_owned()));
            }
        };
        if let Err(errors) = ResourceTypes::with(&self.resources) {
            errors.iter().for_each(|error| check(false, "resources", &error.to_string()));
        }
        check(self.objects.len() <= 100, "objects", "must be at most 100 files and directories");
        check((1..=64).contains(&self.serve.workers), "serve.workers", "must be 1 to 64");
        let Serve { socket, grpc, http, .. } = &self.serve;
        let nowhere = socket.as_os_str().is_empty() && grpc.is_none() && http.is_none();
        check(!nowhere, "serve.socket", "must be a path where there is neither serve.grpc nor serve.http");
        check(
            socket.as_os_str().is_empty() || socket.is_absolute(),
            "serve.socket",
            "must be an absolute path, such as /run/evenkeel/recommender.sock, or empty for none",
        );
        self.tls.problems().iter().for_each(|(key, what)| check(false, key, what));
        self.access.problems().iter().for_each(|(key, what)| check(false, key, what));
        self.kubernetes.problems().iter().for_each(|(key, what)| check(false, key, what));
        self.cluster_authority_problem().iter().for_each(|(key, what)| check(false, key, what));
        if let Some(open) = self.plaintext().filter(|_| !self.insecure) {
            check(false, "insecure", &format!("is false, and {open}"));
        }
        check(self.serve.max_body.get() >= 1024, "serve.max_body", "must be at least 1Ki");
        check(
            (2..=100_000).contains(&self.serve.max_connections),
            "serve.max_connections",
            "must be 2 to 100000",
        );
        check(self.serve.linger.get().as_secs() <= 300, "serve.linger", "must be at most 5m");
        check(
            self.kubernetes.lease.is_empty() || !self.tls.authority,
            "kubernetes.lease",
            "needs certificates that agents take of every recommender (tls.cert): with tls.authority each has an authority of its own",
        );
        check(self.serve.metric_rows <= 100_000, "serve.metric_rows", "must be at most 100000");
        check(self.serve.request_timeout.get().as_millis() > 0, "serve.request_timeout", "must not be 0");
        check(self.access.requests_per_second > 0, "access.requests_per_second", "must not be 0");
        found.extend(self.audit.problems());
        found.extend(self.dashboard.problems());
        found.extend(self.recommend.problems());
        found.extend(self.capacity.problems());
        found.extend(self.webhook.problems());
        found.extend(self.store().problems());
        found
    }

    /// What the store is opened with.
    pub fn store(&self) -> Settings {
        Settings {
            state_dir: self.state_dir.clone(),
            log: self.log.clone(),
            ingest: self.ingest.clone(),
            history: self.history.clone(),
            retention: self.retention.clone(),
        }
    }

    /// The answers to watched questions.
    pub fn watched_file(&self) -> PathBuf {
        self.state_dir.join("capacity-watched.json")
    }

    /// Directory of the audit record.
    pub(crate) fn audit_dir(&self) -> PathBuf {
        self.state_dir.join(crate::audit::FOLDER)
    }
}
