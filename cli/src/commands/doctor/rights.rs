//! Checks of what this process may do: capabilities, user namespace, descriptors, events of the kernel.

use evenkeel_host::caps::{Feature, UsableCapability, held};
use evenkeel_host::events::ProcConnector;
use evenkeel_host::hierarchy::Layout;
use evenkeel_host::roots::Roots;
use evenkeel_host::sampler::{descriptors_needed, raise_nofile};

use super::{CheckStatus, Finding};

/// Containers a node is expected to hold at most.
const CONTAINERS: u64 = 1000;
/// The map of the initial user namespace: every id is itself (user_namespaces(7)).
const INITIAL_MAP: [&str; 3] = ["0", "0", "4294967295"];

pub(super) fn findings(roots: &Roots) -> Vec<Finding> {
    let mut findings = capabilities();
    findings.extend([user_namespace(roots), process_events(), descriptors(roots)]);
    findings
}

/// One finding for each capability, naming what each feature loses without it.
fn capabilities() -> Vec<Finding> {
    let held = match held() {
        Ok(held) => held,
        Err(e) => return vec![Finding::error("capabilities", CheckStatus::Fail, &e, "run as root")],
    };
    UsableCapability::ALL
        .into_iter()
        .map(|capability| finding_of(capability, held.contains(&capability)))
        .collect()
}

fn finding_of(capability: UsableCapability, is_held: bool) -> Finding {
    let check = capability.to_string();
    if is_held {
        return Finding::ok(check, "held");
    }
    let lost: Vec<_> =
        Feature::ALL.into_iter().filter(|f| f.needs() == capability).map(Feature::without).collect();
    let remedy =
        format!("run as root, or add {capability} to the unit or to the container's securityContext");
    Finding::warn(check, format!("not held: {}", lost.join("; ")), remedy)
}

fn user_namespace(roots: &Roots) -> Finding {
    let check = "user namespace";
    let map = std::fs::read_to_string(roots.proc().join("self/uid_map")).unwrap_or_default();
    if map.split_whitespace().eq(INITIAL_MAP) {
        return Finding::ok(check, "the initial one");
    }
    Finding::warn(
        check,
        "not the initial one: CAP_SYS_RESOURCE does not allow scores below a process's floor",
        "run the agent outside of user namespaces (hostUsers: true)",
    )
}

fn process_events() -> Finding {
    match ProcConnector::open() {
        Ok(_) => Finding::ok("process events", "the kernel tells of every fork and exec"),
        Err(e) => Finding::error(
            "process events",
            CheckStatus::Warn,
            &e,
            "new processes are found by the audit; run with CAP_NET_ADMIN in the node's network namespace",
        ),
    }
}

fn descriptors(roots: &Roots) -> Finding {
    let check = "file descriptors";
    let Ok(layout) = Layout::detect(roots) else {
        return Finding::warn(check, "how many are needed is not known without cgroups", "see cgroups");
    };
    match raise_nofile(descriptors_needed(&layout, CONTAINERS)) {
        Err(e) => Finding::error(check, CheckStatus::Warn, &e, "set LimitNOFILE= in the unit"),
        Ok(n) if n.is_enough() => {
            Finding::ok(check, format!("{} may be open, enough for {CONTAINERS} containers", n.limit))
        }
        Ok(n) => Finding::warn(
            check,
            format!("{} may be open, {} are wanted for {CONTAINERS} containers", n.limit, n.wanted),
            "set LimitNOFILE= in the unit; until then files beyond it are opened every second",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_capability_names_what_is_lost() {
        let finding = finding_of(UsableCapability::SysResource, false);
        assert_eq!(finding.state, CheckStatus::Warn);
        assert!(finding.found.contains("scores below") && finding.found.contains("pressure"), "{finding:?}");
        assert!(finding.remedy.unwrap().contains("CAP_SYS_RESOURCE"));
        assert_eq!(finding_of(UsableCapability::Kill, true).state, CheckStatus::Ok);
    }

    #[test]
    fn the_initial_user_namespace_is_told_from_others() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("self")).unwrap();
        let state = |map: &str| {
            std::fs::write(dir.path().join("self/uid_map"), map).unwrap();
            user_namespace(&Roots::new(dir.path(), dir.path())).state
        };
        assert_eq!(state("         0          0 4294967295\n"), CheckStatus::Ok);
        assert_eq!(state("         0     100000      65536\n"), CheckStatus::Warn);
        assert_eq!(state(""), CheckStatus::Warn);
    }
}
