//! The recommender's own certificate authority, for those who have no other: its key, what it signs, and for whom.
//!
//! Owned here: the files in its directory, which is the recommender's user's alone (`ca.key`, `ca.crt`, the served
//! `server.pem`, and the register), and what is in a certificate. A node's certificate has one name, the URI of the node
//! that a join token or the certificate before named; of a request its key counts and nothing else. Who has join tokens and
//! who is revoked is in `register.rs`. Not owned: who may make tokens (`identity`).

pub(crate) mod once;
mod register;
mod server;
pub(crate) mod service;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use evenkeel_log::private::{self, NotPrivate};
use evenkeel_net::fingerprint;
use evenkeel_net::tls::{Certificate, TlsError, certificates};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SanType, SerialNumber,
};

use serde_json::{Value, json};

use register::Register;
pub use register::{Name, NameRecord};
pub(crate) use server::Server;

use crate::audit::Audit;

/// The authority's certificate, PEM; clients trust this file.
pub const CERTIFICATE_FILE: &str = "ca.crt";
/// Its key.
const KEY_FILE: &str = "ca.key";
/// Certificate, authority and key that are served, PEM.
pub(crate) const SERVER_FILE: &str = "server.pem";

/// How long a node's certificate holds, and at most (`tls.node_life`): what is remembered of a name rests on it. Renewed at two thirds, it
/// leaves eight hours to notice and mend what hinders that.
pub const NODE_LIFE: Duration = Duration::from_secs(24 * 3600);
/// How long the served certificate holds; it is made anew at two thirds and at each start.
const SERVER_LIFE: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long the authority holds. Its end is told a month before.
const AUTHORITY_LIFE: Duration = Duration::from_secs(3650 * 24 * 3600);
/// Clocks of clients may be behind by so much.
const BEHIND: Duration = Duration::from_secs(3600);
/// Largest request, bytes: one for RSA of 4096 bits takes 1.7 KiB.
const MAX_REQUEST: usize = 8 << 10;
/// Bytes of chance in join tokens and serial numbers.
const CHANCE: usize = 32;

/// Why something was not signed, made or kept.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// Its directory is not ours alone.
    #[error("the authority's directory is not used")]
    Directory(#[from] NotPrivate),
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error("{}: {what}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what helps.
        what: String,
    },
    /// A certificate cannot be made or read.
    #[error("a certificate cannot be made")]
    Making(#[from] rcgen::Error),
    /// The authority's own certificate cannot be read.
    #[error(transparent)]
    Reading(#[from] TlsError),
    /// What was asked for is refused: why, and what helps.
    #[error("{0}")]
    Refused(String),
    /// There can be no entry of it in the audit record.
    #[error("{0}")]
    Unrecorded(String),
}

/// A certificate that was given.
#[derive(Debug, Clone)]
pub struct IssuedCertificate {
    /// The node's, PEM.
    pub certificate: String,
    /// The authority's, PEM.
    pub authority: String,
    /// How long it holds.
    pub validity: Validity,
    /// SHA-256 of the node's, hexadecimal.
    pub sha256: String,
}

/// The authority.
pub struct Authority {
    dir: PathBuf,
    trust_domain: String,
    issuer: Issuer<'static, KeyPair>,
    certificate: Certificate,
    fingerprint: String,
    pem: String,
    register: Register,
    /// How long nodes' certificates hold.
    node_life: Duration,
    trouble: Mutex<Option<String>>,
    /// Held by who changes something and tells the audit record what was before.
    turn: Mutex<()>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Authority {
    /// Opens the authority in a directory, and makes key and certificate where there are none.
    ///
    /// # Errors
    /// When the directory is not ours alone, or what is in it cannot be used.
    pub fn open(dir: &Path, trust_domain: &str, now: u64) -> Result<Self, AuthorityError> {
        private::subdirectory(dir)?;
        let (key_file, certificate_file) = (dir.join(KEY_FILE), dir.join(CERTIFICATE_FILE));
        let (has_key, has_certificate) = (is_file_there(&key_file)?, is_file_there(&certificate_file)?);
        if has_certificate && !has_key {
            let what = "its key ca.key is gone: put it back, or remove this file for a new authority, which every agent has \
                        to join anew";
            return Err(AuthorityError::Content { path: certificate_file, what: what.to_owned() });
        }
        if !has_key {
            write_new(&key_file, KeyPair::generate()?.serialize_pem().as_bytes())?;
        }
        let key = KeyPair::from_pem(&read(&key_file)?)?;
        if !has_certificate {
            let made = own(trust_domain, from(now, AUTHORITY_LIFE))?.self_signed(&key)?;
            write_new(&certificate_file, made.pem().as_bytes())?;
        }
        let pem = read(&certificate_file)?;
        let der = certificates(&certificate_file)?.swap_remove(0);
        if !has_certificate {
            tracing::info!(dir = %dir.display(), sha256 = fingerprint(&der), "a certificate authority was made");
        }
        let issuer = Issuer::from_ca_cert_der(&der, key)?;
        let register = Register::open(dir)?;
        Ok(Self {
            dir: dir.to_owned(),
            trust_domain: trust_domain.to_owned(),
            issuer,
            certificate: Certificate::of(&der),
            fingerprint: fingerprint(&der),
            pem,
            register,
            node_life: NODE_LIFE,
            trouble: Mutex::default(),
            turn: Mutex::default(),
        })
    }

    /// The same, whose certificates for nodes hold so long, and never longer than [`NODE_LIFE`].
    #[must_use]
    pub(crate) fn with_node_life(self, life: Duration) -> Self {
        Self { node_life: life.min(NODE_LIFE), ..self }
    }

    /// Whether there is one in a directory.
    ///
    /// # Errors
    /// When the system does not say.
    pub(crate) fn is_there(dir: &Path) -> Result<bool, AuthorityError> {
        is_file_there(&dir.join(CERTIFICATE_FILE))
    }

    /// What it is, as the audit record has it.
    pub(crate) fn summary(&self) -> Value {
        json!({ "trustDomain": self.trust_domain, "sha256": self.fingerprint, "expires": self.expires() })
    }

    /// The turn of whoever changes something.
    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is kept of a name, as the audit record has it.
    pub(crate) fn shown(&self, name: &Name, now: u64) -> Option<Value> {
        let named = self.register.listed(now).remove(&name.to_string())?;
        let at = |seconds: u64| {
            let at = i64::try_from(seconds).ok().filter(|at| *at > 0);
            at.and_then(|at| jiff::Timestamp::from_second(at).ok()).map(|at| at.to_string())
        };
        Some(json!({
            "certificateExpires": at(named.certificate_expires),
            "tokenExpires": at(named.token_expires),
            "revoked": at(named.revoked),
            "refused": named.refused,
        }))
    }

    /// The same beside the certificate that was given.
    pub(crate) fn shown_with(&self, name: &Name, given: &IssuedCertificate, now: u64) -> Option<Value> {
        let mut shown = self.shown(name, now)?;
        shown["sha256"] = json!(given.sha256);
        Some(shown)
    }

    /// Who has what.
    pub(crate) fn register(&self) -> &Register {
        &self.register
    }

    /// SHA-256 of the authority's certificate, hexadecimal.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// End of the authority's certificate, seconds since 1970.
    #[must_use]
    pub fn expires(&self) -> u64 {
        self.certificate.expires()
    }

    /// Makes a join token for a node: for one use, ten minutes. It takes the place of one that waits. Its end, seconds since
    /// 1970, is told beside.
    ///
    /// # Errors
    /// When the name is none, too many tokens wait, or it cannot be kept.
    pub fn token(&self, name: &Name, now: u64) -> Result<(String, u64), AuthorityError> {
        name.check()?;
        let token = format!("{}{}", register::PREFIX, hexadecimal(&chance::<CHANCE>()?));
        let expires = self.register.add(name, &token, now)?;
        Ok((token, expires))
    }

    /// Signs the key of a request for the node of a join token, and uses the token up. A caller that calls itself otherwise
    /// than the token is refused, and so is a request that cannot be read: the token stays then.
    ///
    /// # Errors
    /// Says what was claimed, what was expected, and what helps.
    pub fn join(
        &self,
        csr: &[u8],
        token: &str,
        claims: &Name,
        now: u64,
    ) -> Result<IssuedCertificate, AuthorityError> {
        let name = self.may_join(csr, token, claims, now)?;
        let request = request(csr)?;
        let begins = self.register.take(token, self.node_life, now)?;
        self.sign(&request, &name, begins)
    }

    /// The node that [`join`](Self::join) would sign for. The token stays.
    ///
    /// # Errors
    /// As those of joining.
    pub(crate) fn may_join(
        &self,
        csr: &[u8],
        token: &str,
        claims: &Name,
        now: u64,
    ) -> Result<Name, AuthorityError> {
        let name = self.register.holder(token, now)?;
        if *claims != name {
            return Err(AuthorityError::Refused(format!(
                "the join token is for node {name}, the agent says it is {claims}; give each agent a token of its own, or correct \
                 node.cluster and node.name"
            )));
        }
        request(csr)?;
        Ok(name)
    }

    /// Signs the key of a request for a node that is known by its present certificate.
    ///
    /// # Errors
    /// When the request cannot be read. That the node is not revoked was looked at when it was let in.
    pub(crate) fn renew(
        &self,
        csr: &[u8],
        name: &Name,
        now: u64,
    ) -> Result<IssuedCertificate, AuthorityError> {
        self.sign(&request(csr)?, name, now)
    }

    fn sign(
        &self,
        request: &CertificateSigningRequestParams,
        name: &Name,
        begins: u64,
    ) -> Result<IssuedCertificate, AuthorityError> {
        let ends = begins + self.node_life.as_secs();
        let validity = Validity { not_before: begins, not_after: ends };
        let uri = format!("spiffe://{}/evenkeel/{}/{}", self.trust_domain, name.cluster, name.node);
        let mut params = leaf("evenkeel node", ExtendedKeyUsagePurpose::ClientAuth, validity)?;
        params.subject_alt_names = vec![SanType::URI(uri.as_str().try_into()?)];
        let signed = params.signed_by(&request.public_key, &self.issuer)?;
        self.register.given(name, ends);
        let sha256 = fingerprint(signed.der());
        tracing::info!(node = %name, ends, sha256, "a node's certificate was signed");
        Ok(IssuedCertificate { certificate: signed.pem(), authority: self.pem.clone(), validity, sha256 })
    }

    /// From now on, what others write into the register has an entry in the audit record.
    pub(crate) fn told_to(&self, record: &Arc<Audit>) {
        self.register.told_to(Arc::clone(record));
    }

    /// Reads the register again where another process changed it.
    pub(crate) fn look(&self) {
        let looked = self.register.look().err().map(|error| error.to_string());
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if looked.is_some() && *trouble != looked {
            tracing::warn!(
                trouble = looked,
                "the register of the authority cannot be read; what was read before stays in force"
            );
        }
        *trouble = looked;
    }

    /// What is wrong with it at a time in seconds since 1970.
    pub(crate) fn trouble(&self, now: u64) -> Option<String> {
        let left = self.expires().saturating_sub(now) / 86_400;
        let ends = || {
            let file = self.dir.join(KEY_FILE);
            format!(
                "the authority ends in {left} days: move {} and {CERTIFICATE_FILE} away for a new one, which every agent has to join",
                file.display()
            )
        };
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone().or_else(|| (left < 30).then(ends))
    }

    /// Makes the certificate that is served, for these names and addresses.
    ///
    /// # Errors
    /// When it cannot be made or written.
    pub(crate) fn serve(
        &self,
        hosts: &[String],
        addresses: &[IpAddr],
        now: u64,
    ) -> Result<(), AuthorityError> {
        let mut params = served(hosts, from(now, SERVER_LIFE))?;
        params.subject_alt_names.extend(addresses.iter().map(|address| SanType::IpAddress(*address)));
        let key = KeyPair::generate()?;
        let signed = params.signed_by(&key, &self.issuer)?;
        let text = format!("{}{}{}", signed.pem(), self.pem, key.serialize_pem());
        write(&self.dir.join(SERVER_FILE), text.as_bytes())
    }

    /// Whether there is a certificate to serve.
    pub(crate) fn has_served(&self) -> bool {
        is_file_there(&self.dir.join(SERVER_FILE)).unwrap_or(false)
    }

    /// Whether the certificate that is served, which ends then, has had two thirds of its life.
    pub(crate) const fn is_due(ends: u64, now: u64) -> bool {
        ends.saturating_sub(now) < SERVER_LIFE.as_secs() / 3
    }
}

/// From when and until when a certificate holds, seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// From when.
    pub not_before: u64,
    /// Until when.
    pub not_after: u64,
}

/// What the authority says of itself.
fn own(trust_domain: &str, validity: Validity) -> Result<CertificateParams, AuthorityError> {
    let mut params = certificate(&format!("evenkeel authority of {trust_domain}"), validity)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

/// Of what is made now.
const fn from(now: u64, life: Duration) -> Validity {
    Validity {
        not_before: now.saturating_sub(BEHIND.as_secs()),
        not_after: now.saturating_add(life.as_secs()),
    }
}

/// A certificate for a recommender of these names.
fn served(hosts: &[String], validity: Validity) -> Result<CertificateParams, AuthorityError> {
    let mut params = leaf("evenkeel recommender", ExtendedKeyUsagePurpose::ServerAuth, validity)?;
    let hosts = hosts.iter().map(|host| Ok(SanType::DnsName(host.as_str().try_into()?)));
    params.subject_alt_names = hosts.collect::<Result<_, rcgen::Error>>()?;
    Ok(params)
}

/// What every certificate of the authority has but a name.
fn leaf(
    subject: &str,
    usage: ExtendedKeyUsagePurpose,
    validity: Validity,
) -> Result<CertificateParams, AuthorityError> {
    let mut params = certificate(subject, validity)?;
    params.is_ca = IsCa::ExplicitNoCa;
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    Ok(params)
}

fn certificate(subject: &str, validity: Validity) -> Result<CertificateParams, AuthorityError> {
    let at = |seconds| (SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).into();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, subject);
    (params.not_before, params.not_after) = (at(validity.not_before), at(validity.not_after));
    params.serial_number = Some(SerialNumber::from_slice(&chance::<16>()?));
    Ok(params)
}

/// A request whose key signed it. Its names are read by nobody.
fn request(csr: &[u8]) -> Result<CertificateSigningRequestParams, AuthorityError> {
    let refused = |why: &str| {
        AuthorityError::Refused(format!(
            "the request for a certificate is not taken: {why}; send PKCS #10 in DER, with a key of ECDSA P-256, P-384 or \
             Ed25519, signed by that key"
        ))
    };
    if csr.len() > MAX_REQUEST {
        return Err(refused(&format!("it has {} bytes, {MAX_REQUEST} are taken", csr.len())));
    }
    let read = CertificateSigningRequestParams::from_der(&csr.to_vec().into());
    let read = read.map_err(|error| refused(&error.to_string()))?;
    let known = [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519];
    if !known.contains(&PublicKeyData::algorithm(&read.public_key)) {
        return Err(refused("its key is of another kind"));
    }
    Ok(read)
}

/// Bytes of chance.
fn chance<const N: usize>() -> Result<[u8; N], AuthorityError> {
    let (mut bytes, path) = ([0; N], Path::new("/dev/urandom"));
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|source| AuthorityError::File { path: path.to_owned(), source })?;
    Ok(bytes)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read(path: &Path) -> Result<String, AuthorityError> {
    let failed = |source| AuthorityError::File { path: path.to_owned(), source };
    String::from_utf8(private::read(path).map_err(failed)?)
        .map_err(|_| AuthorityError::Content { path: path.to_owned(), what: "it is not text".to_owned() })
}

fn is_file_there(path: &Path) -> Result<bool, AuthorityError> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(AuthorityError::File { path: path.to_owned(), source }),
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), AuthorityError> {
    private::replace(path, bytes, true)
        .map_err(|source| AuthorityError::File { path: path.to_owned(), source })
}

/// Writes a file that is not there yet: whoever comes second at the same time fails instead of taking another's place.
fn write_new(path: &Path, bytes: &[u8]) -> Result<(), AuthorityError> {
    let beside = path.with_extension(format!("new-{}", std::process::id()));
    let written = || -> io::Result<()> {
        let mut file = private::create(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        // Unlike rename(2) this replaces nothing.
        fs::hard_link(&beside, path).or_else(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Ok(()),
            _ => Err(error),
        })
    };
    let done = written();
    let _gone = fs::remove_file(&beside);
    done.map_err(|source| AuthorityError::File { path: path.to_owned(), source })
}
