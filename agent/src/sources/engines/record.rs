//! What an engine says of one container, and as a workload.
//!
//! Owned here: reading the answer, checking it, and what follows from it. An engine's word is taken for a container that
//! the kernel shows under its whole id alone; labels are words of whoever made the image or the container and give no
//! rights, as annotations do not.

use std::collections::{BTreeMap, HashMap};

use evenkeel_enforce::shared::SourceProblem;
use evenkeel_model::units::{Bytes, CpuShares, MilliCpu};
use evenkeel_model::workload::{
    CgroupBinding, ContainerKind, Managed, PodFacts, PodRef, Requested, ScorePolicy, SourceKind, Workload,
};
use evenkeel_qos::estimate::{EngineRecord, of_engine};
use serde::Deserialize;

use super::super::{Terms, annotations, command_hash};
use super::tree::{Named, is_name};

/// Labels in all, and their bytes: more are left out, as the recommender would.
const LABELS: (usize, usize) = (256, 16 << 10);
/// Longest name of an image.
pub(crate) const MAX_IMAGE: usize = 1024;
/// Period of a CPU quota where none is given (sched-bwc.rst).
const PERIOD_USEC: i64 = 100_000;
/// Labels that Docker's and Podman's composers put on containers.
const COMPOSE: [&str; 2] = ["com.docker.compose.project", "com.docker.compose.service"];

/// What is taken from an engine's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ContainerInspect {
    name: String,
    image: Option<String>,
    labels: BTreeMap<String, String>,
    command_hash: Option<u64>,
    told: EngineRecord,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct InspectAnswer {
    id: String,
    name: String,
    path: Option<String>,
    args: Option<Vec<String>>,
    config: Option<ConfigPart>,
    host_config: Option<HostPart>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase")]
struct ConfigPart {
    image: Option<String>,
    labels: Option<HashMap<String, String>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase")]
struct HostPart {
    memory: Option<i64>,
    memory_reservation: Option<i64>,
    nano_cpus: Option<i64>,
    cpu_quota: Option<i64>,
    cpu_period: Option<i64>,
    cpu_shares: Option<i64>,
}

impl ContainerInspect {
    /// Reads the answer about a container.
    pub(super) fn read(named: &Named, answer: &[u8]) -> Result<Self, SourceProblem> {
        let problem = |why: String| SourceProblem {
            what: format!("read what {} says", named.engine),
            where_: format!("container {}", named.short()),
            why,
            remedy: "the container is left alone; bind it by a manifest if it should be managed".into(),
        };
        let answer: InspectAnswer = serde_json::from_slice(answer)
            .map_err(|error| problem(format!("it is not understood: {error}")))?;
        if answer.id != named.id {
            return Err(problem("it is about another container".into()));
        }
        let name = answer.name.trim_start_matches('/');
        if !is_name(name) {
            return Err(problem("the name it gives is not one of a container".into()));
        }
        let config = answer.config.unwrap_or_default();
        let is_image =
            |image: &String| !image.is_empty() && image.len() <= MAX_IMAGE && !image.starts_with("sha256:");
        let command: Vec<String> = answer.path.into_iter().collect();
        Ok(Self {
            name: name.to_owned(),
            image: config.image.filter(is_image),
            labels: bounded(config.labels.unwrap_or_default()),
            command_hash: command_hash(&command, &answer.args.unwrap_or_default()),
            told: answer.host_config.unwrap_or_default().told(),
        })
    }

    /// The controller's name: what a composer calls the service, of which there may be several containers.
    fn workload(&self) -> String {
        match COMPOSE.map(|label| self.labels.get(label)) {
            [Some(project), Some(service)] => format!("compose/{project}-{service}"),
            _ => self.name.clone(),
        }
    }
}

/// Labels, or none where there are too many.
pub(crate) fn bounded(labels: HashMap<String, String>) -> BTreeMap<String, String> {
    let bytes: usize = labels.iter().map(|(key, value)| key.len() + value.len()).sum();
    if labels.len() > LABELS.0 || bytes > LABELS.1 { BTreeMap::new() } else { labels.into_iter().collect() }
}

impl HostPart {
    fn told(&self) -> EngineRecord {
        let positive = |value: Option<i64>| value.filter(|value| *value > 0);
        let bytes = |value: Option<i64>| positive(value).and_then(|b| u64::try_from(b).ok()).map(Bytes::new);
        let period = positive(self.cpu_period).unwrap_or(PERIOD_USEC);
        let of_quota = positive(self.cpu_quota).map(|quota| i128::from(quota) * 1000 / i128::from(period));
        let milli = positive(self.nano_cpus).map(|nano| i128::from(nano) / 1_000_000).or(of_quota);
        EngineRecord {
            cpu_limit: milli.and_then(|milli| u64::try_from(milli.max(1)).ok()).map(MilliCpu::new),
            cpu_shares: positive(self.cpu_shares).map(CpuShares::clamped),
            memory_limit: bytes(self.memory),
            memory_reservation: bytes(self.memory_reservation),
        }
    }
}

/// A container of an engine: a pod of one container in the namespace of the engine's name. Without a record nothing is
/// known of it but where it is.
pub(super) fn workload(
    named: &Named,
    record: Option<&ContainerInspect>,
    terms: &Terms,
    problems: &mut Vec<SourceProblem>,
) -> Workload {
    let name = record.map_or_else(|| named.short(), |record| record.name.clone());
    let mut workload = Workload {
        id: named.id.clone(),
        source: SourceKind::Names,
        pod: PodRef { namespace: named.engine.to_owned(), name: name.clone(), uid: None },
        workload: record.map_or_else(|| name.clone(), ContainerInspect::workload),
        container: name,
        kind: ContainerKind::Regular,
        image: None,
        command_hash: None,
        cgroup: CgroupBinding::Path(named.path.clone()),
        pid: None,
        requested: Requested::Unknown,
        pod_facts: PodFacts::default(),
        managed: Managed::Yes,
        score_policy: ScorePolicy::default(),
        oom_kill: None,
    };
    let Some(record) = record else { return workload };
    let place = format!("container {}/{}", named.engine, record.name);
    let is_trusted = terms.trusts(&workload.pod);
    let (switches, bad) = annotations::switches_told(&record.labels, &place, is_trusted);
    problems.extend(bad);
    let stated = annotations::resources(&record.labels, &place).unwrap_or_else(|problem| {
        problems.push(problem);
        None
    });
    // By its name, or the only one there is: who composes does not know the name.
    let states = stated.and_then(|mut all| {
        all.remove(&record.name)
            .or_else(|| if all.len() == 1 { all.pop_first().map(|(_, only)| only) } else { None })
    });
    let told = of_engine(&record.told, terms.capacity);
    let (requested, more) = annotations::requested(told, states.map(annotations::plain), &place, is_trusted);
    problems.extend(more);
    workload.requested = requested;
    workload.image.clone_from(&record.image);
    workload.command_hash = record.command_hash;
    workload.pod_facts.labels.clone_from(&record.labels);
    workload.managed = switches.managed;
    workload.score_policy = switches.score_policy;
    workload.oom_kill = switches.oom_kill;
    workload
}

#[cfg(test)]
mod tests {
    use super::super::tree::DOCKER;
    use super::*;
    use serde_json::{Value, json};

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn named() -> Named {
        Named { engine: DOCKER, id: ID.into(), path: format!("/docker/{ID}") }
    }

    /// As Docker 20.10 and Podman 4.3 answer, with what matters.
    fn answer(labels: Value, host: Value) -> Value {
        json!({
            "Id": ID, "Name": "/shop-web-1", "Path": "/bin/web", "Args": ["-v"], "State": {"Pid": 7, "Running": true},
            "Config": {"Image": "shop/web:1", "Labels": labels, "Cmd": null}, "HostConfig": host, "Mounts": [],
        })
    }

    fn read(answer: &Value) -> Result<ContainerInspect, SourceProblem> {
        ContainerInspect::read(&named(), answer.to_string().as_bytes())
    }

    fn made(answer: &Value, trusted: &[&str]) -> (Workload, Vec<SourceProblem>) {
        let trusted = trusted.iter().map(|n| (*n).to_owned()).collect();
        let terms = Terms { capacity: Bytes::new(1 << 30), trusted };
        let mut problems = Vec::new();
        let record = read(answer).unwrap();
        (workload(&named(), Some(&record), &terms, &mut problems), problems)
    }

    #[test]
    fn a_record_names_the_container_and_says_what_it_was_told() {
        let labels = json!({"com.docker.compose.project": "shop", "com.docker.compose.service": "web"});
        let host =
            json!({"Memory": 64 << 20, "NanoCpus": 500_000_000_i64, "CpuShares": 0, "MemoryReservation": 0});
        let (got, problems) = made(&answer(labels, host), &[]);
        assert_eq!(problems, []);
        assert_eq!((got.pod.namespace.as_str(), got.pod.name.as_str()), ("docker", "shop-web-1"));
        assert_eq!((got.workload.as_str(), got.image.as_deref()), ("compose/shop-web", Some("shop/web:1")));
        assert!(got.command_hash.is_some() && got.pod_facts.labels.len() == 2);
        let Requested::Estimated(told) = got.requested else { panic!("{:?}", got.requested) };
        assert_eq!(told.resources.cpu_request, Some(MilliCpu::new(500)));
        assert_eq!(told.resources.memory_request, Some(Bytes::new(64 << 20)));
        // Podman gives the digest where it has no name, and null where it has nothing.
        let mut bare = answer(Value::Null, json!({"CpuQuota": 25_000, "CpuPeriod": 0, "Memory": -1}));
        bare["Config"]["Image"] = json!("sha256:0123");
        let (got, _) = made(&bare, &[]);
        assert_eq!((got.workload.as_str(), got.image), ("shop-web-1", None));
        let Requested::Estimated(told) = got.requested else { panic!("{:?}", got.requested) };
        assert_eq!((told.resources.cpu_limit, told.memory_class), (Some(MilliCpu::new(250)), None));
        assert_eq!(made(&answer(json!({}), json!({})), &[]).0.requested, Requested::Unknown);
    }

    #[test]
    fn an_engine_that_lies_is_not_followed() {
        let good = answer(json!({}), json!({}));
        let with = |pointer: &str, value: Value| {
            let mut bad = good.clone();
            *bad.pointer_mut(pointer).unwrap() = value;
            read(&bad).map(|_| ()).unwrap_err().why
        };
        assert!(with("/Id", json!("ffff")).contains("another container"));
        for name in ["/", "/../x", "/a b", "/\u{202e}web", &"x".repeat(300)] {
            assert!(with("/Name", json!(name)).contains("name"), "{name}");
        }
        assert!(with("/HostConfig", json!({"Memory": 1e30})).contains("not understood"));
        assert!(with("/HostConfig", json!({"Memory": "1g"})).contains("not understood"));
        assert!(ContainerInspect::read(&named(), b"{").unwrap_err().why.contains("not understood"));
        // What is out of all bounds is left out, or says nothing.
        let many: HashMap<String, String> = (0..300).map(|n| (n.to_string(), String::new())).collect();
        assert_eq!(read(&answer(json!(many), json!({}))).unwrap().labels.len(), 0);
        let absurd =
            json!({"Memory": i64::MAX, "NanoCpus": i64::MAX, "CpuShares": i64::MAX, "MemoryReservation": -5});
        let (got, _) = made(&answer(json!({}), absurd), &[]);
        let Requested::Estimated(told) = got.requested else { panic!("{:?}", got.requested) };
        assert_eq!((told.resources.memory_request, told.memory_class), (None, None));
    }

    #[test]
    fn labels_give_no_rights_without_trust() {
        let labels = json!({
            "evenkeel.dev/resources": r#"{"web": {"requests": {"memory": "512Mi"}}}"#, "evenkeel.dev/manage": "false",
        });
        let given = answer(labels, json!({"Memory": 64 << 20}));
        let (got, problems) = made(&given, &[]);
        assert_eq!((got.managed, problems.len()), (Managed::Yes, 2));
        let Requested::Estimated(told) = got.requested else { panic!("{:?}", got.requested) };
        assert_eq!(told.resources.memory_request, Some(Bytes::new(64 << 20)));
        let (got, problems) = made(&given, &["docker"]);
        assert!(matches!(got.managed, Managed::No(_)) && problems.is_empty());
        let Requested::Stated(stated) = got.requested else { panic!("{:?}", got.requested) };
        assert_eq!(stated.memory_request, Some(Bytes::new(512 << 20)));
    }
}
