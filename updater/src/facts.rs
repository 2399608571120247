//! What is known of pods, and what they should request.
//!
//! Times are seconds since 1970. Amounts are thousandths of a core, or bytes.

use std::collections::BTreeMap;

use evenkeel_model::panic::Panic;
use evenkeel_model::qos_class::QosClass;
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::policy::LimitsMode;
use evenkeel_rightsizing::policy::update::Updates;
use serde::{Deserialize, Serialize};

use crate::note::Note;

/// One of CPU, one of memory, in the order of [`Resource::ALL`].
pub type Two<T> = [T; 2];

/// Place of a resource in a [`Two`].
pub const fn place(resource: Resource) -> usize {
    match resource {
        Resource::Cpu => 0,
        Resource::Memory => 1,
    }
}

/// Request and limit of one resource.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// What is asked for.
    pub request: Option<u64>,
    /// The most.
    pub limit: Option<u64>,
}

/// What containers ask for, by name.
pub type Sizes = BTreeMap<String, Two<Size>>;

/// What a container should request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetRequest {
    /// Request.
    pub request: u64,
    /// The limit beside it, where limits keep their ratio.
    pub limit: Option<u64>,
}

/// A container that runs: an ordinary one, or a sidecar.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningContainer {
    /// It is an init container that goes on running.
    pub is_sidecar: bool,
    /// Its `resizePolicy`: a change of the resource restarts it.
    pub restarts: Two<bool>,
    /// The most memory that it used lately, bytes; nothing where it is not measured.
    pub peak_memory: Option<u64>,
}

/// How it stands with the resize that was asked for last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Resizing {
    /// What is asked for is in force.
    #[default]
    Settled,
    /// The node has no room for it now (`PodResizePending`, `Deferred`).
    Deferred {
        /// Since when.
        since: u64,
        /// In the node's words.
        why: String,
    },
    /// The node will never do it (`PodResizePending`, `Infeasible`).
    Infeasible {
        /// In the node's words.
        why: String,
    },
    /// The node is at it, or has not said anything yet.
    InProgress,
    /// The node tries, and does not succeed (`PodResizeInProgress`, `Error`).
    Failing {
        /// In the node's words.
        why: String,
    },
}

/// What a time of a pod was like, over all its containers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Seconds measured.
    pub seconds: u64,
    /// OOM kills.
    pub oom_kills: u64,
    /// Time throttled, microseconds.
    pub throttled_usec: u64,
    /// Time in which CPU use was held down, microseconds.
    pub starved_usec: u64,
}

/// What the first replica with another size was like before, and what it is like since.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watched {
    /// As long before the change as it is watched.
    pub before: Health,
    /// Since then.
    pub after: Health,
}

/// What made an agent rule that a pod should go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OfferCause {
    /// A container of it was OOM-killed, as often as the node's policy bears.
    OomKill,
    /// A container of it was killed because the node was short of memory.
    Pressure,
    /// Containers of its node do not get the CPU that they requested.
    Starvation,
}

impl OfferCause {
    /// The word, as decisions of agents have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OomKill => "oom-kill",
            Self::Pressure => "pressure",
            Self::Starvation => "starvation",
        }
    }

    /// The cause of this word.
    pub fn of(word: &str) -> Option<Self> {
        [Self::OomKill, Self::Pressure, Self::Starvation].into_iter().find(|cause| cause.as_str() == word)
    }
}

/// An agent's ruling that a pod of its node should go, which it offers to whoever runs the pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvictionOffer {
    /// Which decision that is: node, run and number.
    pub id: String,
    /// What it was ruled for.
    pub cause: OfferCause,
    /// In the agent's words.
    pub why: String,
    /// When.
    pub at: u64,
}

/// A pod that has not ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunningPod {
    /// Name.
    pub name: String,
    /// The API server's identifier.
    pub uid: String,
    /// Version of the object.
    pub version: String,
    /// Its node; empty before it has one.
    pub node: String,
    /// What controls it, such as `ReplicaSet/web-7d4b`; empty where nothing does.
    pub owner: String,
    /// Who controls it makes another one when it goes.
    pub is_remade: bool,
    /// Its class, which a resize never changes.
    pub class: QosClass,
    /// When it was made.
    pub created: u64,
    /// It serves.
    pub is_ready: bool,
    /// It ends.
    pub is_ending: bool,
    /// A container of it was OOM-killed lately.
    pub was_oom_killed: bool,
    /// Its resources are those of the pod as a whole.
    pub is_sized_as_whole: bool,
    /// How it stands with its last resize.
    pub resizing: Resizing,
    /// What the last step left on it.
    pub note: Option<Note>,
    /// Those that run.
    pub containers: BTreeMap<String, RunningContainer>,
    /// What is asked for, of init containers, too.
    pub sizes: Sizes,
    /// What its owner's template asks for, where there is one.
    pub asked: Option<Sizes>,
    /// Where it is a canary.
    pub watched: Option<Watched>,
    /// The newest ruling of its node's agent that it should go.
    pub offer: Option<EvictionOffer>,
}

/// The pods that one controller made, and what they should request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Namespace.
    pub namespace: String,
    /// The controller at the top, such as `deployment/web`.
    pub name: String,
    /// The policy that governs it.
    pub policy: String,
    /// How its pods are changed.
    pub updates: Updates,
    /// What becomes of limits.
    pub limits: LimitsMode,
    /// How many pods there are to be.
    pub replicas: u32,
    /// Those that are.
    pub pods: Vec<RunningPod>,
    /// What each container should request.
    pub targets: BTreeMap<String, Two<Option<TargetRequest>>>,
    /// How many disruptions its budgets (PodDisruptionBudget) allow now; nothing where none protects it.
    pub allowed_disruptions: Option<u32>,
    /// What scales it by this resource: then its requests are part of what that rests on.
    pub scaled_by: Two<Option<String>>,
    /// Another updater of the same pods.
    pub updated_by: Option<String>,
    /// Why nothing of it is changed: its namespace says so.
    pub frozen: Option<String>,
}

/// What is the same for all.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Now {
    /// The time.
    pub seconds: u64,
    /// The panic switch.
    pub panic: Panic,
    /// Why it is not proven that a pod that is made anew gets what is recommended.
    pub admission: Result<(), String>,
}

/// What the operator of the cluster wishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateRules {
    /// Most steps in a minute, over all workloads.
    pub per_minute: u32,
    /// How long a deferred resize may stay so.
    pub deferred_seconds: u64,
    /// How long a resize may be in progress, or fail.
    pub in_progress_seconds: u64,
    /// How long a pod or workload is left alone after a step that came to nothing, the first time; each time doubles it.
    pub again_seconds: u64,
    /// The longest of these times.
    pub again_most_seconds: u64,
    /// A younger pod is evicted only where it was OOM-killed.
    pub evict_age_seconds: u64,
    /// How long an agent's offer holds.
    pub offer_seconds: u64,
}

impl Default for UpdateRules {
    fn default() -> Self {
        Self {
            per_minute: 30,
            // As the Vertical Pod Autoscaler's updater waits (AEP-4016): five minutes, and an hour.
            deferred_seconds: 300,
            in_progress_seconds: 3600,
            again_seconds: 600,
            again_most_seconds: 86_400,
            // As that one leaves pods alone whose request is within its bounds.
            evict_age_seconds: 12 * 3600,
            // As long as the kubelet's longest pause between two starts of a container and two looks; what came of it is to be seen by then.
            offer_seconds: 600,
        }
    }
}

impl UpdateRules {
    /// How long is waited after so many steps that came to nothing.
    pub fn pause(&self, tries: u32) -> u64 {
        let doubled = self.again_seconds.saturating_mul(1 << tries.saturating_sub(1).min(20));
        doubled.min(self.again_most_seconds)
    }
}
