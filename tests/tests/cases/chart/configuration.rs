//! Our own programs take what the chart gives them: their configuration as pods read it, and their arguments.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use evenkeel_model::quantity::Quantity;
use evenkeel_tests::chart::{Helm, name};
use evenkeel_tests::{machine, places, require};
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};

use super::parts::{NAMESPACE, containers, object, pod, rendered};

/// Writes the files of a pod's volume `config` where it would be mounted below a directory; the daemon's own one.
fn mounted(all: &[Value], pod: &Value, directory: &Path) -> Result<PathBuf> {
    let volumes = pod["spec"]["volumes"].as_array().context("no volumes")?;
    let volume = volumes.iter().find(|volume| volume["name"] == "config").context("no volume config")?;
    let map = volume["configMap"]["name"].as_str().context("no ConfigMap")?;
    let map = object(all, &format!("ConfigMap/{NAMESPACE}/{map}")).context("no such ConfigMap")?;
    let data = map["data"].as_object().context("no data")?;
    let items = volume["configMap"]["items"].as_array();
    let files: Vec<(&str, &str)> = match items {
        Some(items) => {
            items.iter().filter_map(|item| Some((item["key"].as_str()?, item["path"].as_str()?))).collect()
        }
        None => data.keys().map(|key| (key.as_str(), key.as_str())).collect(),
    };
    assert_eq!(files.len(), data.len(), "a key of the ConfigMap is not mounted");
    for (key, path) in &files {
        let path = directory.join(path);
        fs::create_dir_all(path.parent().context("no folder")?)?;
        fs::write(path, data[*key].as_str().context("no text")?)?;
    }
    let (_, own) = files.iter().find(|(key, _)| *key != "values.toml").context("no file")?;
    Ok(directory.join(own))
}

/// A program of ours that reads this file. Certificate and key are looked at, and are in no configuration.
fn reading(program: &str, file: &Path, scratch: &Path) -> Result<Command> {
    let (cert, key) = (scratch.join("tls.crt"), scratch.join("tls.key"));
    if !key.exists() {
        let pair = KeyPair::generate()?;
        let made = CertificateParams::new(vec!["evenkeel-recommender".to_owned()])?.self_signed(&pair)?;
        fs::write(&cert, made.pem())?;
        fs::write(&key, pair.serialize_pem())?;
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600))?;
    }
    let mut command = places::command(program)?;
    command.env("EVENKEEL_RECOMMENDER_TLS__CERT", cert).env("EVENKEEL_RECOMMENDER_TLS__KEY", key);
    command.arg("--config").arg(file);
    Ok(command)
}

/// The program of a container, and what it is started with.
fn command(container: &Value) -> Result<(String, Vec<String>)> {
    let image = container["image"].as_str().context("no image")?;
    let texts = |key: &str| -> Vec<String> {
        let list = container[key].as_array().into_iter().flatten();
        list.filter_map(|text| text.as_str().map(str::to_owned)).collect()
    };
    let mut command = texts("command");
    if command.is_empty() {
        // The images' entry points, packaging/image.
        let daemon = if image.contains("agent") { "evenkeel-agent" } else { "evenkeel-recommender" };
        command.push(format!("/usr/bin/{daemon}"));
    }
    command.extend(texts("args"));
    let program = command.remove(0);
    Ok((program.trim_start_matches("/usr/bin/").to_owned(), command))
}

#[test]
fn our_programs_take_their_configuration_and_their_arguments() -> Result<()> {
    let helm = Helm::find();
    require!(helm.is_ok(), format!("{:#}", helm.unwrap_err()));
    for (values, all) in rendered(&helm?)? {
        for (of, pod) in all.iter().filter_map(|object| Some((name(object), pod(object)?))) {
            let scratch = tempfile::tempdir()?;
            for container in containers(pod) {
                let (program, arguments) = command(container)?;
                // Help is printed by who understands what is before it.
                let mut asked = places::command(&program)?;
                machine::run(asked.args(&arguments).arg("--help"))
                    .with_context(|| format!("{of} with {values}"))?;
                if program == "evenkeel" {
                    continue;
                }
                let file = mounted(&all, pod, scratch.path())?;
                let mut asked = reading(&program, &file, scratch.path())?;
                for variable in container["env"].as_array().into_iter().flatten() {
                    let value = variable["value"].as_str().unwrap_or("from-a-field");
                    asked.env(variable["name"].as_str().context("no name")?, value);
                }
                asked.args(["config", "validate"]);
                let said = machine::run(&mut asked).with_context(|| format!("{of} with {values}"))?;
                assert!(said.contains("valid; read"), "{of} with {values}: {said}");
                let extra =
                    !values[if of.starts_with("DaemonSet") { "agent" } else { "recommender" }]["config"]
                        .is_null();
                assert_eq!(said.contains("values.toml"), extra, "{of} with {values}: {said}");
            }
        }
    }
    Ok(())
}

#[test]
fn what_is_kept_fits_into_the_storage() -> Result<()> {
    let helm = Helm::find();
    require!(helm.is_ok(), format!("{:#}", helm.unwrap_err()));
    let sizes = ["2Gi", "2048Mi", "10Gi", "3Ti"];
    let values = sizes.map(|size| json!({ "recommender": { "storage": { "size": size } } }));
    for (size, all) in sizes.iter().zip(helm?.rendered(NAMESPACE, &values)?) {
        let claim = object(&all, &format!("PersistentVolumeClaim/{NAMESPACE}/evenkeel-recommender"));
        assert_eq!(claim.context("no claim")?["spec"]["resources"]["requests"]["storage"], *size);
        let scratch = tempfile::tempdir()?;
        let deployment = object(&all, &format!("Deployment/{NAMESPACE}/evenkeel-recommender"));
        let file =
            mounted(&all, pod(deployment.context("no Deployment")?).context("no pod")?, scratch.path())?;
        let mut asked = reading("evenkeel-recommender", &file, scratch.path())?;
        let shown = machine::run(asked.args(["config", "show"]))?;
        let bytes = |text: &str| -> Result<i128> { Ok(text.parse::<Quantity>()?.value()) };
        let of = |section: &str, key: &str| -> Result<i128> {
            let (_, text) = shown.split_once(&format!("[{section}]")).context("no such section")?;
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(&format!("{key} = ")))
                .context("no such key")?;
            bytes(line.trim_matches('"'))
        };
        let (size, kept) = (bytes(size)?, of("log", "max_bytes")? + of("retention", "bytes")?);
        assert!(kept * 10 <= size * 7, "{kept} of {size} bytes");
        assert!(kept * 10 >= size * 5, "much room is left: {kept} of {size} bytes");
    }
    Ok(())
}
