//! One manifest to workloads, and what they are bound to as containers by their cgroups' names.

use std::io;
use std::path::PathBuf;

use evenkeel_enforce::shared::SourceProblem;
use evenkeel_model::pod::{Container, Pod, read_pods};
use evenkeel_model::resource_type::ResourceTypes;
use evenkeel_model::workload::{CgroupBinding, PodRef, Requested, SourceKind, Workload};

use super::super::engines::tree::{self, Named};
use super::super::{annotations, command_hash};

/// Containers found by cgroup name, walked for at most once per listing and only when a manifest asks.
pub(super) struct RuntimeNames<'a> {
    roots: &'a [PathBuf],
    found: Option<io::Result<Vec<Named>>>,
}

impl<'a> RuntimeNames<'a> {
    pub(super) fn new(roots: &'a [PathBuf]) -> Self {
        Self { roots, found: None }
    }

    pub(super) fn used(&self) -> bool {
        self.found.is_some()
    }

    /// Why they could not be seen, where they were looked for.
    pub(super) fn unseen(&self) -> Option<SourceProblem> {
        self.found.as_ref()?.as_ref().err().map(tree::unseen)
    }

    /// The container in the cgroup that its binding names as an engine's id; `None` where it names none.
    ///
    /// # Errors
    /// When there is not exactly one such cgroup, or they cannot be seen.
    pub(super) fn bound(&mut self, workload: &Workload) -> Result<Option<Workload>, String> {
        let CgroupBinding::Path(name) = &workload.cgroup else { return Ok(None) };
        if !tree::is_runtime_name(name) {
            return Ok(None);
        }
        let found = self.found.get_or_insert_with(|| {
            let of_each: io::Result<Vec<Vec<Named>>> =
                self.roots.iter().map(|root| tree::scan(root)).collect();
            let mut all = of_each?.concat();
            all.sort_unstable();
            all.dedup();
            Ok(all)
        });
        let found = found.as_deref().map_err(ToString::to_string)?;
        let named = tree::resolve(name, found)?;
        Ok(Some(Workload { cgroup: CgroupBinding::Path(named.path.clone()), ..workload.clone() }))
    }
}

/// Reads one manifest; what cannot be used becomes a problem that names it.
pub(crate) fn parse(bytes: &[u8], place: &str, types: &ResourceTypes) -> (Vec<Workload>, Vec<SourceProblem>) {
    let (mut workloads, mut problems) = (Vec::new(), Vec::new());
    let problem = |why: String, remedy: &str| SourceProblem {
        what: "read the manifest".into(),
        where_: place.to_owned(),
        why,
        remedy: remedy.into(),
    };
    let Ok(text) = std::str::from_utf8(bytes) else {
        let why = "stream did not contain valid UTF-8".to_owned();
        problems.push(problem(why, "make it a readable text file of at most 8 MiB"));
        return (workloads, problems);
    };
    let pods = match read_pods(text, place) {
        Ok(pods) => pods,
        Err(error) => {
            problems.push(problem(
                error.to_string(),
                "correct the field named; `evenkeel check -f` reads it the same way",
            ));
            return (workloads, problems);
        }
    };
    for pod in &pods {
        let errors = pod.check();
        if errors.is_empty() {
            let from = workloads.len();
            pod_workloads(pod, place, &mut workloads, &mut problems);
            let requests = pod.effective_requests_of(types);
            for workload in workloads.iter_mut().skip(from) {
                workload.pod_facts.requests = Some(requests.clone());
            }
        } else {
            let why = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            problems.push(problem(why, "correct the resources named; the pod is not applied until then"));
        }
    }
    (workloads, problems)
}

fn pod_workloads(pod: &Pod, place: &str, workloads: &mut Vec<Workload>, problems: &mut Vec<SourceProblem>) {
    let place = place_of(place, &pod.reference());
    let annotations = &pod.metadata.annotations;
    let (switches, bad) = annotations::switches(annotations, &place);
    problems.extend(bad);
    let mut facts = evenkeel_qos::pod::facts(pod);
    match annotations::min_available(annotations, &place) {
        Ok(least) => facts.min_available = least,
        Err(problem) => problems.push(problem),
    }
    let mut bound = 0;
    for container in pod.counted_containers() {
        let binding = match annotations::binding(annotations, &container.name, &place) {
            Ok(Some(binding)) => binding,
            Ok(None) => continue,
            Err(problem) => {
                bound += 1;
                problems.push(problem);
                continue;
            }
        };
        bound += 1;
        workloads.push(Workload {
            id: format!("{}/{}/{}", pod.metadata.namespace, pod.metadata.name, container.name),
            source: SourceKind::Manifests,
            pod: pod.reference(),
            container: container.name.clone(),
            kind: container.kind,
            workload: owner(pod),
            image: container.image.clone(),
            command_hash: hash(container),
            cgroup: binding,
            pid: None,
            requested: Requested::Stated(container.cpu_and_memory()),
            pod_facts: facts.clone(),
            managed: switches.managed.clone(),
            score_policy: switches.score_policy,
            oom_kill: switches.oom_kill,
        });
    }
    if bound == 0 {
        problems.push(SourceProblem {
            what: "use the manifest".into(),
            where_: place,
            why: "no container is bound to a cgroup".into(),
            remedy: "add the annotation evenkeel.dev/cgroup.CONTAINER or evenkeel.dev/unit.CONTAINER".into(),
        });
    }
}

/// A pod in a manifest.
fn place_of(place: &str, pod: &PodRef) -> String {
    format!("{place}: pod {}/{}", pod.namespace, pod.name)
}

/// A container that could not be bound.
pub(super) fn unbound(place: &str, workload: &Workload, why: String) -> SourceProblem {
    SourceProblem {
        what: format!("bind container {}", workload.container),
        where_: place_of(place, &workload.pod),
        why,
        remedy: "start the container, or correct its id; it is bound as soon as its cgroup appears".into(),
    }
}

fn owner(pod: &Pod) -> String {
    pod.controller()
        .map_or_else(|| pod.metadata.name.clone(), |o| format!("{}/{}", o.kind.to_lowercase(), o.name))
}

fn hash(container: &Container) -> Option<u64> {
    command_hash(&container.command, &container.args)
}
