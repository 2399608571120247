//! The annotations people write on pods for the agent.
//!
//! Owned here: their names, their parsing, and what each says of one container. Not owned: requirements from a
//! pod's own `resources`.

use std::collections::BTreeMap;

use evenkeel_enforce::shared::SourceProblem;
use evenkeel_model::pod::{CONFIG_MIRROR, CONFIG_SOURCE, Container, read_resources_by_container};
use evenkeel_model::requirements::Requirements;
use evenkeel_model::workload::{
    CgroupBinding, ContainerKind, ContainerResources, Managed, OomKill, Requested, ScorePolicy,
};
use evenkeel_qos::estimate::lowered;

use super::engines::tree;

const MANAGE: &str = "evenkeel.dev/manage";
const SCORE: &str = "evenkeel.dev/score";
const OOM_KILL: &str = "evenkeel.dev/oom-kill";
const RESOURCES: &str = "evenkeel.dev/resources";
const MIN_AVAILABLE: &str = "evenkeel.dev/min-available";
const CGROUP: &str = "evenkeel.dev/cgroup.";
const UNIT: &str = "evenkeel.dev/unit.";

/// Annotations by name, as pods carry them.
pub(super) type Annotations = BTreeMap<String, String>;

/// What the annotations of a pod say for all its containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodSwitches {
    pub(super) managed: Managed,
    pub(super) score_policy: ScorePolicy,
    pub(super) oom_kill: Option<OomKill>,
}

/// Reads the switches; a value that is none of the allowed ones leaves the default and is a problem.
pub(super) fn switches(annotations: &Annotations, place: &str) -> (PodSwitches, Vec<SourceProblem>) {
    let mut problems = Vec::new();
    let mut choose = |name: &str, allowed: &[&str]| {
        let value = annotations.get(name)?;
        let found = allowed.iter().position(|a| a == value);
        if found.is_none() {
            problems.push(SourceProblem {
                what: format!("read annotation {name}"),
                where_: place.to_owned(),
                why: format!("`{}` is not one of {}", shown(value), allowed.join(", ")),
                remedy: "write one of these values, or leave the annotation out for the default".into(),
            });
        }
        found
    };
    let manage = choose(MANAGE, &["true", "false"]);
    let score_policy = match choose(SCORE, &["respect", "pin"]) {
        Some(1) => ScorePolicy::Pin,
        _ => ScorePolicy::Respect,
    };
    let oom_kill =
        choose(OOM_KILL, &["container", "process"]).map(|i| [OomKill::Container, OomKill::Process][i]);
    let managed = if manage == Some(1) {
        Managed::No(format!("opted out by annotation {MANAGE}"))
    } else {
        managed_unless_static(annotations)
    };
    (PodSwitches { managed, score_policy, oom_kill }, problems)
}

/// Whether a pod asks to be left alone.
fn opts_out(annotations: &Annotations) -> bool {
    annotations.get(MANAGE).is_some_and(|value| value == "false")
}

/// The switches of a pod that a runtime tells of. Opting out leaves a container its score and hides it from pressure
/// relief, so it needs trust.
pub(super) fn switches_told(
    annotations: &Annotations,
    place: &str,
    is_trusted: bool,
) -> (PodSwitches, Vec<SourceProblem>) {
    let (mut switches, mut problems) = switches(annotations, place);
    if opts_out(annotations) && !is_trusted {
        switches.managed = managed_unless_static(annotations);
        problems.push(not_trusted(MANAGE, place));
    }
    (switches, problems)
}

/// What a container asks for by its runtime's word, in whose place what its annotation `states` comes where that is
/// trusted, and which it lowers elsewhere.
pub(super) fn requested(
    runtime: Requested,
    states: Option<ContainerResources>,
    place: &str,
    is_trusted: bool,
) -> (Requested, Option<SourceProblem>) {
    match states {
        None => (runtime, None),
        Some(states) if is_trusted => (Requested::Stated(states), None),
        Some(states) => {
            let (requested, more) = lowered(runtime, states);
            (requested, more.then(|| not_trusted(RESOURCES, place)))
        }
    }
}

/// CPU and memory of requirements.
pub(super) fn plain(resources: Requirements) -> ContainerResources {
    let (name, kind) = (String::new(), ContainerKind::Regular);
    let container = Container { name, kind, image: None, command: Vec::new(), args: Vec::new(), resources };
    container.cpu_and_memory()
}

/// What the kubelet's own annotations say, which no author of a pod can set.
fn managed_unless_static(annotations: &Annotations) -> Managed {
    if annotations.contains_key(CONFIG_MIRROR) {
        Managed::No("mirror pod".into())
    } else if annotations.get(CONFIG_SOURCE).is_some_and(|s| s != "api") {
        Managed::No("static pod".into())
    } else {
        Managed::Yes
    }
}

/// An annotation that claims more than the runtime says, in a namespace nobody vouches for.
fn not_trusted(name: &str, place: &str) -> SourceProblem {
    SourceProblem {
        what: format!("follow annotation {name}"),
        where_: place.to_owned(),
        why: "it claims more than the container runtime says, and whoever may create a pod may write it".into(),
        remedy: "none needed, the runtime's word holds; without a kubelet, manage.trust_annotations may name the namespace"
            .into(),
    }
}

/// How many pods of its group a pod's manifest wants to stay available.
pub(super) fn min_available(annotations: &Annotations, place: &str) -> Result<Option<u32>, SourceProblem> {
    let Some(text) = annotations.get(MIN_AVAILABLE) else { return Ok(None) };
    text.parse().map(Some).map_err(|_| SourceProblem {
        what: format!("read annotation {MIN_AVAILABLE}"),
        where_: place.to_owned(),
        why: format!("`{}` is not a number of pods", shown(text)),
        remedy: "write a whole number such as \"1\"; until then eviction.min_available holds".into(),
    })
}

/// The cgroup a manifest binds a container to; `Ok(None)` when it binds it to none.
pub(super) fn binding(
    annotations: &Annotations,
    container: &str,
    place: &str,
) -> Result<Option<CgroupBinding>, SourceProblem> {
    let path = annotations.get(&format!("{CGROUP}{container}"));
    let unit = annotations.get(&format!("{UNIT}{container}"));
    let refuse = |why: String, remedy: &str| {
        Err(SourceProblem {
            what: format!("bind container {container}"),
            where_: place.to_owned(),
            why,
            remedy: remedy.into(),
        })
    };
    match (path, unit) {
        (Some(_), Some(_)) => refuse(
            format!("both {CGROUP}{container} and {UNIT}{container} are given"),
            "leave one of them out",
        ),
        (Some(path), None) if is_binding_path(path) => Ok(Some(CgroupBinding::Path(path.clone()))),
        (Some(path), None) => refuse(
            format!("`{}` is not a path below the cgroup root", shown(path)),
            "write it absolute and without `.`, `..` or empty parts, such as /machine.slice/web, or as docker://NAME or podman://NAME with the container's name or its whole id of 64 digits",
        ),
        (None, Some(unit)) if is_unit_name(unit) => Ok(Some(CgroupBinding::Unit(unit.clone()))),
        (None, Some(unit)) => refuse(
            format!("`{}` is not a systemd unit name", shown(unit)),
            "write the unit's full name, such as nginx.service",
        ),
        (None, None) => Ok(None),
    }
}

/// Requirements per container from the `evenkeel.dev/resources` annotation.
pub(super) fn resources(
    annotations: &Annotations,
    place: &str,
) -> Result<Option<BTreeMap<String, Requirements>>, SourceProblem> {
    let Some(text) = annotations.get(RESOURCES) else { return Ok(None) };
    let problem = |why: String| SourceProblem {
        what: format!("read annotation {RESOURCES}"),
        where_: place.to_owned(),
        why,
        remedy: r#"write JSON such as {"web": {"requests": {"cpu": "250m", "memory": "64Mi"}}}"#.into(),
    };
    if text.trim().is_empty() {
        return Err(problem("it is empty".into()));
    }
    let parsed = read_resources_by_container(text, RESOURCES).map_err(|error| problem(error.to_string()))?;
    let parsed: BTreeMap<String, Requirements> = parsed.into_iter().collect();
    let errors: Vec<String> =
        parsed.iter().flat_map(|(name, r)| r.check(name)).map(|error| error.to_string()).collect();
    if errors.is_empty() { Ok(Some(parsed)) } else { Err(problem(errors.join("; "))) }
}

/// Whether a container may be bound to it: a path, or an engine's container.
pub(super) fn is_binding_path(path: &str) -> bool {
    is_plain_path(path) || tree::is_runtime_name(path) || tree::is_container_name(path)
}

/// Absolute, normalised, not the root itself, and printable: nothing that could leave the tree.
fn is_plain_path(path: &str) -> bool {
    path.len() <= 4096
        && path
            .strip_prefix('/')
            .is_some_and(|rest| rest.split('/').all(|part| !part.is_empty() && part != "." && part != ".."))
        && !path.chars().any(char::is_control)
}

/// Characters and length systemd.unit(5) allows, with one of the types that own a cgroup.
pub(super) fn is_unit_name(unit: &str) -> bool {
    unit.len() <= 255
        && [".service", ".scope", ".slice"]
            .iter()
            .any(|s| unit.strip_suffix(s).is_some_and(|n| !n.is_empty()))
        && unit.chars().all(|c| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c))
}

/// A value as it may stand in a message: short and on one line.
fn shown(value: &str) -> String {
    value.chars().take(80).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> Annotations {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn bindings() {
        let path = |p: &str| binding(&map(&[("evenkeel.dev/cgroup.c", p)]), "c", "x");
        for good in [
            "/a",
            "/machine.slice/web",
            "/kubepods/burstable/pod1/c1",
            &format!("docker://{}", "0123456789abcdef".repeat(4)),
            "docker://shop-web-1",
            "podman://cafe",
        ] {
            assert_eq!(path(good).unwrap(), Some(CgroupBinding::Path(good.into())), "{good}");
        }
        for bad in [
            "",
            "/",
            "a",
            "/a/../b",
            "/a//b",
            "/a/",
            "/./a",
            "/a\nb",
            "../x",
            "docker://",
            "docker://0123456789ab",
            "docker://../../x",
            "docker://-web",
            "lxc://web",
        ] {
            assert!(path(bad).is_err(), "{bad:?}");
        }
        let unit = |u: &str| binding(&map(&[("evenkeel.dev/unit.c", u)]), "c", "x");
        assert_eq!(unit("nginx.service").unwrap(), Some(CgroupBinding::Unit("nginx.service".into())));
        for bad in ["nginx", ".service", "a/b.service", "a b.service", "x.timer"] {
            assert!(unit(bad).is_err(), "{bad:?}");
        }
        let both = map(&[("evenkeel.dev/unit.c", "a.service"), ("evenkeel.dev/cgroup.c", "/a")]);
        assert!(binding(&both, "c", "x").unwrap_err().why.contains("both"));
        assert_eq!(binding(&both, "d", "x"), Ok(None));
    }

    #[test]
    fn switches_have_defaults_and_refuse_other_words() {
        let (got, problems) = switches(&map(&[]), "x");
        assert_eq!((got.managed, got.oom_kill, problems.len()), (Managed::Yes, None, 0));
        let (got, problems) = switches(
            &map(&[
                ("evenkeel.dev/manage", "false"),
                ("evenkeel.dev/score", "pin"),
                ("evenkeel.dev/oom-kill", "container"),
            ]),
            "x",
        );
        assert!(matches!(got.managed, Managed::No(_)) && problems.is_empty());
        assert_eq!((got.score_policy, got.oom_kill), (ScorePolicy::Pin, Some(OomKill::Container)));
        let (got, problems) = switches(&map(&[("evenkeel.dev/manage", "no")]), "pod a/b");
        assert_eq!((got.managed, problems.len()), (Managed::Yes, 1));
        let least = |text: &str| min_available(&map(&[("evenkeel.dev/min-available", text)]), "x");
        assert_eq!((least("2"), min_available(&map(&[]), "x")), (Ok(Some(2)), Ok(None)));
        assert!(least("-1").is_err() && least("half").is_err());
        assert!(matches!(switches(&map(&[(CONFIG_SOURCE, "file")]), "x").0.managed, Managed::No(_)));
    }

    #[test]
    fn the_resources_annotation_is_checked() {
        let read = |text: &str| resources(&map(&[("evenkeel.dev/resources", text)]), "x");
        let good =
            read(r#"{"web": {"requests": {"cpu": "250m"}, "limits": {"memory": "64Mi"}}}"#).unwrap().unwrap();
        assert_eq!(good["web"].limits.memory().unwrap().to_string(), "64Mi");
        for bad in [
            "",
            "[]",
            r#"{"web": {"requests": {"cpu": "x"}}}"#,
            r#"{"web": {"requests": {"cpu": 2}, "limits": {"cpu": 1}}}"#,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
