//! `evenkeel backtest` from the outside: forms of its answers, files it writes, how it refuses.

use std::fmt::Write as _;
use std::io::Write as _;

use crate::common::{Run, run, run_with};

/// Ten days of two series, a sample every five minutes: one calm, one busy by day.
fn trace() -> String {
    let mut text = String::from("series,t,value\n");
    for at in 0..=10 * 288u32 {
        let busy = if (at / 12) % 24 >= 8 { 2.0 } else { 0.25 };
        writeln!(text, "calm,{},0.5\n\"day, busy\",{},{busy}", at * 300, at * 300).unwrap();
    }
    text
}

fn backtest(more: &[&str]) -> Run {
    run_with(&[&["backtest", "--trace", "-", "--resource", "cpu"], more].concat(), &trace())
}

#[test]
fn one_rule_is_an_object_and_several_are_a_list() {
    let one = backtest(&["-o", "json"]);
    assert_eq!(one.status, 0, "{one:?}");
    let one = one.json();
    assert_eq!((&one["rule"], &one["resource"]), (&"goal".into(), &"cpu".into()));
    assert_eq!(one["series"][1]["series"], "day, busy");
    for key in ["slack", "over", "oom24", "churn"] {
        assert!(one["overall"][key].is_number() && one["series"][0][key].is_number(), "{key}: {one}");
    }
    assert_eq!(one["overall"]["over"], 0.0);
    let several = backtest(&["--rule", "goal", "--rule", "vpa:percentile=0.99", "-o", "json"]).json();
    assert_eq!(several.as_array().map(Vec::len), Some(2));
    assert_eq!(several[1]["rule"], "vpa:percentile=0.99");
    assert_eq!(several[0], one);
    let table = backtest(&["--rule", "goal", "--rule", "vpa"]).out;
    assert!(table.starts_with("RULE   SERIES   STEPS   SLACK") && table.lines().count() == 6, "{table}");
}

#[test]
fn rules_are_held_against_the_first_with_intervals() {
    let several = backtest(&["--rule", "goal", "--rule", "krr", "--rule", "p99-7d", "-o", "json"]).json();
    assert!(several[0]["againstFirst"].is_null(), "{several}");
    for (at, key) in
        (1..3).flat_map(|at| ["slack", "slackAtEqualRisk", "over", "changesADay"].map(|key| (at, key)))
    {
        let of = |part: usize| several[at]["againstFirst"][key][part].as_f64().unwrap();
        assert!(of(1) <= of(0) && of(0) <= of(2), "{key}: {several}");
    }
    // The 95th percentile of a container that is calm in every second is no request with room.
    assert!(several[1]["againstFirst"]["slack"][0].as_f64().unwrap() < 0.0, "{several}");
    assert!(several[1]["overall"]["cappedOver"].as_f64() <= several[1]["overall"]["over"].as_f64());
    let table = backtest(&["--rule", "goal", "--rule", "krr", "-o", "wide"]).out;
    assert!(table.contains("LESS goal") && table.contains("EXPECTED OVER"), "{table}");
}

#[test]
fn halves_of_a_trace_are_held_against_each_other() {
    let args = ["--rule", "goal", "--rule", "krr:min-cpu=0", "--halves"];
    let rules = backtest(&[&args[..], &["-o", "json"]].concat()).json();
    let number = |rule: usize, half: usize, key: &str| rules[rule]["halves"][half][key].as_f64().unwrap();
    let names: Vec<&str> = (0..4).map(|half| rules[0]["halves"][half]["half"].as_str().unwrap()).collect();
    assert_eq!(names, ["odd series", "even series", "first half of time", "second half of time"]);
    // `calm` alone, and `day, busy` alone: krr asks each for what it uses, of which 95 % is less.
    assert_eq!((number(1, 0, "over"), number(1, 1, "over") > 0.6), (1.0, true), "{rules}");
    // The same days again and again: what brings one half to the goal does so on the other.
    for (rule, half) in [(0, 2), (0, 3), (1, 2), (1, 3)] {
        assert!(number(rule, half, "unseenOver") <= 0.01, "{rules}");
        assert!((0.0..0.6).contains(&number(rule, half, "unseenSlack")), "{rules}");
    }
    let table = backtest(&args).out;
    assert!(table.contains("HALF") && table.matches("half of time").count() == 4, "{table}");
}

/// One of two series is busy by day: what it gives back at night has room for others then, and only then.
#[test]
fn what_hourly_requests_free_is_told_by_the_hour() {
    let rules = ["--rule", "goal", "--rule", "goal:change=hourly", "--every", "1h", "--by-hour", "0.5"];
    let table = backtest(&rules).out;
    let row = |hour: &str| -> Vec<f64> {
        let line = table.lines().find(|line| line.starts_with(hour)).unwrap();
        line.split_whitespace().skip(1).map(|cell| cell.parse().unwrap()).collect()
    };
    assert_eq!(table.lines().count(), 25, "{table}");
    // Until five the last hours of the day before are kept to.
    let (night, noon) = (row("06"), row("12"));
    assert!(night[2] > 1.5 && night[3] >= 3.0 && noon[3] == 0.0, "{table}");
    assert!((night[0] - night[1] - night[2]).abs() < 0.02, "{table}");
    let refused = run(&["backtest", "--trace", "/dev/null", "--resource", "cpu", "--by-hour", "0"]);
    assert!(refused.status == 2 && refused.err.contains("above 0"), "{}", refused.err);
}

#[test]
fn requests_by_the_hour_are_set_and_counted() {
    let day = backtest(&["-o", "json"]).json();
    let hourly = backtest(&["--rule", "goal:change=hourly", "--every", "1h", "-o", "json"]).json();
    let number = |of: &serde_json::Value, key: &str| of["series"][1][key].as_f64().unwrap();
    // Busy for sixteen hours, with an eighth of it in the others.
    assert!(number(&hourly, "slack") < number(&day, "slack") - 0.03, "{hourly}");
    assert!((1.0..=8.0).contains(&number(&hourly, "changesADay")), "{hourly}");
    assert!(number(&hourly, "over") <= 0.01 && number(&day, "changesADay") < 0.5, "{hourly}");
}

#[test]
fn requests_and_chart_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (requests, svg, gz) = (path("r.csv"), path("c.svg"), path("t.csv.gz"));
    let file = std::fs::File::create(&gz).unwrap();
    let mut encoder = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    encoder.write_all(trace().as_bytes()).unwrap();
    encoder.finish().unwrap();
    let done = run(&[
        "backtest",
        "--trace",
        &gz,
        "--resource",
        "cpu",
        "--requests-out",
        &requests,
        "--svg",
        &svg,
        "--series",
        "day, busy",
    ]);
    assert_eq!(done.status, 0, "{done:?}");
    let written = std::fs::read_to_string(&requests).unwrap();
    let lines: Vec<&str> = written.lines().collect();
    // At 7, 8, 9 and 10 days, for each series.
    assert_eq!((lines[0], lines.len()), ("series,t,request,lower,upper", 9));
    let first: Vec<&str> = lines[1].split(',').collect();
    assert_eq!(first[..2], ["calm", "604800"]);
    let number = |at: usize| first[at].parse::<f64>().unwrap();
    assert!(
        number(3) <= number(2) && 0.5 < number(2) && number(2) < 0.7 && number(2) <= number(4),
        "{first:?}"
    );
    assert!(lines[5].starts_with("\"day, busy\",604800,2."), "{}", lines[5]);
    assert!(std::fs::read_to_string(&svg).unwrap().contains("day, busy: cpu used and requested"));
}

#[test]
fn one_time_is_answered_from_what_lies_before() {
    let answer = backtest(&["--at", "172800", "-o", "json"]).json();
    assert_eq!((&answer[0]["series"], &answer[0]["tier"]), (&"calm".into(), &"own".into()));
    assert_eq!(answer[0]["spanSeconds"], 172_800);
    let same = backtest(&["--at", "1970-01-03T00:00:00Z", "-o", "json"]).json();
    assert_eq!(answer, same);
    let before = backtest(&["--at", "0", "-o", "json"]);
    assert_eq!((before.status, &before.json()[0]["tier"]), (1, &"none".into()));
}

#[test]
fn rows_of_csv() {
    let rows = backtest(&["--csv"]).out;
    assert!(
        rows.starts_with("rule,series,steps,slack,over,oom24,churn,capped_over,changes_a_day\ngoal,calm,3,"),
        "{rows}"
    );
    assert!(rows.contains("\ngoal,\"day, busy\",3,"), "{rows}");
}

#[test]
fn refusals_name_place_reason_and_remedy() {
    let bad =
        run_with(&["backtest", "--trace", "-", "--resource", "cpu"], "series,t,value\na,1,2\na,2,NaN\n");
    assert_eq!(bad.status, 1);
    assert!(bad.err.contains("standard input, line 3") && bad.err.contains("is no number"), "{}", bad.err);
    for (more, part) in [
        (&["--rule", "p99"][..], "there are goal, vpa, vpa-p99, initial, krr, p99-7d"),
        (&["--rule", "vpa:half-life=1"], "such as 7d or 24h"),
        (&["--warmup", "7"], "such as 7d or 24h"),
        (&["--rule", "goal", "--rule", "vpa", "--requests-out", "/dev/null"], "give one --rule"),
        (&["--resource", "disk"], "--resource"),
    ] {
        // Refused before anything is read.
        let refused = run(&[&["backtest", "--trace", "/dev/null", "--resource", "cpu"], more].concat());
        assert_eq!((refused.status, refused.out.as_str()), (2, ""), "{more:?}");
        assert!(refused.err.contains(part), "{}", refused.err);
    }
    let unknown = backtest(&["--svg", "/dev/null", "--series", "none"]);
    assert!(unknown.status == 1 && unknown.err.contains("it has calm, day, busy"), "{}", unknown.err);
    let none = run(&["backtest", "--trace", "/nonexistent/t.csv", "--resource", "cpu"]);
    assert!(none.status == 1 && none.err.contains("/nonexistent/t.csv"), "{}", none.err);
}

/// An answer of which only the beginning comes.
const BREAKS_OFF: &str = r#"{"status":"success","data":"#;

/// A Prometheus of canned answers, one for each connection; the last one is given again.
fn prometheus(answers: Vec<String>) -> String {
    use std::io::Read as _;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for at in 0.. {
            let Ok((mut stream, _)) = listener.accept() else { return };
            let mut asked = Vec::new();
            let mut byte = [0; 1];
            while !asked.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n == 1) {
                asked.push(byte[0]);
            }
            let answer = &answers[answers.len().min(at + 1) - 1];
            // `START` stands for the start that was asked for.
            let text = String::from_utf8_lossy(&asked).into_owned();
            let start =
                text.split("start=").nth(1).map_or("0", |rest| rest.split(['.', '&', ' ']).next().unwrap());
            let start: u64 = start.parse().unwrap_or(0);
            let body = match answer.strip_prefix("SERIES ") {
                Some(value) => {
                    let values: Vec<String> =
                        (0..288).map(|n| format!("[{},\"{value}\"]", start + n * 300)).collect();
                    let metric = r#"{"namespace":"shop","pod":"web-1","container":"main"}"#;
                    let values = values.join(",");
                    format!(
                        r#"{{"status":"success","warnings":["half of it"],"data":{{"resultType":"matrix","result":[{{"metric":{metric},"values":[{values},[{start},"NaN"]]}}]}}}}"#
                    )
                }
                None => answer.clone(),
            };
            // One that breaks off has told of more than comes.
            let length = body.len() + usize::from(answer == BREAKS_OFF);
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
            );
        }
    });
    url
}

#[test]
fn a_prometheus_is_replayed_with_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.html");
    let url = prometheus(vec!["SERIES 0.5".into()]);
    let done = run(&[
        "backtest",
        "--prometheus",
        &url,
        "--resource",
        "cpu",
        "--rule",
        "goal",
        "--rule",
        "krr",
        "--since",
        "12d",
        "--html",
        report.to_str().unwrap(),
        "--price",
        "0.03",
        "-o",
        "json",
    ]);
    assert_eq!(done.status, 0, "{done:?}");
    let answer = done.json();
    assert_eq!(answer[0]["series"][0]["series"], "shop/web-1/main");
    assert!(answer[0]["overall"]["steps"].as_u64() >= Some(4), "{answer}");
    assert!(
        done.err.contains("Prometheus warns: half of it") && done.err.contains("12 samples"),
        "{}",
        done.err
    );
    let html = std::fs::read_to_string(report).unwrap();
    assert!(html.contains("<svg") && html.contains("unused, a month"), "{html}");
}

#[test]
fn a_cluster_without_a_recommender_is_answered_from_prometheus() {
    let url = prometheus(vec!["SERIES 0.5".into()]);
    let done = run(&["recommend", "--prometheus", &url, "-o", "json"]);
    let answer = done.json();
    assert_eq!((done.status, &answer[0]["series"]), (0, &"shop/web-1/main".into()), "{done:?}");
    let cpu = answer[0]["request"].as_f64().unwrap();
    assert!((0.5..0.65).contains(&cpu) && answer[1]["resource"] == "memory", "{answer}");
    let none = run(&["recommend", "--prometheus", &url, "--namespace", "other", "-o", "json"]);
    assert_eq!((none.status, none.out.trim()), (1, "[]"), "{none:?}");
}

#[test]
fn what_a_prometheus_does_wrong_is_told_with_a_remedy() {
    let refuses = r#"{"status":"error","errorType":"bad_data","error":"unknown function"}"#;
    let vector = r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#;
    let empty = r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#;
    for (answer, part) in [
        (refuses, "it refuses: unknown function"),
        (vector, "no matrix"),
        (empty, "no sample for the query"),
        (BREAKS_OFF, "its answer broke off"),
        ("<html>login</html>", "no answer of Prometheus"),
        (r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":7}]}}"#, "no matrix"),
    ] {
        let url = prometheus(vec![answer.to_owned()]);
        let done = run(&["backtest", "--prometheus", &url, "--resource", "cpu", "--since", "1d"]);
        assert!(done.status == 1 && done.err.contains(part), "{answer}: {}", done.err);
    }
    // One that takes the question and says nothing: the kernel takes it for a program that does not listen to it.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    for command in [&["backtest", "--resource", "cpu"][..], &["recommend"]] {
        let done = run(&[command, &["--prometheus", &url, "--timeout", "1s"]].concat());
        let err = &done.err;
        assert!(
            done.status == 1 && err.contains("no answer within 1s") && err.contains("--timeout"),
            "{err}"
        );
    }
    let gone = run(&["backtest", "--prometheus", "http://127.0.0.1:1", "--resource", "cpu"]);
    assert!(gone.status == 1 && gone.err.contains("cannot ask Prometheus"), "{}", gone.err);
    let step = run(&["backtest", "--prometheus", "http://127.0.0.1:1", "--resource", "cpu", "--step", "1s"]);
    assert!(step.status == 2 && step.err.contains("--step"), "{}", step.err);
}
