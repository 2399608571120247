//! Suite `host`: the agent on this machine's own kernel and cgroup hierarchies.

#[path = "cases/agent_input.rs"]
mod input;
#[path = "cases/agent_knobs.rs"]
mod knobs;
#[path = "cases/agent_life.rs"]
mod life;
#[path = "cases/agent_node.rs"]
mod node;
#[path = "cases/agent_rights.rs"]
mod rights;
#[path = "cases/agent_scope.rs"]
mod scope;
#[path = "cases/agent_scores.rs"]
mod scores;

/// Makes tests of cases that are run elsewhere too. One that is forgotten here is unused, which is an error.
macro_rules! tests_of {
    ($cases:ident: $($case:ident,)*) => { $(#[test] fn $case() -> anyhow::Result<()> { $cases::$case() })* };
}

tests_of!(
    scores:
    every_process_gets_its_containers_score_and_every_cgroup_its_share,
    a_guaranteed_container_is_protected_or_its_denial_is_told_once,
    a_process_moved_in_and_a_knob_changed_become_right_again,
    a_process_that_joins_is_right_as_soon_as_the_kernel_tells,
    a_self_raised_score_is_respected_unless_pinned,
    no_live_process_is_wrong_once_converged_under_fork_churn,
    a_changed_manifest_is_a_new_generation_and_a_vanished_cgroup_is_gone,
);

tests_of!(
    knobs:
    limits_of_a_manifest_are_applied_counted_and_put_back,
    a_limit_below_use_is_refused_by_name_and_kills_nobody,
    who_keeps_rewriting_a_knob_is_told_and_not_fought,
    what_has_no_effect_is_told_with_the_ancestor_and_the_remedy,
    an_owned_subtree_holds_the_sums_and_is_put_back,
    a_container_that_starts_under_pressure_is_scored_before_the_audit,
);

tests_of!(
    node:
    a_daemon_found_by_its_program_is_protected_and_nothing_beside_it,
    a_daemon_found_by_its_cgroup_is_the_first_process_in_it,
    overcommit_and_swap_are_told_and_a_rehearsal_says_what_it_would_set,
    workloads_are_capped_until_somebody_else_owns_the_limit,
    a_pod_is_admitted_by_every_resource,
    a_manifest_that_does_not_fit_waits_for_room_also_over_a_restart,
);
