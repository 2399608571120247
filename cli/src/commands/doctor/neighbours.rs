//! Checks of other programs: container runtimes, a kubelet, the agent, the recommender.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use evenkeel_host::roots::Roots;
use evenkeel_proto::v1::{GetStatusRequest, GetStatusResponse, PodsStatus};

use super::{Finding, cluster, updater};
use crate::client::{self, Address, Peers};
use crate::failure::Failure;
use crate::wire;

/// Where runtimes listen unless configured otherwise.
const RUNTIME_SOCKETS: [(&str, &str); 4] = [
    ("containerd", "/run/containerd/containerd.sock"),
    ("CRI-O", "/run/crio/crio.sock"),
    ("Docker", "/run/docker.sock"),
    ("Podman", "/run/podman/podman.sock"),
];

/// Where the kubelet keeps what its CPU manager does (`pkg/kubelet/cm/cpumanager`, `cpu_manager_state`).
const CPU_MANAGER_STATE: &str = "var/lib/kubelet/cpu_manager_state";

pub(super) async fn findings(roots: &Roots, peers: &Peers<'_>) -> Vec<Finding> {
    let status = agent_status(peers.agent).await;
    let rules = status.as_ref().map(|status| status.rules.clone());
    let trusted = status.as_ref().map(of_agent).unwrap_or_default();
    let agent = match &rules {
        Ok(rules) => Finding::ok("agent", format!("answers at {}, {rules} rules", peers.agent)),
        Err(failure) => unreachable("agent", failure),
    };
    let more = match cluster::nodes(peers.recommender).await {
        Ok(answer) => {
            let mut findings = cluster::of_recommender(peers.recommender, &answer);
            findings.extend(updater::finding(peers.recommender).await);
            findings
        }
        Err(failure) => vec![unreachable("recommender", &failure)],
    };
    let root = Path::new("/");
    let mut findings = vec![runtimes(root), kubelet(roots, rules.ok().as_deref())];
    findings.extend(cpu_manager(root));
    findings.push(agent);
    findings.extend(trusted);
    findings.extend(more);
    findings
}

fn runtimes(root: &Path) -> Finding {
    let is_socket = |path: &str| {
        let path = root.join(path.trim_start_matches('/'));
        std::fs::metadata(path).is_ok_and(|m| m.file_type().is_socket())
    };
    let found: Vec<String> = RUNTIME_SOCKETS
        .into_iter()
        .filter(|(_, path)| is_socket(path))
        .map(|(name, path)| format!("{name} at {path}"))
        .collect();
    if found.is_empty() {
        return Finding::warn(
            "container runtimes",
            "no socket at the usual places",
            "start one, name its socket in the agent's configuration, or describe containers with manifests",
        );
    }
    Finding::ok("container runtimes", found.join(", "))
}

/// A kubelet sets scores by its own rules; two rule sets on one node contradict each other.
fn kubelet(roots: &Roots, agent_rules: Option<&str>) -> Finding {
    let check = "kubelet";
    match (has_process(roots, "kubelet"), agent_rules) {
        (false, _) => Finding::ok(check, "none runs here"),
        (true, Some("kubelet")) => Finding::ok(check, "runs here, and the agent follows its rules"),
        (true, Some(other)) => Finding::warn(
            check,
            format!("runs here, but the agent follows the {other} rules: scores of both mix"),
            "set rules = \"kubelet\" in the agent's configuration",
        ),
        (true, None) => Finding::warn(
            check,
            "runs here; which rules the agent follows is not known",
            "set rules = \"kubelet\" in the agent's configuration",
        ),
    }
}

/// The kubelet's static CPU manager owns cpusets; `None` where no kubelet keeps a state of it.
fn cpu_manager(root: &Path) -> Option<Finding> {
    let check = "CPU manager";
    let text = std::fs::read_to_string(root.join(CPU_MANAGER_STATE)).ok()?;
    let state: serde_json::Value = serde_json::from_str(&text).ok()?;
    Some(match state["policyName"].as_str()? {
        "none" => Finding::ok(check, "the kubelet gives no exclusive cores"),
        policy => Finding::warn(
            check,
            format!("the kubelet's policy is {policy}: it owns cpusets, and cpu.exclusive_cores stays off"),
            "leave cpu.exclusive_cores off, or set cpuManagerPolicy: none in the kubelet's configuration",
        ),
    })
}

/// Whether a process of this name runs.
fn has_process(roots: &Roots, name: &str) -> bool {
    let Ok(entries) = std::fs::read_dir(roots.proc()) else { return false };
    let is_pid = |n: &std::ffi::OsStr| n.as_encoded_bytes().iter().all(u8::is_ascii_digit);
    let mut commands = entries
        .flatten()
        .filter(|e| is_pid(&e.file_name()))
        .filter_map(|e| std::fs::read_to_string(e.path().join("comm")).ok());
    commands.any(|comm| comm.trim_end() == name)
}

/// Rows of an agent's status that are about certificates and encryption.
const TRUST: [&str; 3] = ["encryption", "certificate", "stream certificate"];
/// That which says that the kernel keeps files from the agent's parts by their users alone.
const LANDLOCK: &str = "landlock";

/// What is wrong with the agent's certificates, its encryption and the confinement of its parts.
fn of_agent(status: &GetStatusResponse) -> Vec<Finding> {
    let rows = status.knobs.iter().filter(|knob| TRUST.contains(&knob.name.as_str()));
    let rows = rows.map(|row| Finding::warn(format!("agent's {}", row.name), &row.why, &row.remedy));
    let landlock = status.knobs.iter().filter(|knob| knob.name == LANDLOCK);
    let landlock = landlock.map(|row| Finding::warn(LANDLOCK, &row.why, &row.remedy));
    rows.chain(landlock).chain(status.pods.as_ref().map(pods)).collect()
}

/// What the agent knows of the node's pods in the API server's words.
fn pods(known: &PodsStatus) -> Finding {
    let check = "pods by the API server";
    let changed = wire::time(known.changed_usec).unwrap_or_else(|| "-".to_owned());
    let count = format!("{} known, {} containers follow them", known.pods, known.followed);
    if let Some(kubelet) = known.kubelet.as_ref().filter(|kubelet| !kubelet.trouble.is_empty()) {
        let (why, remedy) =
            kubelet.trouble.rsplit_once("; ").unwrap_or((&kubelet.trouble, "see the kubelet's log"));
        let read = wire::time(kubelet.read_usec).unwrap_or_else(|| "never".to_owned());
        return Finding::warn(
            check,
            format!("{count}; the kubelet does not tell them (last: {read}): {why}"),
            remedy,
        );
    }
    if let Some(first) = known.refused.first() {
        let found = format!("{count}; {} not followed: {first}", known.refused.len());
        return Finding::warn(
            check,
            found,
            "evenkeel status names them; the runtime's record holds for their containers",
        );
    }
    if known.kept {
        let found = format!("{count}, as an earlier run of the agent kept them (changed at {changed})");
        return Finding::warn(check, found, "see that the recommender is reached and has kubernetes.view");
    }
    let by = match (&known.kubelet, known.generation) {
        (Some(_), 0) => "by the kubelet".to_owned(),
        _ => format!("changed at {changed}"),
    };
    Finding::ok(check, format!("{count}, {by}"))
}

async fn agent_status(address: &Address) -> Result<GetStatusResponse, Failure> {
    let mut agent = client::agent(address).await?;
    let status = agent.get_status(GetStatusRequest {}).await.map_err(|e| address.failed(&e))?;
    Ok(status.into_inner())
}

/// The node does its work without either, so this is a warning.
pub(super) fn unreachable(check: &str, failure: &Failure) -> Finding {
    Finding::warn(check, failure.summary(), failure.remedy())
}

#[cfg(test)]
mod tests {
    use evenkeel_proto::v1::{KnobStatus, KubeletStatus};

    use super::super::CheckStatus;
    use super::*;

    #[test]
    fn a_kubelet_and_other_rules_are_a_mixture() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::new(dir.path(), dir.path());
        assert_eq!(kubelet(&roots, Some("proposal")).state, CheckStatus::Ok);
        std::fs::create_dir(dir.path().join("42")).unwrap();
        std::fs::write(dir.path().join("42/comm"), "kubelet\n").unwrap();
        assert_eq!(kubelet(&roots, Some("proposal")).state, CheckStatus::Warn);
        assert_eq!(kubelet(&roots, None).state, CheckStatus::Warn);
        assert_eq!(kubelet(&roots, Some("kubelet")).state, CheckStatus::Ok);
    }

    #[test]
    fn certificates_that_end_are_told_with_what_helps() {
        let knob = |name: &str| KnobStatus {
            name: name.to_owned(),
            why: "it ends".into(),
            remedy: "renew it".into(),
            ..KnobStatus::default()
        };
        let status = GetStatusResponse {
            knobs: vec![knob("certificate"), knob("cpu.weight"), knob("landlock")],
            ..GetStatusResponse::default()
        };
        let found = of_agent(&status);
        assert_eq!(
            (found.len(), found[0].check.as_str(), found[0].state),
            (2, "agent's certificate", CheckStatus::Warn)
        );
        assert_eq!((found[1].check.as_str(), found[1].page.as_str()), ("landlock", "doctor.md#landlock"));
    }

    #[test]
    fn what_is_known_of_pods_is_told_with_what_stands_against_it() {
        let known =
            PodsStatus { pods: 3, generation: 1, changed_usec: 1, followed: 2, ..PodsStatus::default() };
        let trouble = "403: Forbidden; allow this account to get nodes/pods";
        let kubelet =
            |trouble: &str| Some(KubeletStatus { trouble: trouble.to_owned(), ..KubeletStatus::default() });
        for (known, state, part) in [
            (known.clone(), CheckStatus::Ok, "3 known, 2 containers"),
            (
                PodsStatus { generation: 0, kubelet: kubelet(""), ..known.clone() },
                CheckStatus::Ok,
                "by the kubelet",
            ),
            (
                PodsStatus { kubelet: kubelet(trouble), ..known.clone() },
                CheckStatus::Warn,
                "(last: never): 403: Forbidden",
            ),
            (
                PodsStatus { refused: vec!["shop/web: no".into()], ..known.clone() },
                CheckStatus::Warn,
                "shop/web: no",
            ),
            (PodsStatus { kept: true, ..known }, CheckStatus::Warn, "earlier run"),
        ] {
            let finding = pods(&known);
            assert!(finding.state == state && finding.found.contains(part), "{part}: {finding:?}");
        }
    }

    #[test]
    fn a_static_cpu_manager_is_told() {
        let dir = tempfile::tempdir().unwrap();
        assert!(cpu_manager(dir.path()).is_none());
        let state = |text: &str| {
            let path = dir.path().join(CPU_MANAGER_STATE);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
            cpu_manager(dir.path()).map(|finding| finding.state)
        };
        assert_eq!(state(r#"{"policyName":"none"}"#), Some(CheckStatus::Ok));
        assert_eq!(state(r#"{"policyName":"static","defaultCpuSet":"0-1"}"#), Some(CheckStatus::Warn));
        assert_eq!(state("nonsense"), None);
    }

    #[test]
    fn only_sockets_are_runtimes() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("run/crio")).unwrap();
        std::fs::write(dir.path().join("run/docker.sock"), "").unwrap();
        assert_eq!(runtimes(dir.path()).state, CheckStatus::Warn);
        let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("run/crio/crio.sock")).unwrap();
        assert_eq!(runtimes(dir.path()).found, "CRI-O at /run/crio/crio.sock");
    }
}
