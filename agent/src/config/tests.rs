//! Tables at the boundary: what is refused and how it is said, and who wins.

use std::path::PathBuf;

use evenkeel_enforce::config::Mode;
use evenkeel_enforce::converge::rules::FreezeWhen;

use super::check::check;
use super::raw::Raw;
use super::{Flag, Loaded, load, toml};

fn with_file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.toml");
    std::fs::write(&path, text).unwrap();
    (dir, path)
}

fn env(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

/// The error without the directory, which differs from run to run.
fn said(text: &str, vars: &[(&str, &str)]) -> String {
    let (dir, path) = with_file(text);
    let errors = match load(Some(&path), env(vars), &[]) {
        Err(errors) => errors.0,
        Ok(loaded) => check(&loaded).unwrap_err(),
    };
    let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
    lines.join("\n").replace(&format!("{}/", dir.path().display()), "")
}

#[test]
fn errors_name_place_key_reason_and_remedy() {
    insta::assert_snapshot!(said("[converge]\naudit_perod = \"5s\"", &[]));
    insta::assert_snapshot!(said("colour = 1", &[]));
    insta::assert_snapshot!(said("[sample]\ninterval = 5", &[]));
    insta::assert_snapshot!(said("[sample]\ninterval = \"1ms\"\n[converge]\nfreeze = \"often\"", &[]));
    insta::assert_snapshot!(said("mode = \"on\"", &[]));
    insta::assert_snapshot!(said("[node\n", &[]));
    insta::assert_snapshot!(said("", &[("EVENKEEL_AGENT_SAMPLE__INTERVL", "2s")]));
    insta::assert_snapshot!(said(
        "",
        &[("EVENKEEL_AGENT_SERVE__METRICS", "9523"), ("EVENKEEL_AGENT_NODE__NAME", "123")]
    ));
    insta::assert_snapshot!(said("[manage]\ndeny = [\"system.slice\"]", &[]));
}

#[test]
fn units_are_switched_with_quotes_and_without() {
    use super::sections::systemd::Enabled;
    for (written, wanted) in [
        ("\"auto\"", Enabled::Auto),
        ("true", Enabled::Yes),
        ("\"true\"", Enabled::Yes),
        ("false", Enabled::No),
        ("\"false\"", Enabled::No),
    ] {
        let (_dir, path) = with_file(&format!("[sources.systemd]\nenabled = {written}\n"));
        let config = check(&load(Some(&path), [], &[]).unwrap()).unwrap();
        assert_eq!(config.sources.systemd.enabled, wanted, "{written}");
    }
    let error = said("[sources.systemd]\nenabled = \"no\"", &[]);
    assert!(error.contains("expected true, false or \"auto\""), "{error}");
}

/// The configuration of the manifest, by the reader that its pod has.
#[test]
fn the_manifest_for_kubernetes_is_valid_and_streams_over_tls() {
    let manifest = include_str!("../../../packaging/kubernetes/base/agent.yaml");
    let bounds = evenkeel_model::yaml::YamlBounds { documents: 10, nodes: 10_000 };
    let all: Vec<serde_json::Value> = evenkeel_model::yaml::documents(manifest, bounds).unwrap();
    let text = all.iter().find_map(|object| object["data"]["agent.toml"].as_str()).unwrap();
    let (_dir, path) = with_file(text);
    let config = check(&load(Some(&path), [], &[]).unwrap()).unwrap();
    assert_eq!((config.stream.in_the_clear, config.trust.insecure), (None, None));
    assert_eq!(config.stream.recommenders, ["https://evenkeel-recommender.evenkeel.svc:9520"]);
    assert_eq!(config.stream.trust.ca, Some("/var/run/secrets/evenkeel/ca.crt".into()));
    assert!(config.stream.trust.token.is_some() && !config.stream.trust.insecure);
}

#[test]
fn annotations_are_trusted_nowhere_beside_a_kubelet() {
    let text = "rules = \"kubelet\"\n[manage]\ntrust_annotations = [\"tenant\"]";
    assert!(said(text, &[]).contains("manage.trust_annotations"));
    let (_dir, path) = with_file("[manage]\ntrust_annotations = [\"mine\"]");
    let config = check(&load(Some(&path), [], &[]).unwrap()).unwrap();
    assert_eq!(config.enforce.manage.trust_annotations, ["mine"]);
    assert!(Raw::default().manage.trust_annotations.is_empty());
}

#[test]
fn what_contradicts_itself_about_the_node_is_refused_by_key() {
    for (text, key) in [
        ("[memory.workloads_cap]\nenabled = true", "memory.workloads_cap.cgroup: no cgroup is named"),
        ("[memory.workloads_cap]\nenabled = true\ncgroup = \"/\"", "memory.workloads_cap.cgroup"),
        ("[memory.workloads_cap]\nmargin_percent = 1001", "memory.workloads_cap.margin_percent"),
        ("[memory]\novercommit = \"always\"", "memory.overcommit"),
        ("[node.allocatable]\npods = -1", "node.allocatable: pods is -1"),
        ("[node.allocatable]\ncpu = \"1x\"", "node.allocatable"),
        ("[node]\nallocatable = {cpu = 2}\nreserve = {cpu = \"3\"}", "node.reserve: 3 of cpu is more"),
        (
            "[node]\ncpu_conversion_factor = 0",
            "node.cpu_conversion_factor: cpuConversionFactor 0 is outside 0.1 to 10",
        ),
        ("[node]\ncpu_conversion_factor = 1000", "node.cpu_conversion_factor"),
        (
            "[resources.\"example.com/seat\"]\ndefaultRequest = 1",
            "resources: resource type example.com/seat has no units",
        ),
        ("[resources.hadoop]\nunits = \"slot\"", "has no subdomain"),
        ("[resources.\"kubernetes.io/hadoop\"]\nunits = \"slot\"", "is reserved"),
        ("[daemons]\nunits = [\"kubelet\"]", "daemons.units"),
        ("[daemons]\nexecutables = [\"bin/kubelet\"]", "daemons.executables"),
        ("[daemons]\ncgroups = [\"system.slice\"]", "daemons.cgroups"),
    ] {
        let said = said(text, &[]);
        assert!(said.contains(key), "{text}: {said}");
    }
    let (_dir, path) = with_file(
        "[node]\ncpu_conversion_factor = 1.25\n[node.allocatable]\n\"nvidia.com/gpu\" = 2\nmemory = \"3Gi\"\n\
         [resources.\"example.com/seat\"]\nunits = \"\"\nquantization = 2",
    );
    let loaded = load(Some(&path), [], &[]).unwrap();
    let config = check(&loaded).unwrap();
    assert_eq!((config.enforce.allocatable.stated.len(), config.cpu_factor.milli()), (2, 1250));
    let (_dir, again) = with_file(&toml(&loaded.value));
    assert_eq!(load(Some(&again), [], &[]).unwrap().value, loaded.value);
}

#[test]
fn flags_win_over_environment_over_files_over_defaults() {
    let (dir, path) = with_file("mode = \"enforce\"\n[node]\nname = \"file\"\ncluster = \"file\"");
    std::fs::create_dir(dir.path().join("conf.d")).unwrap();
    std::fs::write(dir.path().join("conf.d/10.toml"), "[node]\ncluster = \"drop-in\"").unwrap();
    std::fs::write(dir.path().join("conf.d/recommender.toml"), "other = 1").unwrap();
    let vars = [
        ("EVENKEEL_NODE__NAME", "env"),
        ("EVENKEEL_MODE", "enforce"),
        ("EVENKEEL_AGENT", "x"),
        ("HOME", "/"),
    ];
    let flags =
        [Flag { name: "--dry-run".into(), key: "mode".into(), value: "dry-run".into(), is_default: false }];
    let loaded = load(Some(&path), env(&vars), &flags).unwrap();
    let config = check(&loaded).unwrap();
    assert_eq!((config.cluster.as_str(), config.node_name.as_deref()), ("drop-in", Some("env")));
    assert_eq!(config.enforce.mode, Mode::DryRun);
    assert_eq!(loaded.files.len(), 2);
}

#[test]
fn a_start_by_hand_is_a_dry_run_and_a_unit_says_enforce() {
    let mode = |text: &str, vars: &[(&str, &str)], unit: bool| {
        let (_dir, path) = with_file(text);
        let flag = Flag {
            name: "--default-mode".into(),
            key: "mode".into(),
            value: "enforce".into(),
            is_default: true,
        };
        let flags: Vec<Flag> = unit.then_some(flag).into_iter().collect();
        let config = check(&load(Some(&path), env(vars), &flags).unwrap()).unwrap();
        (config.enforce.mode, config.enforce.mode_is_set)
    };
    assert_eq!(mode("", &[], false), (Mode::DryRun, false));
    assert_eq!(mode("", &[], true), (Mode::Enforce, true));
    assert_eq!(mode("mode = \"dry-run\"", &[], true), (Mode::DryRun, true), "a file goes over the unit");
    assert_eq!(mode("", &[("EVENKEEL_MODE", "dry-run")], true), (Mode::DryRun, true));
    assert_eq!(mode("mode = \"enforce\"", &[], false), (Mode::Enforce, true));
    // Only the guardian and `restore` act without being told to.
    let loaded = Loaded::of(Raw::default());
    assert_eq!(check(&loaded).unwrap().enforcing_unless_told().enforce.mode, Mode::Enforce);
    assert_eq!(super::from_environment_alone().unwrap().enforce.mode, Mode::Enforce);
}

#[test]
fn a_named_file_must_be_there() {
    let error = load(Some("/nonexistent/agent.toml".as_ref()), [], &[]).err().unwrap();
    assert!(error.to_string().contains("/nonexistent/agent.toml: the file cannot be read"), "{error}");
}

#[test]
fn the_default_file_reads_back_as_the_defaults() {
    let text = toml(&Raw::default());
    insta::assert_snapshot!(text);
    let (_dir, path) = with_file(&text);
    assert_eq!(load(Some(&path), [], &[]).unwrap().value, Raw::default());
    assert!(check(&Loaded::of(Raw::default())).is_ok());
}

#[test]
fn when_to_freeze() {
    for (text, want) in [
        ("when-forking", Some(FreezeWhen::Forking)),
        ("after-7-passes", Some(FreezeWhen::AfterPasses(7))),
        ("never", Some(FreezeWhen::Never)),
        ("after-0-passes", None),
        ("after--passes", None),
        ("", None),
    ] {
        assert_eq!(FreezeWhen::parse(text), want, "{text}");
    }
}

#[test]
fn what_other_machines_reach_is_encrypted_and_asks_who_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let made =
        rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let pair = dir.path().join("pair.pem");
    std::fs::write(&pair, format!("{}{}", made.pem(), key.serialize_pem())).unwrap();
    std::fs::set_permissions(&pair, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let tls = format!("[tls]\ncert = {pair:?}\nkey = {pair:?}\n");
    let known = format!("{tls}client_ca = {pair:?}\n");
    let (open, near) = ("[serve]\naddress = \"0.0.0.0:1\"\n", "[serve]\naddress = \"127.0.0.1:1\"\n");
    let pages = "[serve]\ndashboard = \"127.0.0.1:1\"\n";
    let (scraped, token) = ("[serve]\nmetrics = \"10.0.0.1:1\"\n", "token = \"/t\"\n");
    for (text, want) in [
        (
            near.to_owned(),
            "serve.address = 127.0.0.1:1 can be reached by every user of this machine, and whoever asks",
        ),
        (format!("{near}{token}"), ""),
        (format!("{near}{known}"), ""),
        (format!("{near}{tls}"), "by every user of this machine"),
        (format!("insecure = true\n{near}"), ""),
        ("[serve]\nmetrics = \"127.0.0.1:1\"\n".to_owned(), ""),
        (open.to_owned(), "insecure: it is false, and serve.address = 0.0.0.0:1 can be reached"),
        (format!("{open}{token}"), "can be reached from other machines without encryption"),
        (
            format!("{open}{tls}"),
            "serve.address = 0.0.0.0:1 can be reached from other machines, and whoever asks",
        ),
        (format!("{open}{token}{tls}"), ""),
        (format!("{open}{known}"), ""),
        (format!("insecure = true\n{open}"), ""),
        (scraped.to_owned(), "serve.metrics = 10.0.0.1:1 can be reached"),
        (
            pages.to_owned(),
            "serve.dashboard = 127.0.0.1:1 can be reached by every user of this machine, and whoever asks",
        ),
        (format!("{pages}{token}"), ""),
        (format!("{}{token}", pages.replace("127.0.0.1", "10.0.0.1")), "without encryption"),
        (format!("{scraped}[metrics]\n{token}{tls}"), ""),
        (format!("{scraped}[metrics]\ntls = false\n{token}{tls}"), "without encryption"),
        ("[tls]\ncert = \"/x\"\n".to_owned(), "both cert and key"),
        ("[tls]\ncert = \"/x\"\nkey = \"/x\"\n".to_owned(), "it cannot be served: /x"),
        ("[stream]\njoin_token = \"/t\"\n".to_owned(), "use https://"),
        ("[stream]\njoin_token = \"/t\"\nrecommender = \"https://r:1\"\n".to_owned(), "stream.ca"),
        (
            format!(
                "[stream]\njoin_token = \"/t\"\nrecommender = \"https://r:1\"\nca_sha256 = \"sha256:{}\"\n",
                "0a".repeat(32)
            ),
            "",
        ),
        ("[stream]\nca_sha256 = \"sha256:0\"\n".to_owned(), "is no fingerprint"),
    ] {
        let (_dir, path) = with_file(&text);
        let said = check(&load(Some(&path), [], &[]).unwrap())
            .err()
            .map(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
            .unwrap_or_default();
        assert!(said.contains(want) && said.is_empty() == want.is_empty(), "{text}: {said}");
    }
}

#[test]
fn recommenders_are_one_address_or_a_few() {
    let several = |count: usize| -> String {
        let all: Vec<String> = (0..count).map(|at| format!("unix:///r-{at}")).collect();
        format!("{all:?}")
    };
    for (value, found, wrong) in [
        ("\"\"".to_owned(), 0, ""),
        ("[]".to_owned(), 0, ""),
        ("\"unix:///r\"".to_owned(), 1, ""),
        (several(2), 2, ""),
        (several(4), 4, ""),
        (several(5), 0, "give at most 4"),
        ("[\"unix:///r\", \"unix:///r\"]".to_owned(), 0, "more than once"),
        ("[\"unix:///r\", \"\"]".to_owned(), 0, "\"\" is not an address"),
        ("[\"unix:///r\", \"http://10.0.0.1:1\"]".to_owned(), 0, "without encryption"),
        ("7".to_owned(), 0, "an address, or a list of addresses"),
    ] {
        let (_dir, path) = with_file(&format!("[stream]\nrecommender = {value}\n"));
        let checked = load(Some(&path), [], &[]).map_err(|errors| errors.0).and_then(|loaded| check(&loaded));
        let said = checked
            .as_ref()
            .err()
            .map(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
        assert_eq!(checked.map_or(0, |config| config.stream.recommenders.len()), found, "{value}: {said:?}");
        let said = said.unwrap_or_default();
        assert!(said.contains(wrong) && said.is_empty() == wrong.is_empty(), "{value}: {said}");
    }
    let (_dir, path) =
        with_file("[stream]\njoin_token = \"/t\"\nrecommender = [\"https://a:1\", \"https://b:1\"]\n");
    let errors = check(&load(Some(&path), [], &[]).unwrap())
        .err()
        .map(|errors| errors.iter().map(ToString::to_string).collect::<String>());
    assert!(errors.unwrap_or_default().contains("an authority of its own"));
}
