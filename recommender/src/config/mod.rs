//! Owns the configuration: its values, defaults (each in one place, with unit and origin), checks and sources.
//!
//! Flags go over environment, environment over files (`recommender.toml`, then `recommender.toml`'s `conf.d/*.toml` in
//! the order of their names). An unknown key is an error. Reading is in `load.rs`, the units in `units.rs`, the engines
//! outside in `engine.rs`.

mod access;
mod acting;
mod capacity;
mod engine;
mod live;
mod load;
mod tls;
mod units;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use evenkeel_model::quantity::Quantity;
use evenkeel_model::resource_type::{Definition, ResourceTypes};
use evenkeel_rightsizing::policy::Goals;
use evenkeel_rightsizing::{Resource, initial};

pub use access::AccessSection;
pub use acting::ActingSection;
pub use capacity::{CapacitySection, WatchSection};
pub use engine::{EngineKind, EngineSection, HeaderValue, SecretFrom};
pub use live::InForce;
pub use load::{ConfigError, DEFAULT_FILE, Sources, load};
pub use tls::TlsSection;
pub use units::{Size, Span, UnitError};

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
    /// Former names of keys under which values were given.
    #[serde(skip)]
    #[schemars(skip)]
    pub former: Vec<&'static str>,
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
    /// Nodes, namespaces and workloads' containers whose amounts are on `/metrics`, of each kind; of more, the first by name
    /// (`rows_left_out` tells how many are not). 0 = none.
    pub metric_rows: usize,
}

/// The ingest log and its checkpoints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogSection {
    /// Size of a segment, the grain of trimming.
    pub segment_bytes: Size,
    /// Bound on the whole log. When it is reached, nothing is acknowledged until a checkpoint frees space.
    pub max_bytes: Size,
    /// Longest time between data written and its fdatasync begun; at most 200ms, so that no acknowledgement waits
    /// longer.
    pub sync_interval: Span,
    /// A checkpoint is written at least this often while data arrives.
    pub checkpoint_interval: Span,
    /// A checkpoint is written when the log has grown this much since the last one; bounds the replay at start.
    pub checkpoint_bytes: Size,
}

/// What agents may send.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Ingest {
    /// Frames a client may have unacknowledged.
    pub credits: u32,
    /// Largest gRPC message; a frame must fit into one.
    pub max_message: Size,
    /// Open ingest connections; one more is refused.
    pub max_streams: usize,
    /// Known (cluster, node, epoch) streams; when one more appears, the one idle longest is forgotten.
    pub max_epochs: usize,
    /// Containers that run at once over all nodes; announcements beyond are counted and not followed.
    pub max_containers: usize,
    /// Containers of one node at once; announcements beyond are counted (`refused_containers`) and not followed. Also the
    /// series a node may bring before its new names only take the places of its own.
    pub max_containers_per_node: usize,
    /// Names of workloads' containers, never seen before, that a node may bring in a minute beyond as many as it may have
    /// containers at once; further ones are counted (`refused_containers`) and not followed.
    pub max_names_per_minute: u32,
    /// A node that has been silent this long while others were heard is gone: its containers are no replicas, in no sum
    /// and do not count towards `max_containers`, until it is heard again. Its history stays. Capacity questions that are
    /// watched wait at most so long after a start for the nodes known before.
    pub gone_after: Span,
    /// Containers and codec state of a stream that has been silent this long are dropped; its position is kept, so that
    /// a late repetition is still recognised.
    pub forget_after: Span,
}

/// How long the past is kept, and in how much room. Whole days are dropped, the oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Retention {
    /// Minutes of containers and hours of workloads, in whole days.
    pub hours: Span,
    /// Days of workloads, commands and images, in whole days.
    pub days: Span,
    /// Bytes of all of it on disk; beyond it the oldest day goes before its time. The newest day always stays.
    pub bytes: Size,
}

/// How many things are known at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HistorySection {
    /// Workload containers (by image) known at once; those silent longest are dropped beyond it.
    pub max_series: usize,
    /// Decisions kept.
    pub max_events: usize,
    /// Engines outside that keep the history too, and give back what is missing here.
    #[serde(default)]
    pub engines: Vec<EngineSection>,
}

/// The rule that answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Recommend {
    /// The rule where no policy names one.
    pub rule: String,
    /// Percentile of the `initial` rule, thousandths.
    pub percentile_per_mille: u32,
    /// Its tiers, first choice first.
    pub tiers: Vec<TierSection>,
    /// How often the recommendations kept of every workload are made anew, and watches told what has changed.
    pub watch_interval: Span,
    /// Policies kept at once, applied ones and those of files each; further ones are refused.
    pub max_policies: usize,
    /// Values for well-known images of which nothing else is known; a copy of `predefined.toml`. The values built in
    /// without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predefined: Option<PathBuf>,
    /// The former name of `objects`.
    #[serde(skip_serializing)]
    #[schemars(skip)]
    pub objects: Vec<PathBuf>,
    /// What the goals of the rule `goal` are where no policy says otherwise.
    pub goals: GoalsSection,
    /// What LimitRange objects of namespaces allow a container; they cap what is recommended.
    pub limit_ranges: Vec<LimitRangeSection>,
}

/// What the `goal` rule is to reach in the whole cluster. Absent = the rule's own.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GoalsSection {
    /// Part of the request above which CPU use counts as over; 0.95 is the rule's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_threshold: Option<f64>,
    /// Part of the time in which that may be; 0.01 is the rule's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_over: Option<f64>,
    /// Part of the 24-hour windows in which memory may exceed the request; 0.01 is the rule's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_over: Option<f64>,
}

impl GoalsSection {
    /// As policies have them.
    pub const fn goals(&self) -> Goals {
        let Self { cpu_threshold, cpu_over, memory_over } = *self;
        Goals { cpu_threshold, cpu_over, memory_over }
    }

    fn problems(&self) -> impl Iterator<Item = (&'static str, String)> {
        let all = [
            ("recommend.goals.cpu_threshold", self.cpu_threshold),
            ("recommend.goals.cpu_over", self.cpu_over),
            ("recommend.goals.memory_over", self.memory_over),
        ];
        let wrong = |part: f64| !(part > 0.0 && part <= 1.0);
        let wrong =
            all.into_iter().filter_map(move |(key, part)| part.filter(|part| wrong(*part)).map(|_| key));
        wrong.map(|key| (key, "must be above 0 and up to 1, such as 0.01".to_owned()))
    }
}

/// What the LimitRange of a namespace allows a container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitRangeSection {
    /// The namespace.
    pub namespace: String,
    /// Least CPU, such as 10m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub cpu_min: Option<Quantity>,
    /// Greatest CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub cpu_max: Option<Quantity>,
    /// Least memory, such as 16Mi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub memory_min: Option<Quantity>,
    /// Greatest memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub memory_max: Option<Quantity>,
}

impl LimitRangeSection {
    /// Least and greatest of one resource: thousandths of a core, or bytes.
    pub fn of(&self, resource: Resource) -> (Option<u64>, Option<u64>) {
        match resource {
            Resource::Cpu => {
                let milli = |q: Option<Quantity>| q.and_then(Quantity::milli_u64);
                (milli(self.cpu_min), milli(self.cpu_max))
            }
            Resource::Memory => {
                let bytes = |q: Option<Quantity>| q.and_then(Quantity::to_u64);
                (bytes(self.memory_min), bytes(self.memory_max))
            }
        }
    }
}

/// One tier of the `initial` rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TierSection {
    /// Name shown with answers.
    pub name: String,
    /// Whose samples count.
    pub scope: ScopeSection,
    /// How far back.
    pub window: Span,
    /// Samples needed.
    pub min_samples: usize,
}

/// Whose samples a tier looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ScopeSection {
    /// Containers of the same image and tag.
    ImageTag,
    /// Containers of the same image, any tag.
    Image,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            state_dir: PathBuf::from("/var/lib/evenkeel/recommender"),
            policies: vec![PathBuf::from("/etc/evenkeel/policies")],
            objects: vec![PathBuf::from("/etc/evenkeel/objects")],
            former: Vec::new(),
            panic: false,
            panic_file: PathBuf::from("/etc/evenkeel/panic"),
            insecure: false,
            serve: Serve::default(),
            access: AccessSection::default(),
            tls: TlsSection::default(),
            log: LogSection::default(),
            ingest: Ingest::default(),
            history: HistorySection::default(),
            retention: Retention::default(),
            recommend: Recommend::default(),
            resources: BTreeMap::new(),
            acting: ActingSection::default(),
            capacity: CapacitySection::default(),
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
            // Of each kind at most 200 KiB of text, which Prometheus takes every 15 s without notice.
            metric_rows: 200,
        }
    }
}

impl Default for LogSection {
    fn default() -> Self {
        Self {
            segment_bytes: Size::from_mib(32),
            max_bytes: Size::from_mib(2048),
            // With the time of the sync itself, this keeps the whole wait below 200 ms on an ordinary disk.
            sync_interval: Span::from_millis(150),
            checkpoint_interval: Span::from_secs(60),
            checkpoint_bytes: Size::from_mib(128),
        }
    }
}

impl Default for Ingest {
    fn default() -> Self {
        Self {
            // A minute of one-second frames.
            credits: 64,
            max_message: Size::from_mib(4),
            // Twice the nodes of the largest cluster Kubernetes supports (5,000).
            max_streams: 10_000,
            max_epochs: 50_000,
            // Kubernetes supports 300,000 containers in a cluster.
            max_containers: 500_000,
            // Kubernetes tests 110 pods a node and large providers allow 1,000; up to four containers each.
            max_containers_per_node: 4_000,
            // Ten new workloads a second: more than a kubelet starts pods for long.
            max_names_per_minute: 600,
            // A node controller waits 40 s, and pods tolerate an unreachable node for 300 s: then they are made elsewhere.
            gone_after: Span::from_secs(300),
            forget_after: Span::from_days(2),
        }
    }
}

impl Default for HistorySection {
    fn default() -> Self {
        Self { max_series: 200_000, max_events: 10_000, engines: Vec::new() }
    }
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            // The windows of `vpa` and `goal` are 8 days; a day goes as a whole, so one more.
            hours: Span::from_days(9),
            // The longest window of the `initial` rule is 30 days.
            days: Span::from_days(35),
            // A busy container-day takes at most 40 KiB: 9 days of 50,000 of them.
            bytes: Size::from_mib(16 << 10),
        }
    }
}

impl Default for Recommend {
    fn default() -> Self {
        let params = initial::Params::default();
        let tiers = params.tiers.into_iter().map(|tier| TierSection {
            name: tier.name,
            scope: match tier.scope {
                initial::Scope::ImageTag => ScopeSection::ImageTag,
                initial::Scope::Image => ScopeSection::Image,
            },
            window: Span::from_secs(tier.window_minutes * 60),
            min_samples: tier.min_samples,
        });
        Self {
            rule: crate::recommend::rules::NAMES[0].to_owned(),
            percentile_per_mille: params.percentile_per_mille,
            tiers: tiers.collect(),
            watch_interval: Span::from_secs(15),
            // Twice the 10,000 that are refreshed in less than five seconds.
            max_policies: 20_000,
            predefined: None,
            objects: Vec::new(),
            goals: GoalsSection::default(),
            limit_ranges: Vec::new(),
        }
    }
}

impl Recommend {
    /// The parameters of the rule.
    pub fn initial(&self) -> initial::Params {
        let tiers = self.tiers.iter().map(|tier| initial::Tier {
            name: tier.name.clone(),
            scope: match tier.scope {
                ScopeSection::ImageTag => initial::Scope::ImageTag,
                ScopeSection::Image => initial::Scope::Image,
            },
            window_minutes: tier.window.minutes(),
            min_samples: tier.min_samples,
        });
        initial::Params { percentile_per_mille: self.percentile_per_mille, tiers: tiers.collect() }
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
        let log = &self.log;
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
        if let Some(open) = self.plaintext().filter(|_| !self.insecure) {
            check(false, "serve", &open);
        }
        check(self.serve.max_body.get() >= 1024, "serve.max_body", "must be at least 1KiB");
        check(
            (2..=100_000).contains(&self.serve.max_connections),
            "serve.max_connections",
            "must be 2 to 100000",
        );
        check(self.serve.metric_rows <= 100_000, "serve.metric_rows", "must be at most 100000");
        check(self.serve.request_timeout.get().as_millis() > 0, "serve.request_timeout", "must not be 0");
        check(log.segment_bytes.get() >= 1 << 16, "log.segment_bytes", "must be at least 64KiB");
        check(
            log.max_bytes.get() / 2 >= log.segment_bytes.get(),
            "log.max_bytes",
            "must be at least twice log.segment_bytes",
        );
        check(
            log.max_bytes.get() / 4 >= self.ingest.max_message.get(),
            "log.max_bytes",
            "must be at least four times ingest.max_message",
        );
        check(
            (1..=200).contains(&log.sync_interval.get().as_millis()),
            "log.sync_interval",
            "must be 1ms to 200ms: acknowledgements wait for it",
        );
        check(log.checkpoint_interval.get().as_secs() > 0, "log.checkpoint_interval", "must be at least 1s");
        check(
            log.checkpoint_bytes.get() <= log.max_bytes.get() / 2,
            "log.checkpoint_bytes",
            "must be at most half of log.max_bytes",
        );
        check((1..=100_000).contains(&self.ingest.credits), "ingest.credits", "must be 1 to 100000");
        check(
            (1 << 16..=48 << 20).contains(&self.ingest.max_message.get()),
            "ingest.max_message",
            "must be 64KiB to 48MiB",
        );
        check(self.ingest.max_streams > 0, "ingest.max_streams", "must not be 0");
        check(self.ingest.max_epochs > 0, "ingest.max_epochs", "must not be 0");
        check(self.ingest.max_containers_per_node > 0, "ingest.max_containers_per_node", "must not be 0");
        check(self.ingest.max_names_per_minute > 0, "ingest.max_names_per_minute", "must not be 0");
        check(
            self.ingest.gone_after.minutes() > 0
                && self.ingest.gone_after.get() <= self.ingest.forget_after.get(),
            "ingest.gone_after",
            "must be at least 1m and at most ingest.forget_after",
        );
        check(self.retention.hours.days() > 0, "retention.hours", "must be at least 1d");
        check(
            self.retention.days.days() >= self.retention.hours.days(),
            "retention.days",
            "must be at least retention.hours",
        );
        check(self.retention.bytes.get() >= 1 << 20, "retention.bytes", "must be at least 1MiB");
        check(self.history.max_series > 0, "history.max_series", "must not be 0");
        check(
            self.recommend.percentile_per_mille <= 1000,
            "recommend.percentile_per_mille",
            "must be 0 to 1000: 900 is the 90th percentile",
        );
        let rules = crate::recommend::rules::NAMES;
        check(
            rules.contains(&self.recommend.rule.as_str()),
            "recommend.rule",
            &format!("must be one of {}", rules.join(", ")),
        );
        for range in &self.recommend.limit_ranges {
            for resource in Resource::ALL {
                let (min, max) = range.of(resource);
                let ordered = min.is_none_or(|min| max.is_none_or(|max| min <= max));
                check(
                    ordered,
                    "recommend.limit_ranges",
                    &format!("{}: {resource:?} min is above max", range.namespace),
                );
            }
        }
        check(!self.recommend.tiers.is_empty(), "recommend.tiers", "must name at least one tier");
        found.extend(self.recommend.goals.problems());
        found.extend(self.capacity.problems());
        found.extend(self.history.engines.iter().flat_map(EngineSection::problems));
        found
    }

    /// Directory of the ingest log.
    pub fn log_dir(&self) -> PathBuf {
        self.state_dir.join("log")
    }

    /// The answers to watched questions.
    pub fn watched_file(&self) -> PathBuf {
        self.state_dir.join("capacity-watched.json")
    }

    /// Directory of the sealed history.
    pub fn history_dir(&self) -> PathBuf {
        self.state_dir.join("history")
    }

    /// The checkpoint file.
    pub fn checkpoint_file(&self) -> PathBuf {
        self.state_dir.join("checkpoint")
    }
}
