//! Suite `supply`: what others wrote and we ship. No version in `Cargo.lock` has a known advisory, and each
//! program's bill of materials names what is linked into it.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use evenkeel_tests::places;
use semver::{Version, VersionReq};
use serde_json::Value;

/// Advisories that are known and accepted, each with why.
const ACCEPTED: [(&str, &str); 0] = [];

/// One advisory of `scripts/advisories.tsv`: facts of the RustSec database.
struct Advisory {
    id: String,
    kind: String,
    /// Requirements on the version; where one holds, the version is not affected.
    safe: Vec<VersionReq>,
}

/// Advisories by crate, and the first line of the list, which says of when it is.
fn advisories(text: &str) -> Result<(String, BTreeMap<String, Vec<Advisory>>)> {
    let mut lines = text.lines();
    let of = lines.next().context("the list of advisories is empty")?.trim_start_matches("# ").to_owned();
    let mut all: BTreeMap<String, Vec<Advisory>> = BTreeMap::new();
    for line in lines.filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [id, name, kind, patched, unaffected] = fields[..] else {
            anyhow::bail!("five fields are needed: {line}")
        };
        let of_each = patched.split('|').chain(unaffected.split('|')).filter(|one| !one.is_empty());
        let safe = of_each
            .map(|one| VersionReq::parse(one).with_context(|| line.to_owned()))
            .collect::<Result<_>>()?;
        all.entry(name.to_owned()).or_default().push(Advisory {
            id: id.to_owned(),
            kind: kind.to_owned(),
            safe,
        });
    }
    Ok((of, all))
}

/// Name and version of each package in a `Cargo.lock`.
fn locked(text: &str) -> Result<Vec<(String, Version)>> {
    let value = |line: &str, key: &str| {
        Some(line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"')?.to_owned())
    };
    let (mut all, mut name) = (Vec::new(), None);
    for line in text.lines() {
        name = value(line, "name").or(name);
        if let Some(version) = value(line, "version") {
            all.push((
                name.take().with_context(|| format!("a version without a name: {version}"))?,
                Version::parse(&version)?,
            ));
        }
    }
    Ok(all)
}

/// What is known against these packages.
fn known(packages: &[(String, Version)], advisories: &BTreeMap<String, Vec<Advisory>>) -> Vec<String> {
    let affected = |(name, version): &(String, Version)| {
        let of_crate = advisories.get(name).into_iter().flatten();
        let hits = of_crate.filter(|one| !one.safe.iter().any(|safe| safe.matches(version)));
        let open = hits.filter(|one| !ACCEPTED.iter().any(|(id, _)| *id == one.id));
        open.map(|one| format!("{name} {version}: {} ({})", one.id, one.kind)).collect::<Vec<_>>()
    };
    packages.iter().flat_map(affected).collect()
}

#[test]
fn no_dependency_has_a_known_advisory() -> Result<()> {
    let root = places::repository();
    let (of, advisories) = advisories(&std::fs::read_to_string(root.join("scripts/advisories.tsv"))?)?;
    let packages = locked(&std::fs::read_to_string(root.join("Cargo.lock"))?)?;
    println!("{} packages beside the {of}", packages.len());
    ensure!(
        packages.len() > 100 && advisories.len() > 300,
        "{} packages, {} crates",
        packages.len(),
        advisories.len()
    );
    let found = known(&packages, &advisories);
    ensure!(found.is_empty(), "update these, or accept them with a reason: {found:#?}");
    Ok(())
}

#[test]
fn the_test_of_advisories_sees_what_it_should() -> Result<()> {
    let list =
        "# of a day\nA-1\tleaky\tvulnerability\t>= 1.2.3|^0.9.8\t< 0.5.0\nA-2\tgone\tunmaintained\t\t\n";
    let (of, advisories) = advisories(list)?;
    assert_eq!(of, "of a day");
    let cases = [
        ("leaky", "1.2.2", 1),
        ("leaky", "1.2.3", 0),
        ("leaky", "0.9.9", 0),
        ("leaky", "0.4.0", 0),
        ("gone", "7.0.0", 1),
    ];
    for (name, version, count) in cases {
        let package = locked(&format!("[[package]]\nname = \"{name}\"\nversion = \"{version}\"\n"))?;
        assert_eq!(known(&package, &advisories).len(), count, "{name} {version}");
    }
    Ok(())
}

#[test]
fn a_bill_of_materials_names_what_is_linked_and_nothing_of_tests() -> Result<()> {
    for program in ["evenkeel", "evenkeel-agent", "evenkeel-recommender"] {
        let out = Command::new(places::repository().join("scripts/sbom")).arg(program).output()?;
        ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let bill: Value = serde_json::from_slice(&out.stdout)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        assert_eq!(
            (text(&bill["bomFormat"]), text(&bill["metadata"]["component"]["name"])),
            ("CycloneDX".into(), program.into())
        );
        let components = bill["components"].as_array().context("components")?;
        let names: BTreeSet<String> = components.iter().map(|one| text(&one["name"])).collect();
        for linked in ["evenkeel-model", "serde", "tokio"] {
            ensure!(names.contains(linked), "{program} links {linked}");
        }
        for foreign in ["evenkeel-tests", "proptest", "libfuzzer-sys", "windows-sys"] {
            ensure!(!names.contains(foreign), "{program} does not link {foreign}");
        }
        let unnamed = components.iter().find(|one| one["purl"].is_null() || one["licenses"].is_null());
        ensure!(unnamed.is_none(), "{program}: without address or licence: {unnamed:?}");
        let hashed = components.iter().filter(|one| !one["hashes"].is_null()).count();
        ensure!(hashed + 20 > components.len() && hashed > 50, "{program}: {hashed} of {}", components.len());
    }
    Ok(())
}
