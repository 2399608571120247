//! Suite `host`: agent and recommender beside an API server.

#[path = "../../kubernetes/tests/apiserver/mod.rs"]
mod apiserver;

#[path = "cases/node_pods.rs"]
mod node_pods;
