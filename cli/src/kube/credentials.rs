//! The right to ask: certificates, tokens, and the programs that give them.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evenkeel_proto::line::Pair;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::Deserialize;
use serde_json::json;
use ureq::http::{HeaderName, HeaderValue};
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, parse_pem};

use super::config::{Cluster, Exec, User};
use super::impersonation;
use crate::failure::Failure;

/// Where distributions keep the bundle of public authorities, used where a kubeconfig names none.
const BUNDLES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem"];

/// What is shown to the server.
#[derive(Debug, Default)]
pub(crate) struct Credentials {
    /// Value of the `Authorization` header.
    pub(crate) authorization: Option<String>,
    /// Certificate and key.
    pub(crate) certificate: Option<ClientCert>,
    /// The same as they were given.
    pub(crate) pair: Option<Pair>,
    /// Headers that ask to be taken for somebody else.
    pub(crate) impersonation: Vec<(HeaderName, HeaderValue)>,
}

impl Credentials {
    /// As the user's entry says; a program is run where one is named.
    ///
    /// # Errors
    /// When a file or program does not give what it should.
    pub(crate) fn of(user: &User) -> Result<Self, Failure> {
        let mut credentials = Self { impersonation: impersonation::headers(user)?, ..Self::default() };
        let chain = bytes(user.client_certificate_data.as_deref(), user.client_certificate.as_deref())?;
        let key = bytes(user.client_key_data.as_deref(), user.client_key.as_deref())?;
        match (chain, key) {
            (Some(chain), Some(key)) => credentials.show(chain, key)?,
            (None, None) => {}
            (Some(_), None) => return Err(broken("the client's certificate", "it has no key")),
            (None, Some(_)) => return Err(broken("the client's key", "it has no certificate")),
        }
        if let Some(path) = &user.token_file {
            let token = std::fs::read_to_string(path).map_err(|e| unreadable(path, &e))?;
            credentials.authorization = Some(format!("Bearer {}", token.trim()));
        } else if let Some(token) = user.token.as_deref().filter(|token| !token.is_empty()) {
            credentials.authorization = Some(format!("Bearer {token}"));
        } else if let Some(name) = &user.username {
            let pair = format!("{name}:{}", user.password.as_deref().unwrap_or_default());
            credentials.authorization = Some(format!("Basic {}", STANDARD.encode(pair)));
        } else if let Some(exec) = &user.exec {
            credentials.take(exec)?;
        }
        Ok(credentials)
    }

    /// Takes a certificate and its key, PEM.
    fn show(&mut self, cert: Vec<u8>, key: Vec<u8>) -> Result<(), Failure> {
        self.certificate = Some(client_cert(&cert, &key)?);
        self.pair = Some(Pair { cert, key });
        Ok(())
    }

    /// Whether asking again may give others.
    pub(crate) fn may_change(user: &User) -> bool {
        user.token_file.is_some() || user.exec.is_some()
    }

    /// Runs a credential plugin (client-go credential plugins, `client.authentication.k8s.io`).
    fn take(&mut self, exec: &Exec) -> Result<(), Failure> {
        let info = json!({
            "apiVersion": exec.api_version, "kind": "ExecCredential", "spec": { "interactive": false },
        });
        let failed = |why: String| {
            let hint = exec.install_hint.trim();
            let remedy = if hint.is_empty() { "run it by hand to see what it needs" } else { hint };
            Failure::new("the credential plugin gave nothing", &exec.command, why, remedy)
        };
        let output = Command::new(&exec.command)
            .args(&exec.args)
            .envs(exec.env.iter().map(|variable| (&variable.name, &variable.value)))
            .env("KUBERNETES_EXEC_INFO", info.to_string())
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| failed(error.to_string()))?;
        if !output.status.success() {
            return Err(failed(format!("it ended with {}", output.status)));
        }
        let answer: ExecCredential =
            serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))?;
        if answer.api_version != exec.api_version {
            return Err(failed(format!("it answered {}, not {}", answer.api_version, exec.api_version)));
        }
        let status = answer.status;
        if let (Some(chain), Some(key)) = (&status.client_certificate_data, &status.client_key_data) {
            self.show(chain.clone().into_bytes(), key.clone().into_bytes())?;
        }
        self.authorization = status.token.map(|token| format!("Bearer {token}"));
        if self.authorization.is_none() && self.certificate.is_none() {
            return Err(failed("its answer has neither a token nor a certificate".to_owned()));
        }
        Ok(())
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ExecCredential {
    api_version: String,
    status: ExecStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ExecStatus {
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

/// The authorities the server's certificate is checked with: the cluster's, else the system's; none = those built in.
///
/// # Errors
/// When a bundle cannot be read or holds no certificate.
pub(crate) fn authorities(cluster: &Cluster) -> Result<Option<Vec<Certificate<'static>>>, Failure> {
    let own = bytes(cluster.certificate_authority_data.as_deref(), cluster.certificate_authority.as_deref())?;
    if let Some(bundle) = own {
        return certificates(&bundle).map(Some);
    }
    let system = BUNDLES.iter().find_map(|path| std::fs::read(path).ok());
    Ok(system.and_then(|bundle| certificates(&bundle).ok()))
}

fn certificates(bundle: &[u8]) -> Result<Vec<Certificate<'static>>, Failure> {
    let all: Vec<_> = parse_pem(bundle)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if all.is_empty() { Err(broken("the authority's bundle", "it holds no certificate")) } else { Ok(all) }
}

fn client_cert(chain: &[u8], key: &[u8]) -> Result<ClientCert, Failure> {
    let key = PrivateKey::from_pem(key).map_err(|error| broken("the client's key", &error.to_string()))?;
    let certificates = certificates(chain)?;
    usable(&certificates, &key)?;
    Ok(ClientCert::new_with_certs(&certificates, key))
}

/// Whether rustls takes a certificate with its key: the HTTP client builds on that and does not ask.
fn usable(chain: &[Certificate<'static>], key: &PrivateKey<'static>) -> Result<(), Failure> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| broken("TLS", &error.to_string()))?
        .with_root_certificates(rustls::RootCertStore::empty());
    let chain = chain.iter().map(|one| CertificateDer::from(one.der().to_vec())).collect();
    let key = PrivateKeyDer::try_from(key.der().to_vec())
        .map_err(|why| unusable(&rustls::Error::General(why.to_owned())))?;
    builder.with_client_auth_cert(chain, key).map(drop).map_err(|error| unusable(&error))
}

/// Why a certificate or key is not taken, and what would be.
fn unusable(error: &rustls::Error) -> Failure {
    const WHAT: &str = "cannot use the kubeconfig";
    let why = error.to_string();
    match error {
        rustls::Error::InconsistentKeys(_) => Failure::new(
            WHAT,
            "the client's key",
            "it belongs to another certificate",
            "give the key the certificate was made with",
        ),
        rustls::Error::InvalidCertificate(_) if why.contains("UnsupportedCertVersion") => Failure::new(
            WHAT,
            "the client's certificate",
            "it is an X.509 version 1 certificate, which TLS 1.3 does not know",
            "issue it again as version 3, as by openssl x509 -req -extfile, or ask by a token",
        ),
        rustls::Error::InvalidCertificate(_) => {
            Failure::new(WHAT, "the client's certificate", why, "issue it again, or ask by a token")
        }
        _ => Failure::new(
            WHAT,
            "the client's key",
            format!("it is of a kind that is not taken ({why})"),
            "issue certificate and key with RSA, ECDSA P-256 or P-384, or Ed25519, or ask by a token",
        ),
    }
}

/// What stands in base64 in the file, or in a file of its own.
fn bytes(data: Option<&str>, path: Option<&Path>) -> Result<Option<Vec<u8>>, Failure> {
    if let Some(data) = data.filter(|data| !data.is_empty()) {
        let decoded = STANDARD.decode(data.trim());
        return decoded.map(Some).map_err(|error| broken("base64 data", &error.to_string()));
    }
    path.map(|path| std::fs::read(path).map_err(|error| unreadable(path, &error))).transpose()
}

fn broken(what: &str, why: &str) -> Failure {
    Failure::new("cannot use the kubeconfig", what, why, "correct it, or choose another context")
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    broken(&path.display().to_string(), &error.to_string())
}
