//! Who asks: an entry of a kubeconfig's users, with what kubectl would take of it.
//!
//! kube takes a password before a token, a token before a token's file, with the end of its line, and headers as they come; and runs a
//! plugin three times for one client. So the entry is settled before kube sees it.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use kube::config::{AuthInfo, Cluster};
use serde_json::{Map, Value};

use super::plugin::{self, PluginCredentials};
use super::{UNUSABLE, Use, is_none};
use crate::connect::ConnectError;

/// An entry that kube takes as kubectl would.
#[derive(Debug)]
pub(super) struct Settled {
    pub(super) user: AuthInfo,
    /// Settling it again may give other credentials.
    pub(super) may_change: bool,
}

/// Settles an entry; for one use files of tokens are read and plugins run.
///
/// # Errors
/// When a file or plugin does not give what it should, or something cannot be honoured.
pub(super) fn settled(user: AuthInfo, cluster: &Cluster, usage: Use) -> Result<Settled, ConnectError> {
    let exec = user.exec.clone();
    let mut entry = Fields::of(&user)?;
    entry.impersonates()?;
    entry.pair()?;
    if entry.has("auth-provider") && exec.is_none() {
        let why = "auth-provider was removed from Kubernetes 1.26";
        return Err(broken("user", why, "use an exec plugin or a token"));
    }
    entry.drop(&["auth-provider"]);
    let (has_file, has_token) = (entry.has("tokenFile"), entry.has("token"));
    let is_known = has_file || has_token || entry.has("username");
    let may_change = has_file || (exec.is_some() && !is_known);
    if has_file {
        entry.drop(&["token"]);
    }
    if has_file || has_token {
        entry.drop(&["username", "password"]);
    } else if entry.has("username") && !entry.has("password") {
        entry.0.insert("password".to_owned(), "".into());
    }
    if is_known {
        entry.drop(&["exec"]);
    }
    if usage == Use::Once {
        if let Some(path) = entry.take("tokenFile") {
            let token = std::fs::read_to_string(&path).map_err(|error| unreadable(&path, &error))?;
            entry.0.insert("token".to_owned(), token.trim().into());
        } else if let Some(exec) = exec.filter(|_| !is_known) {
            entry.drop(&["exec"]);
            entry.given(plugin::run(&exec, cluster)?);
        }
    }
    Ok(Settled { user: entry.into_user()?, may_change })
}

/// A certificate and its key, PEM.
type Pair = (Vec<u8>, Vec<u8>);

/// The fields of an entry, none of them empty.
pub(super) struct Fields(Map<String, Value>);

impl Fields {
    pub(super) fn of(user: &AuthInfo) -> Result<Self, ConnectError> {
        let mut fields = match serde_json::to_value(user) {
            Ok(Value::Object(fields)) => fields,
            _ => return Err(broken("user", "it makes no sense", "correct it")),
        };
        let is_empty = |value: &Value| match value {
            Value::Null => true,
            Value::String(text) => is_none(text),
            Value::Array(all) => all.is_empty(),
            Value::Object(all) => all.is_empty(),
            _ => false,
        };
        fields.retain(|_, value| !is_empty(value));
        Ok(Self(fields))
    }

    fn into_user(self) -> Result<AuthInfo, ConnectError> {
        // The error could tell a value.
        serde_json::from_value(Value::Object(self.0))
            .map_err(|_| broken("user", "it makes no sense", "correct it"))
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.as_str()
    }

    fn take(&mut self, key: &str) -> Option<String> {
        match self.0.remove(key) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        }
    }

    fn drop(&mut self, keys: &[&str]) {
        for key in keys {
            self.0.remove(*key);
        }
    }

    /// What a plugin gave; a certificate of it goes over those of files.
    fn given(&mut self, given: PluginCredentials) {
        if let Some(token) = given.token {
            self.0.insert("token".to_owned(), token.into());
        }
        if let Some((cert, key)) = given.pair {
            self.0.insert("client-certificate-data".to_owned(), STANDARD.encode(cert).into());
            self.0.insert("client-key-data".to_owned(), STANDARD.encode(key).into());
        }
    }

    /// Whom the API server is asked to take the caller for; whether it is somebody.
    pub(super) fn impersonates(&self) -> Result<bool, ConnectError> {
        let more = ["as-uid", "as-groups", "as-user-extra"];
        if !self.has("as") && more.iter().any(|key| self.has(key)) {
            let why = "as-uid, as-groups or as-user-extra is there without as";
            return Err(broken("user", why, "name the user under as"));
        }
        let extra = self.0.get("as-user-extra").and_then(Value::as_object);
        let lists = self.0.get("as-groups").into_iter().chain(extra.into_iter().flat_map(Map::values));
        let listed = lists.filter_map(Value::as_array).flatten().filter_map(Value::as_str);
        for value in self.text("as").into_iter().chain(self.text("as-uid")).chain(listed) {
            if HeaderValue::from_str(value).is_err() {
                let why =
                    format!("{value:?} of as, as-uid, as-groups or as-user-extra cannot stand in the header");
                return Err(broken("user", &why, "correct it"));
            }
        }
        Ok(self.has("as"))
    }

    /// The certificate and key in PEM, where there are some.
    pub(super) fn pair(&self) -> Result<Option<Pair>, ConnectError> {
        let part = |name: &str| match (self.text(&format!("{name}-data")), self.text(name)) {
            (Some(data), _) => {
                let decoded = STANDARD.decode(data);
                let broken = |error| broken(&format!("{name}-data"), &format!("{error}"), CORRECT);
                decoded.map(Some).map_err(broken)
            }
            (None, Some(path)) => std::fs::read(path).map(Some).map_err(|error| unreadable(path, &error)),
            (None, None) => Ok(None),
        };
        match (part("client-certificate")?, part("client-key")?) {
            (Some(cert), Some(key)) => Ok(Some((cert, key))),
            (None, None) => Ok(None),
            (Some(_), None) => Err(broken("the client's certificate", "it has no key", CORRECT)),
            (None, Some(_)) => Err(broken("the client's key", "it has no certificate", CORRECT)),
        }
    }
}

const CORRECT: &str = "correct it, or choose another context";

fn broken(place: &str, why: &str, remedy: &str) -> ConnectError {
    ConnectError::new(UNUSABLE, place, why, remedy)
}

fn unreadable(path: impl AsRef<Path>, error: &std::io::Error) -> ConnectError {
    broken(&path.as_ref().display().to_string(), &error.to_string(), CORRECT)
}

/// Why TLS does not take a client's certificate or key, and what it would take.
pub(crate) fn unusable(error: &rustls::Error) -> ConnectError {
    let why = error.to_string();
    match error {
        rustls::Error::InconsistentKeys(_) => broken(
            "the client's key",
            "it belongs to another certificate",
            "give the key the certificate was made with",
        ),
        rustls::Error::InvalidCertificate(_) if why.contains("UnsupportedCertVersion") => broken(
            "the client's certificate",
            "it is an X.509 version 1 certificate, which TLS 1.3 does not know",
            "issue it again as version 3, as by openssl x509 -req -extfile, or ask by a token",
        ),
        rustls::Error::InvalidCertificate(_) => {
            broken("the client's certificate", &why, "issue it again, or ask by a token")
        }
        _ => broken(
            "the client's key",
            &format!("it is of a kind that is not taken ({why})"),
            "issue certificate and key with RSA, ECDSA P-256 or P-384, or Ed25519, or ask by a token",
        ),
    }
}
