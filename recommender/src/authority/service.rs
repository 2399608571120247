//! `EnrollService`: the authority over the wire.

use std::sync::Arc;

use evenkeel_model::causes::chain;
use evenkeel_proto::v1;
use evenkeel_proto::v1::enroll_service_server::EnrollService;
use evenkeel_store::clock::WallClock;
use serde_json::Value;
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};

use super::{Authority, AuthorityError, IssuedCertificate, Name, Validity};
use crate::audit::{Object, Ticket};
use crate::identity::Identity;

/// Requests that are worked on at the same time; a signature takes a fraction of a millisecond, and the disk is synced.
const AT_ONCE: usize = 32;
/// Largest message taken: a request, a token and two names.
pub(crate) const MAX_MESSAGE: usize = 16 << 10;

/// The service, also where there is no authority.
#[derive(Clone)]
pub(crate) struct Enrollment {
    authority: Option<Arc<Authority>>,
    clock: WallClock,
    places: Arc<Semaphore>,
}

impl Enrollment {
    pub(crate) fn new(authority: Option<Arc<Authority>>, clock: WallClock) -> Self {
        Self { authority, clock, places: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// Does something with the authority on a thread that may wait, at a time in seconds since 1970.
    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Authority, u64) -> Result<T, AuthorityError> + Send + 'static,
    ) -> Result<T, Status> {
        let authority = self.authority.clone().ok_or_else(|| {
            Status::failed_precondition(
                "this recommender keeps no authority; set tls.authority = true, or use the certificates of another",
            )
        })?;
        let busy =
            |_| Status::resource_exhausted(format!("{AT_ONCE} requests are worked on; ask again later"));
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(busy)?;
        let now = self.clock.now_usec() / 1_000_000;
        let done = tokio::task::spawn_blocking(move || {
            let _held = place;
            work(&authority, now)
        });
        let done = done.await.map_err(|_| Status::internal("the request was not worked on; see the log"))?;
        done.map_err(|error| refused(&error))
    }
}

/// What is changed of a node's name.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AuthorityChange {
    /// A join token is made.
    JoinToken,
    /// One is used for a certificate.
    Certificate,
    /// It is refused from now on.
    Revocation,
}

impl AuthorityChange {
    /// As the audit record names it.
    pub(crate) fn of(self, name: &Name) -> Object {
        let kind = match self {
            Self::JoinToken => "JoinToken",
            Self::Certificate => "Certificate",
            Self::Revocation => "Node",
        };
        Object::of_all(kind, &name.to_string())
    }

    /// Makes it, with an entry in the audit record; `after` is what there is then.
    fn make<T>(
        self,
        authority: &Authority,
        ticket: &Ticket,
        name: &Name,
        now: u64,
        make: impl FnOnce() -> Result<T, AuthorityError>,
        after: impl FnOnce(&T) -> Option<Value>,
    ) -> Result<T, AuthorityError> {
        // No entry for what is not even a name.
        name.check()?;
        // One after the other, so that what is told as before is what was there.
        let _turn = authority.turn();
        let before = authority.shown(name, now);
        let begun = ticket.begin(self.of(name), before.as_ref(), None);
        let begun = begun.map_err(|error| AuthorityError::Unrecorded(error.told()))?;
        let made = make();
        match &made {
            Ok(made) => begun.done(after(made).as_ref()),
            Err(error) => begun.failed(&chain(error)),
        }
        made
    }
}

/// A certificate in place of one that a node has. It is given away once it is in the audit record, and not otherwise.
fn renewed(
    authority: &Authority,
    ticket: &Ticket,
    csr: &[u8],
    name: &Name,
    now: u64,
) -> Result<IssuedCertificate, AuthorityError> {
    let before = authority.shown(name, now);
    let given = authority.renew(csr, name, now)?;
    let after = authority.shown_with(name, &given, now).unwrap_or_default();
    let kept = ticket.renewed(AuthorityChange::Certificate.of(name), before.as_ref(), &after);
    kept.map_err(|error| AuthorityError::Unrecorded(error.told()))?;
    Ok(given)
}

/// A refusal, as the wire has it.
fn refused(error: &AuthorityError) -> Status {
    match error {
        AuthorityError::Refused(why) => {
            tracing::info!(why, "the authority refused");
            Status::permission_denied(why)
        }
        AuthorityError::Unrecorded(why) => Status::unavailable(why),
        other => {
            let error = format!("{:#}", anyhow::anyhow!(other.to_string()));
            tracing::error!(error, "the authority failed");
            Status::internal("the authority cannot do it; the recommender's log says why")
        }
    }
}

fn issued(given: IssuedCertificate) -> Option<v1::Issued> {
    let IssuedCertificate { certificate, authority, validity, .. } = given;
    let Validity { not_before, not_after } = validity;
    Some(v1::Issued { certificate, authority, not_before, not_after })
}

#[tonic::async_trait]
impl EnrollService for Enrollment {
    async fn sign(&self, request: Request<v1::SignRequest>) -> Result<Response<v1::SignResponse>, Status> {
        let ticket = Ticket::of(request.extensions());
        let v1::SignRequest { csr, token, cluster, node } = request.into_inner();
        let claims = Name { cluster, node };
        let given = self.with(move |authority, now| {
            let name = authority.may_join(&csr, &token, &claims, now)?;
            ticket.named(format!("join token of {name}"));
            let join = || authority.join(&csr, &token, &claims, now);
            let after = |given: &IssuedCertificate| authority.shown_with(&name, given, now);
            AuthorityChange::Certificate.make(authority, &ticket, &name, now, join, after)
        });
        let given = given.await?;
        Ok(Response::new(v1::SignResponse { issued: issued(given) }))
    }

    async fn renew(&self, request: Request<v1::RenewRequest>) -> Result<Response<v1::RenewResponse>, Status> {
        let ticket = Ticket::of(request.extensions());
        let name = Identity::of(request.extensions()).certified_node()?;
        ticket.about(AuthorityChange::Certificate.of(&name));
        let csr = request.into_inner().csr;
        let given = self.with(move |authority, now| renewed(authority, &ticket, &csr, &name, now));
        Ok(Response::new(v1::RenewResponse { issued: issued(given.await?) }))
    }

    async fn create_token(
        &self,
        request: Request<v1::CreateTokenRequest>,
    ) -> Result<Response<v1::CreateTokenResponse>, Status> {
        let ticket = Ticket::of(request.extensions());
        let v1::CreateTokenRequest { cluster, node } = request.into_inner();
        let name = Name { cluster, node };
        ticket.about(AuthorityChange::JoinToken.of(&name));
        let made = self.with(move |authority, now| {
            let make = || authority.token(&name, now);
            let after = |_: &_| authority.shown(&name, now);
            let (token, expires) =
                AuthorityChange::JoinToken.make(authority, &ticket, &name, now, make, after)?;
            let authority_sha256 = authority.fingerprint().to_owned();
            Ok(v1::CreateTokenResponse { token, expires, authority_sha256 })
        });
        Ok(Response::new(made.await?))
    }

    async fn revoke(
        &self,
        request: Request<v1::RevokeRequest>,
    ) -> Result<Response<v1::RevokeResponse>, Status> {
        let ticket = Ticket::of(request.extensions());
        let v1::RevokeRequest { cluster, node } = request.into_inner();
        let name = Name { cluster, node };
        ticket.about(AuthorityChange::Revocation.of(&name));
        let revoked = self.with(move |authority, now| {
            let revoke = || authority.register().revoke(&name, now);
            let after = |(): &()| authority.shown(&name, now);
            AuthorityChange::Revocation.make(authority, &ticket, &name, now, revoke, after)
        });
        revoked.await?;
        Ok(Response::new(v1::RevokeResponse {}))
    }

    async fn list_enrolled(
        &self,
        _request: Request<v1::ListEnrolledRequest>,
    ) -> Result<Response<v1::ListEnrolledResponse>, Status> {
        let listed = self.with(|authority, now| {
            let nodes = authority.register().listed(now).into_iter().filter_map(|(name, named)| {
                let Name { cluster, node } = Name::read(&name)?;
                Some(v1::EnrolledNode {
                    cluster,
                    node,
                    certificate_expires: named.certificate_expires,
                    token_expires: named.token_expires,
                    revoked: named.revoked,
                    refused: named.refused,
                })
            });
            Ok(v1::ListEnrolledResponse {
                nodes: nodes.collect(),
                authority_sha256: authority.fingerprint().to_owned(),
                authority_expires: authority.expires(),
            })
        });
        Ok(Response::new(listed.await?))
    }
}
