//! Suite `host`: agent and recommender beside an API server.

#[allow(clippy::unwrap_used, clippy::panic, reason = "a fixture says by panicking what is wrong")]
#[path = "../../kubernetes/tests/apiserver/mod.rs"]
mod apiserver;

#[path = "cases/node_pods.rs"]
mod node_pods;

#[path = "cases/strangers.rs"]
mod strangers;

#[path = "cases/two_recommenders.rs"]
mod two_recommenders;
