//! What people see while it runs.

use std::io::IsTerminal;

use evenkeel_proto::v1::{ContainerUsage, Decision};
use serde_json::Value;

use crate::house::House;

/// Where to and how to write for people.
pub(crate) struct Show {
    to_stderr: bool,
    colour: bool,
}

impl Show {
    /// Standard output, or standard error where the output is for a program. Colour on terminals only.
    pub(crate) fn new(to_stderr: bool) -> Show {
        let terminal =
            if to_stderr { std::io::stderr().is_terminal() } else { std::io::stdout().is_terminal() };
        Show { to_stderr, colour: terminal && std::env::var_os("NO_COLOR").is_none() }
    }

    /// One line.
    pub(crate) fn line(&self, text: &str) {
        if self.to_stderr {
            eprintln!("{text}");
        } else {
            println!("{text}");
        }
    }

    /// A line that begins a part.
    pub(crate) fn heading(&self, text: &str) {
        let (bold, plain) = if self.colour { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
        self.line(&format!("{bold}==> {text}{plain}"));
    }

    /// Decisions as they come.
    pub(crate) fn decisions(&self, decisions: &[Decision]) {
        for d in decisions {
            let who = d.pod.as_deref().unwrap_or("node");
            let container = d.container.as_deref().map(|c| format!("/{c}")).unwrap_or_default();
            let change = match (&d.knob, &d.old, &d.new) {
                (Some(knob), Some(old), Some(new)) => format!(" {knob} {old} -> {new}"),
                (Some(knob), None, Some(new)) => format!(" {knob} -> {new}"),
                (Some(knob), _, None) => format!(" {knob}"),
                _ => String::new(),
            };
            self.line(&format!("  {:<10} {who}{container}{change} [{}] {}", d.kind, d.result, d.reason));
        }
    }

    /// One second's use.
    pub(crate) fn usage(&self, usage: &[ContainerUsage]) {
        self.line(&format!("  {:<28} {:>8} {:>12} {:>12}", "CONTAINER", "CPU", "MEMORY", "WORKING SET"));
        for u in usage {
            let (Some(identity), Some(sample)) = (&u.identity, &u.sample) else { continue };
            let name = format!("{}/{}/{}", identity.namespace, identity.pod, identity.container);
            let cpu = u.cpu_milli.map_or_else(|| "-".to_string(), |m| format!("{m}m"));
            let memory = mebibytes(sample.memory_current_bytes);
            let working = mebibytes(sample.memory_working_set_bytes);
            self.line(&format!("  {name:<28} {cpu:>8} {memory:>12} {working:>12}"));
        }
    }

    /// The end: what was wished, what is, what is recommended, and what this machine did not allow.
    pub(crate) fn summary(&self, report: &Value) {
        self.heading("what came of it");
        self.line(&format!(
            "  {:<10} {:<11} {:>22} {:>20} {:>9} {:>24}",
            "POD", "CLASS", "SCORE wanted/actual", "CPU wanted/actual", "SAMPLES", "RECOMMENDED cpu/memory"
        ));
        for c in list(report, "containers") {
            let cpu = if c["cpuShares"].is_object() { &c["cpuShares"] } else { &c["cpuWeight"] };
            let pair = |v: &Value| format!("{}/{}", plain(&v["wanted"]), plain(&v["actual"]));
            let milli =
                c["recommendation"]["cpu"].as_u64().map_or_else(|| "-".to_string(), |m| format!("{m}m"));
            let recommended = format!("{milli}/{}", mebibytes(c["recommendation"]["memory"].as_u64()));
            self.line(&format!(
                "  {:<10} {:<11} {:>22} {:>20} {:>9} {recommended:>24}",
                plain(&c["pod"]),
                plain(&c["qosClass"]),
                pair(&c["oomScoreAdj"]),
                pair(cpu),
                plain(&c["samples"]),
            ));
        }
        let frames = &report["frames"];
        self.line(&format!(
            "  frames sent {}, acknowledged as durable {}",
            plain(&frames["sent"]),
            plain(&frames["acknowledged"])
        ));
        let capacity = &report["capacity"];
        self.line(&format!(
            "  {} more pods like {} fit on this node: {}",
            plain(&capacity["count"]),
            plain(&capacity["pod"]),
            plain(&capacity["message"])
        ));
        for denied in list(report, "denied") {
            self.line(&format!(
                "  this machine did not allow {}: {}",
                plain(&denied["knob"]),
                plain(&denied["why"])
            ));
            self.line(&format!("    remedy: {}", plain(&denied["remedy"])));
        }
    }

    /// How to look further.
    pub(crate) fn addresses(&self, house: &House) {
        self.heading("still running; Ctrl-C ends it and cleans up");
        self.line(&format!("  export EVENKEEL_AGENT=unix://{}", house.agent_socket().display()));
        self.line(&format!("  export EVENKEEL_RECOMMENDER={}", house.recommender_address()));
        self.line(&format!("  curl {}", house.metrics_address()));
        self.line(&format!(
            "  curl --unix-socket {} http://localhost/api/v1/recommendations",
            house.recommender_socket().display()
        ));
        self.line(&format!("  files: {}", house.directory().display()));
    }
}

fn list<'a>(report: &'a Value, key: &str) -> &'a [Value] {
    report[key].as_array().map_or(&[], Vec::as_slice)
}

/// A JSON value as people write it.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_string(),
        other => other.to_string(),
    }
}

fn mebibytes(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "-".to_string(), |b| format!("{:.1} MiB", b as f64 / 1_048_576.0))
}
