//! Suite `host`: what `evenkeel support-bundle` tells of a node, and what it does not.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use evenkeel_tests::product::{Ended, Manifest, Pair, directory};
use evenkeel_tests::{machine, places, require};

/// Planted where secrets are, and where people put them by mistake. None may be told.
const SECRETS: [&str; 8] = [
    "evk_00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff in a log",
    "planted-in-a-token-file",
    "planted-in-a-variable",
    "planted-in-an-annotation",
    "planted-in-a-header",
    "planted-in-a-url",
    "planted-in-a-password-file",
    "cGxhbnRlZC1pbi1hLWtleQ",
];

/// All files of a bundle, below each other.
fn unpacked(bundle: &Path, into: &Path) -> Result<String> {
    machine::run(Command::new("tar").arg("xzf").arg(bundle).arg("-C").arg(into))?;
    let top = into.join("evenkeel-support");
    let mut text = String::new();
    let mut waiting = vec![top];
    while let Some(place) = waiting.pop() {
        for entry in std::fs::read_dir(&place).with_context(|| format!("no {}", place.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                waiting.push(path);
            } else {
                text.push_str(&format!("== {}\n{}\n", path.display(), std::fs::read_to_string(&path)?));
            }
        }
    }
    Ok(text)
}

#[test]
fn a_bundle_has_what_helps_and_no_secret_that_was_planted() -> Result<()> {
    require!(machine::is_root(), "an agent needs root");
    let own = directory()?;
    let token = own.path().join("token");
    let password = own.path().join("password");
    let tokens = own.path().join("tokens.toml");
    let mut add = places::command("evenkeel-recommender")?;
    add.args(["token", "add", "helper", "--role", "view", "--config", "/dev/null", "--file"]).arg(&tokens);
    let own_token = machine::run(&mut add)?.trim().to_owned();
    std::fs::write(&token, format!("{own_token}\n"))?;
    std::fs::write(&password, SECRETS[6])?;
    let agent_token = own.path().join("agent-token");
    std::fs::write(&agent_token, SECRETS[1])?;
    let key = own.path().join("engine.key");
    std::fs::write(
        &key,
        format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", SECRETS[7]),
    )?;
    let mut pair = Pair::new()?;
    let engines = format!(
        "[{{ kind = \"prometheus\", url = \"http://127.0.0.1:9\", headers = {{ X-Scope = \"{}\" }}, \
         user = \"anna\", password = {{ file = \"{}\" }} }}]",
        SECRETS[4],
        password.display()
    );
    let tokens = format!("\"{}\"", tokens.display());
    pair.recommender = pair.recommender.set("history.engines", &engines).set("access.tokens", &tokens);
    let (cgroup, _) = pair.site.sleeper("told")?;
    let manifest = Manifest::burstable("told", &cgroup.path(), "100m", "64Mi");
    pair.site.bind(&manifest.annotation("example.com/password", SECRETS[3]))?;
    let _recommender = pair.recommender.start()?;
    let agent = pair.site.start()?;
    agent.await_settled("told")?;
    // What people log by mistake.
    let log = own.path().join("unit.log");
    let key = std::fs::read_to_string(&key)?;
    let lines =
        format!("x Authorization: Bearer {}\nto https://anna:{}@engine/\n{key}", SECRETS[0], SECRETS[5]);
    std::fs::write(&log, lines)?;
    let journal = own.path().join("journalctl");
    std::fs::write(&journal, format!("#!/bin/sh\ncat {}\n", log.display()))?;
    machine::run(Command::new("chmod").arg("+x").arg(&journal))?;

    let bundle = own.path().join("bundle.tar.gz");
    let metrics = pair.site.agent.metrics_url();
    let configs = [pair.site.agent.config()?, pair.recommender.config()?];
    let mut command = places::command("evenkeel")?;
    command.args(["support-bundle", "--since", "10m", "--to"]).arg(&bundle);
    command.args(["--agent-metrics", &metrics, "--agent-config"]).arg(&configs[0]);
    command.arg("--recommender-config").arg(&configs[1]);
    command.arg("--agent").arg(format!("unix://{}", pair.site.agent.socket().display()));
    command.args(["--recommender", &pair.recommender.address()]);
    command.arg("--token-file").arg(&token).arg("--agent-token-file").arg(&agent_token);
    command.env("EVENKEEL_PLANTED_SECRET", SECRETS[2]).env("HARMLESS", "said");
    command.env("PATH", format!("{}:/usr/bin:/bin", own.path().display()));

    let listed = {
        let mut dry = places::command("evenkeel")?;
        dry.args(["support-bundle", "--dry-run", "-o", "json"]);
        Ended::of(&mut dry)?.success()?
    };
    let listed: serde_json::Value = serde_json::from_str(&listed)?;
    ensure!(!bundle.exists(), "a dry run writes nothing");
    let told = Ended::of(&mut command)?;
    ensure!(told.status == Some(0), "{}", told.said());
    let text = unpacked(&bundle, own.path())?;
    let planted = SECRETS.map(|secret| secret.trim_end_matches(" in a log"));
    for secret in planted.into_iter().chain([own_token.as_str()]) {
        ensure!(!text.contains(secret) && !told.said().contains(secret), "{secret} is told: {text}");
    }
    for part in [
        "\"node\": \"node-a\"",
        "default/told",
        "evenkeel_agent_",
        "evenkeel_recommender_",
        "EVENKEEL_PLANTED_SECRET",
        "MemTotal",
        "\"check\": \"kernel\"",
        "state_dir = ",
        "x Authorization: ",
    ] {
        ensure!(text.contains(part), "{part} is missing: {}\n{text}", told.said());
    }
    // What a dry run lists is what is there, but for answers that were not had.
    let files = listed.as_array().context("no list")?;
    ensure!(files.len() > 20, "{files:?}");
    for file in files {
        let name = file["file"].as_str().context("no name")?;
        ensure!(text.contains(&format!("\"file\": \"{name}\"")), "{name} is not in the index");
    }
    let again = Ended::of(&mut command)?;
    ensure!(again.status == Some(1) && again.stderr.contains("--to"), "{}", again.said());
    agent.stop()
}
