//! A real browser: Debian's Chromium behind its chromedriver, asked by WebDriver (w3.org/TR/webdriver2), which is JSON over HTTP.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use evenkeel_tests::daemon::free_port;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::common::until;

/// How long a page may take: less than whatever waits for any state.
const PATIENCE: Duration = Duration::from_secs(50);

/// A driver with one browser, which both end with it.
pub(crate) struct Browser {
    driver: Child,
    at: SocketAddr,
    session: String,
    /// Where it keeps what it keeps.
    _profile: tempfile::TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser is the driver's child, and would outlive it: the driver is asked to end it, also when a test has failed.
        let _ended = self.end_session();
        let _gone = self.driver.kill();
        let _reaped = self.driver.wait();
    }
}

/// What a page put into its console.
pub(crate) fn is_expected(entry: &Value) -> bool {
    // A refusal that the story asks for is told by the browser itself.
    let text = entry["message"].as_str().unwrap_or_default();
    let is_refusal =
        ["status of 400", "status of 401", "status of 403"].iter().any(|status| text.contains(status));
    // Pages name their icon. For text the browser asks for one by itself, whenever it has time: also once another page is open.
    is_refusal || text.contains("/favicon.ico - ")
}

impl Browser {
    /// Starts one, with or without scripts in pages.
    pub(crate) async fn start(with_scripts: bool) -> Self {
        let profile = tempfile::tempdir().unwrap();
        let free = SocketAddr::from(([127, 0, 0, 1], free_port().unwrap()));
        let driver = Command::new("chromedriver")
            .arg(format!("--port={}", free.port()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver starts (apt-get install chromium chromium-driver)");
        let mut browser = Self { driver, at: free, session: String::new(), _profile: profile };
        until(|| async { TcpStream::connect(free).await.ok() }).await;
        let place = browser._profile.path().display();
        let mut options = json!({ "args": [
            "--headless", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-background-networking",
            "--no-first-run", "--hide-scrollbars", "--force-color-profile=srgb", format!("--user-data-dir={place}"),
        ] });
        if !with_scripts {
            options["prefs"] = json!({ "profile.managed_default_content_settings.javascript": 2 });
        }
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
            "unhandledPromptBehavior": "ignore",
        } } });
        let made = browser.ask("POST", "/session", wanted).await;
        browser.session = made["sessionId"].as_str().expect("a session").to_owned();
        browser
    }

    /// Ends the session, which ends the browser; without a runtime, since a test that failed has none to wait with.
    fn end_session(&self) -> std::io::Result<()> {
        use std::io::{Read as _, Write as _};
        let mut stream = std::net::TcpStream::connect(self.at)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let head = format!(
            "DELETE /session/{} HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\n\r\n",
            self.session, self.at
        );
        stream.write_all(head.as_bytes())?;
        // The first byte of the answer comes when the browser is gone.
        stream.read_exact(&mut [0])
    }

    async fn ask(&self, method: &str, path: &str, body: Value) -> Value {
        let body = if method == "GET" { String::new() } else { body.to_string() };
        let (status, text) = exchange(self.at, method, path, &body).await;
        let answer: Value =
            serde_json::from_str(&text).unwrap_or_else(|e| panic!("{path}: {status}: {e}: {text}"));
        assert!(status == 200, "{method} {path}: {answer}");
        answer["value"].clone()
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        self.ask("POST", &format!("/session/{}/{path}", self.session), body).await
    }

    async fn get(&self, path: &str) -> Value {
        self.ask("GET", &format!("/session/{}/{path}", self.session), Value::Null).await
    }

    /// Opens an address and waits until it is loaded.
    pub(crate) async fn open(&self, address: &str) {
        self.post("url", json!({ "url": address })).await;
    }

    /// Where it is.
    pub(crate) async fn address(&self) -> String {
        self.get("url").await.as_str().unwrap_or_default().to_owned()
    }

    /// What a script returns, run beside the page's own.
    pub(crate) async fn script(&self, script: &str) -> Value {
        self.post("execute/sync", json!({ "script": script, "args": [] })).await
    }

    /// Waits until a script returns true.
    pub(crate) async fn until(&self, what: &str) {
        let waiting = until(|| self.is(what));
        if tokio::time::timeout(PATIENCE, waiting).await.is_err() {
            panic!("{} is not so at {}:\n{}", what, self.address().await, self.text().await);
        }
    }

    /// Whether a script returns true; between two pages there is nothing to ask.
    async fn is(&self, what: &str) -> Option<()> {
        let path = format!("/session/{}/execute/sync", self.session);
        let body = json!({ "script": format!("return Boolean({what})"), "args": [] }).to_string();
        let (status, text) = exchange(self.at, "POST", &path, &body).await;
        (status == 200 && text.contains("\"value\":true")).then_some(())
    }

    /// Goes where two keys lead. On a busy machine more time than a page allows may pass between them: then again.
    pub(crate) async fn go(&self, keys: &str, path: &str) {
        let is_there = format!("location.pathname === {}", json!(path));
        until(|| async {
            self.press(keys).await;
            let arriving = until(|| self.is(&is_there));
            tokio::time::timeout(Duration::from_secs(3), arriving).await.ok()
        })
        .await;
    }

    /// Waits until the page says something.
    pub(crate) async fn says(&self, what: &str) {
        self.until(&format!(
            "document.readyState === 'complete' && document.body.innerText.includes({})",
            json!(what)
        ))
        .await;
    }

    async fn element(&self, selector: &str) -> String {
        let found = self.post("element", json!({ "using": "css selector", "value": selector })).await;
        let id = found.as_object().and_then(|found| found.values().next()).and_then(Value::as_str);
        id.unwrap_or_else(|| panic!("{selector}: {found}")).to_owned()
    }

    /// How many elements there are; works without scripts, too.
    pub(crate) async fn count(&self, selector: &str) -> usize {
        let found = self.post("elements", json!({ "using": "css selector", "value": selector })).await;
        found.as_array().map_or(0, Vec::len)
    }

    /// Clicks, and waits for the page behind it.
    pub(crate) async fn click(&self, selector: &str) {
        let element = self.element(selector).await;
        self.post(&format!("element/{element}/click"), json!({})).await;
    }

    /// Writes into a field, in place of what it held.
    pub(crate) async fn write(&self, selector: &str, text: &str) {
        let element = self.element(selector).await;
        self.post(&format!("element/{element}/clear"), json!({})).await;
        self.post(&format!("element/{element}/value"), json!({ "text": text })).await;
    }

    /// Presses keys where the focus is.
    pub(crate) async fn press(&self, keys: &str) {
        let press = |key: char| {
            [json!({ "type": "keyDown", "value": key }), json!({ "type": "keyUp", "value": key })]
        };
        let actions: Vec<Value> = keys.chars().flat_map(press).collect();
        self.post("actions", json!({ "actions": [{ "type": "key", "id": "k", "actions": actions }] })).await;
    }

    /// The page's text.
    pub(crate) async fn text(&self) -> String {
        let body = self.element("body").await;
        self.get(&format!("element/{body}/text")).await.as_str().unwrap_or_default().to_owned()
    }

    /// Colours as the system is said to want them.
    pub(crate) async fn scheme(&self, scheme: &str) {
        let wish = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.post("goog/cdp/execute", json!({ "cmd": "Emulation.setEmulatedMedia", "params": wish })).await;
    }

    /// The size of the page as it is seen.
    pub(crate) async fn size(&self, width: u32, height: u32) {
        let wish = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.post("goog/cdp/execute", json!({ "cmd": "Emulation.setDeviceMetricsOverride", "params": wish }))
            .await;
    }

    /// Keeps a picture of the whole page.
    pub(crate) async fn picture(&self, file: &Path) {
        use base64::Engine as _;
        let wish = json!({ "cmd": "Page.captureScreenshot", "params": { "captureBeyondViewport": true } });
        let taken = self.post("goog/cdp/execute", wish).await;
        let bytes = base64::prelude::BASE64_STANDARD.decode(taken["data"].as_str().unwrap()).unwrap();
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, bytes).unwrap();
    }

    /// What pages put into the console since this was asked last, and is not expected.
    pub(crate) async fn complaints(&self) -> Vec<Value> {
        let log = self.post("se/log", json!({ "type": "browser" })).await;
        let all = log.as_array().cloned().unwrap_or_default();
        all.into_iter().filter(|entry| entry["level"] == "SEVERE" && !is_expected(entry)).collect()
    }

    /// The addresses that were asked for since this was asked last.
    pub(crate) async fn requests(&self) -> Vec<String> {
        let log = self.post("se/log", json!({ "type": "performance" })).await;
        let of = |entry: &Value| {
            let told: Value = serde_json::from_str(entry["message"].as_str()?).ok()?;
            let message = &told["message"];
            (message["method"] == "Network.requestWillBeSent")
                .then(|| message["params"]["request"]["url"].as_str().unwrap_or_default().to_owned())
        };
        // The browser's own pages are no requests.
        let is_network = |url: &String| url.starts_with("http") || url.starts_with("ws");
        log.as_array().into_iter().flatten().filter_map(of).filter(is_network).collect()
    }

    /// What axe-core finds that is serious or worse.
    pub(crate) async fn barriers(&self, axe: &str) -> Vec<String> {
        let script = format!(
            "{axe}; const done = arguments[arguments.length - 1]; \
             axe.run(document, {{ resultTypes: ['violations'] }}).then((r) => done(r.violations), (e) => done([{{ impact: 'critical', id: String(e), nodes: [] }}]));"
        );
        let found = self.post("execute/async", json!({ "script": script, "args": [] })).await;
        let is_serious = |v: &&Value| matches!(v["impact"].as_str(), Some("serious" | "critical"));
        let told = |v: &Value| {
            let nodes = v["nodes"].as_array().into_iter().flatten().take(3);
            let nodes: Vec<String> =
                nodes.map(|n| format!("{} ({})", n["html"], n["failureSummary"])).collect();
            format!("{}: {}", v["id"], nodes.join("; "))
        };
        found.as_array().into_iter().flatten().filter(is_serious).map(told).collect()
    }
}

/// One request to the driver. It leaves connections open, so the length says where an answer ends.
async fn exchange(at: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(at).await.unwrap();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {at}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body.as_bytes()).await.unwrap();
    let (mut got, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let read = stream.read(&mut buffer).await.unwrap();
        assert!(read > 0, "{method} {path}: the driver closed the connection");
        got.extend_from_slice(&buffer[..read]);
        let Some(end) = got.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&got[..end]).to_ascii_lowercase();
        let length =
            head.split("content-length:").nth(1).and_then(|rest| rest.lines().next()?.trim().parse().ok());
        if got.len() >= end + 4 + length.unwrap_or(0_usize) {
            let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
            return (status, String::from_utf8_lossy(&got[end + 4..]).into_owned());
        }
    }
}

/// axe-core, where `scripts/test dashboard` has installed it.
pub(crate) fn axe() -> Option<String> {
    std::fs::read_to_string(fixtures().join("node_modules/axe-core/axe.min.js")).ok()
}

/// Where pictures and what is installed for the suite are.
pub(crate) fn fixtures() -> PathBuf {
    target().join("fixtures/browser")
}

/// The directory of what is built.
pub(crate) fn target() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    // target/debug/deps/NAME
    program.ancestors().nth(3).unwrap().to_owned()
}
