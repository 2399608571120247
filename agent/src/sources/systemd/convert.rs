//! From a unit and what its files say to a workload.
//!
//! Pure. A service is a pod of one container: pod = the unit's name, container = the name without its suffix, in the
//! namespace `systemd`. A slice is one too, made of everything in it, unless something in it is found by itself.

use evenkeel_model::pod::{Container, Pod, PodMetadata};
use evenkeel_model::workload::{
    CgroupBinding, ContainerKind, Managed, Requested, ScorePolicy, SourceKind, Workload,
};

use super::section::Statement;

/// Namespace of all units.
pub(crate) const NAMESPACE: &str = "systemd";

/// The unit as a container. `statement` is `None` where its files have no section.
pub(super) fn workload(unit: &str, cgroup: String, statement: Option<&Statement>) -> Workload {
    let stem = unit.rsplit_once('.').map_or(unit, |(stem, _)| stem);
    let usable = statement.filter(|statement| statement.is_whole);
    let container = Container {
        name: stem.to_owned(),
        kind: ContainerKind::Regular,
        image: None,
        command: Vec::new(),
        args: Vec::new(),
        resources: usable.map(|statement| statement.requirements.clone()).unwrap_or_default(),
    };
    let requested = match usable {
        Some(_) => Requested::Stated(container.cpu_and_memory()),
        None => Requested::Unknown,
    };
    let pod = Pod {
        metadata: PodMetadata {
            name: unit.to_owned(),
            namespace: NAMESPACE.to_owned(),
            ..PodMetadata::default()
        },
        containers: vec![container],
        ..Pod::default()
    };
    Workload {
        id: format!("{NAMESPACE}/{unit}/{stem}"),
        source: SourceKind::Systemd,
        pod: pod.reference(),
        container: stem.to_owned(),
        kind: ContainerKind::Regular,
        workload: template(unit),
        image: None,
        command_hash: None,
        cgroup: CgroupBinding::Path(cgroup),
        pid: None,
        requested,
        pod_facts: evenkeel_qos::pod::facts(&pod),
        managed: managed(statement),
        score_policy: ScorePolicy::default(),
        oom_kill: None,
    }
}

fn managed(statement: Option<&Statement>) -> Managed {
    match statement {
        Some(statement) if !statement.is_whole => {
            Managed::No("its [X-Evenkeel] section has errors, see the source's problems".into())
        }
        Some(statement) if statement.opted_out => Managed::No("opted out by Manage=no".into()),
        _ => Managed::Yes,
    }
}

/// What the instances of one template have in common: `web@1.service` and `web@2.service` are `web@.service`.
fn template(unit: &str) -> String {
    match (unit.split_once('@'), unit.rsplit_once('.')) {
        (Some((prefix, _)), Some((_, suffix))) => format!("{prefix}@.{suffix}"),
        _ => unit.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::units::{Bytes, MilliCpu};

    fn statement(text: &str) -> Statement {
        super::super::section::read([("u", text)], &mut Vec::new()).unwrap()
    }

    #[test]
    fn a_service_is_a_pod_of_one_container() {
        let said = statement("[X-Evenkeel]\nCPULimit=500m\nMemoryRequest=64Mi\n");
        let w = workload("db.service", "/system.slice/db.service".into(), Some(&said));
        assert_eq!(
            (w.pod.namespace.as_str(), w.pod.name.as_str(), w.container.as_str()),
            ("systemd", "db.service", "db")
        );
        assert_eq!(w.id, "systemd/db.service/db");
        let Requested::Stated(stated) = w.requested else { panic!("{:?}", w.requested) };
        assert_eq!(stated.cpu_request, Some(MilliCpu::new(500)), "a request not given is the limit");
        assert_eq!(stated.memory_request, Some(Bytes::new(64 << 20)));
        assert_eq!(w.managed, Managed::Yes);
    }

    #[test]
    fn what_is_not_said_or_not_understood_is_never_written() {
        let unknown = workload("a.service", "/a".into(), None);
        assert_eq!((unknown.requested, unknown.managed), (Requested::Unknown, Managed::Yes));
        let wrong = workload("a.service", "/a".into(), Some(&statement("[X-Evenkeel]\nCPULimit=x\n")));
        assert_eq!(wrong.requested, Requested::Unknown);
        assert!(matches!(wrong.managed, Managed::No(_)));
        let out =
            workload("a.service", "/a".into(), Some(&statement("[X-Evenkeel]\nManage=no\nCPULimit=1\n")));
        assert_eq!(out.managed, Managed::No("opted out by Manage=no".into()));
    }

    #[test]
    fn instances_share_their_template() {
        assert_eq!(template("web@1.service"), "web@.service");
        assert_eq!(template("db.service"), "db.service");
        assert_eq!(workload("web@1.service", "/w".into(), None).container, "web@1");
    }
}
