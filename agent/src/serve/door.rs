//! Who may ask at an address: whoever sends the token, or shows a certificate of an authority that is configured.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use evenkeel_net::Peer;
use evenkeel_proto::bearer;
use tonic::service::Interceptor;
use tonic::{Request, Status};

use crate::config::sections::trust::{Guard, TrustRules};

/// The door of an address, or of the socket.
#[derive(Debug, Clone, Default)]
pub(crate) struct Door {
    token: Option<PathBuf>,
    /// Authorities vouch for clients.
    certificates: bool,
}

/// Why somebody is not let in.
const REFUSED: &str = "this address answers whoever sends its token (evenkeel --agent-token-file FILE) or shows a certificate that an \
                       authority of tls.client_ca signed; who asks does neither";

impl Door {
    /// That of an address.
    pub(crate) fn of(rules: &TrustRules, guard: &Guard) -> Self {
        let certificates = guard.tls && rules.files.as_ref().is_some_and(|files| !files.client_ca.is_empty());
        Self { token: guard.token.clone(), certificates }
    }

    /// One that asks for the token in a file, or a certificate that an authority vouches for.
    pub(crate) const fn asking(token: Option<PathBuf>, certificates: bool) -> Self {
        Self { token, certificates }
    }

    /// Whether somebody may ask.
    ///
    /// # Errors
    /// Says what is asked for.
    pub(crate) fn may(&self, peer: Option<&Peer>, authorization: Option<&[u8]>) -> Result<(), &'static str> {
        if self.token.is_none() && !self.certificates {
            return Ok(());
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let shows =
            matches!(peer, Some(Peer::Remote { certificate: Some(shown), .. }) if shown.expires() > now);
        let sends = || {
            let (sent, file) = (authorization.and_then(bearer::token)?, self.token.as_deref()?);
            let wanted = bearer::read(file)
                .inspect_err(|error| tracing::warn!(%error, file = %file.display(), "the token cannot be read; nobody is let in by it"));
            Some(is_same(sent.as_bytes(), wanted.ok()?.as_bytes()))
        };
        if (self.certificates && shows) || sends().unwrap_or(false) { Ok(()) } else { Err(REFUSED) }
    }
}

/// Whether two secrets are the same, in a time that tells nothing of where they differ.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differ = one.iter().zip(other).fold(0, |differ, (a, b)| differ | (a ^ b));
    one.len() == other.len() && differ == 0
}

impl Interceptor for Door {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        let sent = request.metadata().get(bearer::HEADER).map(|value| value.as_bytes());
        let said = self.may(request.extensions().get::<Peer>(), sent);
        said.map_err(Status::unauthenticated)?;
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_door_asks_for_what_it_was_given() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        std::fs::write(&file, " secret\n").unwrap();
        let closed = Door { token: Some(file.clone()), certificates: false };
        for (door, sent, want) in [
            (&Door::default(), None, true),
            (&closed, None, false),
            (&closed, Some("Bearer secret"), true),
            (&closed, Some("bearer secret"), true),
            (&closed, Some("Bearer secre"), false),
            (&closed, Some("Bearer secrets"), false),
            (&closed, Some("Bearer Secret"), false),
            (&closed, Some("Basic secret"), false),
            (&Door { token: None, certificates: true }, Some("Bearer secret"), false),
        ] {
            assert_eq!(door.may(None, sent.map(str::as_bytes)).is_ok(), want, "{door:?} {sent:?}");
        }
        std::fs::remove_file(file).unwrap();
        assert!(closed.may(None, Some(b"Bearer secret")).is_err(), "without the file nobody is let in");
    }
}
