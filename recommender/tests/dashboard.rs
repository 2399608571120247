//! The dashboard over HTTP: who is shown what, what changes nothing, and what a browser is told.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use crate::common;

use std::net::SocketAddr;
use std::path::Path;

use common::{Agent, Running, until};
use evenkeel_recommender::identity::Role;
use evenkeel_recommender::identity::tokens::{TokenEntry, TokenFile};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Status, head and body of an answer.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        let of = |line: &'_ str| line.split_once(": ").is_some_and(|(key, _)| key.eq_ignore_ascii_case(name));
        self.head
            .lines()
            .find(|line| of(line))
            .and_then(|line| line.split_once(": "))
            .map_or("", |(_, value)| value)
    }

    /// The cookie it sets, as it is sent back.
    fn cookie(&self) -> String {
        self.header("set-cookie").split(';').next().unwrap_or_default().to_owned()
    }

    /// The word of its first form.
    fn word(&self) -> String {
        let behind =
            self.body.split("name=\"csrf\" value=\"").nth(1).unwrap_or_else(|| panic!("{}", self.body));
        behind.split('"').next().unwrap_or_default().to_owned()
    }
}

async fn ask(at: SocketAddr, method: &str, path: &str, lines: &str, body: &str) -> Answer {
    let mut stream = TcpStream::connect(at).await.unwrap();
    let length = body.len();
    let host = if lines.contains("Host:") { String::new() } else { format!("Host: {at}\r\n") };
    let head = format!(
        "{method} {path} HTTP/1.1\r\n{host}{lines}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    let _reset = stream.read_to_end(&mut bytes).await;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

/// The cluster in one file: to those who may see all of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_is_one_file_without_scripts() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path(), |_| {}).await;
    let mut agent = Agent::new(1, &["web:1", "<script>alert(1)</script>"]);
    let mut link = agent.connect(running.grpc).await;
    link.send(agent.measure(70)).await;
    link.acknowledged(70).await;
    let (status, text) = common::http(running.http, "GET", "/ui/report", "").await;
    assert_eq!(status, 200, "{text}");
    assert!(text.starts_with("<!DOCTYPE html>") && text.contains("node-1"), "{text}");
    for wrong in ["<script", "href=", "src=", "http:", "https:", " style="] {
        assert!(!text.contains(wrong), "{wrong}: {text}");
    }
    running.stop().await;
}

/// A form, as a browser sends it from a page of this program.
async fn send(at: SocketAddr, path: &str, cookie: &str, body: &str) -> Answer {
    let lines = format!(
        "Origin: http://{at}\r\nCookie: {cookie}\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    );
    ask(at, "POST", path, &lines, body).await
}

fn tokens(file: &Path, all: &[(&str, &[Role], Option<&str>)]) -> Vec<String> {
    let mut tokens = TokenFile::default();
    let add = |(name, roles, namespace): &(&str, &[Role], Option<&str>)| {
        let namespaces = namespace.map(|namespace| [namespace.to_owned()].into());
        let (sha256, roles) = (String::new(), roles.to_vec());
        tokens
            .add(TokenEntry { name: (*name).into(), sha256, roles, namespaces, node: None, expires: None })
            .unwrap()
    };
    let made = all.iter().map(add).collect();
    tokens.write(file).unwrap();
    made
}

const ALL: &[Role] = &[Role::View, Role::Simulate, Role::Apply, Role::Panic];

async fn start(dir: &Path, all: &[(&str, &[Role], Option<&str>)]) -> (Running, SocketAddr, Vec<String>) {
    let file = dir.join("tokens.toml");
    let made = tokens(&file, all);
    let running = Running::start(&dir.join("state"), |config| {
        config.serve.http = Some(([127, 0, 0, 1], 0).into());
        config.access.tokens = file;
        // Tests wait by asking again and again.
        config.access.requests_per_second = 100_000;
    })
    .await;
    let at = running.tcp.1.unwrap();
    (running, at, made)
}

async fn signed_in(at: SocketAddr, token: &str) -> String {
    let answer = send(at, "/ui/sign-in", "", &format!("token={token}&next=%2Fui%2Fnodes")).await;
    assert_eq!((answer.status, answer.header("location")), (303, "/ui/nodes"), "{}", answer.head);
    let cookie = answer.header("set-cookie");
    assert!(cookie.contains("HttpOnly; SameSite=Strict") && !cookie.contains(token), "{cookie}");
    answer.cookie()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_are_led_to_the_door_and_shown_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (running, at, _) = start(dir.path(), &[("anna", ALL, None)]).await;
    assert_eq!(ask(at, "GET", "/", "", "").await.header("location"), "/ui/");
    for page in [
        "",
        "workloads",
        "workload?namespace=shop",
        "nodes",
        "node?name=x",
        "decisions",
        "changes",
        "capacity",
        "policies",
        "live",
    ] {
        let answer = ask(at, "GET", &format!("/ui/{page}"), "", "").await;
        assert_eq!(answer.status, 303, "{page}");
        assert!(answer.header("location").starts_with("/ui/sign-in?next=%2Fui%2F"), "{}", answer.head);
    }
    for form in ["capacity", "policies", "panic"] {
        let answer = send(at, &format!("/ui/{form}"), "", "csrf=x&set=on").await;
        assert_eq!(answer.status, 401, "{form}: {}", answer.body);
    }
    let page = ask(at, "GET", "/ui/sign-in?next=//evil.example/", "", "").await;
    assert!(page.status == 200 && !page.body.contains("evil"), "{}", page.body);
    for (name, want) in [
        ("content-security-policy", "default-src 'none'"),
        ("x-frame-options", "DENY"),
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert!(page.header(name).starts_with(want), "{name}: {}", page.head);
    }
    let style = page.body.split("rel=\"stylesheet\" href=\"").nth(1).unwrap().split('"').next().unwrap();
    let style = ask(at, "GET", style, "", "").await;
    assert!(style.status == 200 && style.header("cache-control").contains("immutable"), "{}", style.head);
    assert_eq!(ask(at, "GET", "/ui/assets/style.css", "", "").await.status, 404);
    let wrong = send(at, "/ui/sign-in", "", "token=ek_wrong").await;
    assert!(wrong.status == 401 && wrong.header("set-cookie").is_empty(), "{}", wrong.head);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_for_pages_alone_and_ends_with_its_token() {
    let dir = tempfile::tempdir().unwrap();
    let (running, at, made) = start(dir.path(), &[("anna", ALL, None)]).await;
    let cookie = signed_in(at, &made[0]).await;
    let lines = format!("Cookie: {cookie}\r\n");
    assert_eq!(ask(at, "GET", "/ui/nodes", &lines, "").await.status, 200);
    assert_eq!(ask(at, "GET", "/api/v1/nodes", &lines, "").await.status, 401, "the API takes no cookie");
    let page = ask(at, "GET", "/ui/policies", &lines, "").await;
    assert_eq!(send(at, "/ui/sign-out", &cookie, "csrf=wrong").await.status, 403);
    assert_eq!(ask(at, "GET", "/ui/nodes", &lines, "").await.status, 200);
    assert_eq!(send(at, "/ui/sign-out", &cookie, &format!("csrf={}", page.word())).await.status, 303);
    assert_eq!(ask(at, "GET", "/ui/nodes", &lines, "").await.status, 303);

    let cookie = signed_in(at, &made[0]).await;
    let lines = format!("Cookie: {cookie}\r\n");
    tokens(&dir.path().join("tokens.toml"), &[]);
    until(|| async { (ask(at, "GET", "/ui/nodes", &lines, "").await.status == 303).then_some(()) }).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_changes_without_the_word_of_a_page_or_from_another_site() {
    let dir = tempfile::tempdir().unwrap();
    let (running, at, made) = start(dir.path(), &[("anna", ALL, None), ("bert", &[Role::View], None)]).await;
    let (anna, bert) = (signed_in(at, &made[0]).await, signed_in(at, &made[1]).await);
    let page = ask(at, "GET", "/ui/policies", &format!("Cookie: {anna}\r\n"), "").await;
    let word = page.word();
    let on = format!("csrf={word}&set=on&reason=drill");
    for (cookie, body, want) in [
        (&anna, "set=on&reason=drill", 403),
        (&anna, "csrf=&set=on", 403),
        (&anna, "csrf=0000000000000000000000000000000000000000&set=on", 403),
        (&bert, on.as_str(), 403),
        (&anna, &format!("csrf={word}&set=sideways"), 400),
    ] {
        assert_eq!(send(at, "/ui/panic", cookie, body).await.status, want, "{body}");
    }
    let other = signed_in(at, &made[0]).await;
    assert_eq!(send(at, "/ui/panic", &other, &on).await.status, 403, "the word is that of another session");
    for lines in ["Origin: https://evil.example\r\n", "Origin: null\r\n", "Sec-Fetch-Site: cross-site\r\n"] {
        let lines = format!("{lines}Cookie: {anna}\r\nContent-Type: application/x-www-form-urlencoded\r\n");
        assert_eq!(ask(at, "POST", "/ui/panic", &lines, &on).await.status, 403, "{lines}");
    }
    let lines = format!("Cookie: {anna}\r\nContent-Type: text/plain\r\n");
    assert_eq!(ask(at, "POST", "/ui/panic", &lines, &on).await.status, 400);
    assert!(!ask(at, "GET", "/ui/nodes", &format!("Cookie: {anna}\r\n"), "").await.body.contains("Panic:"));
    assert_eq!(send(at, "/ui/panic", &anna, &on).await.status, 303);
    let shown = ask(at, "GET", "/ui/changes", &format!("Cookie: {anna}\r\n"), "").await.body;
    assert!(
        shown.contains("Panic: recommendations change nothing")
            && shown.contains("token anna")
            && shown.contains("refused"),
        "{shown}"
    );
    let foreign = ask(at, "GET", "/ui/", &format!("Host: evil.example\r\nCookie: {anna}\r\n"), "").await;
    assert_eq!(foreign.status, 421, "{}", foreign.head);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_is_all_that_its_viewer_sees() {
    let dir = tempfile::tempdir().unwrap();
    let (running, at, made) = start(dir.path(), &[("bert", &[Role::View, Role::Apply], Some("shop"))]).await;
    let mut agent = Agent::new(1, &["web:1"]);
    let mut link = agent.connect(running.grpc).await;
    link.send(agent.measure(90)).await;
    link.acknowledged(90).await;
    let cookie = signed_in(at, &made[0]).await;
    let get = async |path: &str| ask(at, "GET", path, &format!("Cookie: {cookie}\r\n"), "").await;
    until(|| async {
        get("/ui/workloads?namespace=shop").await.body.contains("deployment/w0").then_some(())
    })
    .await;
    let asked = get("/ui/workloads").await;
    assert!(asked.body.contains("Which namespace?"), "{} {}", asked.head, asked.body);
    for page in [
        "nodes",
        "node?name=node-1",
        "decisions",
        "live",
        "workloads?namespace=other",
        "workloads/export?form=csv",
        "workload?namespace=other&workload=x&container=y",
    ] {
        assert_eq!(get(&format!("/ui/{page}")).await.status, 403, "{page}");
    }
    let csv = get("/ui/workloads/export?form=csv&namespace=shop").await;
    assert!(csv.status == 200 && csv.body.contains("shop,deployment/w0,main"), "{}", csv.body);
    assert_eq!(get("/ui/workloads/export?form=exe&namespace=shop").await.status, 400);
    let word = get("/ui/policies/edit?namespace=shop").await.word();
    let policy = |namespace: &str| {
        format!(
            "csrf={word}&do=apply&text=%7B%22apiVersion%22%3A%22evenkeel.dev%2Fv1%22%2C%22kind%22%3A%22Policy%22%2C%22metadata%22%3A%7B%22name%22%3A%22p%22%2C%22namespace%22%3A%22{namespace}%22%7D%2C%22spec%22%3A%7B%22target%22%3A%7B%7D%7D%7D"
        )
    };
    assert_eq!(send(at, "/ui/policies", &cookie, &policy("other")).await.status, 403);
    let applied = send(at, "/ui/policies", &cookie, &policy("shop")).await;
    assert!(applied.status == 200 && applied.body.contains("It was created"), "{}", applied.body);
    assert!(get("/ui/changes?namespace=shop").await.body.contains("token bert"));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_pages_are_served_where_they_are_switched_off() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path(), |config| {
        config.serve.http = Some(([127, 0, 0, 1], 0).into());
        config.dashboard.enabled = false;
    })
    .await;
    for path in ["/", "/ui/", "/ui/sign-in"] {
        assert_eq!(ask(running.tcp.1.unwrap(), "GET", path, "", "").await.status, 401, "{path}");
    }
    running.stop().await;
}

/// Opens a stream of news and returns what it began with, and the connection.
async fn follow(at: SocketAddr, cookie: &str) -> (String, TcpStream) {
    let mut stream = TcpStream::connect(at).await.unwrap();
    let head = format!("GET /ui/live HTTP/1.1\r\nHost: {at}\r\nCookie: {cookie}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut first = vec![0; 4 << 10];
    let read = stream.read(&mut first).await.unwrap();
    (String::from_utf8_lossy(&first[..read]).into_owned(), stream)
}

/// Five hundred open dashboards: as many follow as may, the next is told so, those that read nothing hold up nobody, and pages and the API
/// answer everybody else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_open_dashboards_are_bounded_and_harm_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens.toml");
    let made = tokens(&file, &[("anna", ALL, None)]);
    let running = Running::start(&dir.path().join("state"), |config| {
        config.serve.http = Some(([127, 0, 0, 1], 0).into());
        config.access.tokens = file;
        config.access.requests_per_second = 100_000;
        // All come of one address here, which has half of the connections.
        config.serve.max_connections = 2_000;
    })
    .await;
    let at = running.tcp.1.unwrap();
    let cookie = signed_in(at, &made[0]).await;
    let mut open = Vec::new();
    for number in 0..500 {
        let (head, stream) = follow(at, &cookie).await;
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/event-stream"), "{number}: {head}");
        open.push(stream);
    }
    let told = ask(at, "GET", "/ui/live", &format!("Cookie: {cookie}\r\n"), "").await;
    assert_eq!(told.status, 503, "{}", told.body);
    assert!(told.body.contains("500 pages are followed already"), "{}", told.body);
    // Nobody has read since: the last still hears of what is new, and so does everybody who asks.
    let mut last = open.pop().unwrap();
    let mut heard = String::new();
    let mut buffer = vec![0; 16 << 10];
    while !heard.contains("event: news") {
        let read = last.read(&mut buffer).await.unwrap();
        assert!(read > 0, "the stream ended: {heard}");
        heard.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
    let page = ask(at, "GET", "/ui/nodes", &format!("Cookie: {cookie}\r\n"), "").await;
    assert_eq!(page.status, 200, "{}", page.body);
    let api = ask(at, "GET", "/api/v1/nodes", &format!("Authorization: Bearer {}\r\n", made[0]), "").await;
    assert_eq!(api.status, 200, "{}", api.body);
    let mut agent = Agent::new(1, &["web:1"]);
    let mut link = agent.connect(running.grpc).await;
    link.send(agent.measure(3)).await;
    link.acknowledged(3).await;
    // Browsers that are gone give their places back.
    drop((open, last));
    until(|| async { follow(at, &cookie).await.0.starts_with("HTTP/1.1 200").then_some(()) }).await;
    running.stop().await;
}

/// A workload of thousands of replicas over a month: its page is bounded in bytes and in what is read for it, and says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_replicas_are_one_bounded_page_that_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path(), |_| {}).await;
    let images = vec!["web:1"; 2_000];
    // Ten thousand, on nodes of two thousand each.
    for node in 1..=5 {
        let mut agent = Agent::on(&format!("node-{node}"), 1, &images);
        agent.use_at = Some(|_, _| (1, 1 << 20));
        let mut link = agent.connect(running.grpc).await;
        let mut frames = agent.measure(130);
        for announced in frames.iter_mut().flat_map(|frame| &mut frame.announced) {
            if let Some(identity) = &mut announced.identity {
                identity.workload = "deployment/many".into();
            }
        }
        link.send(frames).await;
        link.acknowledged(130).await;
    }
    let path = "/ui/workload?namespace=shop&workload=deployment%2Fmany&container=main";
    for range in ["1d", "30d"] {
        let at = format!("{path}&range={range}");
        let text = until(|| async {
            let (status, text) = common::http(running.http, "GET", &at, "").await;
            (status == 200 && text.contains("deployment/many") && text.contains("10\u{202f}000"))
                .then_some(text)
        })
        .await;
        assert!(text.len() < 150_000, "{range}: {} bytes", text.len());
        let is_said = text.contains("have too many minutes to read for a page: hours are shown");
        // A month is shown by hours in any case.
        assert_eq!(is_said, range == "1d", "{range}");
    }
    running.stop().await;
}
