//! What rules may ask about the past of one container's resource; the recommender answers from its store, a backtest
//! from a trace.
//!
//! Plain numbers are in the unit of the resource: millionths of a core, or bytes. Times are since 1970 UTC.

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;
use crate::usage::UsageSecond;

/// Whose usage is meant, from the specific to the general.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// The container itself: cluster, namespace, workload and container name.
    Own,
    /// Containers of the same name and image that run the same command with the same arguments.
    Command,
    /// Containers of the same image and tag in the same namespace.
    NamespaceImageTag,
    /// Containers of the same image and tag.
    ImageTag,
    /// Containers of the same image, any tag.
    Image,
}

/// A minute of use, or the part of it that has arrived; one per replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Minute {
    /// Minute since 1970.
    pub minute: u64,
    /// Mean of its samples.
    pub mean: u64,
    /// Greatest of its samples.
    pub peak: u64,
    /// How much time it stands for, milliseconds.
    pub weight_ms: u64,
}

/// An hour of use, all replicas together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hour {
    /// Hour since 1970.
    pub hour: u64,
    /// Time at each height of use, every replica counted.
    pub all: Histogram,
    /// The same of one bad replica: of n the one at rank ceil(0.95 n) by use, so that a goal met for it is met for 95 %
    /// of the replicas. Nothing where there was one replica, which `all` tells of.
    pub worst: Option<Histogram>,
    /// Greatest sample of any replica.
    pub peak: u64,
    /// Time in which the use was held down (throttled, or waiting for the CPU), milliseconds: what was measured then is
    /// the least that was wanted. Of the worst replica where there are several. Counted in the histograms as well.
    pub starved_ms: u64,
}

/// A day of use, all containers of a scope together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Day {
    /// Day since 1970.
    pub day: u64,
    /// Time at each height of use.
    pub all: Histogram,
    /// Rollups of at most one minute by their height (mean of CPU, peak of memory); a weight of 1 each.
    pub minutes: Histogram,
    /// Greatest sample.
    pub peak: u64,
}

/// Why a container was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Killed by the kernel for want of memory.
    OomKill,
    /// Evicted for want of memory.
    Eviction,
}

/// A kill or an eviction for want of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// When, milliseconds.
    pub time_ms: u64,
    /// What happened.
    pub cause: Cause,
    /// Memory in use at that moment, where known.
    pub usage: Option<u64>,
    /// Memory request at that moment, where known.
    pub request: Option<u64>,
    /// Memory limit at that moment, where known.
    pub limit: Option<u64>,
    /// Milliseconds since the container started, where known.
    pub age_ms: Option<u64>,
}

/// A replica that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Running<'a> {
    /// Its last seconds, oldest first.
    pub seconds: &'a [UsageSecond],
    /// What it may use at most, unit of the resource; `None` without a limit.
    pub limit: Option<u64>,
}

/// The past of one resource of one container. Every list is in the order of time; what is unfinished is in it too.
pub trait History {
    /// Minutes from a minute on; none where there are too many to be read for one answer: days, and hours of the container
    /// itself, tell of them then.
    fn minutes(&self, scope: Scope, from: u64) -> Vec<Minute>;
    /// Hours from an hour on. For scopes wider than the container itself a store may know only days, and answers empty.
    fn hours(&self, scope: Scope, from: u64) -> Vec<Hour>;
    /// Days from a day on.
    fn days(&self, scope: Scope, from: u64) -> Vec<Day>;
    /// Events of the container itself, from a time (milliseconds) on.
    fn events(&self, from_ms: u64) -> Vec<Event>;

    /// When a scope was first heard of, milliseconds; `None` where the store does not know. A day tells how long its
    /// containers ran together, not when the first of them began.
    fn since_ms(&self, _scope: Scope) -> Option<u64> {
        None
    }

    /// Shows the last seconds of each replica that runs; nothing where the store keeps none.
    fn visit_running(&self, _visit: &mut dyn FnMut(&Running<'_>)) {}

    /// Shows hours from an hour on, one after the other. What holds its hours in memory spares the copies.
    fn visit_hours(&self, scope: Scope, from: u64, visit: &mut dyn FnMut(&Hour)) {
        self.hours(scope, from).iter().for_each(visit);
    }

    /// Shows days from a day on, likewise.
    fn visit_days(&self, scope: Scope, from: u64, visit: &mut dyn FnMut(&Day)) {
        self.days(scope, from).iter().for_each(visit);
    }
}
