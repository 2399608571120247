//! The agent beside a real runtime, and inside a pod of it, on whatever kernel this runs: the machine's own, or a
//! guest's.

use anyhow::{Context, Result};
use evenkeel_proto::v1::{ContainerStatus, ConvergeState, GetStatusResponse, PartStatus, QosClass};
use evenkeel_tests::cgroups::Tier;
use evenkeel_tests::image::Image;
use evenkeel_tests::matrix::the_starter_keeps_nothing_but_starting;
use evenkeel_tests::processes::{memory_total, score, set_score};
use evenkeel_tests::product::{Agent, AgentSetup, AskAgent, await_score, directory};
use evenkeel_tests::runtime::{self, ContainerSpec, Pod, PodSpec, Runtime, resources};
use evenkeel_tests::{debian13, machine, places, require, wait};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

const MIB: i64 = 1 << 20;

/// containerd and an agent that asks it.
struct Node {
    agent: Agent,
    containerd: Runtime,
    _directory: TempDir,
}

impl Node {
    /// Events alone must do: the audit comes once an hour.
    fn start() -> Result<Node> {
        Node::auditing("1h")
    }

    fn auditing(period: &str) -> Result<Node> {
        let (containerd, directory) = (Runtime::start()?, directory()?);
        let setup = AgentSetup::new(directory.path())?
            .runtime(&containerd.socket())
            .set("manage.trust_annotations", "[\"default\"]")
            .set("converge.audit_period", &format!("\"{period}\""))
            .set("cpu.weight_conversion", "\"linear\"");
        Ok(Node { agent: setup.start()?, containerd, _directory: directory })
    }

    /// Runs a pod whose container `main` sleeps.
    fn run(&self, spec: PodSpec, given: runtime::api::LinuxContainerResources) -> Result<Pod> {
        let main = ContainerSpec::new("main", &["sleep", "1000000"]).resources(given);
        self.containerd.run_pod(&spec.container(main))
    }
}

fn pid(pod: &Pod) -> Pid {
    Pid::from_raw(pod.containers[0].pid)
}

fn class(container: &ContainerStatus) -> QosClass {
    container.identity.as_ref().map_or(QosClass::Unspecified, |i| i.memory_class())
}

fn is_estimated(container: &ContainerStatus) -> bool {
    container.identity.as_ref().is_some_and(|i| i.estimated)
}

/// With a real runtime that has container events. What the agent knows so comes by the event, a directory's making or the next
/// listing; the log says that events are heard.
#[allow(dead_code, reason = "a guest has no containerd that has events")]
pub(crate) fn container_events_tell_of_a_new_container() -> Result<()> {
    require!(runtime::impossible().is_none(), runtime::impossible().unwrap_or_default());
    let programs = debian13::programs_of("containerd");
    let why_not = programs.as_ref().err().map(|error| format!("{error:#}"));
    require!(why_not.is_none(), why_not.unwrap_or_default());
    let (containerd, directory) = (Runtime::start_from(Some(programs?))?, directory()?);
    let agent = AgentSetup::new(directory.path())?.runtime(&containerd.socket()).start()?;
    let node = Node { agent, containerd, _directory: directory };
    let version = node.containerd.cri().version()?;
    let pod = node.run(PodSpec::new("web", Tier::BestEffort), resources(2, None, 1000))?;
    node.agent.await_container("web", "known", |_| true)?;
    await_score(Pid::from_raw(pod.containers[0].pid), 1000)?;
    wait::until("the runtime's events to be heard", wait::PATIENCE, || {
        Ok(node.agent.daemon().log().contains("its events wake a listing").then_some(()))
    })
    .with_context(|| format!("{version:?}: {}", node.agent.log_end()))?;
    assert!(!node.agent.daemon().log().contains("has no container events"), "{}", node.agent.log_end());
    node.agent.stop()
}

pub(crate) fn what_a_pod_states_goes_over_what_its_runtime_was_told() -> Result<()> {
    require!(runtime::impossible().is_none(), runtime::impossible().unwrap_or_default());
    let node = Node::start()?;
    let stated = r#"{"main": {"requests": {"cpu": "500m", "memory": "1Gi"}}}"#;
    let spec = PodSpec::new("web", Tier::Burstable).annotation("evenkeel.dev/resources", stated);
    let pod = node.run(spec, resources(2, None, 1000))?;
    // Nothing but the kernel's events told the agent of it.
    let target = 1000 - i32::try_from(1000 * (1_u64 << 30) / memory_total()?)?;
    let web = node.agent.await_state("web", ConvergeState::Converged)?;
    assert_eq!((class(&web), is_estimated(&web), web.source.as_str()), (QosClass::Burstable, false, "cri"));
    let identity = web.identity.context("an identity")?;
    assert_eq!(
        (identity.namespace.as_str(), identity.id.as_str()),
        ("default", pod.containers[0].id.as_str())
    );
    assert_eq!((identity.image.as_str(), identity.pod_uid.as_str()), (runtime::BUSYBOX, pod.uid.as_str()));
    assert_eq!(web.cgroup, pod.containers[0].cgroup);
    assert!(machine::may_lower_scores() || score(pid(&pod))? == target);
    let shares = std::path::Path::new("/sys/fs/cgroup/cpu").join(web.cgroup.trim_start_matches('/'));
    if let Ok(shares) = std::fs::read_to_string(shares.join("cpu.shares")) {
        assert_eq!(shares.trim(), "512");
    }

    node.containerd.cri().remove_sandbox(&pod.sandbox)?;
    wait::until("the container to be gone", wait::PATIENCE, || {
        Ok(node.agent.container("web")?.is_none().then_some(()))
    })?;
    node.agent.stop()
}

pub(crate) fn without_a_statement_the_runtimes_record_is_turned_around() -> Result<()> {
    require!(runtime::impossible().is_none(), runtime::impossible().unwrap_or_default());
    let node = Node::start()?;
    // A tenth of the machine is requested, which is within the limit, as a request always is.
    let limit = memory_total()? / 5 / 4096 * 4096;
    let given = resources(256, Some(i64::try_from(limit)?), 900);
    node.run(PodSpec::new("burstable", Tier::Burstable), given)?;
    node.run(PodSpec::new("besteffort", Tier::BestEffort), resources(2, None, 1000))?;
    node.run(PodSpec::new("limited", Tier::Burstable), resources(0, Some(64 * MIB), 0))?;
    // Where scores cannot be lowered, the runtime sets 0 instead; asked for it was all the same.
    let guaranteed =
        node.run(PodSpec::new("guaranteed", Tier::Guaranteed), resources(512, Some(64 * MIB), -997))?;

    let burstable = node.agent.await_state("burstable", ConvergeState::Converged)?;
    assert_eq!((class(&burstable), is_estimated(&burstable)), (QosClass::Burstable, true));
    let asked = burstable.identity.and_then(|i| i.requested).context("no request")?;
    assert_eq!((asked.cpu_request_milli, asked.memory_limit_bytes), (Some(250), Some(limit)));
    // Put into the formula again it gives the same score.
    let request = asked.memory_request_bytes.context("no memory request")?;
    assert_eq!(1000 - 1000 * request / memory_total()?, 900);

    let besteffort = node.agent.await_state("besteffort", ConvergeState::Converged)?;
    assert_eq!((class(&besteffort), is_estimated(&besteffort)), (QosClass::BestEffort, true));

    let limited = node.agent.await_state("limited", ConvergeState::Unclassified)?;
    assert_eq!(class(&limited), QosClass::Unspecified, "a limit alone is no request: {limited:#?}");

    let may_lower = machine::may_lower_scores();
    let state = if may_lower { ConvergeState::Converged } else { ConvergeState::Denied };
    let found = node.agent.await_state("guaranteed", state)?;
    assert_eq!((class(&found), is_estimated(&found)), (QosClass::Guaranteed, true));
    let knob = found.knobs.iter().find(|knob| knob.name == "oom_score_adj").context("no score")?;
    assert_eq!(knob.wanted.as_deref(), Some("-999"));
    assert_eq!(score(pid(&guaranteed))?, if may_lower { -999 } else { 0 });
    node.agent.stop()
}

pub(crate) fn an_update_in_place_is_seen() -> Result<()> {
    require!(runtime::impossible().is_none(), runtime::impossible().unwrap_or_default());
    // An audit finds the runtime's new shares long before the runtime would be asked again by itself.
    let node = Node::auditing("1s")?;
    let pod = node.run(PodSpec::new("web", Tier::Burstable), resources(256, Some(128 * MIB), 900))?;
    let before = node.agent.await_state("web", ConvergeState::Converged)?;
    node.containerd.cri().update(&pod.containers[0].id, resources(1024, Some(128 * MIB), 900))?;
    let requested = |c: &ContainerStatus| {
        c.identity.as_ref().and_then(|i| i.requested.as_ref()?.cpu_request_milli) == Some(1000)
    };
    let found = wait::until("the new request to be seen", wait::PATIENCE / 2, || {
        Ok(node.agent.container("web")?.filter(|c| requested(c) && c.state() == ConvergeState::Converged))
    })?;
    assert!(found.generation > before.generation, "{found:#?} after {before:#?}");
    let fought: Vec<_> = node.agent.ask().decisions()?;
    let fought =
        fought.iter().find(|d| d.knob.as_deref() == Some("cpu.shares") && d.old.as_deref() == Some("1024"));
    assert!(fought.is_none(), "the runtime's update was undone: {fought:#?}");
    let shares = std::path::Path::new("/sys/fs/cgroup/cpu").join(found.cgroup.trim_start_matches('/'));
    if let Ok(shares) = std::fs::read_to_string(shares.join("cpu.shares")) {
        assert_eq!(shares.trim(), "1024");
    }
    node.agent.stop()
}

pub(crate) fn containers_are_kept_while_their_runtime_is_away() -> Result<()> {
    require!(runtime::impossible().is_none(), runtime::impossible().unwrap_or_default());
    let (mut containerd, directory) = (Runtime::start()?, directory()?);
    let agent = AgentSetup::new(directory.path())?.runtime(&containerd.socket()).start()?;
    let main = ContainerSpec::new("main", &["sleep", "1000000"]).resources(resources(2, None, 1000));
    let pod = containerd.run_pod(&PodSpec::new("batch", Tier::BestEffort).container(main))?;
    agent.await_state("batch", ConvergeState::Converged)?;
    containerd.halt()?;
    let cri = |status: &GetStatusResponse, healthy: bool| {
        status.sources.iter().any(|s| {
            s.name == "cri" && s.healthy == healthy && (healthy || !(s.why.is_empty() || s.remedy.is_empty()))
        })
    };
    agent.await_status("the runtime to be missed", |status| cri(status, false))?;
    assert!(agent.container("batch")?.is_some(), "a runtime that is away takes no container with it");
    set_score(pid(&pod), 0)?;
    await_score(pid(&pod), 1000)?;
    containerd.resume()?;
    agent.await_status("the runtime to be back", |status| cri(status, true))?;
    agent.await_state("batch", ConvergeState::Converged)?;
    agent.stop()
}

pub(crate) fn an_agent_inside_a_pod_manages_another_pod() -> Result<()> {
    require!(runtime::impossible().is_none(), runtime::impossible().unwrap_or_default());
    inside_a_pod("one-process", |_, _, _| Ok(()))
}

/// Its one parent starts the parts: users and capabilities as outside a container, each again when it was killed, and enforcement goes on.
pub(crate) fn an_agent_inside_a_pod_has_its_parts_started_by_one_parent() -> Result<()> {
    require!(runtime::impossible().is_none(), runtime::impossible().unwrap_or_default());
    inside_a_pod("three-processes", |ask, other, log| {
        let part = |name: &'static str, not: u32| {
            let found = wait::until(&format!("the {name} part"), wait::PATIENCE, || {
                // While the network's is away nobody answers.
                let Ok(status) = ask.status() else { return Ok(None) };
                let is =
                    |part: &PartStatus| part.name == name && part.pid > 0 && part.pid != not && part.seccomp;
                Ok(status.parts.into_iter().find(is))
            });
            found.with_context(log)
        };
        let enforcing = part("enforcing", 0)?;
        the_starter_keeps_nothing_but_starting(Pid::from_raw(enforcing.pid.try_into()?)).with_context(log)?;
        for (name, uid) in [("network", 65_530), ("runtime", 65_531)] {
            let first = part(name, 0)?;
            assert_eq!(
                (first.uid, first.capabilities.len(), first.no_new_privs),
                (uid, 0, true),
                "{first:?}"
            );
            kill(Pid::from_raw(first.pid.try_into()?), Signal::SIGKILL)?;
            set_score(pid(other), 0)?;
            await_score(pid(other), 1000).with_context(log)?;
            let second = part(name, first.pid)?;
            assert!(second.ended.contains("signal: 9") && second.uid == uid, "{second:?}");
        }
        Ok(())
    })
}

/// As a DaemonSet would have it: own cgroup and mount namespace, the node's files below /host.
fn inside_a_pod(
    parts: &str,
    then: impl FnOnce(&AskAgent, &Pod, &dyn Fn() -> String) -> Result<()>,
) -> Result<()> {
    let (containerd, directory) = (Runtime::start()?, directory()?);
    let image =
        Image::new("localhost/agent:1").program(&places::program("evenkeel-agent")?, "/bin/evenkeel-agent");
    containerd.import(&image)?;
    let setup = AgentSetup::new(directory.path())?
        .runtime(&containerd.socket())
        .set("manage.trust_annotations", "[\"default\"]")
        .set("parts.mode", &format!("{parts:?}"))
        .set("roots.proc", "\"/host/proc\"")
        .set("roots.cgroup", "\"/host/sys/fs/cgroup\"");
    let config = setup.config()?.display().to_string();
    let container = ContainerSpec::new("agent", &["/bin/evenkeel-agent", "--config", &config])
        .image(image.reference())
        .mount(std::path::Path::new("/proc"), "/host/proc", false)
        .mount(std::path::Path::new("/sys/fs/cgroup"), "/host/sys/fs/cgroup", false)
        .mount(directory.path(), &directory.path().display().to_string(), false)
        .mount(containerd.directory(), &containerd.directory().display().to_string(), false)
        .resources(resources(100, None, 500))
        .privileged()
        .node_pids();
    let spec = PodSpec::new("agent", Tier::Burstable).namespace("kube-system").container(container);
    let own = containerd.run_pod(&spec)?;
    let main = ContainerSpec::new("main", &["sleep", "1000000"]).resources(resources(256, None, 700));
    let stated = r#"{"main": {"requests": {"cpu": "1"}}}"#;
    let spec = PodSpec::new("batch", Tier::BestEffort).annotation("evenkeel.dev/resources", stated);
    let pod = containerd.run_pod(&spec.container(main))?;

    let ask = AskAgent::new(&format!("unix://{}", setup.socket().display()))?;
    let log = || std::fs::read_to_string(own.logs.join("agent.log")).unwrap_or_default();
    let found = wait::until("the agent in the pod to serve the other", wait::PATIENCE, || {
        // Until it listens nothing answers.
        let found = ask.container("batch").ok().flatten();
        Ok(found.filter(|c| c.state() == ConvergeState::Converged))
    });
    let found = found.with_context(log)?;
    assert_eq!((score(pid(&pod))?, found.cgroup.as_str()), (1000, pod.containers[0].cgroup.as_str()));
    let cpu = std::path::Path::new("/sys/fs/cgroup/cpu").join(found.cgroup.trim_start_matches('/'));
    if let Ok(shares) = std::fs::read_to_string(cpu.join("cpu.shares")) {
        assert_eq!(shares.trim(), "1024");
    }
    // It samples too, and leaves itself alone: its namespace is excluded.
    let tick = ask.usage(1)?.pop().unwrap_or_default();
    let sampled = |id: &str| tick.iter().any(|u| u.identity.as_ref().is_some_and(|i| i.id == id));
    assert!(sampled(&pod.containers[0].id), "{tick:#?}\n{}", log());
    assert_eq!(score(pid(&own))?, 500);
    then(&ask, &pod, &log)
}
