//! Suite `containerd`: a Deployment beside an API server, a real runtime, an agent and two recommenders.

#[allow(clippy::unwrap_used, clippy::panic, reason = "a fixture says by panicking what is wrong")]
#[path = "../../kubernetes/tests/apiserver/mod.rs"]
mod apiserver;

#[path = "cases/deployment.rs"]
mod deployment;
