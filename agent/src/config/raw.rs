//! The configuration as written: every key, its meaning, unit, default and the default's origin.
//!
//! Owned here: key names and defaults, each in one place. Field comments become the comments of
//! `config default` and the descriptions of `config schema`. Not owned: checking (`check`), merging (`load`).

use std::path::PathBuf;

use evenkeel_model::workload::ScorePolicy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::scalar::{Addresses, Definitions, Size, Span};
use super::sections::admission::Admission;
use super::sections::cpu::Cpu;
use super::sections::daemons::Daemons;
use super::sections::eviction::Eviction;
use super::sections::knobs::Knobs;
use super::sections::memory::Memory;
use super::sections::node::Node;
use super::sections::oom::Oom;
use super::sections::overlay::Overlay;
use super::sections::parts::Parts;
use super::sections::pressure::Pressure;
use super::sections::ring::Ring;
use super::sections::starvation::Starvation;
use super::sections::systemd::Systemd;
use super::sections::trust::{Metrics, Tls};

section! {
    /// Configuration of evenkeel-agent.
    Raw {
        /// "enforce" writes; "dry-run" takes the whole road and writes nothing. Default: an agent started by hand touches
        /// nothing; the service unit says --default-mode enforce.
        mode: Mode = Mode::DryRun,
        /// "proposal" classifies each container by memory; "kubelet" is Kubernetes 1.36 (beside a kubelet).
        rules: Rules = Rules::Proposal,
        /// True makes a missing permission for an enabled knob or feature fatal at start.
        strict: bool = false,
        /// Directory of the journal of originals, the decision log and the spool.
        state_dir: PathBuf = "/var/lib/evenkeel/agent".into(),
        /// Subtrees given to the agent, such as "/evenkeel.slice": there it also writes the cgroups between the root and
        /// the containers. Everywhere else containers only.
        own: Vec<String> = Vec::new(),
        /// "static": a score follows from class and request. "dynamic": Burstable containers are ranked by use over
        /// request and by priority class as well.
        scores: Scores = Scores::Static,
        /// Serve addresses that other machines can reach without encryption, or without asking who it is. What containers use
        /// and are called can then be read on the way; it is said in status, /metrics and, each hour, the log.
        insecure: bool = false,
        /// Who this node is, and what it has to give.
        node: Node = Node::default(),
        /// Resource types by name, for sums of requests: types of your own with units (""= a plain number), internalScaleExponent,
        /// isCompressible, defaultRequest and quantization; of native ones, such as cpu, defaultRequest and quantization.
        resources: Definitions = Definitions::default(),
        /// Where the kernel's files are; in a pod, where the host's are mounted.
        roots: Roots = Roots::default(),
        /// Where containers are found.
        sources: Sources = Sources::default(),
        /// What is sampled but never written.
        manage: Manage = Manage::default(),
        /// What becomes of manifests that do not fit.
        admission: Admission = Admission::default(),
        /// Which knobs are written. A knob that is off may have another owner.
        knobs: Knobs = Knobs::default(),
        /// How CPU is given.
        cpu: Cpu = Cpu::default(),
        /// How memory is kept and limited.
        memory: Memory = Memory::default(),
        /// Daemons the node cannot live without.
        daemons: Daemons = Daemons::default(),
        /// What is done about memory that runs short.
        pressure: Pressure = Pressure::default(),
        /// What is done when a container does not get the CPU it requested.
        starvation: Starvation = Starvation::default(),
        /// Requests that the recommender gives.
        overlay: Overlay = Overlay::default(),
        /// What is told of OOM kills.
        oom: Oom = Oom::default(),
        /// What is ruled of a container that was OOM-killed, and who carries it out.
        eviction: Eviction = Eviction::default(),
        /// How processes are brought to their score.
        converge: Converge = Converge::default(),
        /// The sampler.
        sample: Sample = Sample::default(),
        /// Seconds on disk to look back at.
        ring: Ring = Ring::default(),
        /// The stream to the recommender.
        stream: Stream = Stream::default(),
        /// The processes that the agent is made of.
        parts: Parts = Parts::default(),
        /// What the agent serves.
        serve: Serve = Serve::default(),
        /// Encryption of what it serves at addresses.
        tls: Tls = Tls::default(),
        /// How /metrics is served.
        metrics: Metrics = Metrics::default(),
        /// Features that need a capability; off = the capability is dropped at start.
        features: Features = Features::default(),
    }
}

section! {
    /// Where the kernel's files are.
    Roots {
        /// procfs of the host's process namespace.
        proc: PathBuf = "/proc".into(),
        /// Directory of the cgroup file system, or of the v1 hierarchies' mounts.
        cgroup: PathBuf = "/sys/fs/cgroup".into(),
        /// Directory of the lock (evenkeel/agent.lock) that lets one agent write on a machine.
        run: PathBuf = "/run".into(),
    }
}

section! {
    /// Where containers are found.
    Sources {
        /// Pod manifests whose containers are bound to cgroups or units by annotation.
        manifests: Manifests = Manifests::default(),
        /// Container runtimes.
        cri: Cri = Cri::default(),
        /// Docker and Podman.
        engines: Engines = Engines::default(),
        /// systemd's services and slices.
        systemd: Systemd = Systemd::default(),
        /// The node's kubelet.
        kubelet: Kubelet = Kubelet::default(),
    }
}

section! {
    /// A directory of Pod manifests.
    Manifests {
        /// Whether it is read.
        enabled: bool = true,
        /// The directory; it need not exist yet.
        dir: PathBuf = "/etc/evenkeel/manifests".into(),
    }
}

section! {
    /// Container runtimes by their CRI socket.
    Cri {
        /// Whether runtimes are asked.
        enabled: bool = true,
        /// Sockets; one that is not there is tried again. Defaults: containerd's and CRI-O's own.
        sockets: Vec<PathBuf> = vec!["/run/containerd/containerd.sock".into(), "/run/crio/crio.sock".into()],
    }
}

section! {
    /// Docker and Podman by their API sockets: names, labels, images, requests and limits of the containers whose
    /// cgroups are there. Reading calls alone are made.
    Engines {
        /// Whether they are asked; otherwise their containers are known by cgroup and id alone.
        enabled: bool = true,
        /// Docker's socket; it is asked where it is there and belongs to root. Default: Docker's own.
        docker: PathBuf = "/run/docker.sock".into(),
        /// Podman's, as docker. Default: that of podman.socket.
        podman: PathBuf = "/run/podman/podman.sock".into(),
    }
}

section! {
    /// The node's kubelet (GET /pods): what its pods require in the API server's words, of which the runtime's record shows shares and scores
    /// alone. For nodes that no recommender tells (kubernetes.view), whose word goes before. Needs the right to get nodes/pods, which kubelets
    /// know since 1.33; nodes/proxy is never asked for.
    Kubelet {
        /// Whether it is asked.
        enabled: bool = false,
        /// Where it is.
        address: String = "https://127.0.0.1:10250".to_owned(),
        /// Name in its certificate; empty = the node's.
        server_name: String = String::new(),
        /// Authorities that its certificate is checked with, PEM; of a kubelet that made its own, that: /var/lib/kubelet/pki/kubelet.crt. Read
        /// at each question.
        ca: PathBuf = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt".into(),
        /// File with the token that is sent, for the API server's own audience. Read at each question.
        token: PathBuf = "/var/run/secrets/kubernetes.io/serviceaccount/token".into(),
        /// Longest time between two questions; it is asked when containers change, too.
        interval: Span = Span::from_secs(30),
    }
}

section! {
    /// What is sampled but never written.
    Manage {
        /// Namespaces. Default: where Kubernetes keeps what the node itself needs.
        exclude_namespaces: Vec<String> = vec!["kube-system".into()],
        /// Cgroup paths; each and everything below it is never written.
        deny: Vec<String> = Vec::new(),
        /// Namespaces whose pods' annotations evenkeel.dev/resources and evenkeel.dev/manage may raise a container above
        /// what its runtime says, or take it out. Elsewhere they only lower. Whoever may create a pod there has these
        /// rights, so it stays empty beside a kubelet (rules = "kubelet").
        trust_annotations: Vec<String> = Vec::new(),
    }
}

section! {
    /// How processes are brought to their score.
    Converge {
        /// Every container is looked at once in this time, whatever events say. Default: the kubelet's housekeeping.
        audit_period: Span = Span::from_secs(10),
        /// "when-forking" freezes a container for one pass when its processes are seen forking while scores are
        /// wrong, "after-3-passes" only when so many passes found new wrong ones, "never" not at all.
        freeze: Freeze = Freeze::default(),
        /// Longest time a container is held frozen. Default: twice the longest seen on a loaded two-core machine.
        freeze_max: Span = Span::from_millis(500),
        /// "respect" leaves a process that raised its own score, unless its pod's annotation says "pin"; "pin" puts
        /// every such process back.
        score: Policy = Policy::Respect,
        /// A knob that somebody else rewrote so many times in a row is left to them.
        contended_after: u32 = 3,
    }
}

section! {
    /// The sampler.
    Sample {
        /// Time between ticks.
        interval: Span = Span::from_secs(1),
    }
}

section! {
    /// The stream to the recommender.
    Stream {
        /// The recommender: unix:///PATH of its socket on this machine, https://HOST:PORT, or http://HOST:PORT; empty = no
        /// stream. A list of up to four = each gets every frame, and what changes this node is taken from the one that leads.
        recommender: Addresses = Addresses::One("unix:///run/evenkeel/recommender.sock".into()),
        /// File with the token that names this node to a recommender at an address (`evenkeel-recommender token add NAME
        /// --node CLUSTER/NODE`), or the projected token of its pod; empty = none. Its socket asks for none. Read at each
        /// connection, and again before the token ends.
        token: PathBuf = PathBuf::new(),
        /// Authorities of the recommender's certificate, PEM, where it is reached by https://.
        ca: PathBuf = PathBuf::new(),
        /// Certificate that names this node by its URI spiffe://TRUST_DOMAIN/evenkeel/CLUSTER/NODE, PEM; empty = none. Read at each
        /// connection.
        cert: PathBuf = PathBuf::new(),
        /// Its key, PEM.
        key: PathBuf = PathBuf::new(),
        /// File with a join token for the recommender's own authority (`evenkeel ca token NODE`), for one use: the node's certificate and
        /// key are then kept in the state directory and renewed at two thirds of their life. Empty = none.
        join_token: PathBuf = PathBuf::new(),
        /// Fingerprint of the recommender's own authority (sha256:...), where there is no file of it (stream.ca): the authority is looked
        /// for by it once, and kept.
        ca_sha256: String = String::new(),
        /// Name the recommender's certificate has to have; empty = that of its address.
        name: String = String::new(),
        /// Stream over a network without encryption (http:// off loopback).
        insecure: bool = false,
        /// Bound of the spool on disk. Default: half a day of a hundred busy containers.
        spool_bytes: Size = Size::from_mib(64),
    }
}

section! {
    /// What the agent serves.
    Serve {
        /// Unix socket of AgentService.
        socket: PathBuf = "/run/evenkeel/agent.sock".into(),
        /// TCP address of AgentService, such as "127.0.0.1:9522"; empty = the socket alone. It needs a token or tls.client_ca, and
        /// off loopback TLS (tls.cert).
        address: String = String::new(),
        /// File with the token that callers of the address have to send (evenkeel --agent-token-file); empty = none. Read at each call.
        token: PathBuf = PathBuf::new(),
        /// Address of /metrics; empty = off. Off loopback as serve.address; see also the section metrics.
        metrics: String = "127.0.0.1:9523".into(),
        /// Address of pages about this node, such as "127.0.0.1:9524"; empty = none. It needs serve.token or tls.client_ca, and off
        /// loopback TLS, as serve.address: a browser asks for a name, which may be any, and a password, which is the token.
        dashboard: String = String::new(),
    }
}

section! {
    /// Features that need a capability.
    Features {
        /// Process events from the kernel (CAP_NET_ADMIN, host network namespace).
        proc_connector: bool = true,
        /// Pressure windows shorter than two seconds (CAP_SYS_RESOURCE).
        short_psi: bool = true,
        /// Killing the rest of a container on cgroup v1 (CAP_KILL); on in any case where memory.oom_kill asks for it.
        v1_kill: bool = false,
        /// Victims of OOM kills from the kernel log, where it can be opened (CAP_SYSLOG, /dev/kmsg). Default: on, because
        /// it is opened before capabilities are dropped and kills are counted without it.
        kernel_log: bool = true,
    }
}

/// Whether the agent writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    /// Writes.
    Enforce,
    /// Writes nothing.
    DryRun,
}

/// The rule set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Rules {
    /// The resource-QoS proposal.
    Proposal,
    /// Kubernetes 1.36.
    Kubelet,
}

/// Where scores come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scores {
    /// The rule set's formula.
    Static,
    /// The formula, ranked by use and priority within the Burstable band.
    Dynamic,
}

/// Policy for self-raised scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Policy {
    /// Leave it.
    Respect,
    /// Put it back.
    Pin,
}

impl From<Policy> for ScorePolicy {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Respect => Self::Respect,
            Policy::Pin => Self::Pin,
        }
    }
}

/// When a container is frozen: `when-forking`, `after-N-passes` or `never`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct Freeze(pub String);

impl Default for Freeze {
    fn default() -> Self {
        Self("when-forking".into())
    }
}
