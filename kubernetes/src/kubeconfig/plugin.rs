//! Programs that give a token or a certificate (kubernetes.io, "client-go credential plugins"), run once.
//!
//! kube's own run of them tells in its errors what they printed, which may be the token, hides what they say in words, and knows no
//! `installHint`.

use std::collections::HashMap;
use std::io::IsTerminal as _;
use std::process::{Command, Stdio};

use kube::config::{Cluster, ExecAuthCluster, ExecConfig, ExecInteractiveMode};
use serde::Deserialize;
use serde_json::json;

use crate::connect::ConnectError;

/// What a plugin gave.
#[derive(Debug, Default)]
pub(super) struct PluginCredentials {
    pub(super) token: Option<String>,
    /// Certificate and key, PEM.
    pub(super) pair: Option<(String, String)>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ExecCredential {
    api_version: String,
    status: ExecCredentialStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ExecCredentialStatus {
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

/// Runs a plugin.
///
/// # Errors
/// When it cannot be run, or gives nothing that can be used.
pub(super) fn run(exec: &ExecConfig, cluster: &Cluster) -> Result<PluginCredentials, ConnectError> {
    let command = exec.command.as_deref().unwrap_or_default();
    let failed = |why: String| {
        let hint = exec.install_hint.as_deref().unwrap_or_default().trim();
        let remedy = if hint.is_empty() { "run it by hand to see what it needs" } else { hint };
        ConnectError::new("the credential plugin gave nothing", command, why, remedy)
    };
    let has_terminal = std::io::stdin().is_terminal();
    let interactive = match exec.interactive_mode {
        Some(ExecInteractiveMode::Never) => false,
        Some(ExecInteractiveMode::Always) if !has_terminal => {
            return Err(failed(
                "it needs a terminal (interactiveMode: Always), and there is none".to_owned(),
            ));
        }
        Some(ExecInteractiveMode::Always | ExecInteractiveMode::IfAvailable) | None => has_terminal,
    };
    let wanted = exec.api_version.as_deref().unwrap_or_default();
    let mut spec = json!({ "interactive": interactive });
    if exec.provide_cluster_info {
        let told = ExecAuthCluster::try_from(cluster).map_err(|error| failed(error.to_string()))?;
        spec["cluster"] = serde_json::to_value(told).map_err(|error| failed(error.to_string()))?;
    }
    let info = json!({ "apiVersion": wanted, "kind": "ExecCredential", "spec": spec });
    let variable =
        |one: &HashMap<String, String>| Some((one.get("name")?.clone(), one.get("value")?.clone()));
    let output = Command::new(command)
        .args(exec.args.iter().flatten())
        .envs(exec.env.iter().flatten().filter_map(variable))
        .env("KUBERNETES_EXEC_INFO", info.to_string())
        .stdin(if interactive { Stdio::inherit() } else { Stdio::null() })
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(format!("it ended with {}", output.status)));
    }
    // The error of the reader could tell what was read.
    let answer: ExecCredential = serde_json::from_slice(&output.stdout)
        .map_err(|error| failed(format!("its answer is no ExecCredential (line {})", error.line())))?;
    if answer.api_version != wanted {
        return Err(failed(format!("it answered {}, not {wanted}", answer.api_version)));
    }
    let ExecCredentialStatus { token, client_certificate_data, client_key_data } = answer.status;
    let given = PluginCredentials {
        token: token.filter(|token| !token.is_empty()),
        pair: client_certificate_data.zip(client_key_data),
    };
    if given.token.is_none() && given.pair.is_none() {
        return Err(failed("its answer has neither a token nor a certificate".to_owned()));
    }
    Ok(given)
}
