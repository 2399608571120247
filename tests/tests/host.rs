//! Suite `host`: this machine's own kernel and cgroup hierarchies.

#[path = "cases/cgroups.rs"]
mod cgroups;
#[path = "cases/kernel_events.rs"]
mod kernel_events;
#[path = "cases/primitives.rs"]
mod primitives;

use anyhow::Result;
use evenkeel_tests::daemon::{Program, Ready};

#[test]
fn a_program_is_awaited_and_stops_in_order() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let program =
        Program::new("evenkeel-workload")?.args(&["sleep"]).ready(Ready::Says("sleeping".to_string()));
    program.start(directory.path())?.stop()
}

#[test]
fn a_program_that_ends_early_is_an_error_with_its_log() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let program = Program::new("evenkeel-workload")?.args(&["hold", "a lot"]);
    let error = program.ready(Ready::Says("holding".to_string())).start(directory.path()).err();
    let text = error.map(|error| format!("{error:#}")).unwrap_or_default();
    assert!(text.contains("not a whole number: a lot") && text.contains("ended with"), "{text}");
    Ok(())
}
