//! Encryption of addresses.

use std::path::PathBuf;

use evenkeel_net::tls::{Files, Tls};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Config;

/// TLS 1.3 of `serve.grpc` and `serve.http`. The files are read again when they change.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TlsSection {
    /// The certificate and those between it and an authority, PEM; empty = no TLS.
    pub cert: PathBuf,
    /// Its key, PEM, which others may not read.
    pub key: PathBuf,
    /// Authorities whose certificates name agents and people, PEM; empty = tokens alone.
    pub client_ca: PathBuf,
    /// Trust domain of these names: an agent's certificate has the URI `spiffe://TRUST_DOMAIN/evenkeel/CLUSTER/NODE`.
    pub trust_domain: String,
}

impl TlsSection {
    /// The files, where there is TLS.
    pub(crate) fn files(&self) -> Option<Files> {
        let some = |path: &PathBuf| Some(path.clone()).filter(|path| !path.as_os_str().is_empty());
        Some(Files { cert: some(&self.cert)?, key: some(&self.key)?, client_ca: some(&self.client_ca) })
    }

    /// What is wrong: a key of the section, and what.
    pub(super) fn problems(&self) -> Vec<(&'static str, String)> {
        let is_empty = |path: &PathBuf| path.as_os_str().is_empty();
        if is_empty(&self.cert) && is_empty(&self.key) {
            let alone = !is_empty(&self.client_ca);
            return alone
                .then(|| ("tls.cert", "must be given beside tls.client_ca".to_owned()))
                .into_iter()
                .collect();
        }
        let mut found = Vec::new();
        match self.files() {
            None => found.push(("tls", "needs both cert and key".to_owned())),
            Some(files) => {
                found.extend(
                    Tls::open(files).err().map(|error| ("tls", format!("cannot be served: {error}"))),
                );
            }
        }
        if is_empty(&self.client_ca) != self.trust_domain.is_empty() {
            found.push(("tls.trust_domain", "is given together with tls.client_ca".to_owned()));
        }
        found
    }
}

impl Config {
    /// Which addresses other machines can reach, and that what they carry is not encrypted; `None` where there are none.
    pub fn plaintext(&self) -> Option<String> {
        if self.tls.files().is_some() {
            return None;
        }
        let all = [("serve.grpc", self.serve.grpc), ("serve.http", self.serve.http)];
        let open = all.into_iter().filter_map(|(key, at)| Some((key, at?)));
        let open = open.filter(|(_, at)| !at.ip().is_loopback()).map(|(key, at)| format!("{key} = {at}"));
        let open: Vec<String> = open.collect();
        (!open.is_empty()).then(|| {
            format!(
                "{} can be reached from other machines without encryption: give tls.cert and tls.key, use serve.socket or a \
                 loopback address, or accept it with insecure = true",
                open.join(" and ")
            )
        })
    }
}
