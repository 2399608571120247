//! Suite `dashboard`: the pages in a real browser. Each page's story, without an error in the console, a request to another host, or a
//! serious barrier for people with other eyes and hands; with scripts off the tables are there. Pictures stay below
//! `target/dashboard/`; `EVENKEEL_FULL` takes them in three widths and both schemes. An agent's pages about its own node are looked at in
//! the same way.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

mod browser;
mod common;

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use browser::{Browser, axe, target};
use common::{Agent, Link, Running, until};
use evenkeel_proto::v1;
use evenkeel_recommender::identity::Role;
use evenkeel_recommender::identity::tokens::{TokenEntry, TokenFile};
use evenkeel_tests::daemon::free_port;

/// A name of others that would do something, if any page forgot what it is.
const HOSTILE: &str = "x\"><script>window.hacked=1</script><img src=x onerror=window.hacked=1>'&\u{202e}";
/// Weight of a page as it is sent.
const MOST_BYTES: usize = 150_000;

/// Use of a container at a moment: thousandths of a core, and bytes.
fn use_at(slot: usize, time_usec: u64) -> (u64, u64) {
    let hour = (time_usec / 1_000_000 % 86_400) as f64 / 3_600.0;
    let day = (1.0 - ((hour - 14.0) / 24.0 * std::f64::consts::TAU).cos().mul_add(-1.0, 1.0) / 2.0).max(0.0);
    let noise = (time_usec / 1_000_000).wrapping_mul(2_654_435_761).wrapping_add(slot as u64 * 97) % 100;
    let base = 40 + 60 * (slot as u64 % 5);
    let cpu = base + (day * 220.0) as u64 + noise;
    (cpu, ((48 + 24 * (slot as u64 % 7)) << 20) + ((day * 40.0) as u64 * (1 << 20)) + (noise << 14))
}

fn decision(time_usec: u64, kind: &str, pod: &str, more: impl FnOnce(&mut v1::Decision)) -> v1::Decision {
    let mut decision = v1::Decision {
        time_usec,
        kind: kind.into(),
        pod: Some(pod.into()),
        container: Some("main".into()),
        result: "done".into(),
        ..v1::Decision::default()
    };
    more(&mut decision);
    decision
}

/// What agents decided.
fn decisions(now: u64) -> Vec<v1::Decision> {
    let mut all = vec![
        decision(now - 3_000_000, "set", "shop/w1-x", |d| {
            (d.knob, d.old, d.new) = (Some("cpu.weight".into()), Some("39".into()), Some("59".into()));
            d.reason = "Burstable: a request of 1500m becomes weight 59".into();
            d.inputs = [
                ("request_milli".to_owned(), "1500".to_owned()),
                ("conversion".to_owned(), "linear".to_owned()),
            ]
            .into();
        }),
        decision(now - 2_000_000, "relieve", "shop/w2-x", |d| {
            (d.knob, d.new) = (Some("memory.high".into()), Some("94371840".into()));
            d.reason =
                "BestEffort container squeezed: 3 % of memory is available, stalled 12 % of ten seconds"
                    .into();
        }),
        decision(now - 1_000_000, "oom-kill", "shop/w3-x", |d| {
            d.reason = "killed at its own limit of 128 MiB, 131072 KiB used".into();
        }),
        decision(now, "denied", &format!("shop/{HOSTILE}"), |d| {
            (d.knob, d.old, d.reason) = (Some(HOSTILE.into()), Some(HOSTILE.into()), HOSTILE.into());
            d.inputs = [(HOSTILE.to_owned(), HOSTILE.to_owned())].into();
        }),
    ];
    all.iter_mut().zip(1..).for_each(|(d, seq)| d.seq = seq);
    all
}

/// A cluster of two nodes with three days of history; the first node's agent and its connection.
async fn cluster(running: &Running) -> (Agent, Link) {
    let mut first = None;
    for (node, epoch) in [("node-1", 1), ("node-2", 2)] {
        let images: Vec<String> = (0..9).map(|n| format!("registry.example/app-{n}:1.{n}")).collect();
        let images: Vec<&str> = images.iter().map(String::as_str).collect();
        let mut agent = Agent::on(node, epoch, &images);
        agent.use_at = Some(use_at);
        agent.requested = Some(v1::ResourceValues {
            cpu_request_milli: Some(500),
            memory_request_bytes: Some(256 << 20),
            memory_limit_bytes: Some(512 << 20),
            ..v1::ResourceValues::default()
        });
        let now = agent.time_usec;
        agent.time_usec -= 72 * 3_600_000_000;
        let mut link = agent.connect(running.grpc).await;
        let mut batch = Vec::new();
        while agent.time_usec < now {
            let mut frame = agent.measure_folded(60);
            rename(&mut frame);
            batch.push(frame);
            agent.time_usec += 840_000_000;
        }
        // Up to the present, as seconds.
        batch.extend(agent.measure(600));
        if let Some(last) = batch.last_mut().filter(|_| node == "node-1") {
            last.decisions = decisions(agent.time_usec);
        }
        while !batch.is_empty() {
            let rest = batch.split_off(batch.len().min(64));
            let sent = batch.last().map_or(0, |frame| frame.sequence);
            link.send(std::mem::replace(&mut batch, rest)).await;
            link.acknowledged(sent).await;
        }
        first.get_or_insert((agent, link));
    }
    first.unwrap()
}

/// Measures up to the present every second, so that pages of the last minute have something to show however long a test takes.
async fn follow(mut agent: Agent, mut link: Link) {
    while link.try_send(agent.measure(1)).await && link.next_ack().await.is_some() {
        let measured = SystemTime::UNIX_EPOCH + Duration::from_micros(agent.time_usec);
        // Nothing to wait for where it is behind.
        tokio::time::sleep(measured.duration_since(SystemTime::now()).unwrap_or_default()).await;
    }
}

/// One workload gets a name that would do something.
fn rename(frame: &mut v1::Frame) {
    for announced in frame.announced.iter_mut().filter(|announced| announced.slot == 8) {
        if let Some(identity) = &mut announced.identity {
            (identity.workload, identity.pod, identity.container) =
                (HOSTILE.into(), HOSTILE.into(), HOSTILE.into());
        }
    }
}

/// Tokens: of somebody who may everything, and of somebody who sees one namespace.
fn tokens(file: &Path) -> [String; 2] {
    let mut tokens = TokenFile::default();
    let mut add = |name: &str, roles: &[Role], namespaces: Option<Vec<String>>| {
        let namespaces = namespaces.map(|all| all.into_iter().collect());
        let (sha256, roles) = (String::new(), roles.to_vec());
        tokens
            .add(TokenEntry { name: name.into(), sha256, roles, namespaces, node: None, expires: None })
            .unwrap()
    };
    let made = [
        add("anna", &[Role::View, Role::Simulate, Role::Apply, Role::Panic], None),
        add("bert", &[Role::View], Some(vec!["shop".into()])),
    ];
    tokens.write(file).unwrap();
    made
}

/// Where pictures go, and what is looked at with each page.
struct Look<'a> {
    browser: &'a Browser,
    base: &'a str,
    axe: Option<String>,
}

impl Look<'_> {
    /// Opens a page, and looks at it in every way.
    async fn at(&self, name: &str, path: &str, wants: &[&str]) {
        self.browser.open(&format!("{}{path}", self.base)).await;
        self.here(name, wants).await;
    }

    /// Looks at the page that is open.
    async fn here(&self, name: &str, wants: &[&str]) {
        let text = self.browser.text().await;
        for want in wants {
            assert!(text.contains(want), "{name} does not say {want:?}:\n{text}");
        }
        assert_eq!(self.browser.script("return window.hacked === undefined").await, true, "{name}");
        let wide = "return document.documentElement.scrollWidth <= document.documentElement.clientWidth";
        let (widths, schemes): (&[u32], &[&str]) = match std::env::var_os("EVENKEEL_FULL") {
            Some(_) => (&[1440, 820, 390], &["light", "dark"]),
            None => (&[1280], &["light"]),
        };
        for width in widths {
            self.browser.size(*width, 900).await;
            assert_eq!(self.browser.script(wide).await, true, "{name} is wider than {width}");
            for scheme in schemes {
                self.browser.scheme(scheme).await;
                if let Some(axe) = &self.axe {
                    let barriers = self.browser.barriers(axe).await;
                    assert!(barriers.is_empty(), "{name} at {width}, {scheme}:\n{}", barriers.join("\n"));
                }
                let file = target().join(format!("dashboard/{name}-{width}-{scheme}.png"));
                self.browser.picture(&file).await;
            }
        }
        let complaints = self.browser.complaints().await;
        assert!(complaints.is_empty(), "{name}: {complaints:?}");
        let foreign: Vec<String> =
            self.browser.requests().await.into_iter().filter(|url| !url.starts_with(self.base)).collect();
        assert!(foreign.is_empty(), "{name} asks others: {foreign:?}");
        let size = self.browser.script("return document.documentElement.outerHTML.length").await;
        assert!(size.as_u64().unwrap() < MOST_BYTES as u64, "{name} has {size} characters");
    }
}

async fn start(dir: &Path) -> (Running, String, [String; 2]) {
    let file = dir.join("tokens.toml");
    let tokens = tokens(&file);
    let running = Running::start(&dir.join("state"), |config| {
        config.serve.http = Some("127.0.0.1:0".parse().unwrap());
        config.access.tokens = file;
        // Tests wait by asking again and again.
        config.access.requests_per_second = 100_000;
        config.recommend.rule = "goal".into();
        config.recommend.watch_interval = evenkeel_recommender::config::Span::from_secs(1);
        (config.dashboard.core_hour, config.dashboard.gib_hour) = (Some(0.03), Some(0.004));
        config.dashboard.currency = "EUR".into();
    })
    .await;
    let base = format!("http://{}", running.tcp.1.unwrap());
    (running, base, tokens)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_tells_its_story() {
    let dir = tempfile::tempdir().unwrap();
    let (running, base, [anna, bert]) = start(dir.path()).await;
    let (mut agent, link) = cluster(&running).await;
    let browser = Browser::start(true).await;
    let axe = axe();
    assert!(
        axe.is_some() || std::env::var_os("CI").is_none(),
        "no axe-core: scripts/test dashboard installs it"
    );
    let look = Look { browser: &browser, base: &base, axe };

    // Signing in.
    look.at("sign-in", "/", &["Sign in", "Where does a token come from?"]).await;
    browser.write("#token", "ek_wrong").await;
    browser.click("button.primary").await;
    browser.says("not known").await;
    browser.write("#token", &anna).await;
    browser.click("button.primary").await;
    browser.until("location.pathname === '/ui/'").await;

    // The first pass over workloads may still be on its way.
    until(|| async {
        browser.open(&format!("{base}/ui/workloads")).await;
        (browser.count("table.workloads tbody tr").await >= 9).then_some(())
    })
    .await;
    look.at("overview", "/ui/", &["Overview", "Namespaces", "OOM kills", "Requests cost a month"]).await;
    browser.until("document.getElementById('live').textContent === 'live'").await;
    let used = browser.script("return document.querySelector('[data-live=cpu-used]').textContent").await;
    agent.use_at = Some(|_, _| (400, 100 << 20));
    tokio::spawn(follow(agent, link));
    browser.until(&format!("document.querySelector('[data-live=cpu-used]').textContent !== {used}")).await;

    workloads(&look).await;
    nodes(&look).await;
    capacity(&look).await;
    policies(&look).await;

    // Keys.
    browser.open(&format!("{base}/ui/")).await;
    browser.go("gn", "/ui/nodes").await;
    browser.press("?").await;
    browser.until("document.getElementById('help').open").await;

    browser.open(&format!("{base}/ui/")).await;
    browser.click("form.out button").await;
    browser.until("location.pathname === '/ui/sign-in'").await;
    browser.open(&format!("{base}/ui/nodes")).await;
    assert!(
        browser.address().await.contains("/ui/sign-in?next=%2Fui%2Fnodes"),
        "{}",
        browser.address().await
    );

    // Somebody who sees one namespace.
    browser.write("#token", &bert).await;
    browser.click("button.primary").await;
    browser.says("all namespaces").await;
    look.at("one-namespace", "/ui/workloads?namespace=shop", &["deployment/w1"]).await;
    assert_eq!(browser.count("nav a[href='/ui/nodes']").await, 0);
    running.stop().await;
}

async fn workloads(look: &Look<'_>) {
    let Look { browser, base, .. } = look;
    look.at("workloads", "/ui/workloads", &["deployment/w1", "CSV", "of 9 workloads"]).await;
    browser.press("/").await;
    browser.press("w3\u{e007}").await;
    browser.until("location.search.includes('q=w3') && document.querySelectorAll('table.workloads tbody tr').length === 1").await;
    browser.open(&format!("{base}/ui/workloads")).await;
    browser.click("th a[href*='sort=memory']").await;
    browser.until("document.querySelectorAll('th[aria-sort=descending]').length === 1").await;
    let wants =
        ["Why this CPU request", "Rules side by side", "Percentile 95", "in force", "How use is spread"];
    look.at("workload", "/ui/workload?namespace=shop&workload=deployment%2Fw3&container=main", &wants).await;
    assert!(browser.count("svg[data-points]").await == 2 && browser.count("svg path.line[d^=M]").await == 2);
    for range in ["1m", "1h", "7d", "30d"] {
        let path =
            format!("/ui/workload?namespace=shop&workload=deployment%2Fw1&container=main&range={range}");
        look.at(&format!("workload-{range}"), &path, &["deployment/w1"]).await;
        assert_eq!(browser.count("svg path.line[d^=M]").await, 2, "{range}");
    }
    // The hostile one, by its link.
    browser.open(&format!("{base}/ui/workloads?q=onerror")).await;
    browser.click("table.workloads tbody th a").await;
    browser.says("Why this CPU request").await;
    look.here("workload-hostile", &["<script>", "Why this CPU request"]).await;
}

async fn nodes(look: &Look<'_>) {
    look.at("nodes", "/ui/nodes", &["node-1", "node-2", "connected"]).await;
    look.at(
        "node",
        "/ui/node?cluster=test&name=node-1",
        &["Containers", "Scores and knobs, wanted and actual", "cpu.weight"],
    )
    .await;
    look.at("decisions", "/ui/decisions", &["oom-kill", "stalled 12 %", "4 decisions"]).await;
    look.at("decisions-pressure", "/ui/decisions?kind=pressure", &["relieve", "1–1 of 1 decisions"]).await;
}

async fn capacity(look: &Look<'_>) {
    let browser = look.browser;
    look.at("capacity", "/ui/capacity", &["How many more of a pod"]).await;
    browser.click("button.primary").await;
    browser.until("document.getElementById('answer')").await;
    look.here("capacity-answer", &["more fit", "By node", "node-1"]).await;
    browser.write("#pod", "{ this is no pod").await;
    browser.click("button.primary").await;
    browser.says("was not answered").await;
}

async fn policies(look: &Look<'_>) {
    let browser = look.browser;
    look.at("policies", "/ui/policies", &["There is none", "Panic switch"]).await;
    browser.click("a.button").await;
    browser.until("document.getElementById('text')").await;
    browser.write("#text", "kind: Nothing").await;
    browser.click("button[value=preview]").await;
    browser.says("It was not taken").await;
    let policy = "{\"apiVersion\": \"evenkeel.dev/v1\", \"kind\": \"Policy\", \"metadata\": {\"name\": \"web\", \"namespace\": \"shop\"}, \
                  \"spec\": {\"target\": {\"matchLabels\": {\"app\": \"w1\"}}, \"updatePolicy\": {\"mode\": \"off\"}}}";
    browser.write("#text", policy).await;
    browser.click("button[value=preview]").await;
    browser.says("It is valid").await;
    look.here("policy-preview", &["It is valid", "Nothing was changed", "What it recommends"]).await;
    browser.click("button[value=apply]").await;
    browser.says("It was created").await;
    look.at("policies-one", "/ui/policies", &["shop/web"]).await;
    browser.click("table a[href*='name=web']").await;
    browser.until("document.querySelector('button[value=delete]')").await;
    browser.click("button[value=delete]").await;
    browser.until("location.pathname === '/ui/policies'").await;
    browser.says("There is none").await;

    browser.write("input[name=reason]", "a drill").await;
    browser.click("button[value=on]").await;
    browser.says("a drill").await;
    look.here("panic", &["Panic: recommendations change nothing", "a drill"]).await;
    browser.click("button[value=off]").await;
    browser.until("!document.querySelector('.alarm')").await;
    look.at("changes", "/ui/changes", &["PanicSwitch", "shop/web", "token anna", "POST /ui/policies"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_scripts_the_tables_are_there() {
    let dir = tempfile::tempdir().unwrap();
    let (running, base, [anna, _]) = start(dir.path()).await;
    let _kept = cluster(&running).await;
    let browser = Browser::start(false).await;
    browser.open(&format!("{base}/ui/")).await;
    browser.write("#token", &anna).await;
    browser.click("button.primary").await;
    until(|| async { browser.address().await.ends_with("/ui/").then_some(()) }).await;
    for (path, selector, least) in [
        ("/ui/workloads", "table.workloads tbody tr", 9),
        ("/ui/nodes", "table.nodes tbody tr", 2),
        ("/ui/node?cluster=test&name=node-1", "#containers tbody tr", 9),
        ("/ui/decisions", "table.decisions tbody tr", 4),
        ("/ui/workload?namespace=shop&workload=deployment%2Fw1&container=main", "table.steps tr", 4),
        ("/ui/", "table.sums tr", 6),
    ] {
        until(|| async {
            browser.open(&format!("{base}{path}")).await;
            (browser.count(selector).await >= least).then_some(())
        })
        .await;
    }
    assert_eq!(browser.count("#theme[hidden]").await, 1, "no script has run");
    browser.picture(&target().join("dashboard/overview-without-scripts.png")).await;
    running.stop().await;
}

/// An agent by itself that writes nothing, killed when dropped.
struct Alone(std::process::Child);

impl Drop for Alone {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// The agent that was built beside the recommender, with pages at a port.
fn alone(dir: &Path, port: u16) -> Alone {
    let program = Path::new(env!("CARGO_BIN_EXE_evenkeel-recommender")).with_file_name("evenkeel-agent");
    assert!(
        program.is_file(),
        "no {}: cargo build --workspace --bins, or scripts/test dashboard",
        program.display()
    );
    std::fs::write(dir.join("token"), "of-the-browser\n").unwrap();
    let own = |name: &str| format!("{:?}", dir.join(name));
    let config = format!(
        "mode = \"dry-run\"\nstate_dir = {}\nroots.run = {}\nnode.name = \"node-alone\"\nstream.recommender = \"\"\n\
         daemons.enabled = false\nsources.cri.enabled = false\nsources.engines.enabled = false\nsources.systemd.enabled = false\n\
         sources.manifests.dir = {}\nserve.socket = {}\nserve.metrics = \"\"\nserve.token = {}\nserve.dashboard = \"127.0.0.1:{port}\"\n",
        own("agent"),
        own("run"),
        own("manifests"),
        own("agent.sock"),
        own("token")
    );
    std::fs::write(dir.join("agent.toml"), config).unwrap();
    let mut command = std::process::Command::new(program);
    for (variable, _) in
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("EVENKEEL_"))
    {
        command.env_remove(variable);
    }
    let log = std::fs::File::create(dir.join("log")).unwrap();
    Alone(command.arg("--config").arg(dir.join("agent.toml")).stderr(log).spawn().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nodes_own_pages_tell_their_story() {
    let dir = tempfile::tempdir().unwrap();
    let free = SocketAddr::from(([127, 0, 0, 1], free_port().unwrap()));
    let _agent = alone(dir.path(), free.port());
    until(|| async { tokio::net::TcpStream::connect(free).await.ok() }).await;
    let browser = Browser::start(true).await;
    let base = format!("http://{free}");
    // The browser keeps what it is given here, as it does when it has asked.
    browser.open(&format!("http://anna:of-the-browser@{free}/ui/nothing")).await;
    browser.says("there is no such page").await;
    let (_told, _asked) = (browser.complaints().await, browser.requests().await);
    let look = Look { browser: &browser, base: &base, axe: axe() };
    look.at("alone-node", "/ui/", &["node-alone", "Scores and knobs, wanted and actual", "Pods may request"])
        .await;
    browser.until("document.getElementById('live').textContent === 'live'").await;
    browser.go("gd", "/ui/decisions").await;
    look.at("alone-decisions", "/ui/decisions", &["decisions of this node", "agent"]).await;
    assert_eq!(browser.count("nav a").await, 2, "a node has no other pages");
}
