//! What tests of several modules build.

use evenkeel_model::units::{Bytes, MilliCpu};
use evenkeel_model::workload::{
    CgroupBinding, ContainerKind, ContainerResources, Managed, PodFacts, PodRef, Requested, ScorePolicy,
    SourceKind, Workload,
};

/// [`workload`] as something tracked, in slot 1 with inode 1.
pub(crate) fn tracked(name: &str) -> crate::shared::Tracked {
    crate::shared::Tracked {
        slot: 1,
        workload: std::sync::Arc::new(workload(name)),
        classes: evenkeel_qos::rules::ResourceClasses::default(),
        cgroup: format!("/{name}").into(),
        inode: 1,
    }
}

/// A burstable container `main` of the pod `name`, in the cgroup `/name`: half a core and 256 MiB requested.
pub(crate) fn workload(name: &str) -> Workload {
    Workload {
        id: format!("default/{name}/main"),
        source: SourceKind::Manifests,
        pod: PodRef { namespace: "default".into(), name: name.into(), uid: None },
        container: "main".into(),
        kind: ContainerKind::Regular,
        workload: name.into(),
        image: None,
        command_hash: None,
        cgroup: CgroupBinding::Path(format!("/{name}")),
        pid: None,
        requested: Requested::Stated(ContainerResources {
            cpu_request: Some(MilliCpu::new(500)),
            cpu_limit: None,
            memory_request: Some(Bytes::new(256 << 20)),
            memory_limit: None,
        }),
        pod_facts: PodFacts::default(),
        managed: Managed::Yes,
        score_policy: ScorePolicy::Respect,
        oom_kill: None,
    }
}
