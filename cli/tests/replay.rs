//! Decisions made again: from printed events, from an agent's log on disk, and from a running agent.

use crate::common::{run, run_with};
use evenkeel_log::{Log, Options};
use evenkeel_model::decision::{Decision, DecisionKind, DecisionResult};
use serde_json::json;

/// Three values that follow from their inputs, one that does not, one observation and one of a later version.
fn events() -> Vec<serde_json::Value> {
    let event = |seq: u64, kind: &str, knob: Option<&str>, new: Option<&str>, inputs: serde_json::Value| {
        json!({
            "time": "2026-01-31T12:00:00Z", "seq": seq, "node": "n1", "pod": "shop/web", "container": "app",
            "kind": kind, "knob": knob, "old": null, "new": new, "reason": "because", "inputs": inputs,
            "result": "done",
        })
    };
    let score = |request: &str| {
        json!({
            "formula": "score", "rules": "proposal", "class": "Burstable", "node_critical": "false",
            "memory_request": request, "memory_capacity": "4000",
        })
    };
    let shares = json!({"formula": "shares", "cpu_request_milli": "500"});
    let quota = json!({"formula": "quota", "period_usec": "100000", "cpu_limit_milli": "1500"});
    vec![
        event(1, "set", Some("oom_score_adj"), Some("750"), score("1000")),
        event(2, "set", Some("oom_score_adj"), Some("750"), score("2000")),
        event(3, "set", Some("cpu.shares"), Some("512"), shares),
        event(4, "set", Some("cpu.max"), Some("150000 100000"), quota),
        event(5, "found", None, None, json!({})),
        event(6, "levitated", None, None, json!({})),
    ]
}

fn lines() -> String {
    events().iter().map(|e| format!("{e}\n")).collect()
}

#[test]
fn a_difference_is_told_with_its_numbers_and_its_exit_status() {
    let found = run_with(&["replay", "--from", "-", "-o", "json"], &lines());
    assert_eq!(found.status, 1, "{found:?}");
    insta::assert_snapshot!("replay_json", found.out);
    let table = run_with(&["replay", "--from", "-", "-o", "wide"], &lines());
    insta::assert_snapshot!("replay_wide", table.out);
}

#[test]
fn a_list_is_read_as_lines_are_and_sameness_is_success() {
    let all: Vec<_> = events().into_iter().filter(|e| e["seq"] != 2 && e["seq"] != 6).collect();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("events.json");
    std::fs::write(&file, serde_json::to_string_pretty(&all).unwrap()).unwrap();
    let found = run(&["replay", "--from", file.to_str().unwrap(), "-o", "json"]);
    assert_eq!(found.status, 0, "{found:?}");
    assert_eq!((found.json()["same"].as_u64(), found.json()["decisions"].as_u64()), (Some(3), Some(4)));
    let table = run(&["replay", "--from", file.to_str().unwrap()]);
    insta::assert_snapshot!("replay_table", table.out);
}

fn decision(seq: u64, new: &str) -> Decision {
    let inputs = [("formula", "shares"), ("cpu_request_milli", "500")];
    Decision {
        time_usec: 1_769_860_800_000_000,
        seq,
        pod: Some("shop/web".into()),
        container: Some("app".into()),
        kind: DecisionKind::Set,
        knob: Some("cpu.shares".into()),
        old: None,
        new: Some(new.into()),
        reason: "cpu request".into(),
        inputs: inputs.into_iter().map(|(k, v)| (k.into(), v.into())).collect(),
        result: DecisionResult::Done,
    }
}

#[test]
fn the_log_of_an_agent_is_read_where_it_lies() {
    let state = tempfile::tempdir().unwrap();
    let (mut log, _) = Log::open(state.path().join("decisions"), Options::default()).unwrap();
    for (seq, new) in [(1, "512"), (2, "512"), (3, "1024")] {
        log.append(&serde_json::to_vec(&decision(seq, new)).unwrap()).unwrap();
    }
    log.append(b"no decision").unwrap();
    log.flush().unwrap();
    // The agent has it open: reading must not need the lock.
    for dir in [state.path().to_owned(), state.path().join("decisions")] {
        let found = run(&["replay", "--from", dir.to_str().unwrap(), "-o", "json"]);
        assert_eq!(found.status, 1, "{found:?}");
        let report = found.json();
        assert_eq!((report["same"].as_u64(), report["differs"].as_u64()), (Some(2), Some(1)));
        assert_eq!(report["differences"][0]["now"], "512");
        assert_eq!(report["differences"][0]["time"], "2026-01-31T12:00:00Z");
        assert_eq!(report["unread"].as_array().unwrap().len(), 1);
    }
}

#[test]
fn what_cannot_be_read_is_a_failure_with_a_remedy() {
    let empty = tempfile::tempdir().unwrap();
    for (from, text, why) in [
        ("/nonexistent/events.json", "", "No such file"),
        (empty.path().to_str().unwrap(), "", "there is no decision in it"),
        ("-", "{\"seq\": 1", "EOF while parsing"),
    ] {
        let found = run_with(&["replay", "--from", from], text);
        assert_eq!((found.status, found.out.as_str()), (1, ""), "{found:?}");
        assert!(found.err.contains(why) && found.err.contains("remedy: "), "{}", found.err);
    }
    assert_eq!(run_with(&["replay", "--from", "-", "-o", "json"], "").json()["decisions"], 0);
}

#[test]
fn a_running_agent_is_asked() {
    let servers = crate::answers::Servers::start();
    let found = run(&["replay", "-o", "json", "--agent", &servers.agent]);
    assert_eq!(found.status, 0, "{found:?}");
    let report = found.json();
    assert_eq!(report["decisions"], 2);
    assert_eq!(report["skipped"]["names no rule in its inputs"], 1);
    assert_eq!(report["skipped"]["tells of the agent itself"], 1);
}
