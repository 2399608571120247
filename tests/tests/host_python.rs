//! Suite `host`: the Python client, installed by pip out of the repository, asks real programs over a Unix socket and
//! over TLS with a token, and makes pandas frames of the answers.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use evenkeel_tests::daemon::free_port;
use evenkeel_tests::product::{AgentSetup, RecommenderSetup, directory};
use evenkeel_tests::{machine, places, require, wait};

/// Remedy for a machine without it.
const MISSING: &str = "the Python client is not installed: scripts/test host installs it below target";

fn python() -> Result<PathBuf> {
    Ok(places::cache("client")?.join("bin/python"))
}

fn is_missing() -> bool {
    let works = |python: PathBuf| Command::new(python).args(["-c", "import evenkeel.frames"]).output();
    !python().is_ok_and(|python| works(python).is_ok_and(|output| output.status.success()))
}

fn run(code: &str, arguments: &[&str]) -> Result<String> {
    machine::run(Command::new(python()?).args(["-c", code]).args(arguments))
}

/// The ten lines of the client's README, but for the address.
const TEN_LINES: &str = r#"
import sys
from datetime import timedelta
import evenkeel
from evenkeel import frames

with evenkeel.Recommender(sys.argv[1]) as recommender:
    wanted = frames.recommendations(recommender.recommendations())
    used = frames.usage(recommender.usage(window=timedelta(days=7)))
    cpu = frames.series(recommender.series("cpu"), "cpu")
    nodes = frames.nodes(recommender.nodes())
    [web] = recommender.recommend("{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {containers: [{name: web, image: nginx}]}}").containers
for frame in (wanted, used, cpu, nodes):
    print(len(frame), *frame.columns)
print(nodes.loc[0, "node"], nodes.loc[0, "memory"] > 1e8, web.name)
assert set(wanted["resource"]) <= {"cpu", "memory"}, wanted
"#;

#[test]
fn use_and_recommendations_come_as_frames_in_ten_lines() -> Result<()> {
    require!(!is_missing(), MISSING);
    require!(machine::is_root(), "the agent needs root");
    let here = directory()?;
    let setup = RecommenderSetup::new(here.path())?.set("ingest.forget_after", "\"36500d\"");
    let captured = places::repository().join("tests/fixtures/first_release/recommender");
    machine::run(Command::new("cp").arg("-r").arg(&captured).arg(setup.state()))?;
    machine::run(Command::new("chmod").args(["-R", "go="]).arg(setup.state()))?;
    let recommender = setup.start()?;
    wait::until("the node of the first release", wait::PATIENCE, || {
        Ok(recommender.ask().nodes()?.into_iter().find(|node| node.name == "node-1"))
    })?;
    let said = run(TEN_LINES, &[&setup.address()])?;
    let lines: Vec<&str> = said.lines().collect();
    ensure!(lines.len() == 5, "{said}");
    ensure!(lines[0].contains("workload container resource current request"), "{said}");
    ensure!(lines[3].starts_with("1 cluster node"), "{said}");
    ensure!(lines[4].starts_with("node-1 True web"), "{said}");
    recommender.stop()
}

/// The lines of a block of Python, of the client's own page and of the book, run as they stand.
#[test]
fn the_ten_lines_of_the_documentation_run_as_they_stand() -> Result<()> {
    require!(!is_missing(), MISSING);
    let of = |text: &str| text.split("```python\n").nth(1)?.split("```").next().map(str::to_owned);
    let read = |path: &str| std::fs::read_to_string(places::repository().join(path));
    let readme = of(&read("clients/python/README.md")?).context("no Python")?;
    ensure!(Some(&readme) == of(&read("docs/api.md")?).as_ref(), "docs/api.md and the client's page differ");
    let here = directory()?;
    let setup = RecommenderSetup::new(here.path())?;
    let recommender = setup.start()?;
    let mut command = Command::new(python()?);
    machine::run(command.args(["-c", &readme]).env("EVENKEEL_RECOMMENDER", setup.address()))?;
    recommender.stop()
}

#[test]
fn the_agent_is_asked_over_its_socket() -> Result<()> {
    require!(!is_missing(), MISSING);
    require!(machine::is_root(), "an agent needs root");
    let here = directory()?;
    let setup = AgentSetup::new(here.path())?.set("mode", "\"dry-run\"");
    let agent = setup.start()?;
    let code = "import sys, evenkeel\nwith evenkeel.Agent(sys.argv[1]) as a: print(a.status().mode, len(a.containers()))";
    let said = run(code, &[&format!("unix://{}", setup.socket().display())])?;
    // As many as engines of this machine run.
    let containers = said.trim().strip_prefix("dry-run ").context(said.clone())?;
    containers.parse::<u32>().with_context(|| said.clone())?;
    agent.stop()
}

/// A token of the recommender's file, in a file of its own.
fn token(directory: &Path) -> Result<PathBuf> {
    let tokens = directory.join("tokens.toml");
    let mut add = places::command("evenkeel-recommender")?;
    add.args(["token", "add", "anna", "--role", "view", "--file"]).arg(&tokens);
    add.arg("--state-dir").arg(directory.join("recommender"));
    let file = directory.join("anna.token");
    std::fs::write(&file, machine::run(&mut add)?)?;
    Ok(file)
}

/// An address nobody listens at yet.
fn address() -> Result<String> {
    Ok(format!("localhost:{}", free_port()?))
}

#[test]
fn another_machines_is_asked_over_tls_as_whom_the_token_names() -> Result<()> {
    require!(!is_missing(), MISSING);
    let here = directory()?;
    let (at, address) = (here.path(), address()?);
    let setup = RecommenderSetup::new(at)?
        .set("serve.grpc", &format!("\"{}\"", address.replace("localhost", "127.0.0.1")))
        .set("serve.hosts", "[\"localhost\"]")
        .set("tls.authority", "true")
        .set("access.tokens", &format!("\"{}\"", at.join("tokens.toml").display()));
    let token = token(at)?;
    let recommender = setup.start()?;
    let (url, ca) = (format!("https://{address}"), setup.state().join("authority/ca.crt"));
    let (ca, token) = (ca.display().to_string(), token.display().to_string());
    let code = r#"
import sys, evenkeel
url, ca, token = sys.argv[1:]
with evenkeel.Recommender(url, ca_file=ca, token_file=token) as r: print(len(r.nodes()))
def refused(*arguments, **trust):
    try:
        with evenkeel.Recommender(*arguments, **trust) as r: r.nodes()
    except evenkeel.EvenkeelError as error: return str(error)
    raise SystemExit(f"answered: {arguments} {trust}")
assert "give a token" in refused(url, ca_file=ca), refused(url, ca_file=ca)
assert "check that" in refused(url, token_file=token)
assert "cannot read /nonexistent" in refused(url, ca_file="/nonexistent")
assert "without encryption" in refused("http://192.0.2.1:1", token_file=token)
assert "not an address" in refused("ftp://x")
assert "belong together" in refused(url, cert_file=ca)
"#;
    assert_eq!(run(code, &[&url, &ca, &token])?.trim(), "0");
    recommender.stop()
}
