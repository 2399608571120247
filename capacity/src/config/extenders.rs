//! The extenders of a configuration.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::{ConfigError, MOST_WEIGHT, error, list};
use crate::extender::{Extender, Pem, Server, Settings, Tls};
use crate::plugin::Registry;

/// Most extenders of one scheduler.
const MOST: usize = 16;
/// How long an answer may take where nothing is said (`DefaultExtenderTimeout`), and at most.
const TIMEOUT: Duration = Duration::from_secs(5);
const LONGEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Extenders, and the resources nodes need not have because of them.
pub(super) struct Extenders {
    pub(super) extenders: Vec<Arc<Extender>>,
    pub(super) ignored: Vec<String>,
}

/// Reads `extenders`.
///
/// # Errors
/// With the field; and where there are some and nothing reaches them.
pub(super) fn extenders(registry: &Registry, written: &Value) -> Result<Extenders, ConfigError> {
    let mut all = Extenders { extenders: Vec::new(), ignored: Vec::new() };
    let written = list(written);
    let Some(transport) = &registry.transport else {
        if written.is_empty() {
            return Ok(all);
        }
        return error(
            "extenders",
            "other programs are not asked here, so the answer would not be this scheduler's; leave them out to count \
             without them",
        );
    };
    if written.len() > MOST {
        return error("extenders", format!("{} are more than the {MOST} that are asked", written.len()));
    }
    for (index, written) in written.iter().enumerate() {
        let settings = settings(&format!("extenders[{index}]"), written)?;
        transport
            .prepare(&settings.server)
            .or_else(|why| error(format!("extenders[{index}].tlsConfig"), why))?;
        let managed = list(&written["managedResources"]).iter();
        let ignored = managed.filter(|resource| resource["ignoredByScheduler"] == true);
        all.ignored.extend(ignored.filter_map(|resource| resource["name"].as_str()).map(str::to_owned));
        all.extenders.push(Arc::new(Extender::new(settings, Arc::clone(transport))));
    }
    Ok(all)
}

fn settings(field: &str, written: &Value) -> Result<Settings, ConfigError> {
    let text = |key: &str| written[key].as_str().unwrap_or("").to_owned();
    let at = |key: &str| format!("{field}.{key}");
    let mut url = text("urlPrefix");
    if written["enableHTTPS"] == true && !url.contains("://") {
        url.insert_str(0, "https://");
    }
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return error(at("urlPrefix"), format!("{url:?} is no http:// or https:// URL"));
    }
    let weight = written["weight"].as_i64().unwrap_or(0);
    let prioritize_verb = text("prioritizeVerb");
    if !prioritize_verb.is_empty() && !(1..=MOST_WEIGHT).contains(&weight) {
        return error(
            at("weight"),
            format!("{weight} is not between 1 and {MOST_WEIGHT}, which prioritizeVerb needs"),
        );
    }
    let timeout = match &written["httpTimeout"] {
        Value::Null => TIMEOUT,
        value => value
            .as_str()
            .and_then(duration)
            .filter(|timeout| !timeout.is_zero() && *timeout <= LONGEST_TIMEOUT)
            .map_or_else(
                || error(at("httpTimeout"), format!("{value} is not between 1ms and 30s, such as 5s")),
                Ok,
            )?,
    };
    let managed = list(&written["managedResources"]).iter().filter_map(|resource| resource["name"].as_str());
    Ok(Settings {
        server: Server { url, tls: tls(written) },
        preempt_verb: text("preemptVerb"),
        filter_verb: text("filterVerb"),
        prioritize_verb,
        weight,
        timeout,
        names_only: written["nodeCacheCapable"] == true,
        managed: managed.map(str::to_owned).collect(),
        ignorable: written["ignorable"] == true,
    })
}

/// `tlsConfig`. With `enableHTTPS` and no authority the scheduler checks no certificate (`makeTransport`).
fn tls(written: &Value) -> Tls {
    let config = &written["tlsConfig"];
    let text = |key: &str| config[key].as_str().unwrap_or("").to_owned();
    let pem = |of: &str| Pem { file: text(&format!("{of}File")), data: text(&format!("{of}Data")) };
    let ca = pem("ca");
    Tls {
        insecure: config["insecure"] == true || written["enableHTTPS"] == true && ca.is_empty(),
        server_name: text("serverName"),
        cert: pem("cert"),
        key: pem("key"),
        ca,
    }
}

/// A duration as Go writes it: `1m30s`, `500ms`, `1.5s`.
fn duration(text: &str) -> Option<Duration> {
    let (mut rest, mut sum) = (text, 0.0);
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        let unit = rest[end..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |at| end + at);
        sum += number
            * match &rest[end..unit] {
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 1e-3,
                _ => return None,
            };
        rest = &rest[unit..];
    }
    Duration::try_from_secs_f64(sum).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        for (text, millis) in [("5s", 5000), ("1m30s", 90_000), ("250ms", 250), ("1.5s", 1500), ("0s", 0)] {
            assert_eq!(duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["5", "s", "5x", "-1s", "1.2.3s", "5 s"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }
}
