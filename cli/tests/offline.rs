//! The offline commands, run as people run them.

use crate::common::{command, finish, run, run_with};
use serde_json::{Value, json};

const POD: &str = "
kind: Pod
metadata: {name: web, namespace: shop}
spec:
  containers:
  - name: app
    resources: {requests: {cpu: 1, memory: 1G}, limits: {cpu: 2, memory: 2G}}
  - name: log
";

const NODE: [&str; 4] = ["--node-memory", "4G", "--node-cpu", "4"];

fn explain(more: &[&str], text: &str) -> crate::common::Run {
    let mut arguments = vec!["qos", "explain", "-f", "-"];
    arguments.extend(NODE);
    arguments.extend(more);
    run_with(&arguments, text)
}

#[test]
fn quantities_in_the_pinned_form() {
    let found = run(&["quantity", "-o", "json", "--", "129M", "123Mi", "1.5", "300m"]);
    assert_eq!((found.status, found.err.as_str()), (0, ""));
    let entry = |input: &str, canonical: &str, exact: &str, value: &str, milli: &str, format: &str| json!({"input": input, "canonical": canonical, "exact": exact, "value": value, "milli": milli, "format": format});
    let expected = json!([
        entry("129M", "129M", "129000000", "129000000", "129000000000", "DecimalSI"),
        entry("123Mi", "123Mi", "128974848", "128974848", "128974848000", "BinarySI"),
        entry("1.5", "1500m", "1.5", "2", "1500", "DecimalSI"),
        entry("300m", "300m", "0.3", "1", "300", "DecimalSI"),
    ]);
    assert_eq!(found.json(), expected);
}

#[test]
fn one_bad_quantity_fails_but_all_are_answered() {
    let found = run(&["quantity", "-o", "json", "1Gi", "64MB", "2"]);
    assert_eq!(found.status, 1);
    let list = found.json();
    assert_eq!(list.as_array().unwrap().len(), 3);
    assert!(list[1]["error"].as_str().unwrap().contains("leave the B away"), "{list}");
    assert_eq!(list[2]["canonical"], "2");
    let negative = run(&["quantity", "--", "-5"]);
    assert_eq!(negative.status, 0, "{negative:?}");
    assert_eq!(run(&["quantity", "1e2147483647"]).status, 0);
}

#[test]
fn explain_gives_one_object_for_one_pod_and_a_list_for_several() {
    let one = explain(&["-o", "json"], POD);
    assert_eq!(one.status, 0, "{one:?}");
    insta::assert_snapshot!("explain_json", one.out);
    let two = explain(&["-o", "json"], &format!("{POD}---{POD}")).json();
    assert_eq!(two.as_array().unwrap().len(), 2);
    assert_eq!(two[1], one.json());
}

#[test]
fn explain_for_people() {
    insta::assert_snapshot!("explain_table", explain(&[], POD).out);
    insta::assert_snapshot!("explain_wide_kubelet", explain(&["-o", "wide", "--rules", "kubelet"], POD).out);
    insta::assert_snapshot!("explain_yaml", explain(&["-o", "yaml"], POD).out);
}

#[test]
fn explain_takes_the_conversion_and_this_machine() {
    let linear = explain(&["-o", "json", "--cpu-weight", "linear"], POD).json();
    assert_eq!(linear["containers"][0]["cpuWeight"], 39);
    let here = run_with(&["qos", "explain", "-f", "-", "-o", "json"], POD);
    assert_eq!(here.status, 0, "{here:?}");
    assert!(here.json()["node"]["memoryBytes"].as_u64().unwrap() > 0);
}

#[test]
fn explain_refuses_a_pod_that_breaks_the_rules() {
    let text = "{kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, resources: \
                {requests: {cpu: 2, memory: 2G}, limits: {cpu: 1, memory: 1G}}}]}}";
    let found = explain(&[], text);
    assert_eq!((found.status, found.out.as_str()), (1, ""));
    insta::assert_snapshot!("explain_broken", found.err);
    let error: Value = serde_json::from_str(&explain(&["-o", "json"], text).err).unwrap();
    let keys: Vec<_> = error["error"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["what", "where", "why", "remedy"]);
}

#[test]
fn unreadable_input_names_the_place_and_the_remedy() {
    let missing = run(&["qos", "explain", "-f", "/nonexistent/pod.yaml"]);
    assert_eq!(missing.status, 1);
    insta::assert_snapshot!("missing_file", missing.err);
    let quantity = "kind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - name: c\n    resources:\n      \
                    requests:\n        memory: 64mb\n";
    insta::assert_snapshot!("bad_quantity", explain(&[], quantity).err);
    insta::assert_snapshot!("no_pod", explain(&[], "{kind: Service, metadata: {name: s}}").err);
    assert_eq!(explain(&[], "").status, 1);
    assert_eq!(explain(&[], "{[").status, 1);
}

#[test]
fn check_tells_of_every_document() {
    let text = format!(
        "{POD}---\n{{kind: Service, metadata: {{name: s}}}}\n---\n{{kind: Pod, metadata: {{name: bad}}, spec: \
         {{containers: [{{name: a, resources: {{requests: {{cpu: 2}}, limits: {{cpu: 1}}}}}}]}}}}\n"
    );
    let found = run_with(&["check", "-f", "-", "-o", "json"], &text);
    assert_eq!(found.status, 1);
    insta::assert_snapshot!("check_json", found.out);
    insta::assert_snapshot!("check_table", run_with(&["check", "-f", "-"], &text).out);
    assert_eq!(run_with(&["check", "-f", "-"], POD).status, 0);
    // Nothing that could be checked is no yes.
    assert_eq!(run_with(&["check", "-f", "-"], "{kind: Service, metadata: {name: s}}").status, 1);
    assert_eq!(run_with(&["check", "-f", "-"], "{[").status, 1);
}

/// A pod with one container that requests this.
fn requesting(requests: &str) -> String {
    format!(
        "kind: Pod\nmetadata: {{name: p}}\nspec: {{containers: [{{name: c, resources: {{requests: {{{requests}}}}}}}]}}\n"
    )
}

#[test]
fn types_of_users_are_qualified_and_defined() {
    for (requests, said) in
        [("foo: 1", "its namespace is reserved"), ("kubernetes.io/hadoop: 1", "such as example.com/")]
    {
        let found = run_with(&["check", "-f", "-"], &requesting(requests));
        assert!(found.status == 1 && found.out.contains(said), "{requests}: {}", found.out);
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("types.yaml");
    let path = file.to_str().unwrap();
    let check = |types: &str, requests: &str| {
        std::fs::write(&file, types).unwrap();
        run_with(&["check", "-f", "-", "--types", path], &requesting(requests))
    };
    let types = "resourceTypes: {example.com/seat: {units: \"\", defaultRequest: 1}}\n";
    let seat = check(types, "example.com/seat: 1");
    assert!(seat.status == 0 && seat.out.contains("a plain number, incompressible, 1 where"), "{}", seat.out);
    let typo = check(types, "example.com/seats: 1");
    assert!(typo.status == 1 && typo.out.contains("example.com/seats is not defined"), "{}", typo.out);
    for (types, said) in [
        ("resourceTypes: {example.com/seat: {defaultRequest: 1}}", "has no units"),
        ("resourceTypes: {hadoop: {units: slot}}", "has no subdomain"),
        ("resourceTypes: {example.com/seat: {unit: slot}}", "unit"),
        ("", "holds no resource types"),
    ] {
        let wrong = check(types, "cpu: 1");
        assert!(wrong.status == 1 && wrong.err.contains(said), "{types}: {}", wrong.err);
    }
}

#[test]
fn wrong_usage_is_status_two() {
    for arguments in [
        vec!["quantity"],
        vec!["nonsense"],
        vec!["qos", "explain"],
        vec!["qos", "explain", "-f", "x", "--node-memory", "0"],
        vec!["qos", "explain", "-f", "x", "--node-cpu", "-1"],
        vec!["version", "-o", "xml"],
        vec![],
    ] {
        let found = run(&arguments);
        assert_eq!((found.status, found.out.as_str()), (2, ""), "{arguments:?}");
        assert!(!found.err.is_empty(), "{arguments:?}");
    }
    let json: Value = serde_json::from_str(&run(&["nonsense", "-o", "json"]).err).unwrap();
    assert_eq!(json["error"]["what"], "wrong usage");
    let why = |arguments: &[&str]| {
        let error: Value = serde_json::from_str(&run(arguments).err).unwrap();
        error["error"]["why"].as_str().unwrap().to_owned()
    };
    let missing = "the following required arguments were not provided: --file <POD>...";
    assert_eq!(why(&["qos", "explain", "-o", "json"]), missing);
    assert!(why(&["-o", "json"]).contains("requires a subcommand"));
    // What the environment says is no demand of the command.
    let mut said = command(&["policy", "panic"]);
    let said = finish(said.env("EVENKEEL_AGENT", "unix:///a").env("EVENKEEL_RECOMMENDER", "unix:///r"));
    assert!(said.status == 2 && said.err.contains("Usage: evenkeel policy panic <SWITCH>"), "{}", said.err);
}

#[test]
fn the_name_it_is_called_by_does_not_matter() {
    let dir = tempfile::tempdir().unwrap();
    let plugin = dir.path().join("kubectl-evenkeel");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_evenkeel"), &plugin).unwrap();
    let found = finish(std::process::Command::new(plugin).args(["version", "-o", "json"]));
    assert_eq!(found.json()["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn a_closed_pipe_is_no_failure() {
    use std::process::Stdio;
    let mut child =
        command(&["completion", "bash"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), [].as_slice()));
}

#[test]
fn completion_and_manual_pages_are_written() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(run(&["completion", shell]).out.contains("recommend"), "{shell}");
    }
    assert!(run(&["man"]).out.contains(".TH"));
    let dir = tempfile::tempdir().unwrap();
    let found = run(&["man", "--dir", dir.path().join("man1").to_str().unwrap()]);
    assert_eq!(found.status, 0, "{found:?}");
    for page in ["evenkeel.1", "evenkeel-qos.1", "evenkeel-qos-explain.1", "evenkeel-top.1"] {
        assert!(dir.path().join("man1").join(page).exists(), "{page}");
    }
}

#[test]
fn doctor_looks_at_this_machine_without_harm() {
    let found = run(&[
        "doctor",
        "-o",
        "json",
        "--agent",
        "unix:///nonexistent.sock",
        "--recommender",
        "http://127.0.0.1:1",
    ]);
    assert!(found.status == 0 || found.status == 1, "{found:?}");
    let list = found.json();
    let checks: Vec<_> = list.as_array().unwrap().iter().map(|c| c["check"].as_str().unwrap()).collect();
    for check in [
        "kernel",
        "cgroups",
        "pressure",
        "swap",
        "overcommit",
        "CAP_SYS_RESOURCE",
        "file descriptors",
        "agent",
    ] {
        assert!(checks.contains(&check), "{check} in {checks:?}");
    }
    for c in list.as_array().unwrap() {
        let keys: Vec<_> = c.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["check", "page", "state", "found", "remedy"]);
        assert!(c["state"] == "ok" || c["remedy"].is_string(), "{c}");
    }
}

/// Checks are told with a page of the documentation, which has a section for each; those of this machine and those of all nodes.
#[test]
fn every_finding_has_its_section() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/doctor.md")).unwrap();
    let sections: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let found = run(&[
        "doctor",
        "-o",
        "json",
        "--agent",
        "unix:///nonexistent.sock",
        "--recommender",
        "http://127.0.0.1:1",
    ]);
    let own = found.json();
    let own = own.as_array().unwrap().iter().map(|finding| finding["page"].as_str().unwrap().to_owned());
    let others = [
        "cpu-manager",
        "recommenders-clock",
        "recommenders-certificate",
        "recommenders-events",
        "recommenders-lease",
        "recommenders-panic",
        "recommenders-updater",
        "recommenders-webhook",
        "updater",
        "versions",
        "nodes",
        "agents-certificates",
    ];
    let others = others.into_iter().map(|section| format!("doctor.md#{section}"));
    for page in own.chain(others) {
        let section = page.strip_prefix("doctor.md#").unwrap();
        assert!(sections.contains(&section), "docs/doctor.md has no section {section}");
    }
    let told = run(&["doctor", "--agent", "unix:///nonexistent.sock", "--recommender", "http://127.0.0.1:1"]);
    assert!(told.out.contains("(doctor.md#agent)") && !told.out.contains("(doctor.md#system)"), "{told:?}");
    let waited = run(&[
        "doctor",
        "--wait",
        "1s",
        "--agent",
        "unix:///nonexistent.sock",
        "--recommender",
        "http://127.0.0.1:1",
    ]);
    assert_eq!(waited.status, 1, "no agent came");
    let nobody = run(&["doctor", "--all-nodes", "--recommender", "http://127.0.0.1:1"]);
    assert!(nobody.status == 1 && nobody.out.contains("cannot reach the recommender"), "{nobody:?}");
    assert_eq!(run(&["doctor", "--wait", "soon"]).status, 2);
}

#[test]
fn a_bundle_lists_what_would_be_in_it() {
    let listed = run(&["support-bundle", "--dry-run", "-o", "json"]);
    assert_eq!(listed.status, 0, "{listed:?}");
    let json = listed.json();
    let files: Vec<&str> =
        json.as_array().unwrap().iter().map(|file| file["file"].as_str().unwrap()).collect();
    for wanted in [
        "status.json",
        "doctor.json",
        "decisions.json",
        "config/agent.toml",
        "metrics/agent.txt",
        "kernel/meminfo.txt",
    ] {
        assert!(files.contains(&wanted), "{wanted} in {files:?}");
    }
    assert_eq!(run(&["support-bundle", "--since", "yesterday"]).status, 2);
}

#[test]
fn help_of_every_command() {
    let mut text = String::new();
    for arguments in [
        "",
        "status",
        "top",
        "events",
        "describe",
        "admit",
        "recommend",
        "compare",
        "policy",
        "policy get",
        "policy apply",
        "policy delete",
        "policy panic",
        "usage",
        "nodes",
        "doctor",
        "support-bundle",
        "report",
        "quantity",
        "check",
        "qos explain",
        "completion",
        "man",
        "version",
    ] {
        let mut all: Vec<&str> = arguments.split_whitespace().collect();
        all.push("-h");
        let found = run(&all);
        assert_eq!(found.status, 0);
        text.push_str(&format!("===== evenkeel {arguments}\n{}\n", found.out));
    }
    insta::assert_snapshot!("help", text);
}
