//! Suite `vm`: the programs in a guest with cgroup v2 and every capability, and in one with cgroup v1.

#[path = "cases/hostile_forged.rs"]
mod forged;
#[path = "cases/agent_knobs.rs"]
mod knobs;
#[path = "cases/parts_matrix.rs"]
mod matrix;
#[path = "cases/agent_node.rs"]
mod node;
#[path = "cases/stream_raise.rs"]
mod raise;
#[path = "cases/agent_scores.rs"]
mod scores;

use std::time::Duration;

use anyhow::{Context, Result};
use evenkeel_tests::vm::{self, Case, Release, Vm, VmBuilder};
use evenkeel_tests::{figures, machine, places, require};
use serde_json::Value;

/// A guest with all programs and room for debug builds of them.
fn guest() -> Result<VmBuilder> {
    let mut guest = Vm::builder().memory_mib(1024).timeout(Duration::from_secs(600));
    for name in ["evenkeel-agent", "evenkeel-recommender", "evenkeel", "evenkeel-workload"] {
        guest = guest.program(places::program_for_guest(name)?, &format!("bin/{name}"));
    }
    Ok(guest)
}

macro_rules! cases {
    ($($module:ident::$name:ident,)*) => { &[$((stringify!($name), $module::$name)),*] };
}

/// What is run in guests: the same as on the host, where scores below 0 are allowed and CPU has a weight.
const CASES: &[Case] = cases![
    node::a_daemon_found_by_its_program_is_protected_and_nothing_beside_it,
    node::a_daemon_found_by_its_cgroup_is_the_first_process_in_it,
    node::overcommit_and_swap_are_told_and_a_rehearsal_says_what_it_would_set,
    node::overcommit_is_set_and_put_back,
    node::workloads_are_capped_until_somebody_else_owns_the_limit,
    node::a_pod_is_admitted_by_every_resource,
    node::a_manifest_that_does_not_fit_waits_for_room_also_over_a_restart,
    knobs::limits_of_a_manifest_are_applied_counted_and_put_back,
    knobs::a_limit_below_use_is_refused_by_name_and_kills_nobody,
    knobs::who_keeps_rewriting_a_knob_is_told_and_not_fought,
    knobs::a_container_that_starts_under_pressure_is_scored_before_the_audit,
];
/// Beside the first list.
const BESIDE: &[Case] = cases![
    scores::every_process_gets_its_containers_score_and_every_cgroup_its_share,
    scores::a_guaranteed_container_is_protected_or_its_denial_is_told_once,
    scores::a_process_moved_in_and_a_knob_changed_become_right_again,
    scores::a_process_that_joins_is_right_as_soon_as_the_kernel_tells,
    scores::a_self_raised_score_is_respected_unless_pinned,
    scores::a_changed_manifest_is_a_new_generation_and_a_vanished_cgroup_is_gone,
    knobs::what_has_no_effect_is_told_with_the_ancestor_and_the_remedy,
    knobs::an_owned_subtree_holds_the_sums_and_is_put_back,
    matrix::each_part_may_what_it_needs_and_nothing_else,
];
/// The longest, on a thread of its own.
const LONGEST: &[Case] = cases![scores::no_live_process_is_wrong_once_converged_under_fork_churn,];

/// Mostly waits for memory to grow; the container's kernel tells pressure on v2 alone.
const RAISED: &[Case] = cases![raise::memory_that_grows_is_met_on_its_way_where_limits_follow,];

fn cases(test: &str, more: &[Case], guest: impl FnOnce(VmBuilder) -> VmBuilder) -> Result<()> {
    require!(machine::is_emulated() || vm::impossible().is_none(), vm::impossible().unwrap_or_default());
    let builder = Vm::builder().memory_mib(1024).timeout(Duration::from_secs(900));
    vm::in_guest_abreast(test, guest(builder), &[CASES, BESIDE, LONGEST, more])
}

#[test]
fn the_agents_cases_hold_on_v2_with_every_capability() -> Result<()> {
    cases("the_agents_cases_hold_on_v2_with_every_capability", RAISED, |guest| guest)
}

/// The kernel of the next Debian release. Where no mirror has it for apt, that is said and no failure: it is the
/// mirror's, not the product's. With `CI` set it must be there.
#[test]
fn the_agents_cases_hold_on_debian_13s_kernel() -> Result<()> {
    let test = "the_agents_cases_hold_on_debian_13s_kernel";
    if !machine::is_emulated() {
        require!(vm::impossible().is_none(), vm::impossible().unwrap_or_default());
        let kernel = vm::kernel_release(Release::Debian13);
        require!(kernel.is_ok(), format!("Debian 13's kernel cannot be had: {:#}", kernel.unwrap_err()));
        figures::show(&format!("{test}: Linux {}", kernel.unwrap_or_default()));
    }
    cases(test, &[], |guest| guest.kernel(Release::Debian13))
}

#[test]
fn the_agents_cases_hold_on_v1_with_every_capability() -> Result<()> {
    if !machine::is_emulated() {
        require!(vm::impossible().is_none(), vm::impossible().unwrap_or_default());
        let why = "the kernel of this Debian release has no cgroup v1 memory controller";
        require!(Vm::has_cgroup_v1()?, why);
    }
    cases("the_agents_cases_hold_on_v1_with_every_capability", &[], VmBuilder::cgroup_v1)
}

/// A Guaranteed pod with a memory limit its cgroup has, and everything that can be asked of it.
const WHOLE_LINE: &str = r#"
    mkdir -p /run/manifests /sys/fs/cgroup/kubepods
    for controller in cpu memory pids io; do echo +$controller > /sys/fs/cgroup/kubepods/cgroup.subtree_control; done
    mkdir /sys/fs/cgroup/kubepods/pay
    sh -c 'echo $$ > /sys/fs/cgroup/kubepods/pay/cgroup.procs; exec evenkeel-workload burn-and-hold 200 32Mi' & pid=$!
    cat > /run/manifests/pay.json <<'END'
{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pay", "annotations":
  {"evenkeel.dev/cgroup.main": "/kubepods/pay"}}, "spec": {"containers": [{"name": "main", "image": "localhost/pay:1",
  "resources": {"requests": {"cpu": "1", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "64Mi"}}}]}}
END
    cat > /run/recommender.toml <<'END'
state_dir = "/run/recommender"
END
    cat > /run/agent.toml <<'END'
mode = "enforce"
state_dir = "/run/agent"
sources.manifests.dir = "/run/manifests"
sources.cri.enabled = false
cpu.weight_conversion = "quadratic"
END
    evenkeel-recommender --config /run/recommender.toml > /run/recommender.log 2>&1 & recommender=$!
    evenkeel-agent --config /run/agent.toml > /run/agent.log 2>&1 & agent=$!
    tries=0
    until evenkeel recommend -o json 2> /run/error | tr -d '\n ' > /run/answer && grep -q '"resource":"cpu","current":1000,"request":[0-9]' /run/answer; do
        tries=$((tries + 1))
        [ $tries -lt 100 ] || { cat /run/error /run/answer /run/agent.log /run/recommender.log; exit 1; }
        sleep 0.1
    done
    echo "recommend: $(cat /run/answer)"
    echo "score: $(cat /proc/$pid/oom_score_adj)"
    echo "weight: $(cat /sys/fs/cgroup/kubepods/pay/cpu.weight)"
    echo "status: $(evenkeel status -o json | tr -d '\n')"
    echo "top: $(evenkeel top --once -o json | tr -d '\n')"
    kill $agent; wait $agent; echo "agent: $?"
    kill $recommender; wait $recommender; echo "recommender: $?"
"#;

#[test]
fn the_whole_line_runs_in_a_guest_and_every_field_is_sampled() -> Result<()> {
    require!(vm::impossible().is_none(), vm::impossible().unwrap_or_default());
    let result = guest()?.script(WHOLE_LINE).run()?;
    assert_eq!(result.status, 0, "{}", result.output);
    assert_eq!((result.value("score:")?, result.value("weight:")?), ("-999", "100"), "{}", result.output);
    assert_eq!((result.value("agent:")?, result.value("recommender:")?), ("0", "0"), "{}", result.output);
    let status: Value = serde_json::from_str(result.value("status:")?)?;
    let pay = &status["containers"][0];
    assert_eq!(
        (&pay["state"], &pay["classes"]["memory"]),
        (&"converged".into(), &"Guaranteed".into()),
        "{status:#}"
    );
    let weight = pay["knobs"].as_array().and_then(|all| all.iter().find(|knob| knob["name"] == "cpu.weight"));
    assert_eq!(weight.context("no cpu.weight")?["actual"], "100");
    assert_eq!(status["wake"]["processEvents"], true, "{status:#}");
    let top: Value = serde_json::from_str(result.value("top:")?)?;
    let row = &top["containers"][0];
    let fields = [
        "cpuMilli",
        "memoryWorkingSetBytes",
        "memoryCurrentBytes",
        "memoryAnonBytes",
        "cpuPressureUsec",
        "memoryPressureUsec",
        "ioPressureUsec",
        "oomKills",
        "processes",
    ];
    for field in fields {
        assert!(row[field].is_u64(), "no {field} in {row:#}");
    }
    assert!(row["memoryAnonBytes"].as_u64() >= Some(32 << 20), "{row:#}");
    let answer: Value = serde_json::from_str(result.value("recommend:")?)?;
    assert!(answer.as_array().is_some_and(|all| all.len() == 2), "{answer:#}");
    Ok(())
}
