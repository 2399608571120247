//! `[tls]`, `[metrics]`, and who may ask at an address: what other machines can reach is encrypted, and every address but that
//! of metrics on loopback asks for a credential, or it is said that it need not (`insecure`).

use std::path::{Path, PathBuf};

use evenkeel_net::tls::{Tls as Served, TlsFiles};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::check::Checker;
use super::super::raw::Raw;
use super::super::valid::Serve;

section! {
    /// TLS 1.3 of serve.address and serve.metrics. The files are read again when they change.
    Tls {
        /// The certificate and those between it and an authority, PEM; empty = no TLS.
        cert: PathBuf = PathBuf::new(),
        /// Its key, PEM, which others may not read.
        key: PathBuf = PathBuf::new(),
        /// Authorities, PEM: whoever shows a certificate of one may ask; empty = tokens alone.
        client_ca: PathBuf = PathBuf::new(),
    }
}

section! {
    /// How /metrics is served at serve.metrics.
    Metrics {
        /// Over TLS where there is a certificate (tls.cert).
        tls: bool = true,
        /// File with a token that scrapers have to send (Authorization: Bearer; Prometheus' authorization.credentials_file);
        /// empty = none is asked for. Read at each question.
        token: PathBuf = PathBuf::new(),
    }
}

/// How an address is served.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Guard {
    /// Whether over TLS.
    pub tls: bool,
    /// File with the token that is asked for.
    pub token: Option<PathBuf>,
}

/// The valid sections.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct TrustRules {
    /// Certificate, key and authorities.
    pub files: Option<TlsFiles>,
    /// How serve.address and serve.dashboard are served.
    pub service: Guard,
    /// How serve.metrics is served.
    pub metrics: Guard,
    /// What is reached without encryption from other machines, or by whoever asks; `None` where there is nothing.
    pub insecure: Option<String>,
}

/// Checks the sections.
pub(in super::super) fn check(c: &mut Checker<'_>, raw: &Raw, serve: &Serve) -> TrustRules {
    let files = files(c, &raw.tls);
    let mut token = |key, path: &Path| (!path.as_os_str().is_empty()).then(|| c.absolute(key, path));
    let service = Guard { tls: files.is_some(), token: token("serve.token", &raw.serve.token) };
    let shown =
        Guard { tls: files.is_some() && raw.metrics.tls, token: token("metrics.token", &raw.metrics.token) };
    let knows_clients = files.as_ref().is_some_and(|files| !files.client_ca.is_empty());
    let all = [
        ("serve.address", serve.address, &service),
        ("serve.dashboard", serve.dashboard, &service),
        ("serve.metrics", serve.metrics, &shown),
    ];
    let clear: Vec<_> = all.iter().filter(|(.., guard)| !guard.tls).map(|(key, at, _)| (*key, *at)).collect();
    let mut insecure = Vec::new();
    if let Some(open) = evenkeel_net::in_the_clear(&clear) {
        insecure.push(open.clone());
        if !raw.insecure {
            let remedy = "give tls.cert and tls.key, use a loopback address or serve.socket, or accept it with insecure = true";
            c.fail("insecure", format!("it is false, and {open}"), remedy);
        }
    }
    for (key, at, guard) in all {
        let Some(at) = at else { continue };
        let is_near = at.ip().is_loopback();
        // Numbers alone, and scrapers of this machine ask node_exporter for them without a credential, too.
        let is_metrics = key == "serve.metrics";
        if guard.token.is_some() || (guard.tls && knows_clients) || (is_near && is_metrics) {
            continue;
        }
        let whom = if is_near { "by every user of this machine" } else { "from other machines" };
        let open = format!("{key} = {at} can be reached {whom}, and whoever asks is answered");
        if !raw.insecure {
            let token = if is_metrics { "metrics.token" } else { "serve.token" };
            let instead = match (is_near, key) {
                (true, "serve.dashboard") => "evenkeel top and status over serve.socket",
                (true, _) => "serve.socket",
                (false, _) => "a loopback address",
            };
            let remedy = format!(
                "give {token}, or tls.client_ca with tls.cert, use {instead}, or accept it with insecure = true"
            );
            c.fail(key, open.clone(), &remedy);
        }
        insecure.push(open);
    }
    let insecure = (!insecure.is_empty()).then(|| insecure.join("; "));
    TrustRules { files, service, metrics: shown, insecure }
}

fn files(c: &mut Checker<'_>, raw: &Tls) -> Option<TlsFiles> {
    let named = match TlsFiles::named(&raw.cert, &raw.key, &raw.client_ca) {
        Ok(named) => named?,
        Err(what) => {
            c.fail("tls", what.to_owned(), "give both, or leave all of them empty");
            return None;
        }
    };
    if let Err(error) = Served::open(named.clone()) {
        let remedy = "give a certificate in PEM and its key, which others may not read";
        c.fail("tls.cert", format!("it cannot be served: {error}"), remedy);
    }
    Some(named)
}
