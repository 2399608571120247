//! The verbose part of a runtime's answer: JSON that containerd and CRI-O fill alike where it matters.
//!
//! Two records are told apart. The *requested* one (`config.linux.resources`) keeps what the kubelet asked for,
//! also a score the runtime could not set; the *present* one (status resources, else `runtimeSpec`) follows
//! updates made in place.

use std::collections::HashMap;

use evenkeel_enforce::shared::SourceProblem;
use serde::Deserialize;

use super::super::slices;
use super::v1::LinuxContainerResources;

/// What is taken from a runtime's answer about one container or sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Details {
    pub(super) pid: Option<u32>,
    /// Path below the hierarchies' roots.
    pub(super) cgroup: String,
    pub(super) cpu_shares: Option<i64>,
    pub(super) cpu_quota_usec: Option<i64>,
    pub(super) cpu_period_usec: Option<i64>,
    pub(super) memory_limit_bytes: Option<i64>,
    /// As requested of the runtime, not as processes have it.
    pub(super) oom_score_adj: Option<i64>,
    pub(super) command: Vec<String>,
    pub(super) args: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Info {
    pid: Option<u32>,
    config: Option<ConfigRecord>,
    #[serde(rename = "runtimeSpec")]
    runtime_spec: Option<SpecRecord>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ConfigRecord {
    linux: Option<ConfigLinux>,
    command: Option<Vec<String>>,
    args: Option<Vec<String>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ConfigLinux {
    resources: Option<ConfigResources>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ConfigResources {
    oom_score_adj: Option<i64>,
    cpu_shares: Option<i64>,
    cpu_quota: Option<i64>,
    cpu_period: Option<i64>,
    memory_limit_in_bytes: Option<i64>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct SpecRecord {
    linux: Option<SpecLinux>,
    process: Option<SpecProcess>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct SpecProcess {
    #[serde(rename = "oomScoreAdj")]
    oom_score_adj: Option<i64>,
    args: Option<Vec<String>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct SpecLinux {
    #[serde(rename = "cgroupsPath")]
    cgroups_path: Option<String>,
    resources: Option<SpecResources>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct SpecResources {
    cpu: Option<SpecCpu>,
    memory: Option<SpecMemory>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct SpecCpu {
    shares: Option<i64>,
    quota: Option<i64>,
    period: Option<i64>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct SpecMemory {
    limit: Option<i64>,
}

impl Details {
    /// Takes out what matters.
    pub(super) fn read(
        id: &str,
        present: Option<&LinuxContainerResources>,
        info: &HashMap<String, String>,
    ) -> Result<Self, SourceProblem> {
        let problem = |why: String| SourceProblem {
            what: "read the runtime's record".into(),
            where_: format!("container {id}"),
            why,
            remedy: "the container is left alone; bind it by a manifest if it should be managed".into(),
        };
        let text = info.get("info").ok_or_else(|| problem("the runtime gives no verbose info".into()))?;
        let info: Info = serde_json::from_str(text)
            .map_err(|e| problem(format!("its verbose info is not understood: {e}")))?;
        let spec = info.runtime_spec.unwrap_or_default();
        let process = spec.process.unwrap_or_default();
        let linux = spec.linux.unwrap_or_default();
        let path = linux.cgroups_path.ok_or_else(|| problem("its verbose info names no cgroup".into()))?;
        let cgroup = slices::from_oci(&path)
            .ok_or_else(|| problem(format!("`{}` is not a cgroup path", path.escape_debug())))?;
        let config = info.config.unwrap_or_default();
        let requested = config.linux.and_then(|l| l.resources);
        // In the spec is what the runtime could set, so it serves only where there is no word of what was asked for.
        // 0 is how an absent score is written; nobody computes it for a container.
        let score = requested.as_ref().map_or(process.oom_score_adj, |asked| asked.oom_score_adj);
        let requested = requested.unwrap_or_default();
        let in_spec = linux.resources.unwrap_or_default();
        let (cpu, memory) = (in_spec.cpu.unwrap_or_default(), in_spec.memory.unwrap_or_default());
        let first = |values: [Option<i64>; 3]| values.into_iter().flatten().find(|v| *v > 0);
        Ok(Self {
            pid: info.pid.filter(|p| *p > 0),
            cgroup,
            cpu_shares: first([present.map(|p| p.cpu_shares), cpu.shares, requested.cpu_shares]),
            cpu_quota_usec: first([present.map(|p| p.cpu_quota), cpu.quota, requested.cpu_quota]),
            cpu_period_usec: first([present.map(|p| p.cpu_period), cpu.period, requested.cpu_period]),
            memory_limit_bytes: first([
                present.map(|p| p.memory_limit_in_bytes),
                memory.limit,
                requested.memory_limit_in_bytes,
            ]),
            oom_score_adj: score.filter(|score| *score != 0),
            command: config.command.or(process.args).unwrap_or_default(),
            args: config.args.unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, present: Option<&LinuxContainerResources>) -> Result<Details, SourceProblem> {
        Details::read("c1", present, &HashMap::from([("info".to_owned(), text.to_owned())]))
    }

    #[test]
    fn the_requested_score_and_the_present_resources_win() {
        let text = r#"{"sandboxID": "s", "pid": 42, "config": {"command": ["/bin/a"], "args": ["-x"], "linux": {"resources":
            {"cpu_shares": 256, "memory_limit_in_bytes": 128, "oom_score_adj": -997}}},
            "runtimeSpec": {"process": {"oomScoreAdj": 0}, "linux": {"cgroupsPath": "/kubepods/pod1/c1",
            "resources": {"cpu": {"shares": 512}, "memory": {"limit": 256}}}}}"#;
        let present = LinuxContainerResources { cpu_shares: 768, ..LinuxContainerResources::default() };
        let got = read(text, Some(&present)).unwrap();
        assert_eq!(
            (got.oom_score_adj, got.cpu_shares, got.memory_limit_bytes),
            (Some(-997), Some(768), Some(256))
        );
        assert_eq!((got.pid, got.cgroup.as_str()), (Some(42), "/kubepods/pod1/c1"));
        assert_eq!((got.command, got.args), (vec!["/bin/a".to_owned()], vec!["-x".to_owned()]));
    }

    #[test]
    fn without_a_config_record_the_spec_serves() {
        let text = r#"{"pid": 7, "runtimeSpec": {"process": {"oomScoreAdj": 1000, "args": ["/pause"]}, "linux":
            {"cgroupsPath": "kubepods-podx.slice:crio:abc", "resources": {"cpu": {"shares": 2}}}}}"#;
        let got = read(text, None).unwrap();
        assert_eq!((got.oom_score_adj, got.cpu_shares), (Some(1000), Some(2)));
        assert_eq!(got.cgroup, "/kubepods.slice/kubepods-podx.slice/crio-abc.scope");
    }

    #[test]
    fn a_score_that_was_not_asked_for_is_none() {
        for resources in ["{}", r#"{"oom_score_adj": 0}"#, r#"{"memory_limit_in_bytes": 64}"#] {
            let text = format!(
                r#"{{"config": {{"linux": {{"resources": {resources}}}}}, "runtimeSpec": {{"process": {{"oomScoreAdj": 0}},
                "linux": {{"cgroupsPath": "/a/b"}}}}}}"#
            );
            assert_eq!(read(&text, None).unwrap().oom_score_adj, None, "{resources}");
        }
    }

    #[test]
    fn strange_answers_are_named() {
        for (text, why) in [
            ("", "not understood"),
            ("{}", "names no cgroup"),
            (r#"{"pid": "x"}"#, "not understood"),
            (r#"{"runtimeSpec": {"linux": {"cgroupsPath": "../../etc"}}}"#, "not a cgroup path"),
        ] {
            assert!(read(text, None).unwrap_err().why.contains(why), "{text}");
        }
        assert!(Details::read("c1", None, &HashMap::new()).unwrap_err().why.contains("no verbose info"));
    }
}
