//! Suite `hostile`: the manifests in a cluster. Nothing of them goes in the clear; a recommender with their configuration and what
//! `ca kubernetes` prints is believed by who trusts its authority and pins its name, and by nobody else.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use crate::common;

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use clap::Parser as _;
use common::Running;
use common::tls::channel;
use evenkeel_model::yaml::{self, YamlBounds};
use evenkeel_proto::line::Trust;
use evenkeel_recommender::cli::{Cli, Command, ca};
use evenkeel_recommender::config::{Config, Sources, load};
use serde_json::{Value, json};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

const MANIFEST: &str = include_str!("../../packaging/kubernetes/base/recommender.yaml");
const AGENT: &str = include_str!("../../packaging/kubernetes/base/agent.yaml");
/// Where the manifest mounts the Secret.
const MOUNTED: &str = "/var/run/secrets/evenkeel-tls";
const NAME: &str = "evenkeel-recommender.evenkeel.svc";

fn documents(text: &str) -> Vec<Value> {
    yaml::documents(text, YamlBounds { documents: 20, nodes: 10_000 }).unwrap()
}

fn object<'a>(all: &'a [Value], kind: &str, name: &str) -> &'a Value {
    all.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name).unwrap()
}

/// Secret and ConfigMap as they are printed, their files in a directory as pods see them.
fn made(dir: &Path) -> Vec<Value> {
    let cli = Cli::try_parse_from(["x", "ca", "kubernetes"]).unwrap();
    let Some(Command::Ca { action }) = &cli.command else { panic!("ca") };
    let all = documents(&ca(action, &cli.flags.sources()).unwrap());
    fs::create_dir(dir).unwrap();
    for (kind, name, data) in
        [("Secret", "evenkeel-recommender-tls", "stringData"), ("ConfigMap", "evenkeel-ca", "data")]
    {
        let made = object(&all, kind, name);
        assert_eq!(made["metadata"]["namespace"], "evenkeel");
        for (file, text) in made[data].as_object().unwrap() {
            fs::write(dir.join(file), text.as_str().unwrap()).unwrap();
            fs::set_permissions(dir.join(file), fs::Permissions::from_mode(0o440)).unwrap();
        }
    }
    all
}

/// The configuration of the manifest as its pod reads it, with the Secret's files there.
fn configured(dir: &Path, files: &Path) -> Config {
    let all = documents(MANIFEST);
    let text =
        object(&all, "ConfigMap", "evenkeel-recommender")["data"]["recommender.toml"].as_str().unwrap();
    assert!(!text.contains("insecure") && text.contains(MOUNTED), "{text}");
    let file = dir.join("recommender.toml");
    fs::write(&file, text.replace(MOUNTED, files.to_str().unwrap())).unwrap();
    load(&Sources { file: Some(file), flags: Vec::new() }).unwrap()
}

/// What anybody is answered who gets as far as that.
async fn asked(grpc: SocketAddr, trust: &Trust) -> Result<(), Status> {
    let mut client = HealthClient::new(channel(grpc, trust).await?);
    client.check(HealthCheckRequest::default()).await.map(drop)
}

#[test]
fn the_manifests_mount_what_their_configurations_name_and_nothing_goes_in_the_clear() {
    let dir = tempfile::tempdir().unwrap();
    made(&dir.path().join("tls"));
    let config = configured(dir.path(), &dir.path().join("tls"));
    assert_eq!((config.insecure, config.plaintext()), (false, None));
    assert!(config.serve.hosts.iter().any(|host| host == NAME), "{:?}", config.serve.hosts);
    assert!(config.serve.grpc.is_some() && config.serve.http.is_some() && config.kubernetes.enabled);

    let all = documents(MANIFEST);
    let pod = &object(&all, "Deployment", "evenkeel-recommender")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let of = |list: &Value, name: &str| {
        list.as_array().unwrap().iter().find(|entry| entry["name"] == name).unwrap().clone()
    };
    assert_eq!(of(&container["volumeMounts"], "tls")["mountPath"], MOUNTED);
    assert_eq!(of(&pod["volumes"], "tls")["secret"]["secretName"], "evenkeel-recommender-tls");
    for probe in ["readinessProbe", "livenessProbe"] {
        assert_eq!(container[probe]["httpGet"]["scheme"], "HTTPS");
    }
    let all = documents(AGENT);
    let pod = &object(&all, "DaemonSet", "evenkeel-agent")["spec"]["template"]["spec"];
    let mounted = of(&pod["containers"][0]["volumeMounts"], "recommender");
    let text = object(&all, "ConfigMap", "evenkeel-agent")["data"]["agent.toml"].as_str().unwrap();
    assert!(!text.contains("insecure"), "{text}");
    assert!(text.contains(&format!("\"https://{NAME}:9520\"")), "{text}");
    assert!(text.contains(&format!("ca = \"{}/ca.crt\"", mounted["mountPath"].as_str().unwrap())), "{text}");
    let sources = of(&pod["volumes"], "recommender")["projected"]["sources"].clone();
    let items = json!([{ "key": "ca.crt", "path": "ca.crt" }]);
    assert_eq!(sources[0]["configMap"], json!({ "name": "evenkeel-ca", "items": items }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_printed_for_a_cluster_serves_those_who_trust_it_and_its_name_alone() {
    let dir = tempfile::tempdir().unwrap();
    let files = dir.path().join("tls");
    made(&files);
    made(&dir.path().join("other"));
    let configured = configured(dir.path(), &files);
    let running = Running::start(&dir.path().join("state"), |config| {
        config.tls = configured.tls;
        config.serve.hosts = configured.serve.hosts;
        config.insecure = configured.insecure;
        config.serve.grpc = Some(([127, 0, 0, 1], 0).into());
    })
    .await;
    let grpc = running.tcp.0.unwrap();
    let trust = |authority: &str, name: &str| Trust {
        ca: Some(dir.path().join(authority)),
        name: Some(name.to_owned()),
        ..Trust::default()
    };
    for name in [NAME, "evenkeel-recommender.evenkeel.svc.cluster.local", "localhost"] {
        asked(grpc, &trust("tls/ca.crt", name)).await.unwrap();
    }
    for wrong in [
        trust("other/ca.crt", NAME),
        trust("tls/ca.crt", "evenkeel-recommender.other.svc"),
        Trust { name: None, ..trust("tls/ca.crt", "") },
    ] {
        assert_eq!(asked(grpc, &wrong).await.unwrap_err().code(), Code::Unavailable, "{wrong:?}");
    }
    // Run again: the new files are served, and the authority before is believed no more.
    for file in ["tls.crt", "tls.key"] {
        fs::rename(dir.path().join("other").join(file), files.join(file)).unwrap();
    }
    common::until(|| async { asked(grpc, &trust("other/ca.crt", NAME)).await.ok() }).await;
    assert!(asked(grpc, &trust("tls/ca.crt", NAME)).await.is_err());
    running.stop().await;
}
