//! Names that steer a terminal, turn text around, begin a formula or fill a screen do nothing in what people and programs read.

use anyhow::{Context, Result, ensure};
use evenkeel_proto::v1;
use evenkeel_tests::product::{Pair, Recommender, parse_metrics};
use evenkeel_tests::{machine, require};
use serde_json::Value;

use super::forged::{Forged, hello};

const NAMES: [&str; 10] = [
    "\u{1b}[2J\u{1b}[31mred",
    "\u{1b}]0;title\u{7}\u{1b}]52;c;ZXZpbA==\u{7}",
    "\u{9b}31m\u{9d}0;title\u{9c}",
    "nul\0byte",
    "line\nfake-row   connected\r\n",
    "cod\u{202e}gpj.exe\u{2066}",
    "=HYPERLINK(\"http://evil.example\",\"click\")",
    "-2+3+cmd|' /C calc'!A0",
    "@SUM(1+1)",
    "<script>alert(1)</script>",
];
/// All of it that an argument of a program can hold.
const REASON: &str = "a drill \u{1b}]0;title\u{7}\u{9b}31m\u{202e}gpj\nfake-row";
const LONG: usize = 64 << 10;
const FORMATS: [&str; 5] = ["table", "wide", "csv", "json", "yaml"];
const POLICY: &str = "
apiVersion: evenkeel.dev/v1
kind: Policy
metadata: {name: all, namespace: default}
spec:
  target: {}
  updatePolicy: {mode: off}
";

/// A container of a name in every string.
fn container(slot: u32, namespace: &str, name: &str) -> v1::Announcement {
    let name = name.to_string();
    let identity = v1::ContainerIdentity {
        id: name.clone(),
        namespace: namespace.to_string(),
        pod: name.clone(),
        pod_uid: name.clone(),
        container: name.clone(),
        workload: name.clone(),
        image: name.clone(),
        labels: [(name.clone(), name)].into(),
        ..v1::ContainerIdentity::default()
    };
    v1::Announcement { slot, identity: Some(identity) }
}

/// A decision of a name in every string.
fn decision(seq: u64, name: &str) -> v1::Decision {
    let name = name.to_string();
    v1::Decision {
        seq,
        pod: Some(name.clone()),
        container: Some(name.clone()),
        kind: name.clone(),
        knob: Some(name.clone()),
        old: Some(name.clone()),
        new: Some(name.clone()),
        reason: name.clone(),
        inputs: [(name.clone(), name.clone())].into(),
        result: name.clone(),
        node: name,
        ..v1::Decision::default()
    }
}

/// A node that tells a name wherever a text fits, and half a minute of two containers.
fn tell(address: &str, name: &str, epoch: u64) -> Result<()> {
    let greeting = v1::Hello {
        cluster: name.to_string(),
        boot_id: name.to_string(),
        version: name.to_string(),
        ..hello(name, epoch)
    };
    let mut forged = Forged::greet(address, greeting)?;
    let mut frames = (0..30).map(|_| forged.second(0..2)).collect::<Result<Vec<_>>>()?;
    let first = frames.first_mut().context("there are thirty")?;
    first.announced = vec![container(0, name, name), container(1, "default", name)];
    // One of a kind that is known, too.
    first.decisions = vec![decision(1, name), v1::Decision { kind: "set".into(), ..decision(2, name) }];
    forged.send(frames)?;
    forged.acknowledged()
}

/// What is too long is refused, cut or dropped, and counted.
fn tell_long(address: &str, recommender: &Recommender) -> Result<()> {
    let long = "x".repeat(LONG);
    for greeting in [
        v1::Hello { cluster: long.clone(), ..hello("long", 900) },
        hello(&long, 900),
        v1::Hello { version: long.clone(), ..hello("long", 900) },
    ] {
        let error = Forged::greet(address, greeting).err().context("a Hello of 64 KiB is taken")?;
        let status = error.downcast_ref::<tonic::Status>().with_context(|| format!("{error:#}"))?;
        ensure!(status.code() == tonic::Code::InvalidArgument, "{status}");
        ensure!(status.message().contains("65536 bytes"), "{status}");
    }
    let mut forged = Forged::greet(address, hello("long", 901))?;
    let mut frame = forged.second(0..0)?;
    let mut labelled = container(1, "default", "labelled");
    if let Some(identity) = &mut labelled.identity {
        identity.labels = [("label".to_string(), long.clone())].into();
    }
    frame.announced = vec![container(0, "default", &long), labelled];
    frame.decisions = vec![decision(1, &long)];
    forged.send(vec![frame])?;
    forged.acknowledged()?;
    let metrics = parse_metrics(&recommender.get("/metrics")?.1)?;
    // The one that is refused counts for its labels as well.
    for (counter, count) in [("refused_containers", 1.0), ("dropped_labels", 2.0), ("cut_decisions", 1.0)] {
        let found = metrics.sum(&format!("evenkeel_recommender_{counter}_total"));
        ensure!(found == Some(count), "{counter}: {found:?}");
    }
    Ok(())
}

/// The first character that does something besides being seen, but for the ends of lines.
fn steering(text: &str) -> Option<char> {
    text.chars().find(|c| {
        let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        turns || (c.is_control() && *c != '\n')
    })
}

/// Cells of comma-separated values (RFC 4180).
fn cells(csv: &str) -> Vec<String> {
    let (mut cells, mut cell, mut quoted) = (Vec::new(), String::new(), false);
    let mut chars = csv.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => cell.extend(chars.next()),
            '"' => quoted = !quoted,
            ',' | '\n' if !quoted => cells.push(std::mem::take(&mut cell)),
            c => cell.push(c),
        }
    }
    cells.push(cell);
    cells
}

/// Whether a spreadsheet would compute a cell; a dash and a number with its unit are what they seem.
fn is_formula(cell: &str) -> bool {
    let harmless =
        |rest: &str| rest.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '%' | ' '));
    match cell.chars().next() {
        Some('=' | '@') => true,
        Some('+' | '-') => !harmless(&cell[1..]),
        _ => false,
    }
}

/// Asks in every form and returns what was said, table first.
fn said(pair: &Pair, words: &[&str]) -> Result<Vec<String>> {
    let mut said = Vec::new();
    for format in FORMATS {
        let all = [words, &["-o", format]].concat();
        let ended = pair.cli().run(&all)?;
        let text = ended.said();
        if format == "csv" && ended.status == Some(2) {
            ensure!(text.contains("it is not one table"), "{all:?}: {text}");
            said.push(String::new());
            continue;
        }
        ensure!(ended.status == Some(0), "{all:?}: {text}");
        ensure!(steering(&text).is_none(), "{all:?}: {:?} in {text:?}", steering(&text));
        ensure!(!text.lines().any(|line| line.starts_with("fake-row")), "{all:?}: {text}");
        match format {
            "csv" => {
                let formula = cells(&text).into_iter().find(|cell| is_formula(cell));
                ensure!(formula.is_none(), "{all:?}: {formula:?}");
            }
            "json" => {
                let _: Value = serde_json::from_str(&ended.stdout).with_context(|| text.clone())?;
            }
            _ => {}
        }
        said.push(ended.stdout);
    }
    Ok(said)
}

#[test]
fn the_readers_of_these_tests_see_what_they_should() {
    let text = "A,B\n\"x, \"\"y\"\"\",'=1\n";
    assert_eq!(cells(text), ["A", "B", "x, \"y\"", "'=1", ""]);
    assert!(["=1", "@a", "+1+1", "-2+3"].iter().all(|cell| is_formula(cell)));
    assert!(!["-", "-1.5Mi", "+3 %", "'=1", "a=b"].iter().any(|cell| is_formula(cell)));
    assert_eq!(NAMES.iter().filter(|name| steering(name).is_some()).count(), 6);
}

#[test]
fn hostile_names_of_a_forged_node_do_nothing_in_any_output_or_log() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let Pair { site, recommender } = Pair::new()?;
    let site = site.with(|agent| agent.set("overlay.accept", "true"));
    let recommender = recommender.set("panic_file", &format!("{:?}", site.directory().join("panic")));
    let pair = Pair { site, recommender };
    let (recommender, agent) = (pair.recommender.start()?, pair.site.start()?);
    let policy = pair.site.directory().join("all.yaml");
    std::fs::write(&policy, POLICY).context("cannot write a policy")?;
    let policy = policy.to_str().context("the path is text")?;
    pair.cli().run(&["policy", "apply", "-f", policy])?.success()?;
    for (epoch, name) in (100..).zip(NAMES) {
        tell(&pair.recommender.address(), name, epoch).with_context(|| format!("{name:?}"))?;
    }
    tell_long(&pair.recommender.address(), &recommender)?;
    pair.cli().run(&["policy", "panic", "on", "--reason", REASON])?.success()?;
    agent.await_status("the panic switch to arrive", |status| status.panic)?;

    for words in [
        &["nodes"][..],
        &["namespaces"],
        &["recommend"],
        &["usage"],
        &["events", "--all-nodes"],
        &["compare"],
    ] {
        let said = said(&pair, words)?;
        for visible in ["HYPERLINK", "<script>", "calc"] {
            ensure!(
                said.iter().all(|text| text.contains(visible)),
                "{words:?} leaves {visible} out: {said:?}"
            );
        }
    }
    for words in [&["policy", "get"][..], &["policy", "get", "all"], &["status"], &["events"], &["audit"]] {
        said(&pair, words)?;
    }
    // What has a form of its own, and what is refused.
    for words in [
        &["recommend", "-o", "patch"][..],
        &["usage", "--series", "--resource", "cpu"],
        &["snapshot", "--reported", "-"],
        &["snapshot", "--reported", "--cluster", NAMES[5], "-"],
        &["recommend", "-n", NAMES[0]],
        &["describe", NAMES[2]],
    ] {
        let text = pair.cli().run(words)?.said();
        ensure!(steering(&text).is_none(), "{words:?}: {:?} in {text:?}", steering(&text));
        ensure!(!text.lines().any(|line| line.starts_with("fake-row")), "{words:?}: {text}");
    }
    // Escaped, and still the same.
    let nodes = pair.cli().json(&["nodes"])?;
    let known: Vec<&str> =
        nodes.as_array().context("a list")?.iter().filter_map(|n| n["node"].as_str()).collect();
    ensure!(NAMES.iter().all(|name| known.contains(name)), "{known:?}");

    agent.stop()?;
    recommender.stop()?;
    for (program, told) in [("evenkeel-agent", "panic switch"), ("evenkeel-recommender", "HYPERLINK")] {
        let log = std::fs::read(pair.site.directory().join(format!("{program}.log")))?;
        let log = String::from_utf8(log).with_context(|| format!("{program} logs what is no text"))?;
        ensure!(log.contains(told), "{told} is not in the log of {program}: {log}");
        ensure!(steering(&log).is_none(), "{program}: {:?} in {log:?}", steering(&log));
    }
    Ok(())
}
