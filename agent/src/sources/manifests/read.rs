//! One manifest file to workloads.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use evenkeel_enforce::shared::SourceProblem;
use evenkeel_model::pod::{Container, Pod, read_pods};
use evenkeel_model::resource_type::ResourceTypes;
use evenkeel_model::workload::{CgroupBinding, Requested, SourceKind, Workload};

use super::super::engines::tree::{self, Named};
use super::super::{annotations, command_hash};

/// A manifest larger than this is refused; the API server's own limit for an object is 1.5 MiB.
const MAX_BYTES: u64 = 8 << 20;

/// Containers found by cgroup name, walked for at most once per listing and only when a manifest asks.
pub(super) struct RuntimeNames<'a> {
    roots: &'a [PathBuf],
    found: Option<Vec<Named>>,
}

impl<'a> RuntimeNames<'a> {
    pub(super) fn new(roots: &'a [PathBuf]) -> Self {
        Self { roots, found: None }
    }

    pub(super) fn used(&self) -> bool {
        self.found.is_some()
    }

    fn resolve(&mut self, binding: CgroupBinding) -> Result<CgroupBinding, String> {
        let CgroupBinding::Path(name) = &binding else { return Ok(binding) };
        if !tree::is_runtime_name(name) {
            return Ok(binding);
        }
        let found = self.found.get_or_insert_with(|| {
            let mut all: Vec<Named> = self.roots.iter().flat_map(|root| tree::scan(root)).collect();
            all.sort();
            all.dedup();
            all
        });
        tree::resolve(name, found).map(|named| CgroupBinding::Path(named.path.clone()))
    }
}

/// Reads one file; what cannot be used becomes a problem that names the file.
pub(super) fn file(
    path: &Path,
    types: &ResourceTypes,
    names: &mut RuntimeNames<'_>,
    workloads: &mut Vec<Workload>,
    problems: &mut Vec<SourceProblem>,
) {
    let place = path.display().to_string();
    let problem = |why: String, remedy: &str| SourceProblem {
        what: "read the manifest".into(),
        where_: place.clone(),
        why,
        remedy: remedy.into(),
    };
    let text = match read_bounded(path) {
        Ok(text) => text,
        Err(error) => {
            problems.push(problem(error.to_string(), "make it a readable text file of at most 8 MiB"));
            return;
        }
    };
    let pods = match read_pods(&text, &place) {
        Ok(pods) => pods,
        Err(error) => {
            problems.push(problem(
                error.to_string(),
                "correct the field named; `evenkeel check -f` reads it the same way",
            ));
            return;
        }
    };
    for pod in &pods {
        let errors = pod.check();
        if errors.is_empty() {
            let from = workloads.len();
            pod_workloads(pod, &place, names, workloads, problems);
            let requests = pod.effective_requests_of(types);
            for workload in &mut workloads[from..] {
                workload.pod_facts.requests = Some(requests.clone());
            }
        } else {
            let why = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            problems.push(problem(why, "correct the resources named; the pod is not applied until then"));
        }
    }
}

fn read_bounded(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("not a regular file"));
    }
    let read = file.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if read as u64 > MAX_BYTES {
        return Err(std::io::Error::other("larger than 8 MiB"));
    }
    Ok(text)
}

fn pod_workloads(
    pod: &Pod,
    place: &str,
    names: &mut RuntimeNames<'_>,
    workloads: &mut Vec<Workload>,
    problems: &mut Vec<SourceProblem>,
) {
    let place = format!("{place}: pod {}/{}", pod.metadata.namespace, pod.metadata.name);
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
        match names.resolve(binding) {
            Ok(cgroup) => workloads.push(Workload {
                id: format!("{}/{}/{}", pod.metadata.namespace, pod.metadata.name, container.name),
                source: SourceKind::Manifests,
                pod: pod.reference(),
                container: container.name.clone(),
                kind: container.kind,
                workload: owner(pod),
                image: container.image.clone(),
                command_hash: hash(container),
                cgroup,
                pid: None,
                requested: Requested::Stated(container.cpu_and_memory()),
                pod_facts: facts.clone(),
                managed: switches.managed.clone(),
                score_policy: switches.score_policy,
                oom_kill: switches.oom_kill,
            }),
            Err(why) => problems.push(SourceProblem {
                what: format!("bind container {}", container.name),
                where_: place.clone(),
                why,
                remedy: "start the container, or correct its id; it is bound as soon as its cgroup appears"
                    .into(),
            }),
        }
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

fn owner(pod: &Pod) -> String {
    pod.controller()
        .map_or_else(|| pod.metadata.name.clone(), |o| format!("{}/{}", o.kind.to_lowercase(), o.name))
}

fn hash(container: &Container) -> Option<u64> {
    command_hash(&container.command, &container.args)
}
