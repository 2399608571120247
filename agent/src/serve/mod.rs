//! What the agent serves: `AgentService` on a Unix socket (and TCP where configured), `/metrics`.

pub(crate) mod metrics;
