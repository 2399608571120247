//! What a certificate says: names, and from when to when; and who vouched for it.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Whose authorities vouched for a client's certificate: the same name means something else under another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Vouched {
    /// Those of the listener (`client_ca`): the certificate may name nodes and people.
    pub by_listener: bool,
    /// That of a Kubernetes cluster (`cluster_ca`): the certificate names a user of the cluster.
    pub by_cluster: bool,
}

/// A certificate, DER. Of a connection: the client's, for which an authority vouched.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    der: Arc<[u8]>,
    vouched: Vouched,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Certificate").field(&self.uris()).finish()
    }
}

impl Certificate {
    /// Of these bytes, which need not be one: then it names nobody and has ended. Nobody has vouched for it.
    #[must_use]
    pub fn of(der: &[u8]) -> Self {
        Self { der: Arc::from(der), vouched: Vouched::default() }
    }

    /// The same, with who vouched for it.
    #[must_use]
    pub fn vouched_for(self, vouched: Vouched) -> Self {
        Self { vouched, ..self }
    }

    /// Who vouched for it.
    #[must_use]
    pub fn vouched(&self) -> Vouched {
        self.vouched
    }

    /// The common name of its subject, the last where there are several, as Go's x509 has it; none where it is empty or no text.
    #[must_use]
    pub fn common_name(&self) -> Option<String> {
        let (_, parsed) = X509Certificate::from_der(&self.der).ok()?;
        let last = parsed.subject().iter_common_name().last()?;
        last.as_str().ok().filter(|name| !name.is_empty()).map(str::to_owned)
    }

    /// The organizations of its subject; none where one of them is no text.
    #[must_use]
    pub fn organizations(&self) -> Option<Vec<String>> {
        let (_, parsed) = X509Certificate::from_der(&self.der).ok()?;
        parsed.subject().iter_organization().map(|one| Some(one.as_str().ok()?.to_owned())).collect()
    }

    /// As PEM.
    #[must_use]
    pub fn pem(&self) -> String {
        pem(&self.der)
    }

    /// Its SHA-256, hexadecimal.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        fingerprint(&self.der)
    }

    /// The URIs among its names.
    #[must_use]
    pub fn uris(&self) -> Vec<String> {
        self.names(|name| match name {
            GeneralName::URI(uri) => Some(*uri),
            _ => None,
        })
    }

    /// The e-mail addresses among its names.
    #[must_use]
    pub fn emails(&self) -> Vec<String> {
        self.names(|name| match name {
            GeneralName::RFC822Name(address) => Some(*address),
            _ => None,
        })
    }

    /// The DNS names among its names.
    #[must_use]
    pub fn dns_names(&self) -> Vec<String> {
        self.names(|name| match name {
            GeneralName::DNSName(name) => Some(*name),
            _ => None,
        })
    }

    fn names(&self, of: impl for<'a> Fn(&GeneralName<'a>) -> Option<&'a str>) -> Vec<String> {
        let Ok((_, parsed)) = X509Certificate::from_der(&self.der) else { return Vec::new() };
        let Ok(Some(names)) = parsed.subject_alternative_name() else { return Vec::new() };
        names.value.general_names.iter().filter_map(|name| of(name).map(str::to_owned)).collect()
    }

    /// From when it holds, seconds since 1970.
    #[must_use]
    pub fn begins(&self) -> u64 {
        self.validity().0
    }

    /// When it ends, seconds since 1970; 0 for what is no certificate.
    #[must_use]
    pub fn expires(&self) -> u64 {
        self.validity().1
    }

    fn validity(&self) -> (u64, u64) {
        let Ok((_, parsed)) = X509Certificate::from_der(&self.der) else { return (0, 0) };
        let seconds = |at: i64| u64::try_from(at).unwrap_or(0);
        let validity = parsed.validity();
        (seconds(validity.not_before.timestamp()), seconds(validity.not_after.timestamp()))
    }
}

/// A certificate as PEM (RFC 7468, section 5).
#[must_use]
pub fn pem(der: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    // Lines of 64 letters, which are 48 bytes.
    for line in der.chunks(48) {
        for three in line.chunks(3) {
            let bits = three.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte))
                << (8 * (3 - three.len()));
            for at in 0..4 {
                let letter = LETTERS[(bits >> (18 - 6 * at) & 63) as usize];
                text.push(if at <= three.len() { char::from(letter) } else { '=' });
            }
        }
        text.push('\n');
    }
    text + "-----END CERTIFICATE-----\n"
}

/// SHA-256 of a certificate, hexadecimal: what people compare.
#[must_use]
pub fn fingerprint(der: &[u8]) -> String {
    Sha256::digest(der).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pem_is_base64_in_lines() {
        for (der, want) in [
            (&b"a"[..], "YQ=="),
            (b"ab", "YWI="),
            (b"abc", "YWJj"),
            (&[0xfb, 0xff, 0xfe], "+//+"),
            (&[0; 49], "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\nAA=="),
        ] {
            let want = format!("-----BEGIN CERTIFICATE-----\n{want}\n-----END CERTIFICATE-----\n");
            assert_eq!(pem(der), want);
        }
    }
}
