//! Suite `unit`: the house rules a machine can hold. Which crate may depend on which, and what pure code never does.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use evenkeel_tests::{machine, places};
use serde_json::Value;

/// Crates that decide and never do I/O, and all they may use of the outside.
const PURE: [&str; 6] = ["model", "qos", "rightsizing", "capacity", "dashboard", "updater"];
const PURE_MAY_USE: [&str; 6] =
    ["maud", "serde", "serde-saphyr", "serde_json", "serde_path_to_error", "thiserror"];
/// What each library may depend on of ours. Programs may depend on every library.
const LIBRARIES: [(&str, &[&str]); 18] = [
    ("model", &[]),
    ("log", &[]),
    ("net", &[]),
    ("settings", &["model"]),
    ("qos", &["model"]),
    ("rightsizing", &["model"]),
    ("capacity", &["model"]),
    ("host", &["model"]),
    ("proto", &["model"]),
    ("kubernetes", &["model", "capacity"]),
    ("dashboard", &["model"]),
    ("manual", &[]),
    ("metrics", &["model"]),
    ("border", &["model", "proto"]),
    ("enforce", &["model", "qos", "host", "log"]),
    ("store", &["model", "settings", "rightsizing", "log", "proto"]),
    ("updater", &["model", "qos", "rightsizing"]),
    ("webhook", &["metrics", "model", "net", "proto"]),
];
/// What the crate that writes to the kernel must not have, also not through another one: a network, an async runtime, the
/// wire, a bus. Sources and the stream reach it by types and narrow traits.
const ENFORCE_WITHOUT: [&str; 12] = [
    "axum",
    "evenkeel-border",
    "evenkeel-net",
    "evenkeel-proto",
    "futures",
    "hyper",
    "prost",
    "rustls",
    "tokio",
    "tonic",
    "ureq",
    "zbus",
];
/// What reads strangers' bytes in the agent: the wire's servers and clients, HTTP, the bus, YAML; and where it does, which is what runs in
/// other processes than the enforcing one where these are apart. The rest of the agent, which runs there, has none of it.
const READS_STRANGERS: [&str; 10] = [
    "axum::",
    "evenkeel_net::get",
    "evenkeel_net::pin",
    "hyper::",
    "hyper_util::",
    "read_pod(",
    "read_pod_list(",
    "read_pods(",
    "tonic::transport",
    "zbus::",
];
const READERS_OF_STRANGERS: [&str; 8] = [
    "agent/src/outward/calls.rs",
    "agent/src/parts/network/",
    "agent/src/pods/kubelet.rs",
    "agent/src/serve/",
    "agent/src/sources/cri/",
    "agent/src/sources/engines/",
    "agent/src/sources/manifests/read.rs",
    "agent/src/systemd/bus.rs",
];
/// Lines that are none of these: the form of an address in the own configuration, and what one process does by itself.
const READS_NO_STRANGER: [(&str, &str); 3] = [
    ("agent/src/config/check.rs", "use hyper::Uri;"),
    ("agent/src/config/check.rs", "use evenkeel_net::get::HttpsEndpoint;"),
    (
        "agent/src/outward/mod.rs",
        "Self::Here => Ok(evenkeel_net::pin::authority(host, port, sha256).await?),",
    ),
];
/// Libraries that a program does not have, although it could.
const WITHOUT: [(&str, &str); 2] = [("agent", "kubernetes"), ("agent", "store")];
/// What the store never has in its manifest: it serves nobody and reads no command line.
const NOT_OF_STORE: [&str; 6] = ["axum", "clap", "figment", "hyper", "tonic", "tonic-health"];
const PROGRAMS: [&str; 6] = ["agent", "recommender", "cli", "tests", "workload", "fuzz"];
/// Crates of which nothing is shipped.
const NOT_SHIPPED: [&str; 3] = ["tests", "workload", "fuzz"];
/// Standard modules that reach out of the process.
const OUTSIDE: [&str; 5] = ["env", "fs", "net", "process", "thread"];
/// How often a name may be that of a type in shipped code.
const MOST_OF_A_NAME: usize = 3;
/// Files that are text and ours.
const TEXT: [&str; 13] =
    ["rs", "toml", "md", "proto", "sh", "yaml", "yml", "json", "service", "socket", "conf", "txt", "html"];

/// A dependency of a crate, by name and whether it is used in tests alone.
struct Dependency {
    name: String,
    ours: bool,
    test_only: bool,
}

/// Folder of each crate and what it depends on, from its manifest.
fn manifests() -> Result<BTreeMap<String, Vec<Dependency>>> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&machine::run(cargo.current_dir(places::repository()))?)?;
    let mut found = BTreeMap::new();
    for package in metadata["packages"].as_array().context("no packages")? {
        let manifest = Path::new(package["manifest_path"].as_str().context("no manifest")?);
        let folder = manifest.parent().and_then(Path::file_name).context("no folder")?;
        let dependencies =
            package["dependencies"].as_array().context("no dependencies")?.iter().map(|dependency| {
                let path = dependency["path"].as_str().map(Path::new).and_then(Path::file_name);
                let name = path.map_or_else(
                    || dependency["name"].as_str().map(str::to_string),
                    |folder| Some(folder.to_string_lossy().into_owned()),
                );
                Dependency {
                    name: name.unwrap_or_default(),
                    ours: path.is_some(),
                    test_only: dependency["kind"] == "dev",
                }
            });
        found.insert(folder.to_string_lossy().into_owned(), dependencies.collect());
    }
    Ok(found)
}

/// Files below a folder of the repository, without what is built.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if matches!(name.as_str(), "target" | ".git") || path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    Ok(found)
}

fn sources() -> Result<Vec<PathBuf>> {
    let all = files(&places::repository())?;
    Ok(all.into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "rs")).collect())
}

fn assert_none(rule: &str, broken: &[String]) {
    assert!(broken.is_empty(), "{rule}:\n{}", broken.join("\n"));
}

#[test]
fn crates_depend_on_each_other_in_one_direction() -> Result<()> {
    let manifests = manifests()?;
    let known: BTreeSet<&str> = LIBRARIES.iter().map(|(name, _)| *name).chain(PROGRAMS).collect();
    let found: BTreeSet<&str> = manifests.keys().map(String::as_str).collect();
    assert_eq!(found, known, "a new crate needs a place in this table");
    let mut broken = Vec::new();
    for (name, dependencies) in &manifests {
        let allowed = LIBRARIES.iter().find(|(library, _)| library == name).map(|(_, allowed)| *allowed);
        for dependency in dependencies.iter().filter(|dependency| dependency.ours) {
            let fine = match allowed {
                Some(allowed) => allowed.contains(&dependency.name.as_str()),
                None if dependency.name == "tests" => dependency.test_only,
                None => LIBRARIES.iter().any(|(library, _)| *library == dependency.name),
            };
            let is_without = WITHOUT.contains(&(name.as_str(), dependency.name.as_str()));
            if !fine || is_without {
                broken.push(format!("{name} depends on {}", dependency.name));
            }
        }
    }
    assert_none("which crate may depend on which is written in ARCHITECTURE.md", &broken);
    Ok(())
}

#[test]
fn pure_crates_use_nothing_that_does_io() -> Result<()> {
    let manifests = manifests()?;
    let mut broken = Vec::new();
    for name in PURE {
        let dependencies = manifests.get(name).with_context(|| format!("no crate {name}"))?;
        for dependency in dependencies.iter().filter(|dependency| !dependency.ours && !dependency.test_only) {
            if !PURE_MAY_USE.contains(&dependency.name.as_str()) {
                broken.push(format!("{name} uses {}", dependency.name));
            }
        }
    }
    assert_none("a pure crate may use only what is listed here", &broken);
    Ok(())
}

/// What cargo would build for a selection, a package a line.
fn tree(selection: &[&str], format: &str) -> Result<String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.arg("tree").args(selection).args(["--edges", "normal,build"]);
    cargo.args(["--prefix", "none", "--format", format, "--locked", "--offline"]);
    machine::run(cargo.current_dir(places::repository()))
}

/// Packages of a selection, each with its features. `default` only names others, which are there themselves.
fn features(selection: &[&str]) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in tree(selection, "{p}|{f}")?.lines().filter(|line| !line.is_empty()) {
        // Said once more of a package whose own tree is told above.
        let (package, features) = line
            .trim_end_matches(" (*)")
            .split_once('|')
            .with_context(|| format!("no package and its features: {line}"))?;
        let features = features.split(',').filter(|feature| !matches!(*feature, "" | "default"));
        found.entry(package.to_string()).or_default().extend(features.map(str::to_string));
    }
    Ok(found)
}

#[test]
fn what_is_shipped_has_no_feature_that_only_a_test_wants() -> Result<()> {
    let shipped = features(&["-pevenkeel", "-pevenkeel-agent", "-pevenkeel-recommender"])?;
    assert!(shipped.keys().any(|package| package.starts_with("zbus ")), "the tree was not understood");
    let mut broken = Vec::new();
    for (of, selection) in [("default members", &[][..]), ("the whole workspace", &["--workspace"])] {
        let others = features(selection)?;
        for (package, features) in &shipped {
            let beside = others.get(package).with_context(|| format!("{of}: no {package}"))?;
            let more: Vec<&str> = beside.symmetric_difference(features).map(String::as_str).collect();
            if !more.is_empty() {
                broken.push(format!("{package} beside {of}: {}", more.join(", ")));
            }
        }
    }
    assert_none("programs are built alike, alone and beside what tests them", &broken);
    Ok(())
}

#[test]
fn enforcement_has_no_network_and_no_async_runtime() -> Result<()> {
    let tree = tree(&["--package=evenkeel-enforce"], "{p}")?;
    let names: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(names.contains("evenkeel-qos"), "the tree was not understood: {tree}");
    let broken: Vec<String> = ENFORCE_WITHOUT
        .iter()
        .filter(|name| names.contains(*name))
        .map(|name| format!("enforce depends on {name}"))
        .collect();
    assert_none("enforce decides and writes; whoever talks to others is in the agent", &broken);
    Ok(())
}

#[test]
fn what_enforces_reads_no_strangers_bytes() -> Result<()> {
    let (mut broken, mut readers) = (Vec::new(), BTreeSet::new());
    for path in sources()? {
        let inside = path.strip_prefix(places::repository())?.display().to_string();
        if !inside.starts_with("agent/src/") || inside.ends_with("tests.rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path)?;
        let product = text.split("#[cfg(test)]").next().unwrap_or_default();
        let code = product.lines().filter(|line| !line.trim_start().starts_with("//")).map(str::trim);
        let reads = code.filter(|line| READS_STRANGERS.iter().any(|word| line.contains(word)));
        let reads = reads.filter(|line| !READS_NO_STRANGER.contains(&(inside.as_str(), *line)));
        match READERS_OF_STRANGERS.iter().find(|reader| inside.starts_with(*reader)) {
            Some(reader) => readers.extend(reads.map(|_| *reader)),
            None => broken.extend(reads.map(|line| format!("{inside}: {line}"))),
        }
    }
    assert_none(
        "only these modules read strangers' bytes; they run in another process where parts are apart",
        &broken,
    );
    let idle: Vec<_> = READERS_OF_STRANGERS.iter().filter(|reader| !readers.contains(*reader)).collect();
    assert!(idle.is_empty(), "nothing is read there any more, so that the list can be shorter: {idle:?}");
    Ok(())
}

#[test]
fn a_writer_to_the_kernel_is_opened_in_one_place() -> Result<()> {
    let mut found = Vec::new();
    for path in sources()? {
        let inside = path.strip_prefix(places::repository())?;
        if inside.components().any(|part| part.as_os_str() == "tests") {
            continue;
        }
        let text = std::fs::read_to_string(&path)?;
        let product = text.split("#[cfg(test)]").next().unwrap_or_default();
        let code = product.lines().map(|line| line.split("//").next().unwrap_or_default());
        found.extend(
            code.filter(|code| code.contains("KernelWriter::new(")).map(|_| inside.display().to_string()),
        );
    }
    assert_eq!(found, ["enforce/src/kernel.rs"], "what writes gets its writer of kernel::open_writer");
    Ok(())
}

#[test]
fn the_store_serves_nobody() -> Result<()> {
    let manifests = manifests()?;
    let store = manifests.get("store").context("no crate store")?;
    let is_server = |dependency: &&Dependency| NOT_OF_STORE.contains(&dependency.name.as_str());
    let broken: Vec<String> =
        store.iter().filter(is_server).map(|server| format!("store uses {}", server.name)).collect();
    assert_none("what serves, answers and acts is in recommender/", &broken);
    Ok(())
}

#[test]
fn versions_and_features_are_declared_once_for_all() -> Result<()> {
    let mut broken = Vec::new();
    for folder in manifests()?.keys() {
        let path = places::repository().join(folder).join("Cargo.toml");
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut in_dependencies = false;
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if line.starts_with('[') {
                in_dependencies = line.ends_with("dependencies]");
            } else if in_dependencies
                && !line.ends_with("workspace = true")
                && !line.contains("workspace = true,")
            {
                broken.push(format!("{folder}/Cargo.toml: {line}"));
            }
        }
    }
    assert_none("dependencies are declared in the workspace's Cargo.toml", &broken);
    Ok(())
}

#[test]
fn pure_code_has_no_file_clock_environment_thread_or_chance() -> Result<()> {
    let mut broken = Vec::new();
    for path in sources()? {
        let inside = path.strip_prefix(places::repository())?;
        // Tests may read what they like.
        let tests =
            inside.components().any(|part| matches!(part.as_os_str().to_str(), Some("tests" | "tests.rs")));
        if tests || !PURE.iter().any(|name| inside.starts_with(Path::new(name).join("src"))) {
            continue;
        }
        let text = std::fs::read_to_string(&path)?;
        let product = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (number, line) in product.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if reaches_out(code) {
                broken.push(format!("{}:{}: {}", inside.display(), number + 1, line.trim()));
            }
        }
    }
    assert_none("facts are inputs of pure code", &broken);
    Ok(())
}

/// Whether a line of code names something outside of the process.
fn reaches_out(code: &str) -> bool {
    let module = |rest: &str| {
        let word: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        OUTSIDE.contains(&word.as_str())
    };
    let direct = code.match_indices("std::").any(|(at, _)| module(&code[at + 5..]));
    let grouped =
        code.split_once("std::{").is_some_and(|(_, group)| group.split(',').any(|item| module(item.trim())));
    let named =
        ["SystemTime", "time::Instant", "Instant::now", "rand::", "println!", "eprintln!", "tracing::"];
    direct || grouped || named.iter().any(|name| code.contains(name))
}

#[test]
fn the_test_of_pure_code_sees_what_it_should() {
    let outside =
        ["use std::fs;", "let x = std::env::var(\"X\");", "use std::{fmt, thread};", "SystemTime::now()"];
    assert!(outside.iter().all(|code| reaches_out(code)));
    let inside =
        ["use std::fmt;", "use std::time::Duration;", "use std::{cmp, collections};", "let threads = 1;"];
    assert!(!inside.iter().any(|code| reaches_out(code)));
}

#[test]
fn shipped_code_is_linted_against_casts_that_lose_something() -> Result<()> {
    // Of the crates' roots, since the workspace's lints hold for tests, too, where a cast is of a number that is written there.
    let lint = "#![cfg_attr(not(test),warn(clippy::cast_possible_truncation,clippy::cast_possible_wrap,clippy::cast_sign_loss))]";
    let manifests = manifests()?;
    let (mut roots, mut broken) = (0, Vec::new());
    for folder in manifests.keys().filter(|folder| !NOT_SHIPPED.contains(&folder.as_str())) {
        for root in ["lib.rs", "main.rs"].map(|file| places::repository().join(folder).join("src").join(file))
        {
            let Ok(text) = std::fs::read_to_string(&root) else { continue };
            roots += 1;
            let packed: String = text.chars().filter(|c| !c.is_whitespace()).collect();
            if !packed.contains(lint) {
                broken.push(root.strip_prefix(places::repository())?.display().to_string());
            }
        }
    }
    assert!(roots > LIBRARIES.len(), "only {roots} crates were found");
    assert_none("a crate's root has the lints of narrowing casts, as model/src/lib.rs has", &broken);
    Ok(())
}

#[test]
fn every_test_is_in_a_program_of_tests() -> Result<()> {
    let mut broken = Vec::new();
    for folder in manifests()?.keys() {
        let crate_at = places::repository().join(folder);
        let manifest = std::fs::read_to_string(crate_at.join("Cargo.toml"))?;
        // Files that cargo does not find by itself are modules of a program, or named.
        if manifest.contains("autotests = false") {
            let roots = manifest.match_indices("path = \"tests/").filter_map(|(at, start)| {
                let rest = manifest.get(at + start.len()..)?;
                Some(crate_at.join("tests").join(rest.split('"').next()?))
            });
            let roots: Vec<PathBuf> = roots.collect();
            let modules: Vec<String> = roots
                .iter()
                .map(std::fs::read_to_string)
                .collect::<Result<_, _>>()
                .context("a root of tests")?;
            for entry in std::fs::read_dir(crate_at.join("tests"))? {
                let path = entry?.path();
                let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                let is_source = path.extension().is_some_and(|ending| ending == "rs");
                let line = format!("mod {name};");
                let is_in =
                    roots.contains(&path) || modules.iter().any(|root| root.lines().any(|l| l == line));
                if is_source && !is_in {
                    broken.push(format!("{folder}/tests/{name}.rs is in no program of tests"));
                }
            }
        }
        // What is not tested as a program of its own holds no test.
        for (section, sources) in [("[lib]", "src"), ("[[bin]]", "src/main.rs")] {
            let untested = manifest.split("\n\n").any(|part| {
                part.lines().any(|line| line == section)
                    && part.contains("test = false")
                    && (section == "[lib]" || part.contains("path = \"src/main.rs\""))
            });
            let at = crate_at.join(sources);
            let files = if at.is_dir() { files(&at)? } else { vec![at] };
            for file in files.iter().filter(|_| untested) {
                if std::fs::read_to_string(file)?.contains("#[test]") {
                    broken.push(format!("{}: its target has test = false", file.display()));
                }
            }
        }
    }
    assert_none("a test that is in no program of tests never runs", &broken);
    Ok(())
}

#[test]
fn every_source_file_says_what_it_owns() -> Result<()> {
    let mut broken = Vec::new();
    for path in sources()? {
        let text = std::fs::read_to_string(&path)?;
        if !text.starts_with("//!") {
            broken.push(path.strip_prefix(places::repository())?.display().to_string());
        }
    }
    assert_none("a source file begins with //!", &broken);
    Ok(())
}

#[test]
fn nothing_is_unfinished_or_tied_to_one_machine() -> Result<()> {
    // Written in two parts, so that this file does not break its own rule.
    let forbidden = [
        concat!("to", "do!("),
        concat!("unimpl", "emented!("),
        concat!("#[ign", "ore"),
        concat!("/wo", "rk/"),
    ];
    let mut broken = Vec::new();
    for path in files(&places::repository())? {
        let ending = path.extension().map(|ending| ending.to_string_lossy().into_owned());
        let script = path.starts_with(places::repository().join("scripts"));
        if !script && !ending.is_some_and(|ending| TEXT.contains(&ending.as_str())) {
            continue;
        }
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        for (number, line) in text.lines().enumerate() {
            if forbidden.iter().any(|word| line.contains(word)) {
                let inside = path.strip_prefix(places::repository())?;
                broken.push(format!("{}:{}: {}", inside.display(), number + 1, line.trim()));
            }
        }
    }
    assert_none("finished, and at home on every machine", &broken);
    Ok(())
}

/// Names of the types that shipped code of a file defines, one a line as rustfmt lays them out.
fn type_names(text: &str) -> Vec<&str> {
    let shipped = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    shipped.lines().filter_map(|line| type_name(line.trim_start())).collect()
}

fn type_name(line: &str) -> Option<&str> {
    let inside = match line.strip_prefix("pub(") {
        Some(rest) => rest.split_once(") ")?.1,
        None => line.strip_prefix("pub ").unwrap_or(line),
    };
    let rest = ["struct ", "enum ", "trait "].iter().find_map(|keyword| inside.strip_prefix(keyword))?;
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (!name.is_empty()).then_some(name)
}

/// Whether a file is compiled into what is shipped.
fn is_shipped(inside: &Path) -> bool {
    let mut parts = inside.components().map(|part| part.as_os_str().to_string_lossy());
    let folder = parts.next().unwrap_or_default();
    !NOT_SHIPPED.contains(&&*folder)
        && !parts.any(|part| matches!(&*part, "tests" | "examples" | "benches" | "fake"))
        && !inside.to_string_lossy().ends_with("tests.rs")
}

#[test]
fn a_type_name_is_defined_at_most_three_times() -> Result<()> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in sources()? {
        let inside = path.strip_prefix(places::repository())?;
        let text = std::fs::read_to_string(&path)?;
        for name in type_names(&text).into_iter().filter(|_| is_shipped(inside)) {
            found.entry(name.to_owned()).or_default().push(inside.display().to_string());
        }
    }
    assert!(found.len() > 1000, "only {} names were found", found.len());
    let broken: Vec<String> = found
        .into_iter()
        .filter(|(_, files)| files.len() > MOST_OF_A_NAME)
        .map(|(name, files)| format!("{name}: {}", files.join(", ")))
        .collect();
    assert_none("a type has a name of its own, the field's where it has one", &broken);
    Ok(())
}

#[test]
fn the_test_of_type_names_sees_what_it_should() {
    let text = "pub(crate) struct Lease {\n    enum Inner<'a>(\npub trait Read: Send {\nlet structure = 1;\n\
        struct $name {\npub(crate) fn f() {}\n#[cfg(test)]\nmod tests {\nstruct Unseen;\n";
    assert_eq!(type_names(text), ["Lease", "Inner", "Read"]);
    assert!(is_shipped(Path::new("store/src/state/mod.rs")) && is_shipped(Path::new("agent/src/main.rs")));
    for path in ["tests/src/lib.rs", "host/src/fake/tree.rs", "model/tests/pods.rs", "cli/src/wire_tests.rs"]
    {
        assert!(!is_shipped(Path::new(path)), "{path}");
    }
}

/// Lines of shipped code at which a function takes a tuple apart: `(a, b): (A, B)`.
fn tuple_parameters(text: &str) -> Vec<&str> {
    let shipped = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let is_one = |line: &&str| {
        let of_function = line.find("fn ").map_or(*line, |at| line.get(at..).unwrap_or_default());
        let is_parameter = line.starts_with('(') || line.contains("fn ");
        let pattern = of_function.split_once("): (").map(|(before, _)| before);
        is_parameter
            && pattern
                .is_some_and(|before| before.rsplit_once('(').is_some_and(|(_, names)| names.contains(", ")))
    };
    shipped.lines().map(str::trim).filter(|line| !line.starts_with("//")).filter(is_one).collect()
}

#[test]
fn parameters_that_belong_together_are_a_struct_and_no_tuple() -> Result<()> {
    let mut broken = Vec::new();
    for path in sources()? {
        let inside = path.strip_prefix(places::repository())?;
        if is_shipped(inside) {
            let text = std::fs::read_to_string(&path)?;
            broken.extend(tuple_parameters(&text).iter().map(|line| format!("{}: {line}", inside.display())));
        }
    }
    assert_none("parameters that belong together are a struct with names", &broken);
    Ok(())
}

#[test]
fn the_test_of_tuple_parameters_sees_what_it_should() {
    let text = "pub fn f(&self, (a, b): (&A, u64)) {}\nfn g(\n    (x, y): (X, Y),\n    z: Z,\n) -> (X, Y) {\n\
        fn h(a: (A, B)) -> (A, B) {\nlet of = |(a, b): (A, B)| a;\n// (a, b): (A, B),\n";
    assert_eq!(tuple_parameters(text), ["pub fn f(&self, (a, b): (&A, u64)) {}", "(x, y): (X, Y),"]);
}
