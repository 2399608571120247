//! Suite `engines`: alerts and the Grafana dashboard, by Debian's Prometheus over what our programs serve.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use evenkeel_model::yaml::{self, YamlBounds};
use evenkeel_tests::daemon::{free_port, http_get};
use evenkeel_tests::product::{Manifest, Pair, await_acknowledged, directory};
use evenkeel_tests::{machine, require, wait};
use serde_json::Value;

/// Remedy for a machine without it.
const MISSING: &str = "no prometheus and promtool: apt-get install prometheus";

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn text(path: &str) -> Result<String> {
    std::fs::read_to_string(root().join(path)).with_context(|| format!("no {path}"))
}

fn has_prometheus() -> bool {
    ["prometheus", "promtool"].iter().all(|program| {
        Command::new(program)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|s| s.success())
    })
}

/// Alerts of the rule file: name and expression.
fn alerts() -> Result<Vec<(String, String)>> {
    let bounds = YamlBounds { documents: 1, nodes: 10_000 };
    let file: Vec<Value> = yaml::documents(&text("packaging/prometheus/alerts.yaml")?, bounds)?;
    let file = file.into_iter().next().context("an empty file")?;
    let mut all = Vec::new();
    for group in file["groups"].as_array().context("no groups")? {
        for rule in group["rules"].as_array().context("no rules")? {
            let word = |value: &Value| value.as_str().map(str::to_owned).context("no text");
            all.push((word(&rule["alert"])?, word(&rule["expr"])?));
        }
    }
    Ok(all)
}

/// Series and their values, one a minute.
type Input = &'static [(&'static str, &'static str)];

/// For each alert: series that make it fire within two hours, and the same on a good day. `_` at their beginning stands for
/// `evenkeel_agent_`, `-` for `evenkeel_recommender_`. Values are in promtool's form, one a minute.
const CASES: [(&str, Input, Input); 33] = [
    (
        "EvenkeelAgentDown",
        &[("up{job=\"evenkeel-agent\"}", "0x120")],
        &[("up{job=\"evenkeel-agent\"}", "1x120")],
    ),
    (
        "EvenkeelAgentNotStreaming",
        &[("_stream_connected", "0x120"), ("_frames_written_total", "0+60x120")],
        // One that has no recommender.
        &[("_stream_connected", "0x120"), ("_frames_written_total", "0x120")],
    ),
    (
        "EvenkeelAgentFramesDropped",
        &[("_frames_dropped_total", "0+1x120")],
        &[("_frames_dropped_total", "5x120")],
    ),
    (
        "EvenkeelAgentWritesDenied",
        &[("_writes_total{knob=\"cpu.weight\",result=\"denied\"}", "0+1x120")],
        &[
            ("_writes_total{knob=\"cpu.weight\",result=\"denied\"}", "3x120"),
            ("_writes_total{knob=\"cpu.weight\",result=\"done\"}", "0+9x120"),
        ],
    ),
    ("EvenkeelAgentContended", &[("_containers_contended", "2x120")], &[("_containers_contended", "0x120")]),
    (
        "EvenkeelAgentSourceUnhealthy",
        &[("_sources", "3x120"), ("_sources_healthy", "2x120")],
        &[("_sources", "3x120"), ("_sources_healthy", "3x120")],
    ),
    (
        "EvenkeelAgentTicksMissed",
        &[("_ticks_missed_total", "0+6x120")],
        &[("_ticks_missed_total", "0+1x120")],
    ),
    ("EvenkeelAgentDefect", &[("_panics_total", "0x60 1x60")], &[("_panics_total", "1x120")]),
    (
        "EvenkeelAgentStateDamaged",
        &[("_state_entries_damaged_total{file=\"journal\"}", "1x120")],
        &[("_state_entries_damaged_total{file=\"journal\"}", "0x120")],
    ),
    (
        "EvenkeelAgentCertificateFailing",
        &[("_certificate_failing{for=\"stream\"}", "1x120")],
        &[("_certificate_failing{for=\"stream\"}", "0x120")],
    ),
    (
        "EvenkeelGuaranteedOomKill",
        &[("_oom_kills_total{class=\"Guaranteed\"}", "0+1x120")],
        &[
            ("_oom_kills_total{class=\"Guaranteed\"}", "4x120"),
            ("_oom_kills_total{class=\"BestEffort\"}", "0+3x120"),
        ],
    ),
    (
        "EvenkeelAgentOverhead",
        &[("process_cpu_seconds_total{job=\"evenkeel-agent\"}", "0+12x120")],
        &[
            ("process_cpu_seconds_total{job=\"evenkeel-agent\"}", "0+1.5x120"),
            ("process_cpu_seconds_total{job=\"other\"}", "0+60x120"),
        ],
    ),
    (
        "EvenkeelRecommenderDown",
        &[("up{job=\"evenkeel-recommender\"}", "0x120")],
        &[("up{job=\"evenkeel-recommender\"}", "1x120")],
    ),
    ("EvenkeelRecommenderNotReady", &[("-ready", "0x120")], &[("-ready", "0x10 1x110")]),
    ("EvenkeelRecommenderLogFailing", &[("-log_failing", "1x120")], &[("-log_failing", "0x120")]),
    (
        "EvenkeelRecommenderCheckpointFailing",
        &[("-checkpoint_failing", "1x120")],
        &[("-checkpoint_failing", "0x120")],
    ),
    ("EvenkeelRecommenderClockDoubted", &[("-clock_doubted", "1x120")], &[("-clock_doubted", "0x120")]),
    ("EvenkeelRecommenderNodesGone", &[("-nodes_gone", "2x120")], &[("-nodes_gone", "0x120")]),
    ("EvenkeelRecommenderContestedNodes", &[("-contested_nodes", "1x120")], &[("-contested_nodes", "0x120")]),
    (
        "EvenkeelRecommenderLostFrames",
        &[("-lost_frames_total", "0+10x120")],
        &[("-lost_frames_total", "0+1x120")],
    ),
    (
        "EvenkeelRecommenderDisbelieves",
        &[("-dropped_total{reason=\"beyond-node\"}", "0+1x120")],
        &[("-dropped_total{reason=\"beyond-node\"}", "7x120")],
    ),
    (
        "EvenkeelRecommenderHistoryShort",
        &[("-history_crowded_files_total", "0x60 3x60"), ("-history_dropped_series_total", "0x120")],
        &[("-history_crowded_files_total", "3x120"), ("-history_dropped_series_total", "0x120")],
    ),
    (
        "EvenkeelRecommenderEngineBehind",
        &[("-engine_waiting_values", "200000x120"), ("-engine_dropped_values_total", "0x120")],
        &[("-engine_waiting_values", "10x120"), ("-engine_dropped_values_total", "9x120")],
    ),
    (
        // Time begins with 1970 in these tests.
        "EvenkeelRecommenderCertificateEnds",
        &[("-certificate_expires_seconds", "86400x120"), ("-certificate_failing", "0x120")],
        &[("-certificate_expires_seconds", "8640000x120"), ("-certificate_failing", "0x120")],
    ),
    ("EvenkeelRecommenderTokensFailing", &[("-tokens_failing", "1x120")], &[("-tokens_failing", "0x120")]),
    ("EvenkeelRecommenderAuditFailing", &[("-audit_failing", "1x120")], &[("-audit_failing", "0x120")]),
    (
        "EvenkeelPolicyTrouble",
        &[
            ("-policies_in_conflict", "0x120"),
            ("-policy_file_troubles", "1x120"),
            ("-object_file_troubles", "0x120"),
        ],
        &[
            ("-policies_in_conflict", "0x120"),
            ("-policy_file_troubles", "0x120"),
            ("-object_file_troubles", "0x120"),
        ],
    ),
    (
        "EvenkeelRecommenderStale",
        &[("-passes_total", "5x120"), ("-ready", "1x120")],
        &[("-passes_total", "0+1x120"), ("-ready", "1x120")],
    ),
    (
        "EvenkeelKubernetesBehind",
        &[("-kubernetes_watching{kind=\"Pod\"}", "0x120")],
        &[("-kubernetes_watching{kind=\"Pod\"}", "1x120")],
    ),
    ("EvenkeelPanicSwitchOn", &[("-panic", "1x120")], &[("-panic", "0x120")]),
    (
        "EvenkeelCapacityShort",
        &[("-capacity_days_until_none{question=\"web\"}", "3x120")],
        &[("-capacity_days_until_none{question=\"web\"}", "90x120")],
    ),
    (
        "EvenkeelRequestsExceeded",
        &[
            ("_recommended_seconds_total{policy=\"shop/p\"}", "0+60x120"),
            ("_recommended_memory_exceeded_seconds_total{policy=\"shop/p\"}", "0+6x120"),
            ("_recommended_cpu_exceeded_seconds_total{policy=\"shop/p\"}", "0x120"),
        ],
        &[
            ("_recommended_seconds_total{policy=\"shop/p\"}", "0+60x120"),
            ("_recommended_memory_exceeded_seconds_total{policy=\"shop/p\"}", "0+0.5x120"),
            ("_recommended_cpu_exceeded_seconds_total{policy=\"shop/p\"}", "0+0.5x120"),
        ],
    ),
    (
        "EvenkeelRequestsOomKilled",
        &[("_recommended_oom_kills_total{policy=\"shop/p\"}", "0+1x120")],
        &[("_recommended_oom_kills_total{policy=\"shop/p\"}", "2x120")],
    ),
];

/// The whole name of a series, in double quotes of YAML.
fn whole(series: &str) -> String {
    let name = match series.split_at(1) {
        ("_", rest) => format!("evenkeel_agent_{rest}"),
        ("-", rest) => format!("evenkeel_recommender_{rest}"),
        _ => series.to_owned(),
    };
    name.replace('"', "\\\"")
}

#[test]
fn every_alert_fires_and_is_silent_on_a_good_day() -> Result<()> {
    require!(has_prometheus(), MISSING);
    let own = directory()?;
    let rules = root().join("packaging/prometheus/alerts.yaml").canonicalize()?;
    let mut file = format!("rule_files: [{}]\nevaluation_interval: 1m\ntests:\n", rules.display());
    for (alert, bad, good) in CASES {
        for (series, count) in [(bad, 1), (good, 0)] {
            file.push_str("  - interval: 1m\n    input_series:\n");
            for (name, values) in series {
                let name = whole(name);
                file.push_str(&format!("      - {{ series: \"{name}\", values: '{values}' }}\n"));
            }
            let expr =
                format!("(count(ALERTS{{alertname='{alert}',alertstate='firing'}}) > bool 0) or vector(0)");
            file.push_str(&format!(
                "    promql_expr_test:\n      - {{ expr: \"max_over_time(({expr})[2h:1m])\", eval_time: 120m, exp_samples: [{{ labels: '{{}}', value: {count} }}] }}\n"
            ));
        }
    }
    let tests = own.path().join("alerts_test.yaml");
    std::fs::write(&tests, file)?;
    machine::run(Command::new("promtool").args(["test", "rules"]).arg(&tests))?;
    let tested: BTreeSet<&str> = CASES.iter().map(|(alert, ..)| *alert).collect();
    let there: Vec<(String, String)> = alerts()?;
    let there: BTreeSet<&str> = there.iter().map(|(alert, ..)| alert.as_str()).collect();
    ensure!(tested == there, "tested {tested:?}, there {there:?}");
    Ok(())
}

/// A Prometheus of its own, ended by its process id.
struct Prometheus {
    child: Child,
    port: u16,
}

impl Prometheus {
    fn start(dir: &Path, config: &str) -> Result<Self> {
        let port = free_port()?;
        std::fs::write(dir.join("p.yml"), config)?;
        let log = std::fs::File::create(dir.join("prometheus.log"))?;
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", dir.join("p.yml").display()))
            .arg(format!("--storage.tsdb.path={}", dir.join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        Ok(Self { child, port })
    }

    fn get(&self, path: &str) -> Result<Value> {
        let (status, body) = http_get(self.port, path)?;
        ensure!(status == 200, "{path}: {status} {body}");
        serde_json::from_str(&body).context("no JSON")
    }

    fn ask(&self, expr: &str) -> Result<Value> {
        let path: String = expr.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let answer = self.get(&format!("/api/v1/query?query={path}")).with_context(|| expr.to_owned())?;
        ensure!(answer["status"] == "success", "{expr}: {answer}");
        Ok(answer["data"]["result"].clone())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Names of metrics in an expression.
fn names(expr: &str) -> BTreeSet<String> {
    let words = expr.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let ours = ["evenkeel_", "container_", "process_"];
    words.filter(|word| ours.iter().any(|begin| word.starts_with(begin))).map(str::to_owned).collect()
}

/// Queries of the dashboard, by the title of their panel.
fn queries() -> Result<Vec<(String, String)>> {
    let dashboard: Value = serde_json::from_str(&text("packaging/grafana/evenkeel.json")?)?;
    let mut all = Vec::new();
    for panel in dashboard["panels"].as_array().context("no panels")? {
        let title = panel["title"].as_str().context("no title")?;
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expr = target["expr"].as_str().context("no query")?;
            all.push((title.to_owned(), expr.replace("$__rate_interval", "30s")));
        }
    }
    Ok(all)
}

/// Names that are there only under a configuration that the test does not have are written down in the sources of the pages.
fn is_in_sources(name: &str) -> Result<bool> {
    let pages = [
        "recommender/src/api/metrics.rs",
        "agent/src/serve/metrics/mod.rs",
        "agent/src/serve/metrics/quality.rs",
    ];
    let short = ["evenkeel_recommender_", "evenkeel_agent_recommended_", "evenkeel_agent_"];
    let short = short.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
    let wanted = [short.to_owned(), short.trim_end_matches("_total").to_owned(), name.to_owned()];
    for page in pages {
        let text = text(page)?;
        if wanted.iter().any(|wanted| text.contains(&format!("\"{wanted}\""))) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[test]
fn every_query_of_the_dashboard_is_answered_from_what_our_programs_serve() -> Result<()> {
    require!(machine::is_root(), "an agent needs root");
    require!(has_prometheus(), MISSING);
    let own = directory()?;
    let http = free_port()?;
    let tokens = own.path().join("tokens.toml");
    let mut pair = Pair::new()?;
    pair.recommender = pair
        .recommender
        .set("serve.http", &format!("\"127.0.0.1:{http}\""))
        .set("access.tokens", &format!("\"{}\"", tokens.display()))
        .set("recommend.watch_interval", "\"1s\"");
    let mut add = evenkeel_tests::places::command("evenkeel-recommender")?;
    add.args(["token", "add", "prometheus", "--role", "view", "--file"]).arg(&tokens);
    let token = machine::run(add.args(["--config"]).arg(pair.recommender.config()?))?;
    std::fs::write(own.path().join("token"), token.trim())?;
    let (cgroup, _) = pair.site.sleeper("told")?;
    pair.site.bind(&Manifest::burstable("told", &cgroup.path(), "100m", "64Mi"))?;
    let _recommender = pair.recommender.start()?;
    let agent = pair.site.start()?;
    await_acknowledged(&agent, 5)?;
    let at = pair.site.agent.metrics_url();
    let at = at.trim_start_matches("http://").trim_end_matches("/metrics").to_owned();
    let config = format!(
        "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\n\
         rule_files: [{}]\n\
         scrape_configs:\n\
         \x20 - {{ job_name: evenkeel-agent, static_configs: [{{ targets: [\"{at}\"] }}] }}\n\
         \x20 - job_name: evenkeel-recommender\n\
         \x20   authorization: {{ credentials_file: {} }}\n\
         \x20   static_configs: [{{ targets: [\"127.0.0.1:{http}\"] }}]\n",
        root().join("packaging/prometheus/alerts.yaml").canonicalize()?.display(),
        own.path().join("token").display(),
    );
    let prometheus = Prometheus::start(own.path(), &config)?;
    let is_scraped = || -> Result<Option<()>> {
        let Ok(up) = prometheus.ask("min(up) * count(up)") else { return Ok(None) };
        let seconds = prometheus.ask("min(count_over_time(up[1m]))")?;
        Ok((up[0]["value"][1] == "2" && seconds[0]["value"][1].as_str().is_some_and(|s| s.len() > 1))
            .then_some(()))
    };
    wait::until("ten scrapes of both", wait::PATIENCE, is_scraped)
        .with_context(|| std::fs::read_to_string(own.path().join("prometheus.log")).unwrap_or_default())?;
    let known = prometheus.get("/api/v1/label/__name__/values")?;
    let known: BTreeSet<&str> =
        known["data"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut answered = 0;
    for (title, expr) in queries()? {
        let result = prometheus.ask(&expr)?;
        answered += usize::from(result.as_array().is_some_and(|rows| !rows.is_empty()));
        for name in names(&expr) {
            ensure!(known.contains(name.as_str()) || is_in_sources(&name)?, "{title}: nobody serves {name}");
        }
    }
    ensure!(answered >= 30, "only {answered} queries have an answer");
    for (alert, expr) in alerts()? {
        prometheus.ask(&expr)?;
        for name in names(&expr) {
            ensure!(known.contains(name.as_str()) || is_in_sources(&name)?, "{alert}: nobody serves {name}");
        }
    }
    // Two programs that have just begun are fine.
    let firing = prometheus.ask("ALERTS{alertstate=\"firing\"}")?;
    ensure!(firing.as_array().is_some_and(Vec::is_empty), "{firing}");
    agent.stop()
}
