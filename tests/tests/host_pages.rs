//! Suite `host`: pages about one node, from its agent, without a recommender: opt-in, for whoever has the token, bounded, and harmless.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use evenkeel_tests::daemon::free_port;
use evenkeel_tests::product::{Manifest, Site};
use evenkeel_tests::{machine, require, wait};

const TOKEN: &str = "a-token-for-this-test";

/// Asks, and returns the connection with the answer's first bytes unread.
fn request(port: u16, method: &str, path: &str, lines: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).context("cannot connect")?;
    stream.set_read_timeout(Some(wait::PATIENCE)).context("cannot limit the wait")?;
    let host = if lines.contains("Host:") { "" } else { "Host: localhost\r\n" };
    write!(stream, "{method} {path} HTTP/1.1\r\n{host}{lines}Connection: close\r\n\r\n")
        .context("cannot ask")?;
    Ok(stream)
}

/// Status and the whole answer.
fn ask(port: u16, method: &str, path: &str, lines: &str) -> Result<(u16, String)> {
    let mut text = Vec::new();
    request(port, method, path, lines)?.read_to_end(&mut text).context("no answer")?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.with_context(|| text.clone())?, text))
}

/// A credential as a browser sends it.
fn basic(password: &str) -> String {
    format!("Authorization: Basic {}\r\n", BASE64_STANDARD.encode(format!("anna:{password}")))
}

#[test]
fn a_nodes_own_pages_need_no_recommender() -> Result<()> {
    require!(machine::is_root(), "an agent needs root");
    let port = free_port()?;
    let mut site = Site::new()?;
    let token = site.directory().join("token");
    std::fs::write(&token, format!("{TOKEN}\n")).context("cannot write the token")?;
    site = site.with(|agent| {
        agent
            .set("serve.dashboard", &format!("\"127.0.0.1:{port}\""))
            .set("serve.token", &format!("\"{}\"", token.display()))
    });
    let (cgroup, _) = site.sleeper("web")?;
    site.bind(&Manifest::burstable("web", &cgroup.path(), "100m", "64Mi"))?;
    let agent = site.start()?;
    agent.await_settled("web")?;

    // Who has no token sees nothing, and a browser is told to ask for it.
    for lines in ["", &basic("wrong"), "Authorization: Bearer wrong\r\n"] {
        let (status, text) = ask(port, "GET", "/ui/", lines)?;
        ensure!(status == 401 && text.contains("Basic realm=") && !text.contains("web"), "{lines}: {text}");
    }
    // A name of somebody else that points here.
    let (status, _) = ask(port, "GET", "/ui/", &format!("Host: evil.example\r\n{}", basic(TOKEN)))?;
    ensure!(status == 421, "{status}");
    let (status, text) = wait::until("the container on the page", wait::PATIENCE, || {
        let (status, text) = ask(port, "GET", "/ui/", &basic(TOKEN))?;
        Ok(text.contains("100m").then_some((status, text)))
    })?;
    ensure!(status == 200, "{text}");
    for part in
        ["node-a", "Burstable", "oom_score_adj", "default/web", "content-security-policy: default-src 'none'"]
    {
        ensure!(text.contains(part), "{part}: {text}");
    }
    let (status, text) = ask(port, "GET", "/ui/decisions?q=default%2Fweb", &basic(TOKEN))?;
    ensure!(status == 200 && text.contains("classified") && text.contains("default/web"), "{text}");
    let script =
        text.split("<script src=\"").nth(1).and_then(|rest| rest.split('"').next()).context("no script")?;
    ensure!(ask(port, "GET", script, &basic(TOKEN))?.0 == 200, "{script}");
    // What is not there, and what would change something.
    ensure!(ask(port, "GET", "/ui/policies", &basic(TOKEN))?.0 == 404);
    ensure!(ask(port, "POST", "/ui/", &basic(TOKEN))?.0 == 405);

    // Open pages follow; more than may are told so, and pages go on.
    let mut open = Vec::new();
    for _ in 0..16 {
        open.push(request(port, "GET", "/ui/live", &basic(TOKEN))?);
    }
    let mut heard = String::new();
    let mut buffer = [0; 1 << 10];
    let last = open.last_mut().context("none is open")?;
    while !heard.contains("event: news") {
        let read = last.read(&mut buffer).context("nothing is told")?;
        ensure!(read > 0, "the stream ended: {heard}");
        heard.push_str(&String::from_utf8_lossy(buffer.get(..read).unwrap_or_default()));
    }
    let (status, text) = ask(port, "GET", "/ui/live", &basic(TOKEN))?;
    ensure!(status == 503 && text.contains("16 pages are followed already"), "{text}");
    ensure!(ask(port, "GET", "/ui/", &basic(TOKEN))?.0 == 200);
    drop(open);
    agent.stop()
}
