//! A release from its installation to its end: certificates are kept over upgrades and work, values that cannot be are refused, and nothing
//! is left behind.

use std::fs;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evenkeel_tests::chart::{Helm, name};
use evenkeel_tests::daemon::free_port;
use evenkeel_tests::product::RecommenderSetup;
use evenkeel_tests::{places, require};
use serde_json::{Value, json};

use super::parts::{NAMESPACE, object};

fn names(step: &Value) -> Vec<String> {
    let mut names: Vec<String> = step["objects"].as_array().into_iter().flatten().map(name).collect();
    names.sort();
    names
}

/// The certificate's Secret and the authority that are there after a step.
fn certificate(step: &Value) -> Result<(Value, Value)> {
    let all = step["objects"].as_array().context("no objects")?;
    let secret = object(all, &format!("Secret/{NAMESPACE}/evenkeel-recommender-tls")).context("no Secret")?;
    let authority = object(all, &format!("ConfigMap/{NAMESPACE}/evenkeel-ca")).context("no ConfigMap")?;
    Ok((secret["data"].clone(), authority["data"].clone()))
}

/// The definition in the chart's `crds/`.
const DEFINITION: &str = "CustomResourceDefinition/verticalpodautoscalers.evenkeel.dev";

#[test]
fn a_release_keeps_its_certificate_and_leaves_nothing() -> Result<()> {
    let helm = Helm::find();
    require!(helm.is_ok(), format!("{:#}", helm.unwrap_err()));
    let other = json!({ "recommender": { "clusterDomain": "other.example" } });
    let done = helm?.steps(
        NAMESPACE,
        &[
            json!({ "uninstall": null }),
            json!({ "install": {} }),
            json!({ "upgrade": { "agent": { "mode": "enforce" } } }),
            json!({ "upgrade": other }),
            json!({ "uninstall": null }),
        ],
    )?;
    for step in &done[1..] {
        assert!(step["error"].is_null(), "{}: {}", step["step"], step["error"]);
    }
    let made = certificate(&done[1])?;
    assert_eq!(certificate(&done[2])?, made, "an upgrade keeps it");
    assert_ne!(certificate(&done[3])?, made, "the names are others");
    // Node by node, by the label; then all.
    let sets = |step: &Value| names(step).into_iter().filter(|name| name.starts_with("DaemonSet/")).count();
    assert_eq!((sets(&done[1]), sets(&done[2])), (2, 1));
    // What restores the nodes ran before anything went, and is gone with the rest.
    let made = done[4]["made"].as_array().context("nothing made")?;
    assert!(made.contains(&json!(format!("Job/{NAMESPACE}/evenkeel-uninstall"))), "{made:?}");
    // Helm leaves definitions, and with them the objects that people made: evenkeel uninstall --crds deletes them.
    let left: Vec<String> = names(&done[0]).into_iter().chain([DEFINITION.to_owned()]).collect();
    assert_eq!(names(&done[4]), left);
    let notes = done[1]["notes"].as_str().unwrap_or_default();
    assert!(
        notes.contains("evenkeel report --would-change") && notes.contains("evenkeel.dev/mode=enforce"),
        "{notes}"
    );
    Ok(())
}

/// Writes the files of the Secret and the authority as pods see them.
fn write(directory: &Path, (secret, authority): &(Value, Value)) -> Result<()> {
    use std::io::Write as _;
    fs::create_dir(directory)?;
    for file in ["tls.crt", "tls.key"] {
        let bytes = STANDARD.decode(secret[file].as_str().context("no such file")?)?;
        let mut open = fs::OpenOptions::new();
        open.create_new(true).write(true).mode(0o440).open(directory.join(file))?.write_all(&bytes)?;
    }
    fs::write(directory.join("ca.crt"), authority["ca.crt"].as_str().context("no authority")?)?;
    Ok(())
}

#[test]
fn the_certificate_serves_who_trusts_its_authority_and_nobody_else() -> Result<()> {
    let helm = Helm::find();
    require!(helm.is_ok(), format!("{:#}", helm.unwrap_err()));
    let install = json!({ "install": {} });
    let done = helm?.steps(NAMESPACE, &[install.clone(), json!({ "uninstall": null }), install])?;
    let scratch = tempfile::tempdir()?;
    let at = |name: &str| scratch.path().join(name);
    write(&at("own"), &certificate(&done[0])?)?;
    write(&at("other"), &certificate(&done[2])?)?;
    let port = free_port()?;
    let text = |value: std::path::Display<'_>| format!("{:?}", value.to_string());
    let _recommender = RecommenderSetup::new(scratch.path())?
        .set("serve.grpc", &format!("\"127.0.0.1:{port}\""))
        .set("tls.cert", &text(at("own/tls.crt").display()))
        .set("tls.key", &text(at("own/tls.key").display()))
        .start()?;
    let asked = |authority: &str| -> Result<String> {
        let mut ask = places::command("evenkeel")?;
        ask.args(["nodes", "--recommender", &format!("https://localhost:{port}"), "--ca-file"])
            .arg(at(authority));
        Ok(String::from_utf8_lossy(&ask.output()?.stderr).into_owned())
    };
    // Nobody is known without a token; that is said over the line that the certificate vouches for.
    let (own, other) = (asked("own/ca.crt")?, asked("other/ca.crt")?);
    assert!(own.contains("did not answer the question"), "{own}");
    assert!(other.contains("cannot reach the recommender"), "{other}");
    Ok(())
}

#[test]
fn values_that_cannot_be_are_refused_by_name() -> Result<()> {
    let helm = Helm::find();
    require!(helm.is_ok(), format!("{:#}", helm.unwrap_err()));
    let cases = [
        (json!({ "agnet": {} }), "agnet"),
        (json!({ "agent": { "privileged": true } }), "privileged"),
        (json!({ "agent": { "mode": "observe" } }), "mode"),
        (json!({ "agent": { "sockets": ["/run"] } }), "sockets"),
        (json!({ "agent": { "sockets": ["/etc/x/y.sock"] } }), "sockets"),
        (json!({ "recommender": { "storage": { "size": "1.5Gi" } } }), "size"),
        (json!({ "recommender": { "storage": { "size": "1Gi" } } }), "less than 2Gi"),
        (json!({ "recommender": { "storage": { "kind": "hostPath" } } }), "kind"),
        (json!({ "recommender": { "updater": "dry-run", "evictions": "on" } }), "recommender.evictions"),
        (json!({ "networkPolicy": { "nodeCIDRs": ["10.0.0.1"] } }), "nodeCIDRs"),
        (json!({ "uninstall": { "timeout": "soon" } }), "timeout"),
    ];
    let steps: Vec<Value> = cases.iter().map(|(values, _)| json!({ "install": values })).collect();
    for ((values, wanted), step) in cases.iter().zip(helm?.steps(NAMESPACE, &steps)?) {
        let error = step["error"].as_str().with_context(|| format!("{values} is taken"))?;
        assert!(error.contains(wanted), "{values}: {error}");
        // Helm installs definitions before it looks at values.
        let others = names(&step).into_iter().filter(|name| name != DEFINITION);
        assert_eq!(others.collect::<Vec<_>>(), Vec::<String>::new(), "{values}");
    }
    Ok(())
}
