//! A node joins with a token over TLS, is revoked and joins anew; the agent's own addresses answer nobody without what names
//! a caller.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use evenkeel_tests::daemon::free_port;
use evenkeel_tests::product::{Cli, Pair, RecommenderSetup, await_acknowledged};
use evenkeel_tests::{machine, require, wait};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};

fn quoted(text: impl std::fmt::Display) -> String {
    format!("{:?}", text.to_string())
}

#[test]
fn a_node_joins_by_token_and_a_revoked_one_is_told_why() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let port = free_port()?;
    let Pair { site, recommender } = Pair::hurried()?;
    let recommender =
        recommender.set("serve.grpc", &quoted(format!("127.0.0.1:{port}"))).set("tls.authority", "true");
    let token = site.directory().join("join.token");
    let ca = recommender.state().join("authority/ca.crt");
    let address = format!("https://127.0.0.1:{port}");
    let site = site.with(|agent| {
        agent
            .recommender(&address)
            .set("stream.join_token", &quoted(token.display()))
            .set("stream.ca", &quoted(ca.display()))
    });
    let central = recommender.start()?;
    let pair = Pair { site, recommender };
    let made = || -> Result<()> {
        let made = pair.cli().run(&["ca", "token", "test/node-a"])?.success()?;
        fs::write(&token, made).context("cannot write the token")
    };
    made()?;
    let agent = pair.site.start()?;
    await_acknowledged(&agent, 3)?;
    let listed = pair.cli().run(&["ca", "list"])?.success()?;
    ensure!(listed.contains("node-a") && listed.contains("ok"), "{listed}");

    pair.cli().run(&["ca", "revoke", "test/node-a"])?.success()?;
    agent.await_status("the node to be refused", |status| {
        let error = status.stream.as_ref().map(|stream| stream.last_error.clone()).unwrap_or_default();
        error.contains("was revoked") && status.knobs.iter().any(|knob| knob.name == "stream certificate")
    })?;
    made()?;
    agent.await_status("the node to be back", |status| {
        status.stream.as_ref().is_some_and(|stream| stream.connected)
            && status.knobs.iter().all(|knob| knob.name != "stream certificate")
    })?;
    agent.stop()?;
    central.stop()
}

/// The real programs: a certificate of a minute is renewed on the open stream at two thirds of its life, again and again, and each
/// renewal is in the audit record. Nothing that was measured is lost by it.
#[test]
fn a_node_renews_its_certificate_over_the_stream_and_each_is_recorded() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let port = free_port()?;
    let Pair { site, recommender } = Pair::hurried()?;
    let recommender = recommender
        .set("serve.grpc", &quoted(format!("127.0.0.1:{port}")))
        .set("tls.authority", "true")
        .set("tls.node_life", &quoted("1m"));
    let token = site.directory().join("join.token");
    let ca = recommender.state().join("authority/ca.crt");
    let site = site.with(|agent| {
        agent
            .recommender(&format!("https://127.0.0.1:{port}"))
            .set("stream.join_token", &quoted(token.display()))
            .set("stream.ca", &quoted(ca.display()))
    });
    let central = recommender.start()?;
    let pair = Pair { site, recommender };
    let made = pair.cli().run(&["ca", "token", "test/node-a"])?.success()?;
    fs::write(&token, made).context("cannot write the token")?;
    let agent = pair.site.start()?;
    await_acknowledged(&agent, 3)?;
    let kept = || fs::read(pair.site.directory().join("agent/identity/node.pem"));
    let first = kept().context("no certificate is kept")?;
    let renewals = || -> Result<Vec<Value>> {
        let all = pair.cli().json(&["audit", "--kind", "Certificate"])?;
        let found = all["entries"].as_array().or_else(|| all.as_array()).cloned().unwrap_or_default();
        let is_renewal = |entry: &Value| entry["method"].as_str().is_some_and(|m| m.ends_with("/Renew"));
        Ok(found.into_iter().filter(is_renewal).collect())
    };
    // Two: the second is signed for the first, longer after the start than the first certificate held.
    let found = wait::until("two renewals", Duration::from_secs(150), || {
        let found = renewals()?;
        Ok((found.len() >= 2).then_some(found))
    })?;
    for entry in &found {
        let who = entry["who"].as_str().unwrap_or_default();
        ensure!(who == "certificate spiffe://evenkeel/evenkeel/test/node-a", "{entry}");
        ensure!(entry["outcome"] == "done" && entry["name"] == "test/node-a", "{entry}");
    }
    ensure!(kept().context("no certificate is kept")? != first, "the same certificate is kept");
    agent.await_status("the stream to go on", |status| {
        status.stream.as_ref().is_some_and(|stream| stream.connected && stream.frames_dropped == 0)
            && status.knobs.iter().all(|knob| knob.name != "stream certificate")
    })?;
    agent.stop()?;
    central.stop()
}

/// An API server that knows what one user may, and nothing else.
fn authorizes(user: &'static str, verb: &'static str) -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no address is free")?;
    let port = listener.local_addr().context("it has no address")?.port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut asked = BufReader::new(&stream);
            let mut length = 0;
            for line in asked.by_ref().lines().map_while(Result::ok).take_while(|line| !line.is_empty()) {
                let line = line.to_ascii_lowercase();
                length =
                    line.strip_prefix("content-length: ").map_or(length, |text| text.parse().unwrap_or(0));
            }
            let mut body = vec![0; length];
            let read = asked.read_exact(&mut body).map(|()| serde_json::from_slice::<Value>(&body));
            let Ok(Ok(mut review)) = read else { continue };
            let attributes = &review["spec"]["resourceAttributes"];
            let allowed = review["spec"]["user"] == user && attributes["verb"] == verb;
            review["status"] = json!({ "allowed": allowed });
            let text = review.to_string();
            let head = "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length";
            let _gone = write!(stream, "{head}: {}\r\n\r\n{text}", text.len());
        }
    });
    Ok(port)
}

/// The real programs: whoever has a kubeconfig with a client certificate, as administrators of a cluster do, asks as its user.
#[test]
fn a_kubeconfig_with_a_certificate_names_its_user() -> Result<()> {
    let (port, api) = (free_port()?, authorizes("anna", "get")?);
    let here = tempfile::tempdir().context("no directory")?;
    let directory = here.path();
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate()?;
    let cluster_ca = directory.join("cluster-ca.crt");
    fs::write(&cluster_ca, params.self_signed(&key)?.pem()).context("cannot write the authority")?;
    let issuer = Issuer::new(params, key);
    let config = |name: &str, server: &str, user: Value| -> Result<PathBuf> {
        let file = directory.join(name);
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": server}}],
            "users": [{"name": "user", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "user"}}],
        });
        fs::write(&file, text.to_string()).context("cannot write a kubeconfig")?;
        Ok(file)
    };
    let server = format!("http://127.0.0.1:{api}");
    let own = config("recommender.kubeconfig", &server, json!({}))?;
    let recommender = RecommenderSetup::new(directory)?
        .set("serve.grpc", &quoted(format!("127.0.0.1:{port}")))
        .set("tls.authority", "true")
        .set("kubernetes.enabled", "true")
        .set("kubernetes.kubeconfig", &quoted(own.display()))
        .set("kubernetes.client_ca", &quoted(cluster_ca.display()));
    let ca = recommender.state().join("authority/ca.crt");
    let central = recommender.start()?;
    let person = |name: &str| -> Result<PathBuf> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        let (crt, private) = (directory.join(format!("{name}.crt")), directory.join(format!("{name}.key")));
        fs::write(&crt, params.signed_by(&key, &issuer)?.pem()).context("cannot write a certificate")?;
        fs::write(&private, key.serialize_pem()).context("cannot write a key")?;
        config(
            &format!("{name}.kubeconfig"),
            &server,
            json!({ "client-certificate": crt, "client-key": private }),
        )
    };
    let ca = ca.display().to_string();
    let ask = |file: &Path, address: &str, question: &[&str]| {
        let arguments = [question, &["--kube-auth", "--ca-file", &ca]].concat();
        Cli::default().recommender(address).kubeconfig(file).run(&arguments)
    };
    let (anna, bert) = (person("anna")?, person("bert")?);
    let socket = recommender.address();
    let (https, http) = (format!("https://127.0.0.1:{port}"), format!("http://127.0.0.1:{port}"));
    ask(&anna, &https, &["nodes"])?.success()?;
    for (file, address, question, want) in [
        (
            &anna,
            &https,
            vec!["policy", "panic", "on"],
            "Kubernetes user anna may not update panic.evenkeel.dev",
        ),
        (&bert, &https, vec!["nodes"], "Kubernetes user bert may not get recommendations.evenkeel.dev"),
        (&anna, &http, vec!["nodes"], "is not reached over TLS"),
        // Nor as whoever the kernel says is at the socket.
        (&anna, &socket, vec!["nodes"], "is not reached over TLS"),
        (&anna, &socket, vec!["dashboard"], "is not reached over TLS"),
        (&anna, &https, vec!["dashboard", "--http", "http://127.0.0.1:1"], "is not reached over TLS"),
    ] {
        let said = ask(file, address, &question)?;
        ensure!(said.status == Some(1) && said.said().contains(want), "{question:?}: {said:?}");
    }
    central.stop()
}

#[test]
fn an_agents_address_answers_whoever_is_named_and_nobody_else() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let (port, Pair { site, recommender }) = (free_port()?, Pair::hurried()?);
    // Its authority makes a certificate for this machine, which serves here for the agent's address.
    let central =
        recommender.clone().set("serve.grpc", &quoted("127.0.0.1:0")).set("tls.authority", "true").start()?;
    let authority = recommender.state().join("authority");
    let (pair, ca) = (authority.join("server.pem"), authority.join("ca.crt"));
    let (token, wrong) = (site.directory().join("agent.token"), site.directory().join("wrong.token"));
    fs::write(&token, "secret\n").context("cannot write the token")?;
    fs::write(&wrong, "guess\n").context("cannot write the token")?;
    let site = site.with(|agent| {
        agent
            .set("serve.address", &quoted(format!("127.0.0.1:{port}")))
            .set("serve.token", &quoted(token.display()))
            .set("metrics.tls", "false")
            .set("metrics.token", &quoted(token.display()))
            .set("tls.cert", &quoted(pair.display()))
            .set("tls.key", &quoted(pair.display()))
            .set("tls.client_ca", &quoted(ca.display()))
    });
    let agent = site.start()?;
    wait::until_true("the agent to listen", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok())?;
    let path = |path: &Path| path.display().to_string();
    let (at, plain) = (format!("https://127.0.0.1:{port}"), format!("http://127.0.0.1:{port}"));
    let ask = |address: &str, more: &[&str]| {
        let arguments = [&["status", "-o", "json"], more].concat();
        Cli::default().agent(address).run(&arguments)
    };
    let (ca, token, wrong) = (path(&ca), path(&token), path(&wrong));
    for (address, more, want) in [
        (&at, vec!["--ca-file", &ca, "--agent-token-file", &token], None),
        (&at, vec!["--ca-file", &ca], Some("answers whoever sends its token")),
        (&at, vec!["--ca-file", &ca, "--agent-token-file", &wrong], Some("answers whoever sends its token")),
        // The recommender's token is not told to an agent.
        (&at, vec!["--ca-file", &ca, "--token-file", &token], Some("answers whoever sends its token")),
        (&at, vec!["--agent-token-file", &token], Some("no authority")),
        (&plain, vec!["--agent-token-file", &token], Some("cannot reach|did not answer")),
    ] {
        let said = ask(address, &more)?;
        let Some(want) = want else {
            ensure!(said.status == Some(0), "{address} {more:?}: {said:?}");
            continue;
        };
        let told = want.split('|').any(|want| said.said().contains(want));
        ensure!(said.status != Some(0) && told, "{address} {more:?}: {said:?}");
    }
    let refused = agent.metrics();
    ensure!(
        refused.is_err() || refused.as_ref().is_ok_and(|page| !page.contains("evenkeel_agent")),
        "{refused:?}"
    );
    agent.stop()?;
    central.stop()
}
