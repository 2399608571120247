//! `--prometheus` against a real Prometheus that holds what cAdvisor measured. Suite `engines`: needs Debian's `prometheus`.
#![allow(missing_docs, unreachable_pub, dead_code, clippy::unwrap_used, clippy::panic)]

mod common;

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use common::run;
use evenkeel_tests::daemon::free_port;

const DAY: u64 = 86_400;
/// Days of history, a scrape every two minutes.
const DAYS: u64 = 12;
const SCRAPE: u64 = 120;

/// Ended when it goes out of sight.
struct Prometheus {
    child: Child,
    url: String,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // Errors mean that it has ended already.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// `web` uses a core by day and a quarter at night, restarts once, and was not scraped for a day; `db` is constant; pause
/// containers are beside both.
fn scraped(now: u64) -> String {
    let (mut web, mut db) = (0.0, 0.0);
    let (mut cpu, mut memory) = (String::new(), String::new());
    let labels = |pod: &str, container: &str| {
        format!("{{namespace=\"shop\",pod=\"{pod}\",container=\"{container}\",image=\"i\"}}")
    };
    let first = now / SCRAPE * SCRAPE - DAYS * DAY;
    for t in (first..now).step_by(SCRAPE as usize) {
        let age = t - first;
        web += SCRAPE as f64 * if (8..20).contains(&(t / 3_600 % 24)) { 1.0 } else { 0.25 };
        db += SCRAPE as f64 * 0.5;
        if age == 6 * DAY {
            web = 0.0;
        }
        if (8 * DAY..9 * DAY).contains(&age) {
            continue;
        }
        for (pod, container, used, bytes) in
            [("web-1", "main", web, 300 << 20), ("db-0", "main", db, 2_048u64 << 20), ("db-0", "POD", 0.0, 1)]
        {
            let labels = labels(pod, container);
            writeln!(cpu, "container_cpu_usage_seconds_total{labels} {used} {t}").unwrap();
            writeln!(memory, "container_memory_working_set_bytes{labels} {bytes} {t}").unwrap();
        }
    }
    format!(
        "# TYPE container_cpu_usage_seconds counter\n{cpu}# TYPE container_memory_working_set_bytes gauge\n{memory}# EOF\n"
    )
}

fn start(dir: &Path, text: &str) -> Prometheus {
    let (history, data) = (dir.join("history.txt"), dir.join("data"));
    std::fs::write(&history, text).unwrap();
    let blocks = ["tsdb", "create-blocks-from", "openmetrics"];
    let made = Command::new("promtool").args(blocks).arg(&history).arg(&data).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    std::fs::write(dir.join("p.yml"), "global: {}\n").unwrap();
    let at = SocketAddr::from(([127, 0, 0, 1], free_port().unwrap()));
    let mut command = Command::new("prometheus");
    command.arg(format!("--config.file={}", dir.join("p.yml").display()));
    command.arg(format!("--storage.tsdb.path={}", data.display()));
    command.arg("--storage.tsdb.retention.time=90d").arg(format!("--web.listen-address={at}"));
    let log = std::fs::File::create(dir.join("log.txt")).unwrap();
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
    let prometheus = Prometheus { child, url: format!("http://{at}") };
    let deadline = Instant::now() + Duration::from_secs(90);
    while !is_ready(at) {
        let log = std::fs::read_to_string(dir.join("log.txt")).unwrap();
        assert!(Instant::now() < deadline, "{log}");
        std::thread::sleep(Duration::from_millis(100));
    }
    prometheus
}

fn is_ready(at: SocketAddr) -> bool {
    use std::io::{Read as _, Write as _};
    let mut text = String::new();
    let asked = TcpStream::connect(at).and_then(|mut stream| {
        write!(stream, "GET /-/ready HTTP/1.0\r\n\r\n")?;
        stream.read_to_string(&mut text)
    });
    asked.is_ok() && text.split(' ').nth(1) == Some("200")
}

#[test]
fn a_cluster_is_replayed_and_answered_from_prometheus_alone() {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let dir = tempfile::tempdir().unwrap();
    let prometheus = start(dir.path(), &scraped(now));
    let url = prometheus.url.as_str();
    let report = dir.path().join("report.html");
    let args = ["backtest", "--prometheus", url, "--since", "12d", "--resource", "cpu", "-o", "json"];
    let rules = ["--rule", "goal", "--rule", "krr", "--rule", "vpa", "--html", report.to_str().unwrap()];
    let done = run(&[&args[..], &rules[..]].concat());
    assert_eq!(done.status, 0, "{done:?}");
    let answer = done.json();
    let names: Vec<&str> =
        answer[0]["series"].as_array().unwrap().iter().map(|one| one["series"].as_str().unwrap()).collect();
    assert_eq!(names, ["shop/db-0/main", "shop/web-1/main"], "no pause container");
    let of = |rule: usize, series: usize, key: &str| answer[rule]["series"][series][key].as_f64().unwrap();
    assert!(of(0, 0, "over") == 0.0 && (0.05..0.25).contains(&of(0, 0, "slack")), "{answer}");
    // Five eighths of a core on average; a restart is no use of thousands of cores, and a day of nothing no use of none.
    assert!(of(0, 1, "over") < 0.02 && (0.4..0.55).contains(&of(0, 1, "slack")), "{answer}");
    assert!(std::fs::read_to_string(report).unwrap().contains("</html>"));

    let said = run(&["recommend", "--prometheus", url, "-o", "json"]).json();
    let request = |series: &str, resource: &str| {
        let all = said.as_array().unwrap();
        let one = all.iter().find(|one| one["series"] == series && one["resource"] == resource).unwrap();
        one["request"].as_f64().unwrap()
    };
    assert!((1.0..1.3).contains(&request("shop/web-1/main", "cpu")), "{said}");
    assert!((0.5..0.65).contains(&request("shop/db-0/main", "cpu")), "{said}");
    let gib = request("shop/db-0/main", "memory") / f64::from(1 << 30);
    assert!((2.0..2.8).contains(&gib), "{said}");

    let wrong = run(&["backtest", "--prometheus", url, "--resource", "cpu", "--query", "rate("]);
    assert!(
        wrong.status == 1 && wrong.err.contains("it refuses: ") && wrong.err.contains("parse"),
        "{wrong:?}"
    );
    let nothing = run(&["backtest", "--prometheus", url, "--resource", "cpu", "--query", "absent_metric"]);
    assert!(nothing.status == 1 && nothing.err.contains("no sample for the query"), "{nothing:?}");
}
