//! Merging what the sources say into one list, each cgroup once.

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_model::node::NodeFacts;
use evenkeel_model::workload::{CgroupBinding, Managed, Requested, SourceKind, Workload};
use evenkeel_qos::rules::defaulted;

use crate::reconcile::Manage;
use crate::shared::SourceProblem;

/// A container and the path of its cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bound {
    /// The container; its `managed` has the configuration's exclusions in it. The source's own where nothing had to
    /// be changed.
    pub workload: Arc<Workload>,
    /// Path below the hierarchies' roots.
    pub path: String,
}

/// The merged state.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Merged {
    /// Each cgroup once.
    pub bound: Vec<Bound>,
    /// Containers whose cgroup is not there (yet).
    pub waiting: Vec<Arc<Workload>>,
    /// Conflicts, each by name.
    pub problems: Vec<SourceProblem>,
}

/// Merges workloads given in order of precedence (manifests, then runtimes, ...). `resolve` finds the path of a
/// binding.
pub(crate) fn merge<'a>(
    workloads: impl Iterator<Item = &'a Arc<Workload>>,
    manage: &Manage,
    node: &NodeFacts,
    resolve: &mut dyn FnMut(&CgroupBinding) -> Option<String>,
) -> Merged {
    let mut merged = Merged::default();
    let mut by_path: BTreeMap<String, Vec<&Arc<Workload>>> = BTreeMap::new();
    for workload in workloads {
        match resolve(&workload.cgroup) {
            Some(path) => by_path.entry(path).or_default().push(workload),
            None => merged.waiting.push(Arc::clone(workload)),
        }
    }
    for (path, claims) in by_path {
        if let Some(workload) = settle(&path, &claims, &mut merged.problems) {
            merged.bound.push(Bound { workload, path });
        }
    }
    one_per_id(&mut merged);
    outer_gives_way(&mut merged);
    for bound in &mut merged.bound {
        too_large(bound, node, &mut merged.problems);
    }
    for bound in &mut merged.bound {
        exclude(bound, manage);
    }
    merged
}

/// Who a cgroup belongs to. Two manifests that claim it are both refused, because either may be the mistake;
/// otherwise the first source wins and takes from the others what it does not know.
fn settle(path: &str, claims: &[&Arc<Workload>], problems: &mut Vec<SourceProblem>) -> Option<Arc<Workload>> {
    let stated: Vec<&&Arc<Workload>> = claims.iter().filter(|c| c.source == SourceKind::Manifests).collect();
    let refused = stated.len() > 1;
    if refused {
        let names: Vec<String> = stated.iter().map(|claim| name_of(claim)).collect();
        problems.push(SourceProblem {
            what: "bind containers to one cgroup".into(),
            where_: path.to_owned(),
            why: format!("it is claimed by {}", names.join(" and ")),
            remedy: "keep one of them; until then none is used".into(),
        });
    }
    let mut rest = claims.iter().filter(|claim| !(refused && claim.source == SourceKind::Manifests));
    let mut shared = Arc::clone(rest.next()?);
    for other in rest {
        let winner = Arc::make_mut(&mut shared);
        winner.image = winner.image.take().or_else(|| other.image.clone());
        winner.command_hash = winner.command_hash.or(other.command_hash);
        winner.pid = winner.pid.or(other.pid);
        if winner.pod_facts.labels.is_empty() {
            winner.pod_facts.labels.clone_from(&other.pod_facts.labels);
        }
        winner.pod.uid = winner.pod.uid.take().or_else(|| other.pod.uid.clone());
    }
    Some(shared)
}

/// `namespace/pod/container`.
fn name_of(workload: &Workload) -> String {
    format!("{}/{}/{}", workload.pod.namespace, workload.pod.name, workload.container)
}

/// An id names one container; a second cgroup under the same id is a mistake of its source.
fn one_per_id(merged: &mut Merged) {
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    let problems = &mut merged.problems;
    merged.bound.retain(|bound| {
        let first = seen.entry(bound.workload.id.clone()).or_insert_with(|| bound.path.clone());
        let same = *first == bound.path;
        if !same {
            problems.push(SourceProblem {
                what: format!("track {}", name_of(&bound.workload)),
                where_: bound.path.clone(),
                why: format!("the container {} is bound to {first} already", bound.workload.id),
                remedy: "give each container one cgroup and a name of its own".into(),
            });
        }
        same
    });
}

/// Processes of a cgroup inside another belong to the inner one; the outer is sampled only, or the two would
/// rewrite each other's scores for ever.
fn outer_gives_way(merged: &mut Merged) {
    // Sorted by path, an inner cgroup follows its outer one, before any sibling: "/" is lower than all that names
    // begin with but '!' to '.', so the neighbours in between are searched too.
    let paths: Vec<String> = merged.bound.iter().map(|bound| bound.path.clone()).collect();
    for bound in &mut merged.bound {
        let below = format!("{}/", bound.path);
        let from = paths.partition_point(|path| path.as_str() < below.as_str());
        if let Some(inner) = paths.get(from).filter(|path| path.starts_with(&below))
            && bound.workload.managed == Managed::Yes
        {
            Arc::make_mut(&mut bound.workload).managed =
                Managed::No(format!("the container at {inner} is inside its cgroup"));
        }
    }
}

/// More than the whole node cannot be kept for anybody: nothing of such a container is written, rather than a part.
fn too_large(bound: &mut Bound, node: &NodeFacts, problems: &mut Vec<SourceProblem>) {
    let workload = &bound.workload;
    let Requested::Stated(stated) = workload.requested else { return };
    let resources = defaulted(stated);
    let memory = resources.memory_request.filter(|request| *request > node.memory_bytes);
    let cpu = resources.cpu_request.filter(|request| *request > node.cpu_milli);
    let why = match (memory, cpu) {
        _ if workload.managed != Managed::Yes => return,
        (Some(request), _) => {
            format!("it requests {request} of memory and the node has {}", node.memory_bytes)
        }
        (None, Some(request)) => format!("it requests {request} of cpu and the node has {}", node.cpu_milli),
        (None, None) => return,
    };
    problems.push(SourceProblem {
        what: format!("manage {}", name_of(workload)),
        where_: bound.path.clone(),
        why: why.clone(),
        remedy: "lower the request, or run it on a larger node; until then it is sampled only".into(),
    });
    Arc::make_mut(&mut bound.workload).managed = Managed::No(why);
}

/// Exclusion by configuration; a source's own reason stays.
fn exclude(bound: &mut Bound, manage: &Manage) {
    let workload = &bound.workload;
    if workload.managed != Managed::Yes {
        return;
    }
    let namespace = &workload.pod.namespace;
    let why = if manage.exclude_namespaces.contains(namespace) {
        format!("namespace {namespace} is excluded by manage.exclude_namespaces")
    } else if let Some(prefix) = manage.deny.iter().find(|prefix| is_at_or_below(&bound.path, prefix)) {
        format!("its cgroup is at or below {prefix}, which manage.deny names")
    } else {
        return;
    };
    Arc::make_mut(&mut bound.workload).managed = Managed::No(why);
}

fn is_at_or_below(path: &str, prefix: &str) -> bool {
    let prefix = prefix.trim_end_matches('/');
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::workload;
    use evenkeel_model::units::{Bytes, MilliCpu};
    use evenkeel_model::workload::ContainerResources;

    fn none() -> Manage {
        Manage { exclude_namespaces: Vec::new(), deny: Vec::new(), trust_annotations: Vec::new() }
    }

    fn merged(workloads: &[Workload], manage: &Manage) -> Merged {
        let node = NodeFacts::of_size(Bytes::new(1 << 30), MilliCpu::new(2000));
        let shared: Vec<Arc<Workload>> = workloads.iter().cloned().map(Arc::new).collect();
        merge(shared.iter(), manage, &node, &mut |binding| match binding {
            CgroupBinding::Path(path) => Some(path.clone()),
            CgroupBinding::Unit(_) => None,
        })
    }

    fn at(name: &str, source: SourceKind, path: &str) -> Workload {
        Workload { source, cgroup: CgroupBinding::Path(path.into()), ..workload(name) }
    }

    #[test]
    fn two_manifests_of_one_cgroup_are_both_refused_by_name() {
        let all = [
            at("a", SourceKind::Manifests, "/x"),
            at("b", SourceKind::Manifests, "/x"),
            at("c", SourceKind::Manifests, "/y"),
        ];
        let merged = merged(&all, &none());
        assert_eq!(merged.bound.iter().map(|b| b.path.as_str()).collect::<Vec<_>>(), ["/y"]);
        assert_eq!(merged.problems[0].why, "it is claimed by default/a/main and default/b/main");
    }

    #[test]
    fn a_manifest_wins_over_the_runtime_and_takes_what_it_does_not_know() {
        let mut runtime = at("runtime", SourceKind::Cri, "/x");
        runtime.image = Some("busybox".into());
        runtime.pid = Some(7);
        let merged = merged(&[at("manifest", SourceKind::Manifests, "/x"), runtime], &none());
        let winner = &merged.bound[0].workload;
        assert_eq!(
            (winner.pod.name.as_str(), winner.image.as_deref(), winner.pid),
            ("manifest", Some("busybox"), Some(7))
        );
    }

    #[test]
    fn with_both_manifests_refused_the_runtime_still_counts() {
        let all = [
            at("a", SourceKind::Manifests, "/x"),
            at("b", SourceKind::Manifests, "/x"),
            at("runtime", SourceKind::Cri, "/x"),
        ];
        let merged = merged(&all, &none());
        assert_eq!(merged.bound[0].workload.pod.name, "runtime");
    }

    #[test]
    fn exclusion_and_denial_leave_a_reason() {
        let manage = Manage {
            exclude_namespaces: vec!["kube-system".into()],
            deny: vec!["/system.slice".into()],
            ..none()
        };
        let mut excluded = at("a", SourceKind::Cri, "/a");
        excluded.pod.namespace = "kube-system".into();
        let mut opted_out = at("d", SourceKind::Cri, "/system.slice/d");
        opted_out.managed = Managed::No("opted out".into());
        let all = [
            excluded,
            at("b", SourceKind::Cri, "/system.slice/b"),
            at("c", SourceKind::Cri, "/system.slices"),
            opted_out,
        ];
        let reasons: Vec<Managed> =
            merged(&all, &manage).bound.iter().map(|b| b.workload.managed.clone()).collect();
        assert_eq!(
            reasons,
            [
                Managed::No("namespace kube-system is excluded by manage.exclude_namespaces".into()),
                Managed::No("its cgroup is at or below /system.slice, which manage.deny names".into()),
                Managed::No("opted out".into()),
                Managed::Yes,
            ]
        );
    }

    #[test]
    fn an_outer_cgroup_gives_way_to_the_inner_one() {
        let all = [
            at("outer", SourceKind::Cri, "/pod"),
            at("neighbour", SourceKind::Cri, "/pod-2"),
            at("inner", SourceKind::Cri, "/pod/inner"),
        ];
        let merged = merged(&all, &none());
        let managed =
            |path: &str| merged.bound.iter().find(|b| b.path == path).unwrap().workload.managed.clone();
        assert_eq!(managed("/pod"), Managed::No("the container at /pod/inner is inside its cgroup".into()));
        assert_eq!((managed("/pod-2"), managed("/pod/inner")), (Managed::Yes, Managed::Yes));
    }

    #[test]
    fn a_request_above_the_node_is_refused_by_name_as_a_whole() {
        let asking = |name: &str, milli: u64, mib: u64| {
            let resources = ContainerResources {
                cpu_request: Some(MilliCpu::new(milli)),
                memory_limit: Some(Bytes::new(mib << 20)),
                ..ContainerResources::default()
            };
            let requested = Requested::Stated(resources);
            Workload { requested, ..at(name, SourceKind::Manifests, &format!("/{name}")) }
        };
        let merged = merged(&[asking("a", 2000, 1024), asking("b", 2001, 1), asking("c", 1, 1025)], &none());
        let managed: Vec<bool> = merged.bound.iter().map(|b| b.workload.managed == Managed::Yes).collect();
        assert_eq!(managed, [true, false, false]);
        let said: Vec<&str> = merged.problems.iter().map(|problem| problem.why.as_str()).collect();
        assert_eq!(
            said,
            [
                "it requests 2001m of cpu and the node has 2000m",
                "it requests 1074790400 bytes of memory and the node has 1073741824 bytes",
            ]
        );
        assert_eq!(merged.problems[0].what, "manage default/b/main");
    }

    #[test]
    fn an_id_is_tracked_once_and_units_wait() {
        let mut twin = at("a", SourceKind::Cri, "/b");
        twin.id = workload("a").id;
        let unit = Workload { cgroup: CgroupBinding::Unit("x.service".into()), ..workload("unit") };
        let merged = merged(&[at("a", SourceKind::Cri, "/a"), twin, unit], &none());
        assert_eq!((merged.bound.len(), merged.problems.len(), merged.waiting.len()), (1, 1, 1));
    }
}
