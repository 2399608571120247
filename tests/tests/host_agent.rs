//! Suite `host`: the agent on this machine's own kernel and cgroup hierarchies.

#[path = "cases/agent_input.rs"]
mod input;
#[path = "cases/agent_life.rs"]
mod life;
#[path = "cases/agent_scope.rs"]
mod scope;
#[path = "cases/agent_scores.rs"]
mod scores;
