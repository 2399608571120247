//! Owns the certificate that replicas of the webhook share in a Secret (`webhook.secret`): made where there is none, renewed when a third of its
//! time is left, by whichever replica sees it first; what another one wrote meanwhile counts.
//!
//! The authorities in the Secret are the new one and those before that have not ended, so that API servers trust replicas with either
//! certificate. Not owned: the files that are served from, and the registration.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use evenkeel_kubernetes::objects::ApiError;
use evenkeel_kubernetes::{ApiServer, Secret};
use evenkeel_log::private;
use evenkeel_net::tls::{Certificate, parsed};
use evenkeel_store::clock::WallClock;
use tracing::info;

use crate::authority::once::{Pair, pair};
use crate::config::WebhookSection;

/// Keys of the Secret, as those of type `kubernetes.io/tls` have them.
const AUTHORITY: &str = "ca.crt";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
/// Authorities that are kept beside the new one.
const OLD: usize = 2;
/// How often it is tried where others write at the same time.
const TRIES: usize = 5;

/// What the Secret holds, PEM.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct CertificateSecret {
    authority: Vec<u8>,
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl CertificateSecret {
    /// What is in the Secret, where a replica of these names can serve with it for a good while.
    fn read(secret: &Secret, names: &[String], now: u64) -> Option<Self> {
        let held = Self {
            authority: secret.get(AUTHORITY)?,
            certificate: secret.get(CERTIFICATE)?,
            key: secret.get(KEY)?,
        };
        let leaf = parsed(&held.certificate).into_iter().next()?;
        let (begins, ends) = (leaf.begins(), leaf.expires());
        let left = ends.saturating_sub(now);
        let has_names = names.iter().all(|name| leaf.dns_names().contains(name));
        let is_good = has_names && begins <= now && left.saturating_mul(3) > ends.saturating_sub(begins);
        (is_good && !parsed(&held.authority).is_empty()).then_some(held)
    }

    /// Puts the authority into its file, which the registration gets.
    pub(super) fn write_authority(&self, section: &WebhookSection) -> anyhow::Result<()> {
        write(&section.authority, &self.authority)
    }

    /// Puts certificate and key into the files that are served from.
    pub(super) fn write_pair(&self, section: &WebhookSection) -> anyhow::Result<()> {
        write(&section.key, &self.key)?;
        write(&section.cert, &self.certificate)
    }
}

/// Replaces a file where it has other bytes.
fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    if std::fs::read(path).is_ok_and(|present| present == bytes) {
        return Ok(());
    }
    private::replace(path, bytes, false).with_context(|| {
        format!(
            "cannot write {}; it has to be in a directory of this program's alone (an emptyDir)",
            path.display()
        )
    })
}

/// The pair that is in force, made or renewed where that is due.
///
/// # Errors
/// When the Secret cannot be read or written, or no pair can be made.
pub(super) async fn kept(api: &ApiServer, section: &WebhookSection) -> anyhow::Result<CertificateSecret> {
    let (namespace, name) = section.secret_name().context("webhook.secret is not NAMESPACE/NAME")?;
    for _ in 0..TRIES {
        let secret =
            api.secret(namespace, name).await.with_context(|| format!("Secret {namespace}/{name}"))?;
        let now = WallClock::system().now_usec() / 1_000_000;
        if let Some(held) = CertificateSecret::read(&secret, &section.names, now) {
            return Ok(held);
        }
        let made = renewed(secret, &section.names, section.certificate_life.get(), now)?;
        match api.keep_secret(&made).await {
            Ok(()) => info!(namespace, name, "the webhook's certificate was made anew"),
            // Another replica was first.
            Err(ApiError::Conflict(_)) => {}
            Err(error) => return Err(error).with_context(|| format!("Secret {namespace}/{name}")),
        }
    }
    anyhow::bail!("Secret {namespace}/{name} is written by others all the time")
}

/// The Secret with a new pair, and the authorities before it that have not ended.
fn renewed(secret: Secret, names: &[String], life: Duration, now: u64) -> anyhow::Result<Secret> {
    let Pair { mut authority, certificate, key, .. } = pair(names, life, now)?;
    let before = secret.get(AUTHORITY).unwrap_or_default();
    let alive = parsed(&before).into_iter().filter(|certificate| certificate.expires() > now);
    authority.extend(alive.take(OLD).map(|certificate: Certificate| certificate.pem()));
    Ok(secret
        .with(AUTHORITY, authority.as_bytes())
        .with(CERTIFICATE, certificate.as_bytes())
        .with(KEY, key.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;

    #[test]
    fn a_pair_is_renewed_in_time_and_the_authority_before_is_trusted_on() {
        let names = ["evenkeel-webhook.evenkeel.svc".to_owned()];
        let life = Duration::from_secs(90 * DAY);
        let (now, none) = (1_800_000_000, Secret::default());
        assert!(CertificateSecret::read(&none, &names, now).is_none());
        let first = renewed(none, &names, life, now).unwrap();
        let held = CertificateSecret::read(&first, &names, now).unwrap();
        assert_eq!(parsed(&held.authority).len(), 1);
        for (names, at, is_good) in [
            (&names[..], now + 59 * DAY, true),
            (&names[..], now + 61 * DAY, false),
            (&names[..], now + 91 * DAY, false),
            // The clock was put back.
            (&names[..], now - 2 * DAY, false),
            (&["other.svc".to_owned()][..], now, false),
        ] {
            assert_eq!(CertificateSecret::read(&first, names, at).is_some(), is_good, "{names:?} {at}");
        }
        let second = renewed(first.clone(), &names, life, now + 61 * DAY).unwrap();
        let both = CertificateSecret::read(&second, &names, now + 61 * DAY).unwrap();
        assert_eq!(parsed(&both.authority).len(), 2);
        assert_eq!(parsed(&both.authority)[1].pem().into_bytes(), held.authority);
        // One that has ended is not kept, and of many the newest are.
        assert_eq!(
            parsed(&renewed(first, &names, life, now + 91 * DAY).unwrap().get(AUTHORITY).unwrap()).len(),
            1
        );
        let mut many = second;
        for _ in 0..5 {
            many = renewed(many, &names, life, now + 62 * DAY).unwrap();
        }
        assert_eq!(parsed(&many.get(AUTHORITY).unwrap()).len(), 1 + OLD);
        for (key, bytes) in [(CERTIFICATE, &b"rubbish"[..]), (AUTHORITY, b""), (CERTIFICATE, b"")] {
            assert!(
                CertificateSecret::read(&many.clone().with(key, bytes), &names, now + 62 * DAY).is_none(),
                "{key}"
            );
        }
    }

    #[test]
    fn files_are_written_where_they_differ() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tls.key");
        write(&path, b"one").unwrap();
        write(&path, b"one").unwrap();
        write(&path, b"two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        let told = write(Path::new("/nowhere/tls.key"), b"one").unwrap_err();
        assert!(format!("{told:#}").contains("emptyDir"), "{told:#}");
    }
}
