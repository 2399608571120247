//! Questions to an agent and a recommender, here played by servers that give fixed answers.

use crate::common::run;
use serde_json::json;

fn ask(arguments: &[&str]) -> crate::common::Run {
    let servers = crate::answers::Servers::start();
    let mut all = arguments.to_vec();
    all.extend(["--agent", &servers.agent, "--recommender", &servers.recommender]);
    run(&all)
}

/// A process that was stopped, or has no descriptor left to accept with: the kernel takes the connection, nobody answers.
#[test]
fn a_peer_that_stands_still_is_not_waited_for_without_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("still.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let address = format!("unix://{}", path.display());
    let ask = |arguments: [&'static str; 2]| {
        let address = address.clone();
        std::thread::spawn(move || run(&[arguments[0], arguments[1], &address]))
    };
    for (peer, asked) in
        [("agent", ask(["status", "--agent"])), ("recommender", ask(["nodes", "--recommender"]))]
    {
        let run = asked.join().unwrap();
        assert_eq!((run.status, run.out.as_str()), (1, ""), "{run:?}");
        assert!(run.err.contains(&format!("the {peer} did not answer the question")), "{}", run.err);
        assert!(run.err.contains("keep-alive timed out"), "{}", run.err);
        assert!(run.err.contains("see whether it is still running"), "{}", run.err);
    }
}

#[test]
fn status_in_the_pinned_form_and_for_people() {
    let found = ask(&["status", "-o", "json"]);
    assert_eq!(found.status, 0, "{found:?}");
    insta::assert_snapshot!("status_json", found.out);
    insta::assert_snapshot!("status_table", ask(&["status"]).out);
}

#[test]
fn describe_shows_one_pod_and_says_when_there_is_none() {
    insta::assert_snapshot!("describe", ask(&["describe", "web"]).out);
    assert_eq!(ask(&["describe", "shop/web", "app", "-o", "json"]).json()[0]["container"], "app");
    let none = ask(&["describe", "web", "other"]);
    assert_eq!((none.status, none.out.as_str()), (1, ""));
    assert!(none.err.contains("the agent knows no pod web, container other"), "{}", none.err);
    let decision = ask(&["describe", "--decision", "2"]);
    assert!(decision.out.contains("decision:    2\n"), "{}", decision.out);
    assert!(ask(&["describe", "--decision", "9"]).err.contains("the agent knows no decision 9"));
    assert_eq!((run(&["describe"]).status, run(&["describe", "web", "--decision", "2"]).status), (2, 2));
}

#[test]
fn events_are_filtered_and_in_the_pinned_form() {
    let found = ask(&["events", "-o", "json"]);
    insta::assert_snapshot!("events_json", found.out);
    insta::assert_snapshot!("events_table", ask(&["events"]).out);
    let count = |more: &[&str]| {
        let all = [&["events", "-o", "json"], more].concat();
        ask(&all).json().as_array().unwrap().len()
    };
    assert_eq!(count(&[]), 2);
    assert_eq!(count(&["--pod", "web"]), 1);
    assert_eq!(count(&["--pod", "shop/web", "--kind", "set,denied"]), 1);
    assert_eq!(count(&["--kind", "gone"]), 0);
    assert_eq!(count(&["--container", "app"]), 1);
    assert_eq!(count(&["--since", "2023-11-14T22:13:21Z"]), 1);
    assert_eq!(count(&["--since", "10m"]), 0);
    assert_eq!(count(&["--all-nodes"]), 1);
    assert_eq!(run(&["events", "--since", "yesterday"]).status, 2);
}

#[test]
fn what_enforcing_would_change_is_told_by_node_and_by_one_agent() {
    let all = ask(&["report", "--would-change", "-o", "json"]);
    assert_eq!(all.status, 0, "{all:?}");
    let nodes = all.json()["nodes"].as_array().unwrap().len();
    assert!(nodes > 0 && all.json()["nodes"][0]["complete"] == json!(false), "{}", all.out);
    let people = ask(&["report", "--would-change"]).out;
    assert!(people.contains("WOULD-CHANGE") && people.contains("--this-node says all of it"), "{people}");
    let one = ask(&["report", "--would-change", "--this-node", "-o", "json"]);
    assert_eq!((one.status, one.json()["nodes"][0]["complete"].clone()), (0, json!(true)), "{one:?}");
    let count = one.json()["changes"].as_array().unwrap().len();
    assert_eq!(one.json()["nodes"][0]["changes"], json!(count));
    let none = ask(&["report", "--would-change", "--node", "nowhere"]);
    assert!(none.status == 1 && none.err.contains("no node of this name"), "{none:?}");
    assert_eq!(run(&["report"]).status, 2);
}

#[test]
fn following_events_prints_one_object_to_a_line_until_the_agent_ends() {
    let found = ask(&["events", "--follow", "-o", "json"]);
    assert_eq!(found.status, 0, "{found:?}");
    let lines: Vec<serde_json::Value> = found.out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(lines.iter().map(|e| e["seq"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(found.err.contains("4 decisions were left out"), "{}", found.err);
}

#[test]
fn all_nodes_are_looked_at_by_the_recommender() {
    let found = ask(&["doctor", "--all-nodes", "-o", "json"]).json();
    let of = |check: &str| {
        let all = found.as_array().unwrap().iter();
        all.filter(|finding| finding["check"] == check).cloned().collect::<Vec<_>>()
    };
    assert_eq!(of("recommender")[0]["state"], "ok");
    assert_eq!(
        (&of("node connection")[0]["node"], &of("node connection")[0]["state"]),
        (&json!("n1"), &json!("ok"))
    );
    assert_eq!(of("node words")[0]["remedy"], "raise ingest.max_names_per_minute");
    assert_eq!(of("updater")[0]["found"], "on, 9 looks at pods; left alone for now: Rollout 1");
    assert_eq!(ask(&["doctor", "--all-nodes", "--wait", "5s"]).status, 0);
}

#[test]
fn top_prints_frames() {
    let once = ask(&["top", "--once", "-o", "json"]);
    assert_eq!(once.status, 0, "{once:?}");
    insta::assert_snapshot!("top_json", once.out);
    insta::assert_snapshot!("top_table", ask(&["top", "--once"]).out);
    // Without a terminal: every second until the agent ends.
    let past = ask(&["top", "--at", "1970-01-01T00:01:00Z"]);
    assert_eq!((past.status, past.out.lines().next()), (0, Some("2023-11-14T22:13:20Z")), "{}", past.out);
    let never = ask(&["top", "--at", "-5m"]);
    assert_eq!(never.status, 1);
    assert!(never.err.contains("outside of what is kept"), "{}", never.err);
    assert_eq!(run(&["top", "--at", "yesterday"]).status, 2);
    let cluster = ask(&["top", "--cluster", "--once", "-o", "json"]).json();
    assert_eq!(
        (&cluster["containers"][0]["node"], &cluster["containers"][0]["pod"]),
        (&json!("n1"), &json!("shop/web"))
    );
    let found = ask(&["top", "--once", "--filter", "WEB", "--sort", "over", "-o", "json"]).json();
    assert_eq!(found["containers"].as_array().unwrap().len(), 1, "{found}");
    let all = ask(&["top", "-o", "json"]);
    assert_eq!(all.out.lines().count(), 2, "{all:?}");
}

#[test]
fn recommendations_in_the_pinned_form() {
    let found = ask(&["recommend", "-o", "json"]);
    let cpu = json!({
        "namespace": "shop", "workload": "deployment/web", "container": "app", "resource": "cpu",
        "current": 1000, "request": 250, "lower": 200, "upper": 400, "raw": 240, "cappedBy": ["minimum"],
        "rule": "initial", "tier": "image-tag-7d", "samples": 60, "spanSeconds": 3600, "confidence": 0.5,
        "risk": {"now": 0.0, "then": 0.01}, "ageSeconds": 12, "replicas": 3, "saving": 2250, "limit": 2000,
        "currentLimit": 2000, "policy": "shop/web", "mode": "auto",
        "qosClass": {"before": "Guaranteed", "after": "Burstable"}, "changesClass": true, "notes": [],
        "young": true,
    });
    assert_eq!(found.json()[0], cpu);
    let keys = |v: &serde_json::Value| v.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&found.json()[0]), keys(&cpu));
    assert_eq!(found.json()[1]["request"], json!(null));
    insta::assert_snapshot!("recommend_table", ask(&["recommend"]).out);
    assert_eq!(ask(&["recommend", "--namespace", "none", "-o", "json"]).json(), json!([]));
    insta::assert_snapshot!("recommend_csv", ask(&["recommend", "-o", "csv"]).out);
}

#[test]
fn recommendations_are_filtered_priced_and_made_patches_of() {
    let count = |more: &[&str]| {
        let found = ask(&[&["recommend", "-o", "json"], more].concat());
        assert_eq!(found.status, 0, "{found:?}");
        found.json().as_array().unwrap().len()
    };
    assert_eq!(count(&["--workload", "web"]), 2);
    assert_eq!(count(&["--workload", "deployment/web", "-l", "app=web"]), 2);
    assert_eq!(count(&["--workload", "db"]), 0);
    assert_eq!(count(&["--min-saving", "cpu=2250m"]), 1);
    assert_eq!(count(&["--min-saving", "cpu=2251m,memory=0"]), 0);
    let wrong = ask(&["recommend", "-l", "app=("]);
    assert!(wrong.status == 1 && wrong.err.contains("no closing bracket"), "{wrong:?}");

    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("prices.csv");
    std::fs::write(&list, "resource,price\ncpu,0.1\nmemory,0.01\n").unwrap();
    let list = list.to_str().unwrap();
    let priced = ask(&["recommend", "--price", list, "--sort", "saving"]);
    insta::assert_snapshot!("recommend_priced", priced.out);
    assert_eq!(count(&["--price", list, "--min-saving", "164"]), 1);
    assert_eq!(count(&["--price", list, "--min-saving", "165"]), 0);
    let unpriced = ask(&["recommend", "--min-saving", "164"]);
    assert!(unpriced.status == 2 && unpriced.err.contains("no list of prices"), "{unpriced:?}");

    insta::assert_snapshot!("recommend_patch", ask(&["recommend", "-o", "patch"]).out);
    let other = ask(&["nodes", "-o", "patch"]);
    assert!(other.status == 2 && other.err.contains("only evenkeel recommend"), "{other:?}");
    for (words, why) in [
        (&["status", "-o", "csv"][..], "it is not one table"),
        (&["usage", "--series", "--resource", "cpu", "-o", "json"], "a series is printed as CSV"),
    ] {
        let refused = ask(words);
        assert!(refused.status == 2 && refused.err.contains(why) && refused.out.is_empty(), "{refused:?}");
    }
}

#[test]
fn a_pod_is_answered_with_what_becomes_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let pod = dir.path().join("pod.yaml");
    std::fs::write(&pod, "kind: Pod").unwrap();
    let pod = pod.to_str().unwrap();
    insta::assert_snapshot!("recommend_pod", ask(&["recommend", "-f", pod]).out);
    assert_eq!(ask(&["recommend", "-f", pod, "-o", "json"]).json().as_array().unwrap().len(), 2);
}

#[test]
fn rules_are_set_side_by_side() {
    insta::assert_snapshot!("compare_table", ask(&["compare", "--rules", "initial,goal", "-n", "shop"]).out);
    let found = ask(&["compare", "--rules", "initial,goal", "-o", "json"]).json();
    let said = |at: usize| (found[0]["rules"][at]["rule"].clone(), found[0]["rules"][at]["request"].clone());
    assert_eq!((said(0), said(1)), ((json!("initial"), json!(250)), (json!("goal"), json!(500))));
    assert_eq!(found.as_array().unwrap().len(), 2);
    assert_eq!(ask(&["compare", "-o", "json"]).json()[0]["rules"].as_array().unwrap().len(), 1);
}

#[test]
fn use_over_time_is_the_csv_that_a_backtest_reads() {
    let found = ask(&["usage", "--series", "--resource", "cpu"]);
    assert_eq!(found.status, 0, "{found:?}");
    let mut lines = found.out.lines();
    assert_eq!(
        (lines.next(), lines.next()),
        (Some("series,t,value"), Some("shop/deployment/web/app,1700000000,0.1"))
    );
    assert_eq!(lines.count() + 1, 4 * 1440 - 60);
    let gap = "gap: shop/deployment/web/app: nothing was measured from 2023-11-16T07:33:20Z to 2023-11-16T08:33:20Z";
    assert!(found.err.contains(gap), "{}", found.err);
    // The same from the recommender as from the file.
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("cpu.csv");
    std::fs::write(&trace, &found.out).unwrap();
    let rules = ["--resource", "cpu", "--rule", "goal", "--rule", "vpa", "-o", "json"];
    let of_file = run(&[&["backtest", "--trace", trace.to_str().unwrap()], &rules[..]].concat());
    let of_history = ask(&[&["backtest", "--history", "shop/deployment/web"], &rules[..]].concat());
    assert_eq!((of_history.status, &of_history.out), (0, &of_file.out), "{}", of_history.err);
    assert!(of_history.err.contains(gap), "{}", of_history.err);
    assert!(of_file.json()[1]["againstFirst"].is_object(), "{}", of_file.out);
    let none = ask(&["backtest", "--history", "deployment/none", "--resource", "cpu"]);
    assert_eq!(none.status, 1, "{none:?}");
    assert!(none.err.contains("no minute of it"), "{}", none.err);
    assert_eq!(ask(&["usage", "--series"]).status, 2);

    let predicted = ask(&["backtest", "--history", "--resource", "cpu", "--predicted", "-o", "json"]).json();
    let hours = &predicted[0];
    assert_eq!((&hours["windowSeconds"], &hours["held"][1]["value"]), (&json!(3600), &json!("max")));
    assert!(
        hours["windows"].as_u64().unwrap() > 80 && hours["confidence"].as_f64().unwrap() > 0.85,
        "{hours}"
    );
    assert!(hours["held"][1]["part"].as_f64().unwrap() > 0.85, "{hours}");
}

#[test]
fn seconds_of_the_agent_are_a_series_too() {
    let found = ask(&["usage", "--series", "--resource", "memory", "--local"]);
    assert_eq!(found.status, 0, "{found:?}");
    insta::assert_snapshot!("usage_series_local", found.out);
    assert_eq!(ask(&["usage", "--series", "--resource", "cpu", "--local", "--namespace", "none"]).status, 1);
}

#[test]
fn rules_are_set_side_by_side_at_equal_risk() {
    let found = ask(&["compare", "--rules", "initial,goal", "--equal-risk", "-o", "json"]).json();
    assert_eq!(found["now"].as_array().unwrap().len(), 2);
    let equal = found["equalRisk"].as_array().unwrap();
    let of =
        |at: usize| (equal[at]["resource"].clone(), equal[at]["rule"].clone(), equal[at]["series"].clone());
    assert_eq!(
        (of(0), of(1)),
        ((json!("cpu"), json!("initial"), json!(1)), (json!("cpu"), json!("goal"), json!(1)))
    );
    assert_eq!(equal.len(), 4);
    assert!(equal[1]["lessFirst"].is_array() && equal[1]["factor"].as_f64().unwrap() > 0.0, "{found}");
    let table = ask(&["compare", "--rules", "initial,goal", "--equal-risk"]).out;
    assert!(table.contains("AT EQUAL RISK"), "{table}");
}

#[test]
fn the_audit_record_is_shown_page_by_page_and_filtered() {
    insta::assert_snapshot!("audit_json", ask(&["audit", "-o", "json"]).out);
    insta::assert_snapshot!("audit_table", ask(&["audit"]).out);
    insta::assert_snapshot!("audit_csv", ask(&["audit", "-o", "csv"]).out);
    let count = |more: &[&str]| {
        let all = [&["audit", "-o", "json"], more].concat();
        ask(&all).json().as_array().unwrap().len()
    };
    assert_eq!(count(&["--limit", "1"]), 1);
    assert_eq!(count(&["--who", "anna"]), 1);
    assert_eq!(count(&["--outcome", "refused", "--kind", "node"]), 1);
    assert_eq!(count(&["--since", "1d"]), 0);
    assert_eq!(count(&["--since", "2023-11-14T22:13:20Z"]), 2);
    let damaged = ask(&["audit", "--name", "damaged"]);
    assert!(damaged.status == 1 && damaged.err.contains("a record is damaged"), "{damaged:?}");
    assert!(damaged.out.contains("shop/web"), "what can be read is shown");
    assert_eq!(run(&["audit", "--kind", "pod"]).status, 2);
}

#[test]
fn policies_are_shown_applied_and_deleted() {
    insta::assert_snapshot!("policy_table", ask(&["policy", "get", "-o", "wide"]).out);
    let one = ask(&["policy", "get", "web", "-n", "shop", "-o", "json"]);
    assert_eq!(one.json()["spec"]["rule"], "goal");
    let none = ask(&["policy", "get", "db", "-n", "shop"]);
    assert_eq!((none.status, none.out.as_str()), (1, ""));
    assert!(none.err.contains("there is no policy shop/db"), "{}", none.err);

    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let head = "apiVersion: evenkeel.dev/v1\nkind: Policy\nmetadata: {name: web, namespace: shop}\n";
    let good = file("good.yaml", &format!("{head}spec: {{target: {{}}}}\n"));
    insta::assert_snapshot!("policy_apply", ask(&["policy", "apply", "-f", &good, "--dry-run"]).out);
    let applied = ask(&["policy", "apply", "-f", &good, "-o", "json"]).json();
    assert_eq!((&applied[0]["outcome"], &applied[0]["dryRun"]), (&json!("changed"), &json!(false)));
    let bad = file("bad.yaml", &format!("{head}spec: {{target: {{}}, rules: goal}}\n"));
    let refused = ask(&["policy", "apply", "-f", &good, &bad]);
    assert_eq!((refused.status, refused.out.as_str()), (1, ""));
    assert!(refused.err.contains("spec.rules"), "{}", refused.err);
    assert_eq!(run(&["check", "-f", &good]).status, 0);
    let checked = run(&["check", "-f", &bad, "-o", "json"]);
    assert_eq!((checked.status, &checked.json()[0]["errors"][0]["where"]), (1, &json!("spec.rules")));

    assert_eq!(ask(&["policy", "delete", "web", "-n", "shop"]).out, "policy shop/web deleted\n");

    // Limit ranges and quotas go the same way.
    let range =
        "kind: LimitRange\napiVersion: v1\nmetadata: {name: bounds, namespace: shop}\nspec: {limits: []}\n";
    let both = file("both.yaml", &format!("{head}spec: {{target: {{}}}}\n---\n{range}"));
    let applied = ask(&["policy", "apply", "-f", &both]);
    assert!(applied.out.contains("policy shop/web changed\nLimitRange shop/bounds created\n"), "{applied:?}");
    let quota = range.replace("LimitRange", "ResourceQuota");
    let third = file("third.yaml", &format!("{head}spec: {{target: {{}}}}\n---\n{quota}"));
    let applied = ask(&["policy", "apply", "-f", &third]);
    assert!(applied.status == 1 && applied.out.starts_with("policy shop/web changed\n"), "{applied:?}");
    assert!(applied.err.contains("quotas are not yours"), "{applied:?}");
    let all = ask(&["policy", "get", "-n", "bounded"]);
    assert!(all.out.contains("Governs") && all.out.contains("LimitRange"), "{all:?}");
    assert_eq!(ask(&["policy", "get", "-n", "bounded", "-o", "json"]).json()[1]["kind"], "LimitRange");
    let one = ask(&["policy", "get", "bounds", "-n", "shop", "--kind", "limitrange"]);
    assert!(one.out.contains(r#""cpu":"10m""#), "{one:?}");
    let delete = |name: &str| ask(&["policy", "delete", name, "-n", "shop", "--kind", "LimitRange"]);
    assert_eq!(delete("bounds").out, "LimitRange shop/bounds deleted\n");
    let policy = delete("web");
    assert!(policy.status == 1 && policy.err.contains("knows policies alone"), "{policy:?}");
    assert_eq!(
        ask(&["policy", "panic", "on", "--reason", "drill", "-o", "json"]).json(),
        json!({"panic": true, "revert": false})
    );
    assert_eq!(
        ask(&["policy", "panic", "on"]).out,
        "the panic switch is on: recommendations change nothing, running containers keep the requests in force, classes are \
         enforced\n"
    );
    let back = ask(&["policy", "panic", "on", "--revert"]).out;
    assert!(back.contains("get back the requests that were asked for, step by step"), "{back}");
    assert_eq!(ask(&["policy", "panic", "off"]).out, "the panic switch is off: policies are carried out\n");
    assert_eq!(run(&["policy", "panic", "off", "--revert"]).status, 2);
    assert_eq!(run(&["policy", "panic", "maybe"]).status, 2);
}

#[test]
fn usage_and_nodes() {
    insta::assert_snapshot!("usage_json", ask(&["usage", "-o", "json"]).out);
    insta::assert_snapshot!("usage_table", ask(&["usage", "--window", "1h"]).out);
    insta::assert_snapshot!("nodes_json", ask(&["nodes", "-o", "json"]).out);
    insta::assert_snapshot!("nodes_table", ask(&["nodes"]).out);
    insta::assert_snapshot!("nodes_wide", ask(&["nodes", "-o", "wide"]).out);
    let namespaces = ask(&["namespaces"]);
    insta::assert_snapshot!("namespaces_table", namespaces.out);
    assert!(namespaces.err.contains("quotas are not known: objects: q.yaml"), "{}", namespaces.err);
    let json = ask(&["namespaces", "-o", "json"]).json();
    assert_eq!(json[0]["allocated"]["cpuMilli"]["quotaRequests"], 1000);
    assert_eq!((&json[1]["namespace"], &json[1]["allocated"]["pods"]), (&json!(null), &json!(1)));
    assert_eq!(run(&["usage", "--window", "0s"]).status, 2);
}

#[test]
fn updates_are_steps_and_what_is_left_alone() {
    insta::assert_snapshot!("updates_table", ask(&["updates"]).out);
    let json = ask(&["updates", "shop/web-a-x", "-o", "json"]).json();
    assert_eq!((&json["mode"], &json["steps"][0]["inputs"]["evict"]), (&json!("on"), &json!("never")));
    assert_eq!(json["leftAlone"][0]["reason"], "Rollout");
}

#[test]
fn choices_are_made_again_and_another_outcome_is_told() {
    let same = ask(&["updates", "--replay", "-o", "json"]).json();
    assert_eq!((&same["choices"], &same["same"], &same["differences"]), (&json!(1), &json!(1), &json!([])));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("choices.json");
    let replayed = |text: &str, more: &[&str]| {
        std::fs::write(&path, text).unwrap();
        ask(&[&["updates", "--replay", "--from", path.to_str().unwrap()], more].concat())
    };
    let cases = ask(&["updates", "--cases"]).out;
    let other = cases.replacen("\"evict\":\"always\"", "\"evict\":\"never\"", 1);
    let told = replayed(&format!("{other}{cases}"), &[]);
    assert_eq!(told.status, 1, "{told:?}");
    assert!(told.out.contains("evict a (Raise)") && told.out.contains("leave a (NoRoom)"), "{}", told.out);
    let unread = replayed(r#"{"version":9}"#, &["-o", "json"]).json();
    assert_eq!((&unread["choices"], unread["unread"].as_array().unwrap().len()), (&json!(0), 1));
    let wrong = replayed("7", &[]);
    assert!(wrong.status != 0 && wrong.err.contains("7 is no choice"), "{wrong:?}");
}

#[test]
fn a_workload_is_described_by_what_was_done_to_it() {
    let told = ask(&["describe", "--workload", "shop/deployment/web"]).out;
    assert!(told.contains("main: cpu 100m/- to 300m/-") && told.contains("OOMKilled"), "{told}");
    assert!(!told.contains("Rollout"), "{told}");
    let left = ask(&["describe", "--workload", "shop/deployment/db", "-o", "json"]).json();
    assert_eq!((&left["leftAlone"][0]["reason"], &left["steps"]), (&json!("Rollout"), &json!([])));
    assert!(ask(&["describe", "--workload", "shop/deployment/none"]).out.contains("no step was taken"));
    assert_eq!(run(&["describe", "--workload", "web"]).status, 2);
}

#[test]
fn admission_answers_with_the_exit_status() {
    let dir = tempfile::tempdir().unwrap();
    let pod = |name: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, name).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let fits = ask(&["admit", "-f", &pod("small"), "-o", "json"]);
    assert_eq!((fits.status, fits.json()), (0, json!({"fits": true, "short": []})));
    let no = ask(&["admit", "-f", &pod("large"), "-o", "json"]);
    let short = json!([{"resource": "cpu", "requested": "4", "free": "1", "by": "3"}]);
    assert_eq!((no.status, no.json()), (1, json!({"fits": false, "short": short})));
}

#[test]
fn nobody_there_is_told_with_the_remedy() {
    let found = run(&["status", "--agent", "unix:///nonexistent/agent.sock"]);
    assert_eq!((found.status, found.out.as_str()), (1, ""));
    assert!(found.err.contains("cannot reach the agent"), "{}", found.err);
    assert!(found.err.contains("No such file"), "{}", found.err);
    assert!(found.err.contains("start evenkeel-agent"), "{}", found.err);
    let refused = run(&["nodes", "-o", "json", "--recommender", "http://127.0.0.1:1"]);
    let error: serde_json::Value = serde_json::from_str(&refused.err).unwrap();
    assert_eq!(error["error"]["where"], "http://127.0.0.1:1");
    assert_eq!(run(&["status", "--agent", "localhost:1"]).status, 2);
}

#[test]
fn addresses_come_from_the_environment() {
    let servers = crate::answers::Servers::start();
    let found = crate::common::finish(
        crate::common::command(&["nodes", "-o", "json"]).env("EVENKEEL_RECOMMENDER", &servers.recommender),
    );
    assert_eq!(found.json()[0]["node"], "n1");
}

#[test]
fn capacity_is_counted_with_what_a_running_recommender_recommends() {
    let directory = tempfile::TempDir::new().unwrap();
    let write = |name: &str, value: serde_json::Value| {
        let path = directory.path().join(name);
        std::fs::write(&path, value.to_string()).unwrap();
        path.display().to_string()
    };
    let pod = json!({"kind": "Pod", "metadata": {"name": "web", "namespace": "shop"}, "spec": {"containers": [
        {"name": "app", "resources": {"requests": {"cpu": "1"}}},
    ]}});
    let node = json!({"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}});
    let (pod, cluster) = (write("pod.json", pod), write("cluster.json", node));
    let answer =
        ask(&["capacity", "-f", &pod, "--snapshot", &cluster, "--what-if", "recommended", "-o", "json"])
            .json();
    assert_eq!(
        (&answer["count"], &answer["recommended"]["count"]),
        (&json!(4), &json!(16)),
        "250m in place of 1 core"
    );
}

#[test]
fn capacity_of_a_live_cluster_is_asked_of_the_recommender() {
    let directory = tempfile::TempDir::new().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let pod = |name: &str, cpu: &str| {
        let requests = json!({ "cpu": cpu });
        let pod = json!({"kind": "Pod", "metadata": {"name": name, "namespace": "shop"}, "spec": {"containers": [
            {"name": "app", "resources": {"requests": requests}},
        ]}});
        write(name, &pod.to_string())
    };
    let (web, first, cluster) =
        (pod("web", "500m"), pod("first", "1"), write("cluster.json", crate::answers::CLUSTER));
    let types = write("types.csv", "name,cpu,memory,pods,price\nlarge,8,16Gi,110,1.5\n");
    let config = write("scheduler.yaml", "kind: KubeSchedulerConfiguration\nprofiles: []\n");
    // What is asked of the recommender is answered as what is asked of a file, in every form.
    for options in [
        &[][..],
        &["--max", "3", "--steps", "2", "-o", "wide"],
        &["--steps", "all", "--reserve", "cpu=1,memory=1Gi", "--namespace", "other"],
        &["--place", &first, "--nodes", "pool=a", "--need", "9", "--add", &types],
        &[
            "--exclude-nodes",
            "n2",
            "--lose",
            "any",
            "--drain",
            "n1",
            "--preempt",
            "--trials",
            "2",
            "--seed",
            "7",
        ],
        &[
            "--daemonset",
            "--compact",
            "--defrag",
            "2",
            "--scheduler-version",
            "1.34",
            "--scheduler-config",
            &config,
        ],
        &["-f", &first, "-o", "csv"],
        &["-o", "yaml"],
        &["-o", "json", "--preempt", "--steps", "1"],
    ] {
        let asked = [&["capacity", "-f", &web], options].concat();
        let of_file = run(&[&asked[..], &["--snapshot", &cluster]].concat());
        let of_recommender = ask(&asked);
        assert_eq!(
            (of_recommender.status, of_recommender.out),
            (of_file.status, of_file.out.clone()),
            "{options:?}"
        );
        assert!(of_file.err.is_empty() && !of_file.out.is_empty(), "{of_file:?}");
    }
    assert_eq!(ask(&["capacity", "-f", &web, "--cluster", "c", "-o", "json"]).json()["count"], 8);
    assert_eq!(ask(&["capacity", "-f", &web, "--need", "9"]).status, 1);

    let empty = ask(&["capacity", "-f", &web, "--cluster", "empty"]);
    assert!(empty.status == 1 && empty.err.contains("knows no node"), "{empty:?}");
    assert!(empty.err.contains("kubernetes.view"), "{}", empty.err);
    let unknown = ask(&["capacity", "-f", &web, "--cluster", "other"]);
    assert!(unknown.status == 1 && unknown.err.contains("no agent of cluster other"), "{unknown:?}");
    for (more, why) in
        [(["--types", &types], "resource types of its own"), (["--what-if", &types], "recommends itself")]
    {
        let refused = ask(&[&["capacity", "-f", &web][..], &more].concat());
        assert!(refused.status == 2 && refused.err.contains(why), "{refused:?}");
    }
    let wrong = ask(&["capacity", "-f", &types]);
    assert!(wrong.status == 1 && wrong.err.contains("types.csv"), "{wrong:?}");
    assert_eq!(ask(&["capacity", "-f", &web, "--live", "--cluster", "c"]).status, 2);
    let nobody = run(&["capacity", "-f", &web, "--recommender", "unix:///nonexistent/r.sock"]);
    assert_eq!((nobody.status, nobody.out.as_str()), (1, ""));
    for part in ["cannot reach the recommender", "--recommender", "--snapshot", "--live"] {
        assert!(nobody.err.contains(part), "{}", nobody.err);
    }
}
