//! Suite `host`: clients of other languages. gRPC's C core, by Python's grpcio, and grpc-go ask agent and recommender.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use evenkeel_tests::book::Page;
use evenkeel_tests::product::{AgentSetup, RecommenderSetup, directory};
use evenkeel_tests::{machine, places, require};
use serde_json::Value;

/// The client's source.
const CLIENT: &str = include_str!("cases/grpc_client.py");
/// Remedy for a machine without it.
const MISSING: &str =
    "no Python with grpcio and grpcio-reflection; scripts/test host installs it below target";

/// Python with gRPC, as `scripts/test` installs it.
fn python() -> Result<Option<PathBuf>> {
    let python = places::cache("python")?.join("bin/python");
    let imports = ["-c", "import grpc, grpc_reflection"];
    let works = Command::new(&python).args(imports).output().is_ok_and(|output| output.status.success());
    Ok(works.then_some(python))
}

/// Where Debian's packages put Go's sources.
const GO_SOURCES: &str = "/usr/share/gocode";
/// Remedy for a machine without grpc-go.
const NO_GO: &str = "no Go with grpc-go: apt-get install golang-go golang-google-grpc-dev";

/// A client in Go, built below `directory`; none where this machine cannot.
fn go_client(directory: &Path, text: &str) -> Result<Option<PathBuf>> {
    if !Path::new(GO_SOURCES).join("src/google.golang.org/grpc").exists() {
        return Ok(None);
    }
    let (source, program) = (directory.join("grpc_client.go"), directory.join("grpc_client"));
    std::fs::write(&source, text).context("cannot write the client")?;
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg(&source).current_dir(directory);
    build.env("GO111MODULE", "off").env("GOPATH", GO_SOURCES).env("GOCACHE", directory.join("cache"));
    machine::run(&mut build)?;
    Ok(Some(program))
}

/// What the client prints.
fn ask(python: &PathBuf, address: &str, service: &str, method: &str) -> Result<Value> {
    let output = machine::run(Command::new(python).args(["-c", CLIENT, address, service, method]))?;
    serde_json::from_str(&output).context("the client's answer is not JSON")
}

fn assert_reflection(answer: &Value, service: &str) {
    for version in ["v1", "v1alpha"] {
        let services: Vec<&str> =
            answer[version].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for wanted in [service, "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"] {
            assert!(services.contains(&wanted), "{version} lacks {wanted}: {services:?}");
        }
    }
}

#[test]
fn the_c_core_asks_the_agent_over_its_unix_socket() -> Result<()> {
    require!(machine::is_root(), "an agent needs root");
    let python = python()?;
    require!(python.is_some(), MISSING);
    let (python, directory) = (python.context(MISSING)?, directory()?);
    let setup = AgentSetup::new(directory.path())?.set("mode", "\"dry-run\"");
    let agent = setup.start()?;
    let service = "evenkeel.v1.AgentService";
    // Both ways to write the address; the C core names the path as authority.
    for scheme in ["unix:", "unix://"] {
        let answer = ask(&python, &format!("{scheme}{}", setup.socket().display()), service, "GetStatus")?;
        assert_reflection(&answer, service);
        assert_eq!(answer["answer"]["mode"], "dry-run", "{answer:#}");
    }
    agent.stop()
}

#[test]
fn the_c_core_asks_the_recommender() -> Result<()> {
    let python = python()?;
    require!(python.is_some(), MISSING);
    let (python, directory) = (python.context(MISSING)?, directory()?);
    let setup = RecommenderSetup::new(directory.path())?;
    let recommender = setup.start()?;
    let address = setup.address();
    let service = "evenkeel.v1.RecommenderService";
    let answer = ask(&python, &address, service, "ListNodes")?;
    assert_reflection(&answer, service);
    recommender.stop()
}

#[test]
fn go_asks_agent_and_recommender_over_their_unix_sockets() -> Result<()> {
    require!(machine::is_root(), "an agent needs root");
    let directory = directory()?;
    let client = go_client(directory.path(), include_str!("cases/grpc_client.go"))?;
    require!(client.is_some(), NO_GO);
    let client = client.context(NO_GO)?;
    let setup = AgentSetup::new(directory.path())?.set("mode", "\"dry-run\"");
    let agent = setup.start()?;
    let recommenders = RecommenderSetup::new(directory.path())?;
    let recommender = recommenders.start()?;
    let agents = format!("unix://{}", setup.socket().display());
    for (address, service) in
        [(agents, "evenkeel.v1.AgentService"), (recommenders.address(), "evenkeel.v1.RecommenderService")]
    {
        let answer = machine::run(Command::new(&client).arg(&address))?;
        let lines: Vec<&str> = answer.lines().collect();
        assert_eq!(lines.first(), Some(&"SERVING"), "{address}: {answer}");
        assert!(lines.contains(&service), "{address}: {answer}");
    }
    recommender.stop()?;
    agent.stop()
}

#[test]
fn the_books_client_in_go_is_answered() -> Result<()> {
    let directory = directory()?;
    let setup = RecommenderSetup::new(directory.path())?;
    let blocks = Page::read("api.md")?.blocks();
    let block = blocks.into_iter().find(|block| block.language == "go").context("docs/api.md has no Go")?;
    let text = block.text.replace("unix:///run/evenkeel/recommender.sock", &setup.address());
    let client = go_client(directory.path(), &text)?;
    require!(client.is_some(), NO_GO);
    let recommender = setup.start()?;
    let answer = machine::run(&mut Command::new(client.context(NO_GO)?))?;
    assert_eq!(answer.trim(), "SERVING");
    recommender.stop()
}
