//! The node's certificate for the stream from an authority of one's own (`stream.cert`): when it ends. Each connection reads the
//! file itself.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use evenkeel_net::tls::{Certificate, SOON, certificates};

use evenkeel_enforce::shared::lock;

/// Tells one state of a file from another.
type Print = (u64, u64, i64, i64);

/// A certificate that the configuration names.
#[derive(Debug)]
pub(super) struct ConfiguredCertificate {
    path: PathBuf,
    now: Mutex<CertificateRead>,
}

/// What was read of it.
#[derive(Debug)]
struct CertificateRead {
    print: Option<Print>,
    /// Its end, seconds since 1970, or why there is none.
    ends: Result<u64, String>,
}

impl ConfiguredCertificate {
    /// Reads it.
    pub(super) fn read(path: &Path) -> Self {
        let now = CertificateRead { print: print(path), ends: ends(path) };
        Self { path: path.to_owned(), now: Mutex::new(now) }
    }

    /// Reads it again where it changed, or could not be read.
    pub(super) fn look(&self) {
        let print = print(&self.path);
        let is_known = |now: &CertificateRead| now.print == print && now.ends.is_ok();
        if !is_known(&lock(&self.now)) {
            let ends = ends(&self.path);
            *lock(&self.now) = CertificateRead { print, ends };
        }
    }

    /// Its end, seconds since 1970, where it can be read.
    pub(super) fn expires(&self) -> Option<u64> {
        lock(&self.now).ends.as_ref().ok().copied()
    }

    /// What is wrong with it at a time in seconds since 1970.
    pub(super) fn told(&self, now: u64) -> Option<String> {
        let path = self.path.display();
        match &lock(&self.now).ends {
            Err(why) => Some(format!("the certificate cannot be read: {why}")),
            Ok(ends) => match ends.saturating_sub(now) {
                0 => Some(format!("the certificate in {path} has ended: no recommender takes it")),
                left if left < SOON.as_secs() => {
                    Some(format!("the certificate in {path} ends in {} min", left / 60))
                }
                _ => None,
            },
        }
    }
}

fn print(path: &Path) -> Option<Print> {
    let facts = fs::metadata(path).ok()?;
    Some((facts.ino(), facts.len(), facts.mtime(), facts.mtime_nsec()))
}

fn ends(path: &Path) -> Result<u64, String> {
    let read = certificates(path).map_err(|error| error.to_string())?;
    Ok(read.first().map_or(0, |leaf| Certificate::of(leaf).expires()))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    fn write(path: &Path, ends: u64) {
        let mut params = rcgen::CertificateParams::new(vec!["n1".to_owned()]).unwrap();
        params.not_after = (SystemTime::UNIX_EPOCH + Duration::from_secs(ends)).into();
        let made = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        // As certificates are rotated: another file takes its place.
        let beside = path.with_extension("new");
        fs::write(&beside, made.pem()).unwrap();
        fs::rename(beside, path).unwrap();
    }

    #[test]
    fn a_certificate_of_ones_own_authority_is_told_before_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node.crt");
        let given = ConfiguredCertificate::read(&path);
        assert_eq!(given.expires(), None);
        assert!(given.told(0).unwrap().contains("node.crt"), "{:?}", given.told(0));
        let (day, ends) = (86_400, 2_000_000_000);
        write(&path, ends);
        given.look();
        assert_eq!((given.expires(), given.told(ends - day)), (Some(ends), None));
        assert!(given.told(ends - 3600).unwrap().contains("ends in 60 min"));
        assert!(given.told(ends).unwrap().contains("has ended"));
        write(&path, ends + day);
        given.look();
        assert_eq!((given.expires(), given.told(ends)), (Some(ends + day), None));
    }
}
