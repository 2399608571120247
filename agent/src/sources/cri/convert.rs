//! What a runtime says of a container, as a workload.

use evenkeel_model::qos_class::QosClass;
use evenkeel_model::requirements::Requirements;
use evenkeel_model::units::{Bytes, CpuShares, Limit};
use evenkeel_model::workload::{
    CgroupBinding, ContainerKind, ContainerResources, PodFacts, PodRef, Requested, SourceKind, Workload,
};
use evenkeel_qos::cpu::CpuQuota;
use evenkeel_qos::estimate::{RuntimeRecord, invert};
use evenkeel_qos::rules::{PodShape, pod_class};

use super::super::{annotations, command_hash};
use super::info::Details;
use super::v1;
use crate::shared::SourceProblem;

/// Label under which the kubelet stores a container's name.
const CONTAINER_NAME: &str = "io.kubernetes.container.name";

/// A container that ended while it was asked about; the next listing will not have it.
pub(super) fn gone(id: &str) -> SourceProblem {
    SourceProblem {
        what: "read the runtime's record".into(),
        where_: format!("container {id}"),
        why: "it ended meanwhile".into(),
        remedy: "none needed".into(),
    }
}

/// The pod's own process: infrastructure, which both rule sets protect.
pub(super) fn sandbox(sandbox: &v1::PodSandbox, details: &Details) -> Result<Workload, SourceProblem> {
    let (switches, _) = switches(sandbox);
    Ok(Workload {
        id: sandbox.id.clone(),
        source: SourceKind::Cri,
        pod: pod_ref(sandbox),
        container: "pause".into(),
        kind: ContainerKind::Infrastructure,
        workload: pod_ref(sandbox).name,
        image: None,
        command_hash: None,
        cgroup: CgroupBinding::Path(details.cgroup.clone()),
        pid: details.pid,
        requested: Requested::Unknown,
        pod_facts: PodFacts::default(),
        managed: switches.managed,
        score_policy: switches.score_policy,
        oom_kill: switches.oom_kill,
    })
}

/// An ordinary container. Stated requirements come from the pod's annotation; without it the runtime's record is
/// inverted.
pub(super) fn container(
    container: &v1::Container,
    sandbox: &v1::PodSandbox,
    details: &Details,
    capacity: Bytes,
    problems: &mut Vec<SourceProblem>,
) -> Result<Workload, SourceProblem> {
    let (switches, bad) = switches(sandbox);
    problems.extend(bad);
    let name = container
        .labels
        .get(CONTAINER_NAME)
        .or(container.metadata.as_ref().map(|m| &m.name))
        .cloned()
        .unwrap_or_default();
    let annotations = sandbox.annotations.clone().into_iter().collect();
    let stated = annotations::resources(&annotations, &place(sandbox)).unwrap_or_else(|problem| {
        problems.push(problem);
        None
    });
    let requested = match stated.and_then(|mut all| all.remove(&name)) {
        Some(requirements) => Requested::Stated(plain(&name, requirements)),
        None => invert(&record(details), capacity),
    };
    Ok(Workload {
        id: container.id.clone(),
        source: SourceKind::Cri,
        pod: pod_ref(sandbox),
        container: name,
        kind: ContainerKind::Regular,
        workload: pod_ref(sandbox).name,
        image: image(container),
        command_hash: command_hash(&details.command, &details.args),
        cgroup: CgroupBinding::Path(details.cgroup.clone()),
        pid: details.pid,
        requested,
        pod_facts: PodFacts { labels: labels(sandbox), ..PodFacts::default() },
        managed: switches.managed,
        score_policy: switches.score_policy,
        oom_kill: switches.oom_kill,
    })
}

/// The pod's own labels; the kubelet adds further ones for itself.
fn labels(sandbox: &v1::PodSandbox) -> std::collections::BTreeMap<String, String> {
    let own = sandbox.labels.iter().filter(|(key, _)| !key.starts_with("io.kubernetes."));
    own.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Fills in what the `kubelet` rules need of the whole pod, as far as all its containers are known.
pub(super) fn with_pod_facts(mut containers: Vec<Workload>) -> Vec<Workload> {
    let asked: Option<Vec<ContainerResources>> = containers
        .iter()
        .map(|w| match &w.requested {
            Requested::Stated(resources) => Some(*resources),
            Requested::Estimated(_) | Requested::Unknown => None,
        })
        .collect();
    let facts = PodFacts {
        qos_class: asked
            .as_deref()
            .map(|a| pod_class(PodShape::Containers(a)))
            .or_else(|| estimated(&containers)),
        min_regular_memory_request: asked
            .as_deref()
            .and_then(|a| a.iter().map(|r| r.memory_request.unwrap_or(Bytes::ZERO)).min()),
        ..PodFacts::default()
    };
    for container in &mut containers {
        let labels = std::mem::take(&mut container.pod_facts.labels);
        container.pod_facts = PodFacts { labels, ..facts.clone() };
    }
    containers
}

/// Under the kubelet every container of a Guaranteed or BestEffort pod has that pod's score, so one class for
/// all is the pod's; anything mixed is Burstable.
fn estimated(containers: &[Workload]) -> Option<QosClass> {
    let mut classes = containers.iter().map(|w| match &w.requested {
        Requested::Estimated(estimate) => estimate.memory_class,
        Requested::Stated(_) | Requested::Unknown => None,
    });
    let first = classes.next()??;
    classes.try_fold(first, |pod, class| Some(if class? == pod { pod } else { QosClass::Burstable }))
}

fn record(details: &Details) -> RuntimeRecord {
    let quota = details.cpu_quota_usec.zip(details.cpu_period_usec);
    RuntimeRecord {
        cpu_shares: details.cpu_shares.map(CpuShares::clamped),
        cpu_quota: quota.and_then(|(q, p)| {
            Some(CpuQuota {
                quota_usec: Limit::Value(u64::try_from(q).ok()?),
                period_usec: u64::try_from(p).ok()?,
            })
        }),
        oom_score_adj: details.oom_score_adj,
        memory_limit: details.memory_limit_bytes.and_then(|b| u64::try_from(b).ok()).map(Bytes::new),
    }
}

fn plain(name: &str, resources: Requirements) -> ContainerResources {
    let container = evenkeel_model::pod::Container {
        name: name.to_owned(),
        kind: ContainerKind::Regular,
        image: None,
        command: Vec::new(),
        args: Vec::new(),
        resources,
    };
    container.cpu_and_memory()
}

fn switches(sandbox: &v1::PodSandbox) -> (annotations::PodSwitches, Vec<SourceProblem>) {
    let annotations = sandbox.annotations.clone().into_iter().collect();
    annotations::switches(&annotations, &place(sandbox))
}

fn place(sandbox: &v1::PodSandbox) -> String {
    let pod = pod_ref(sandbox);
    format!("pod {}/{}", pod.namespace, pod.name)
}

fn pod_ref(sandbox: &v1::PodSandbox) -> PodRef {
    let metadata = sandbox.metadata.clone().unwrap_or_default();
    let or = |value: String, other: &str| if value.is_empty() { other.to_owned() } else { value };
    PodRef {
        namespace: or(metadata.namespace, "default"),
        name: or(metadata.name, &sandbox.id),
        uid: Some(metadata.uid).filter(|uid| !uid.is_empty()),
    }
}

/// The image as people name it; a runtime that gives only a digest in `image` has the name in the other field.
fn image(container: &v1::Container) -> Option<String> {
    let spec = container.image.clone().unwrap_or_default();
    let digest = |s: &str| s.is_empty() || s.starts_with("sha256:");
    [spec.user_specified_image, spec.image, container.image_ref.clone()]
        .into_iter()
        .find(|candidate| !digest(candidate))
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::units::MilliCpu;
    use evenkeel_model::workload::Managed;
    use std::collections::HashMap;

    fn pod(annotations: &[(&str, &str)]) -> v1::PodSandbox {
        v1::PodSandbox {
            id: "s1".into(),
            metadata: Some(v1::PodSandboxMetadata {
                name: "p".into(),
                uid: "u".into(),
                namespace: "ns".into(),
                attempt: 0,
            }),
            annotations: annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            ..v1::PodSandbox::default()
        }
    }

    fn main_container() -> v1::Container {
        v1::Container {
            id: "c1".into(),
            labels: HashMap::from([(CONTAINER_NAME.to_owned(), "main".to_owned())]),
            image: Some(v1::ImageSpec {
                image: "sha256:abc".into(),
                user_specified_image: "busybox:1".into(),
            }),
            ..v1::Container::default()
        }
    }

    fn details() -> Details {
        Details {
            cgroup: "/k/p/c1".into(),
            cpu_shares: Some(256),
            oom_score_adj: Some(900),
            memory_limit_bytes: Some(128 << 20),
            ..Details::default()
        }
    }

    const GIB: Bytes = Bytes::new(1 << 30);

    #[test]
    fn without_an_annotation_the_record_is_inverted_and_marked() {
        let mut problems = Vec::new();
        let got = container(&main_container(), &pod(&[]), &details(), GIB, &mut problems).unwrap();
        assert_eq!((got.container.as_str(), got.image.as_deref()), ("main", Some("busybox:1")));
        let Requested::Estimated(estimate) = got.requested else { panic!("not estimated") };
        assert_eq!(estimate.resources.cpu_request, Some(MilliCpu::new(250)));
        assert_eq!(estimate.resources.memory_request, Some(Bytes::new((1u64 << 30).div_ceil(10))));
        assert_eq!(estimate.memory_class, Some(QosClass::Burstable));
    }

    #[test]
    fn a_memory_limit_alone_says_nothing() {
        let only_limit =
            Details { cgroup: "/x".into(), memory_limit_bytes: Some(1 << 20), ..Details::default() };
        let got = container(&main_container(), &pod(&[]), &only_limit, GIB, &mut Vec::new()).unwrap();
        assert_eq!(got.requested, Requested::Unknown);
    }

    #[test]
    fn the_annotation_states_requirements_and_a_bad_one_is_reported() {
        let good =
            pod(&[("evenkeel.dev/resources", r#"{"main": {"limits": {"cpu": "1", "memory": "64Mi"}}}"#)]);
        let got = container(&main_container(), &good, &details(), GIB, &mut Vec::new()).unwrap();
        let Requested::Stated(resources) = got.requested else { panic!("not stated") };
        assert_eq!(resources.memory_request, Some(Bytes::new(64 << 20)));
        let facts = &with_pod_facts(vec![
            container(&main_container(), &good, &details(), GIB, &mut Vec::new()).unwrap(),
        ])[0]
            .pod_facts;
        assert_eq!(facts.qos_class, Some(QosClass::Guaranteed));
        let mut problems = Vec::new();
        let bad = pod(&[("evenkeel.dev/resources", "{")]);
        let got = container(&main_container(), &bad, &details(), GIB, &mut problems).unwrap();
        assert!(matches!(got.requested, Requested::Estimated(_)));
        assert!(problems[0].where_.contains("ns/p"));
    }

    #[test]
    fn a_sandbox_is_infrastructure_and_opts_out_with_its_pod() {
        let got = sandbox(&pod(&[("evenkeel.dev/manage", "false")]), &details()).unwrap();
        assert_eq!(got.kind, ContainerKind::Infrastructure);
        assert!(matches!(got.managed, Managed::No(_)));
    }
}
