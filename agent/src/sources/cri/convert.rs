//! What a runtime says of a container, as a workload.
//!
//! What the API server says of a pod takes the place of what would be inverted (`required`). A pod's annotations are its author's words
//! and give no rights: they lower what is said, and go above it only in namespaces the configuration trusts.

use evenkeel_enforce::shared::SourceProblem;
use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::{Bytes, CpuShares, Limit};
use evenkeel_model::workload::{
    CgroupBinding, ContainerKind, ContainerResources, PodFacts, PodRef, Requested, SourceKind, Workload,
};
use evenkeel_qos::cpu::CpuQuota;
use evenkeel_qos::estimate::{RuntimeRecord, invert, kubelet_tier, settle_pod};
use evenkeel_qos::rules::{PodShape, pod_class};

use super::super::engines::{MAX_IMAGE, bounded};
use super::super::{Terms, annotations, command_hash};
use super::info::Details;
use super::required::Required;
use super::v1;
use crate::pods::ByUid;

/// Label under which the kubelet stores a container's name.
const CONTAINER_NAME: &str = "io.kubernetes.container.name";

/// The pod's own process: infrastructure, which both rule sets protect.
pub(super) fn sandbox(sandbox: &v1::PodSandbox, details: &Details, terms: &Terms) -> Workload {
    let (switches, _) = switches(sandbox, terms);
    Workload {
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
    }
}

/// The containers of a pod, of which the API server may say something.
pub(super) fn pod(
    sandbox: &v1::PodSandbox,
    containers: &[(&v1::Container, &Details)],
    said: &ByUid,
    terms: &Terms,
    problems: &mut Vec<SourceProblem>,
) -> Vec<Workload> {
    let records: Vec<RuntimeRecord> = containers.iter().map(|(_, details)| record(details)).collect();
    let required = Required::of(said, &pod_ref(sandbox), &records, problems);
    let one = |(of, details): &(&v1::Container, &Details)| {
        container(of, sandbox, details, required.as_ref(), terms, problems)
    };
    let containers: Vec<Workload> = containers.iter().map(one).collect();
    if required.is_some() { containers } else { with_pod_facts(containers, terms) }
}

/// An ordinary container. What it asked for is what the API server says, else inverted from the runtime's record; the pod's annotation
/// takes its place in a trusted namespace, and lowers it in any other.
fn container(
    container: &v1::Container,
    sandbox: &v1::PodSandbox,
    details: &Details,
    required: Option<&Required>,
    terms: &Terms,
    problems: &mut Vec<SourceProblem>,
) -> Workload {
    let (switches, bad) = switches(sandbox, terms);
    problems.extend(bad);
    let name = match label_name(container) {
        "" => container.metadata.as_ref().map_or("", |m| m.name.as_str()).to_owned(),
        name => name.to_owned(),
    };
    let annotations = sandbox.annotations.clone().into_iter().collect();
    let stated = annotations::resources(&annotations, &place(sandbox)).unwrap_or_else(|problem| {
        problems.push(problem);
        None
    });
    let record = record(details);
    let states = stated.and_then(|mut all| all.remove(&name)).map(annotations::plain);
    let is_trusted = terms.trusts(&pod_ref(sandbox));
    let is_overruled = states.is_some() && is_trusted;
    let said = required.and_then(|required| required.container(&name));
    let (from_api, kind) =
        (said.is_some() && !is_overruled, said.map_or(ContainerKind::Regular, |(_, kind)| kind));
    let told = said.map_or_else(|| invert(&record, terms.capacity), |(requested, _)| requested);
    let (requested, more) = annotations::requested(told, states, &place(sandbox), is_trusted);
    problems.extend(more);
    let by_record = || PodFacts {
        qos_class: record.tier,
        node_critical: record.is_node_critical(),
        ..PodFacts::default()
    };
    let pod_facts = PodFacts {
        labels: labels(sandbox),
        from_api,
        ..required.map_or_else(by_record, |required| required.facts().clone())
    };
    Workload {
        id: container.id.clone(),
        source: SourceKind::Cri,
        pod: pod_ref(sandbox),
        container: name,
        kind,
        workload: pod_ref(sandbox).name,
        image: image(container),
        command_hash: command_hash(&details.command, &details.args),
        cgroup: CgroupBinding::Path(details.cgroup.clone()),
        pid: details.pid,
        requested,
        pod_facts,
        managed: switches.managed,
        score_policy: switches.score_policy,
        oom_kill: switches.oom_kill,
    }
}

/// The container's name as the kubelet stores it; empty where it does not.
pub(super) fn label_name(container: &v1::Container) -> &str {
    container.labels.get(CONTAINER_NAME).map_or("", String::as_str)
}

/// The pod's own labels, of which too many are left out as the recommender would; the kubelet adds further ones for itself.
fn labels(sandbox: &v1::PodSandbox) -> std::collections::BTreeMap<String, String> {
    let own = sandbox.labels.iter().filter(|(key, _)| !key.starts_with("io.kubernetes."));
    bounded(own.map(|(key, value)| (key.clone(), value.clone())).collect())
}

/// Fills in what the `kubelet` rules need of the whole pod, as far as all its containers are known. The class that the
/// kubelet's cgroup path names is certain; without it the containers' own tell.
fn with_pod_facts(mut containers: Vec<Workload>, terms: &Terms) -> Vec<Workload> {
    let tier = containers.iter().find_map(|w| w.pod_facts.qos_class);
    settle_pod(tier, containers.iter_mut().map(|w| &mut w.requested), terms.capacity);
    let asked: Option<Vec<ContainerResources>> = containers
        .iter()
        .map(|w| match &w.requested {
            Requested::Stated(resources) => Some(*resources),
            Requested::Estimated(_) | Requested::Unknown => None,
        })
        .collect();
    let by_containers =
        asked.as_deref().map(|a| pod_class(PodShape::Containers(a))).or_else(|| estimated(&containers));
    let smallest =
        asked.as_deref().and_then(|a| a.iter().map(|r| r.memory_request.unwrap_or(Bytes::ZERO)).min());
    for container in &mut containers {
        container.pod_facts.qos_class = tier.or(by_containers);
        container.pod_facts.min_regular_memory_request = smallest;
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
        tier: kubelet_tier(&details.cgroup),
    }
}

fn switches(sandbox: &v1::PodSandbox, terms: &Terms) -> (annotations::PodSwitches, Vec<SourceProblem>) {
    let annotations = sandbox.annotations.clone().into_iter().collect();
    annotations::switches_told(&annotations, &place(sandbox), terms.trusts(&pod_ref(sandbox)))
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
    let digest = |s: &str| s.is_empty() || s.starts_with("sha256:") || s.len() > MAX_IMAGE;
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

    fn terms(trusted: &[&str]) -> Terms {
        Terms { capacity: Bytes::new(1 << 30), trusted: trusted.iter().map(|n| (*n).to_owned()).collect() }
    }

    fn requested(
        pod: &v1::PodSandbox,
        details: &Details,
        trusted: &[&str],
    ) -> (Requested, Vec<SourceProblem>) {
        let mut problems = Vec::new();
        (container(&main_container(), pod, details, None, &terms(trusted), &mut problems).requested, problems)
    }

    #[test]
    fn without_an_annotation_the_record_is_inverted_and_marked() {
        let got = container(&main_container(), &pod(&[]), &details(), None, &terms(&[]), &mut Vec::new());
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
        assert_eq!(requested(&pod(&[]), &only_limit, &[]).0, Requested::Unknown);
    }

    #[test]
    fn a_trusted_annotation_states_requirements_and_a_bad_one_is_reported() {
        let good =
            pod(&[("evenkeel.dev/resources", r#"{"main": {"limits": {"cpu": "1", "memory": "64Mi"}}}"#)]);
        let Requested::Stated(resources) = requested(&good, &details(), &["ns"]).0 else {
            panic!("not stated")
        };
        assert_eq!(resources.memory_request, Some(Bytes::new(64 << 20)));
        let of_pod =
            vec![container(&main_container(), &good, &details(), None, &terms(&["ns"]), &mut Vec::new())];
        assert_eq!(with_pod_facts(of_pod, &terms(&[]))[0].pod_facts.qos_class, Some(QosClass::Guaranteed));
        let (got, problems) = requested(&pod(&[("evenkeel.dev/resources", "{")]), &details(), &["ns"]);
        assert!(matches!(got, Requested::Estimated(_)));
        assert!(problems[0].where_.contains("ns/p"));
    }

    #[test]
    fn an_annotation_raises_nobody_without_the_configurations_trust() {
        let best_effort = Details {
            cgroup: "/kubepods/besteffort/podu/c1".into(),
            cpu_shares: Some(2),
            oom_score_adj: Some(1000),
            ..Details::default()
        };
        let evil = [("evenkeel.dev/resources", r#"{"main": {"limits": {"cpu": "2", "memory": "16Gi"}}}"#)];
        let plain = requested(&pod(&[]), &best_effort, &[]);
        assert_eq!(plain.1, []);
        for trusted in [&[][..], &["other"][..]] {
            let (got, problems) = requested(&pod(&evil), &best_effort, trusted);
            assert_eq!(got, plain.0);
            assert!(problems[0].remedy.contains("manage.trust_annotations"), "{problems:?}");
        }
        // Less than the runtime says is anybody's to say.
        let modest =
            [("evenkeel.dev/resources", r#"{"main": {"requests": {"cpu": "10m", "memory": "1Mi"}}}"#)];
        let (got, problems) = requested(&pod(&modest), &details(), &[]);
        let Requested::Estimated(estimate) = got else { panic!("not estimated") };
        assert_eq!(estimate.resources.cpu_request, Some(MilliCpu::new(10)));
        assert_eq!((estimate.resources.memory_request, problems), (Some(Bytes::new(1 << 20)), vec![]));
    }

    #[test]
    fn opting_out_needs_trust() {
        let out = pod(&[("evenkeel.dev/manage", "false")]);
        let got = sandbox(&out, &details(), &terms(&["ns"]));
        assert_eq!(got.kind, ContainerKind::Infrastructure);
        assert!(matches!(got.managed, Managed::No(_)));
        assert_eq!(sandbox(&out, &details(), &terms(&[])).managed, Managed::Yes);
        let mut problems = Vec::new();
        let got = container(&main_container(), &out, &details(), None, &terms(&[]), &mut problems);
        assert_eq!((got.managed, problems.len()), (Managed::Yes, 1));
    }

    #[test]
    fn the_kubelets_path_tells_the_class_of_the_pod() {
        let critical = Details {
            cgroup: "/kubepods/burstable/podu/c1".into(),
            cpu_shares: Some(51),
            oom_score_adj: Some(-997),
            ..Details::default()
        };
        let got = container(&main_container(), &pod(&[]), &critical, None, &terms(&[]), &mut Vec::new());
        let got = &with_pod_facts(vec![got], &terms(&[]))[0].pod_facts;
        assert_eq!((got.qos_class, got.node_critical), (Some(QosClass::Burstable), true));
    }
}
