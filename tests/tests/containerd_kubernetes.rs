//! Suite `containerd`: Deployments beside an API server, a real runtime, an agent and two recommenders, whose pods keep their history, and are made
//! with requests and resized.

#[allow(clippy::unwrap_used, clippy::panic, reason = "a fixture says by panicking what is wrong")]
#[path = "../../kubernetes/tests/apiserver/mod.rs"]
mod apiserver;

#[path = "cases/deployment.rs"]
mod deployment;

#[path = "cases/resized.rs"]
mod resized;

#[path = "cases/resized_cluster.rs"]
mod resized_cluster;
