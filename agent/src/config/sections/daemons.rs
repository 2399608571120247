//! `[daemons]`: what the node cannot live without, and how it is found.

use evenkeel_enforce::node::rules::{DaemonRules, Program};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::check::Checker;

section! {
    /// Daemons the node cannot live without: the agent keeps their processes at the rule set's score for infrastructure
    /// (-999), and itself. Containers, shims and other helpers of theirs are left alone.
    Daemons {
        /// Whether daemons are looked for and scored.
        enabled: bool = true,
        /// systemd units; the daemon is the unit's first process and others there that run the same program. Defaults:
        /// the kubelet, kube-proxy, and the runtimes by their packages' unit names.
        units: Vec<String> = names(&[
            "kubelet.service", "kube-proxy.service", "containerd.service", "crio.service", "docker.service",
        ]),
        /// Cgroup paths, likewise.
        cgroups: Vec<String> = Vec::new(),
        /// Programs by absolute path, or by name (then of root's processes only). Of processes in containers only those
        /// count that are in an excluded namespace: the kube-proxy pod.
        executables: Vec<String> = names(&["kubelet", "kube-proxy", "containerd", "crio", "dockerd"]),
    }
}

fn names(all: &[&str]) -> Vec<String> {
    all.iter().map(|name| (*name).to_owned()).collect()
}

/// Checks the section.
pub(in super::super) fn check(c: &mut Checker<'_>, raw: &Daemons) -> DaemonRules {
    for unit in raw.units.iter().filter(|unit| !is_unit(unit)) {
        let reason = format!("\"{unit}\" is not the name of a service, scope or slice");
        c.fail("daemons.units", reason, "give the unit's full name, such as \"kubelet.service\"");
    }
    for path in raw.cgroups.iter().filter(|path| !is_cgroup(path)) {
        let reason = format!("\"{path}\" is not a cgroup path below the root");
        c.fail(
            "daemons.cgroups",
            reason,
            "give a path below the cgroup root, such as \"/system.slice/x.service\"",
        );
    }
    let programs: Vec<Option<Program>> = raw.executables.iter().map(|text| program(text)).collect();
    for text in raw.executables.iter().zip(&programs).filter(|(_, p)| p.is_none()).map(|(text, _)| text) {
        let reason = format!("\"{text}\" is neither an absolute path nor a plain name");
        c.fail("daemons.executables", reason, "give one such as \"/usr/bin/kubelet\" or \"kubelet\"");
    }
    if !raw.enabled {
        return DaemonRules::default();
    }
    DaemonRules {
        units: raw.units.clone(),
        cgroups: raw.cgroups.iter().map(|path| path.trim_end_matches('/').to_owned()).collect(),
        programs: programs.into_iter().flatten().collect(),
        enabled: true,
    }
}

fn program(text: &str) -> Option<Program> {
    if text.is_empty() || text.contains(char::is_control) {
        return None;
    }
    if text.starts_with('/') {
        let plain = text.split('/').skip(1).all(|part| !part.is_empty() && part != "." && part != "..");
        return plain.then(|| Program::Path(text.into()));
    }
    (!text.contains('/') && text != "." && text != "..").then(|| Program::Name(text.to_owned()))
}

fn is_unit(unit: &str) -> bool {
    let typed = [".service", ".scope", ".slice"];
    unit.len() <= 255
        && typed.iter().any(|kind| unit.strip_suffix(kind).is_some_and(|name| !name.is_empty()))
        && unit.chars().all(|c| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c))
}

/// Absolute, normal and not the root.
pub(super) fn is_cgroup(path: &str) -> bool {
    path.strip_prefix('/').map(|rest| rest.strip_suffix('/').unwrap_or(rest)).is_some_and(|rest| {
        rest.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
            && !rest.contains(char::is_control)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_units_and_paths_are_told_from_anything_else() {
        for (text, good) in [
            ("kubelet", true),
            ("/usr/bin/kubelet", true),
            ("bin/kubelet", false),
            ("/usr/../kubelet", false),
            ("/", false),
            ("", false),
            ("..", false),
        ] {
            assert_eq!(program(text).is_some(), good, "{text}");
        }
        for (unit, good) in
            [("kubelet.service", true), (".service", false), ("kubelet", false), ("a/b.service", false)]
        {
            assert_eq!(is_unit(unit), good, "{unit}");
        }
        for (path, good) in
            [("/a/b", true), ("/a/", true), ("/", false), ("a", false), ("/a/../b", false), ("/a//b", false)]
        {
            assert_eq!(is_cgroup(path), good, "{path}");
        }
    }
}
