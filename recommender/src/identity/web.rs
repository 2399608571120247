//! The door of the HTTP server: as that of gRPC, and what browsers could be made to send without their user's knowledge.
//!
//! A page of another site may have a browser send any request whose method and content type a form could have (a *simple
//! request*, fetch.spec.whatwg.org), and reads none of the answers. So nothing changes by such a request: what changes
//! comes as JSON or YAML, without an Origin of others. By a name of its own that points here (DNS rebinding) a page would be
//! of the same site: so names are known, at addresses.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use evenkeel_net::Peer;

use super::paid::Paid;
use super::rate::{TOO_MANY, length};
use super::table::{Need, of_route};
use super::{Access, AccessRefusal, Identity, RefusalKind};
use crate::api::http::{Problem, wrong_method};
use crate::{audit, leading};

/// Content types of what changes something; no form sends them.
const KNOWN_TYPES: [&str; 5] =
    ["application/json", "application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"];

/// Below it, each form carries a word against requests of other sites, which `dashboard` asks for.
const PAGES: &str = "/ui/";

/// Lets a request in, with its identity among its extensions, or answers it.
pub(crate) async fn guard(access: Arc<Access>, mut request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().cloned();
    let token = request.headers().get(header::AUTHORIZATION).map(|value| value.as_bytes().to_vec());
    let (place, bytes) = (request.uri().path().to_owned(), length(request.headers()));
    let identified = access.identify(peer.as_ref(), token.as_deref()).await;
    identified.iter().for_each(|identity| audit::called(request.extensions(), identity));
    let is_free = identified.is_ok() && need_of(&request) == Some(Need::Nothing);
    let caller = match access.admit(identified.as_ref().ok(), peer.as_ref(), bytes.unwrap_or(0), is_free) {
        Ok(caller) => caller,
        Err((caller, after)) => {
            access.refuse(&caller, &place, TOO_MANY);
            return too_many(place, after);
        }
    };
    let sent = is_well_sent(&access, peer.as_ref(), &request);
    let looked = match sent.and_then(|()| identified.map_err(|refusal| forbidden(refusal, &place))) {
        Ok(identity) => may(&access, &identity, RequestFacts::of(&request)).await.map(|()| identity),
        Err(problem) => Err(problem),
    };
    match looked {
        Ok(identity) => {
            if bytes.is_none() && Access::pays(&identity, is_free) {
                request = request.map(|body| Body::new(Paid::new(body, &access, &caller)));
            }
            request.extensions_mut().insert(identity);
            let response = next.run(request).await;
            // Whoever answers may refuse, too, when it knows the namespace.
            if response.status() == StatusCode::FORBIDDEN {
                access.refuse(&caller, &place, "it has no role in this namespace");
            }
            response
        }
        Err(problem) => {
            access.refuse(&caller, &place, &problem.why);
            let is_unnamed = problem.status == StatusCode::UNAUTHORIZED;
            let mut response = problem.into_response();
            if is_unnamed {
                let scheme = header::HeaderValue::from_static("Bearer");
                response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
            }
            response
        }
    }
}

fn too_many(place: String, after: u64) -> Response {
    let mut response = Problem {
        status: StatusCode::TOO_MANY_REQUESTS,
        what: "the request was refused".to_owned(),
        place,
        why: TOO_MANY.to_owned(),
        remedy: "ask again after the time in Retry-After, or raise access.requests_per_second",
    }
    .into_response();
    response.headers_mut().insert(header::RETRY_AFTER, after.into());
    response
}

/// What the route asks for, where there is one.
fn need_of(request: &Request) -> Option<Need> {
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    route.and_then(|route| of_route(request.method(), route))
}

/// What has nothing to do with who asks.
fn is_well_sent(access: &Access, peer: Option<&Peer>, request: &Request) -> Result<(), Problem> {
    is_called_by_name(access, peer, request)?;
    match *request.method() {
        Method::GET | Method::HEAD => Ok(()),
        _ => is_of_this_site(request.uri().path(), request.headers()),
    }
}

/// What of a request decides, without its body, which other threads may not look at.
struct RequestFacts {
    need: Option<Need>,
    place: String,
    /// What is wrong with it for everybody.
    wrong: Option<Problem>,
}

impl RequestFacts {
    fn of(request: &Request) -> Self {
        let need = need_of(request);
        let place = request.uri().path().to_owned();
        let is_route = request.extensions().get::<MatchedPath>().is_some();
        let wrong = match need {
            // Forms of pages: what stands for the type there is a word that only our pages know.
            Some(need) if need.changes() && place.starts_with(PAGES) => None,
            Some(need) if need.changes() && *request.method() != Method::DELETE => {
                has_type(&place, request.headers()).err()
            }
            None if is_route => Some(wrong_method(request)),
            // What there is not is said behind the door.
            Some(_) | None => None,
        };
        Self { need, place, wrong }
    }
}

async fn may(access: &Access, identity: &Identity, asked: RequestFacts) -> Result<(), Problem> {
    let RequestFacts { need, place, wrong } = asked;
    let checked = need.unwrap_or(Need::Name).check(identity).await;
    checked.map_err(|refusal| forbidden(refusal, &place))?;
    if let Some(wrong) = wrong {
        return Err(wrong);
    }
    match access.takes_no_changes().filter(|_| need.is_some_and(Need::changes)) {
        Some(why) => Err(Problem {
            status: StatusCode::CONFLICT,
            what: "the change was refused".to_owned(),
            place,
            why,
            remedy: leading::REMEDY,
        }),
        None => Ok(()),
    }
}

/// A refusal as HTTP has it.
pub(crate) fn forbidden(refusal: AccessRefusal, place: &str) -> Problem {
    Problem {
        status: match refusal.kind {
            RefusalKind::Unnamed => StatusCode::UNAUTHORIZED,
            RefusalKind::Named => StatusCode::FORBIDDEN,
            RefusalKind::Silence => StatusCode::SERVICE_UNAVAILABLE,
        },
        what: "the request was refused".to_owned(),
        place: place.to_owned(),
        why: refusal.why,
        remedy: refusal.remedy,
    }
}

fn is_called_by_name(access: &Access, peer: Option<&Peer>, request: &Request) -> Result<(), Problem> {
    // Behind a Unix socket there is no name, and no browser in front of it.
    if matches!(peer, Some(Peer::Local { .. })) {
        return Ok(());
    }
    let host = evenkeel_net::called(request);
    if host.is_some_and(|host| access.is_ours(host)) {
        return Ok(());
    }
    Err(Problem {
        status: StatusCode::MISDIRECTED_REQUEST,
        what: "the request was refused".to_owned(),
        place: request.uri().path().to_owned(),
        why: format!("it is for host {:?}, which is no name of this program", host.unwrap_or_default()),
        remedy: "ask by address or as localhost, or add the name to serve.hosts",
    })
}

/// Browsers say of which site the page is that sends a request; programs say nothing.
fn is_of_this_site(place: &str, headers: &HeaderMap) -> Result<(), Problem> {
    let text = |name| headers.get(name).map(|value: &header::HeaderValue| value.to_str().unwrap_or("?"));
    let host = text(header::HOST).unwrap_or_default();
    let same = |origin: &str| origin.split_once("://").is_some_and(|(_, at)| at.eq_ignore_ascii_case(host));
    let foreign_origin = text(header::ORIGIN).filter(|origin| !same(origin));
    let site = headers.get("sec-fetch-site").and_then(|value| value.to_str().ok());
    let foreign_site = site.filter(|site| !matches!(*site, "same-origin" | "none"));
    let Some(foreign) = foreign_origin.or(foreign_site) else { return Ok(()) };
    Err(Problem {
        status: StatusCode::FORBIDDEN,
        what: "the request was refused".to_owned(),
        place: place.to_owned(),
        why: format!("a page of another site sends it ({foreign})"),
        remedy: "ask by a program, such as evenkeel or curl",
    })
}

fn has_type(place: &str, headers: &HeaderMap) -> Result<(), Problem> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let plain = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if KNOWN_TYPES.contains(&plain.as_str()) {
        return Ok(());
    }
    Err(Problem {
        status: StatusCode::UNSUPPORTED_MEDIA_TYPE,
        what: "the request was refused".to_owned(),
        place: place.to_owned(),
        why: format!("its content type is {given:?}, which any web page could send"),
        remedy: "send Content-Type: application/json or application/yaml (curl --json)",
    })
}
