//! State directories of the first release are read by this version: nothing acknowledged is lost, and the spool is
//! delivered. The files and how they were made: `tests/fixtures/first_release/README.md`.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use evenkeel_proto::v1::Node;
use evenkeel_tests::product::{AgentSetup, Recommender, RecommenderSetup, directory};
use evenkeel_tests::{machine, places, require, wait};

/// Frames that the recommender of the first release had acknowledged.
const ACKNOWLEDGED: u64 = 2_823;
/// Frames that the agent of the first release had at least written.
const WRITTEN: u64 = 2_838;

/// Copies one of the captured directories, private as the programs ask for it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o700))?;
    for entry in std::fs::read_dir(from).with_context(|| format!("cannot list {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target)?;
            std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o600))?;
        }
    }
    Ok(())
}

/// The node of the captured directories, once the recommender tells of it.
fn node(recommender: &Recommender) -> Result<Node> {
    wait::until("the node of the first release", wait::PATIENCE, || {
        Ok(recommender.ask().nodes()?.into_iter().find(|node| node.name == "node-1"))
    })
}

#[test]
fn a_store_and_a_spool_of_the_first_release_are_read() -> Result<()> {
    require!(machine::is_root(), "the agent needs root");
    let captured = places::repository().join("tests/fixtures/first_release");
    let here = directory()?;
    // Whatever today's date is, the captured hours are kept.
    let setup = RecommenderSetup::new(here.path())?.set("ingest.forget_after", "\"36500d\"");
    copy(&captured.join("recommender"), &setup.state())?;
    copy(&captured.join("agent"), &here.path().join("agent"))?;

    let recommender = setup.start()?;
    let before = node(&recommender)?;
    ensure!(before.frames >= ACKNOWLEDGED && before.gaps == 0, "{before:?}");
    let (status, policies) = recommender.get("/api/v1/policies")?;
    ensure!(status == 200 && policies.contains("\"shop\""), "{status} {policies}");

    let agent = AgentSetup::new(here.path())?
        .set("node.cluster", "\"ukt\"")
        .set("node.name", "\"node-1\"")
        .set("mode", "\"dry-run\"")
        .recommender(&setup.address())
        .start()?;
    let after = wait::until("the spool of the first release", wait::PATIENCE, || {
        let node = node(&recommender)?;
        Ok((node.frames >= WRITTEN).then_some(node))
    })?;
    ensure!(after.gaps == 0, "{after:?}");
    agent.stop()?;
    recommender.stop()
}
