//! This machine, where a question does not say which.

use evenkeel_host::node::node_facts;
use evenkeel_host::roots::Roots;
use evenkeel_model::node::NodeFacts;

use crate::failure::Failure;

/// Memory, CPUs, swap and page size of this machine.
///
/// # Errors
/// When `/proc` does not say.
pub(crate) fn facts() -> Result<NodeFacts, Failure> {
    node_facts(&Roots::default()).map_err(|e| {
        Failure::new(
            "cannot tell the size of this machine",
            e.subject(),
            e.to_string(),
            "give --node-memory and --node-cpu",
        )
    })
}
