//! Owns the sections `[[history.engines]]`: engines outside that keep the history too.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Size, Span};

/// One engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EngineSection {
    /// What it understands.
    pub kind: EngineKind,
    /// Where it is: `http://` or `https://`, host, port and the base path before `/api/v1/query`, `/query` and `/write`.
    pub url: String,
    /// Prometheus-compatible ones: the whole address of remote write, where it is not `<url>/api/v1/write`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_url: Option<String>,
    /// Whether it is written to.
    #[serde(default = "yes")]
    pub write: bool,
    /// Whether what is missing here is read back from it at start.
    #[serde(default = "yes")]
    pub read: bool,
    /// Of what is older than this only days are read back: nothing else of that age is kept.
    #[serde(default = "recent")]
    pub recent: Span,
    /// Headers sent with every request: a text, or where a secret one is found.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, HeaderValue>,
    /// Bearer token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<SecretFrom>,
    /// User of basic authentication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Password of basic authentication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<SecretFrom>,
    /// Certificate authorities (PEM) to trust in place of the built-in ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// Longest time of one request with its answer.
    #[serde(default = "timeout")]
    pub timeout: Span,
    /// Longest answer. What is longer is asked for in smaller parts.
    #[serde(default = "max_answer")]
    pub max_answer: Size,
    /// Values that wait while the engine takes none, about 500 bytes each; the oldest are dropped beyond it, and counted.
    /// Minutes come an hour at a time, so it should hold at least 60 for each container.
    #[serde(default = "queue")]
    pub queue: usize,
    /// InfluxDB: the database, made when it is missing.
    #[serde(default = "database")]
    pub database: String,
    /// InfluxDB: the retention policy; the database's default without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_policy: Option<String>,
}

/// What an engine understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EngineKind {
    /// Remote write and the query API: Prometheus, VictoriaMetrics, Mimir, Thanos.
    Prometheus,
    /// Line protocol and InfluxQL: InfluxDB 1.x.
    Influxdb,
}

/// Where a secret is found. It is never written into the configuration itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SecretFrom {
    /// In a file; blanks and line ends around it do not belong to it.
    File(PathBuf),
    /// In a variable of the environment.
    Env(String),
}

/// Value of a header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum HeaderValue {
    /// Nothing secret.
    Text(String),
    /// A secret.
    Secret(SecretFrom),
}

const fn yes() -> bool {
    true
}

/// A day more than `retention.hours`.
const fn recent() -> Span {
    Span::from_days(9)
}

/// Half of what Prometheus gives a query (`--query.timeout`, 2m), so that it is cut into smaller ones before.
const fn timeout() -> Span {
    Span::from_secs(60)
}

/// Some ten thousand container-minutes, or a tenth of that in histograms.
const fn max_answer() -> Size {
    Size::from_mib(64)
}

/// An hour of eight thousand containers, or eight of a thousand; about 240 MiB once it is full.
const fn queue() -> usize {
    500_000
}

fn database() -> String {
    "evenkeel".into()
}

impl EngineSection {
    /// An engine of a kind at an address, everything else by default.
    pub fn new(kind: EngineKind, url: impl Into<String>) -> Self {
        Self {
            kind,
            url: url.into(),
            write_url: None,
            write: true,
            read: true,
            recent: recent(),
            headers: BTreeMap::new(),
            token: None,
            user: None,
            password: None,
            ca_file: None,
            timeout: timeout(),
            max_answer: max_answer(),
            queue: queue(),
            database: database(),
            retention_policy: None,
        }
    }

    /// What contradicts itself: key and what is wrong with it.
    pub(super) fn problems(&self) -> Vec<(&'static str, String)> {
        let influx = self.kind == EngineKind::Influxdb;
        let checks = [
            (self.token.is_none() || self.user.is_none(), "token", "and user exclude each other"),
            (self.user.is_some() == self.password.is_some(), "user", "and password go together"),
            (self.queue > 0, "queue", "must not be 0"),
            (self.max_answer.get() >= 64 << 10, "max_answer", "must be at least 64Ki"),
            (self.timeout >= Span::from_millis(100), "timeout", "must be at least 100ms"),
            (!influx || self.write_url.is_none(), "write_url", "is for kind prometheus"),
            (influx || self.retention_policy.is_none(), "retention_policy", "is for kind influxdb"),
            (!self.database.is_empty(), "database", "must not be empty"),
        ];
        let wrong = checks.into_iter().filter(|(ok, ..)| !ok);
        wrong.map(|(_, key, what)| ("history.engines", format!("of {}: {key} {what}", self.url))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contradictions_are_named() {
        let engine = EngineSection::new(EngineKind::Prometheus, "http://h");
        assert_eq!(engine.problems(), []);
        let wrong = EngineSection {
            user: Some("u".into()),
            token: Some(SecretFrom::Env("T".into())),
            retention_policy: Some("r".into()),
            queue: 0,
            ..engine
        };
        let found: Vec<String> = wrong.problems().into_iter().map(|(_, what)| what).collect();
        for (what, key) in found.iter().zip(["token", "user", "queue", "retention_policy"]) {
            assert!(what.contains(key), "{found:?}");
        }
        assert_eq!(found.len(), 4);
    }
}
