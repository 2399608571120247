//! Suite `containerd`: the agent beside a real runtime, and inside a pod of it.

#[path = "cases/containerd_agent.rs"]
mod agent;

/// Makes tests of cases that are run elsewhere too. One that is forgotten here is unused, which is an error.
macro_rules! tests_of {
    ($($case:ident,)*) => { $(#[test] fn $case() -> anyhow::Result<()> { agent::$case() })* };
}

tests_of!(
    what_a_pod_states_goes_over_what_its_runtime_was_told,
    without_a_statement_the_runtimes_record_is_turned_around,
    an_update_in_place_is_seen,
    containers_are_kept_while_their_runtime_is_away,
    an_agent_inside_a_pod_manages_another_pod,
    an_agent_inside_a_pod_has_its_parts_started_by_one_parent,
);

/// That of Debian 13; 1.6 has no container events.
#[test]
fn container_events_of_containerd_1_7_tell_of_a_new_container() -> anyhow::Result<()> {
    agent::container_events_tell_of_a_new_container()
}
