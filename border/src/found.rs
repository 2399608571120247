//! What the runtime's part and the reader found: containers with what they asked for, as a runtime, an engine or a file says.
//!
//! Owned here: the form. What of it is believed is decided where it is taken in.

use std::collections::BTreeMap;

use evenkeel_model::name::ResourceName;
use evenkeel_model::qos_class::QosClass;
use evenkeel_model::quantity::{Format, Quantity};
use evenkeel_model::requirements::ResourceList;
use evenkeel_model::units::{Bytes, MilliCpu};
use evenkeel_model::workload::{
    CgroupBinding, ContainerKind, ContainerResources, Estimate, Managed, OomKill, PodFacts, PodRef,
    Requested, ScorePolicy, SourceKind, Workload,
};

use crate::coded::{Coded, Malformed, MessageReader, coded, coded_enum};

/// All that one source sees at one address; it takes the place of what it saw before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Which source.
    pub source: SourceKind,
    /// Its socket or directory.
    pub address: String,
    /// Everything it sees.
    pub workloads: Vec<Workload>,
    /// What it could not use.
    pub problems: Vec<Problem>,
    /// False when it cannot be asked now; what was last seen stands then.
    pub healthy: bool,
}

/// What one manifest says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Read {
    /// Containers, bound as they are written.
    pub workloads: Vec<Workload>,
    /// What could not be used.
    pub problems: Vec<Problem>,
}

/// Something a source could not use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Problem {
    /// What was tried.
    pub what: String,
    /// On what.
    pub where_: String,
    /// Why it failed.
    pub why: String,
    /// What a person can do.
    pub remedy: String,
}

coded! {
    Found { source, address, workloads, problems, healthy }
    Read { workloads, problems }
    Problem { what, where_, why, remedy }
    PodRef { namespace, name, uid }
    ContainerResources { cpu_request, cpu_limit, memory_request, memory_limit }
    Estimate { resources, memory_class }
    Workload {
        id, source, pod, container, kind, workload, image, command_hash, cgroup, pid, requested, pod_facts, managed, score_policy,
        oom_kill,
    }
    PodFacts {
        qos_class, node_critical, priority, min_regular_memory_request, memory_share_per_container, pod_memory_limit, pod_cpu_request,
        pod_cpu_limit, requests, min_available, labels, from_api,
    }
}

coded_enum!(ContainerKind { 1 = Regular, 2 = Init, 3 = Sidecar, 4 = Infrastructure });
coded_enum!(SourceKind { 1 = Manifests, 2 = Cri, 3 = Names, 4 = Systemd, 5 = Kubernetes });
coded_enum!(CgroupBinding { 1 = Path(path), 2 = Unit(unit) });
coded_enum!(Requested { 1 = Stated(resources), 2 = Estimated(estimate), 3 = Unknown });
coded_enum!(ScorePolicy { 1 = Respect, 2 = Pin });
coded_enum!(OomKill { 1 = Container, 2 = Process });
coded_enum!(Managed { 1 = Yes, 2 = No(why) });
coded_enum!(QosClass { 1 = BestEffort, 2 = Burstable, 3 = Guaranteed });
coded_enum!(Format { 1 = DecimalSI, 2 = BinarySI, 3 = DecimalExponent });

/// Implements [`Coded`] for units of whole numbers.
macro_rules! units {
    ($($unit:ty),+) => {$(
        impl Coded for $unit {
            fn write(&self, to: &mut Vec<u8>) {
                self.get().write(to);
            }

            fn read(from: &mut MessageReader<'_>) -> Result<Self, Malformed> {
                Ok(Self::new(u64::read(from)?))
            }
        }
    )+};
}
units!(Bytes, MilliCpu);

impl Coded for Quantity {
    fn write(&self, to: &mut Vec<u8>) {
        self.nano().write(to);
        self.format().write(to);
    }

    fn read(from: &mut MessageReader<'_>) -> Result<Self, Malformed> {
        let (nano, format) = (i128::read(from)?, Format::read(from)?);
        let quantity = Self::from_nano(nano, format);
        // Beyond what there are, it would be another one.
        if quantity.nano() == nano { Ok(quantity) } else { Err(Malformed::Text) }
    }
}

impl Coded for ResourceList {
    fn write(&self, to: &mut Vec<u8>) {
        let entries: Vec<(String, Quantity)> =
            self.iter().map(|(name, quantity)| (name.to_string(), quantity)).collect();
        entries.write(to);
    }

    fn read(from: &mut MessageReader<'_>) -> Result<Self, Malformed> {
        let (entries, mut list) = (BTreeMap::<String, Quantity>::read(from)?, Self::new());
        for (name, quantity) in entries {
            list.set(ResourceName::parse(&name).map_err(|_| Malformed::Text)?, quantity);
        }
        Ok(list)
    }
}
