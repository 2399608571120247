//! The door of the HTTP server: as that of gRPC, and what browsers could be made to send without their user's knowledge.
//!
//! A page of another site may have a browser send any request whose method and content type a form could have (a *simple
//! request*, fetch.spec.whatwg.org), and reads none of the answers. So nothing changes by such a request: what changes
//! comes as JSON or YAML, without an Origin of others. By a name of its own that points here (DNS rebinding) a page would be
//! of the same site: so names are known, at addresses.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use evenkeel_net::Peer;

use super::table::{Need, of_route};
use super::{Access, Identity, Refusal};
use crate::api::http::{Problem, wrong_method};

/// Content types of what changes something; no form sends them.
const KNOWN_TYPES: [&str; 5] =
    ["application/json", "application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"];

/// Lets a request in, with its identity among its extensions, or answers it.
pub(crate) async fn guard(access: Arc<Access>, mut request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().cloned();
    let token = request.headers().get(header::AUTHORIZATION).map(|value| value.as_bytes().to_vec());
    let sent = is_well_sent(&access, peer.as_ref(), &request);
    let looked = match sent {
        Ok(()) => access
            .identify(peer.as_ref(), token.as_deref())
            .await
            .map_err(|refusal| forbidden(refusal, request.uri().path()))
            .and_then(|identity| may(&identity, &request).map(|()| identity)),
        Err(problem) => Err(problem),
    };
    match looked {
        Ok(identity) => {
            request.extensions_mut().insert(identity);
            let response = next.run(request).await;
            // Whoever answers may refuse, too, when it knows the namespace.
            if response.status() == StatusCode::FORBIDDEN {
                access.count_refusal();
            }
            response
        }
        Err(problem) => {
            access.count_refusal();
            let is_unnamed = problem.status == StatusCode::UNAUTHORIZED;
            tracing::info!(place = problem.place, why = problem.why, "a request was refused");
            let mut response = problem.into_response();
            if is_unnamed {
                let scheme = header::HeaderValue::from_static("Bearer");
                response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
            }
            response
        }
    }
}

/// What has nothing to do with who asks.
fn is_well_sent(access: &Access, peer: Option<&Peer>, request: &Request) -> Result<(), Problem> {
    is_called_by_name(access, peer, request)?;
    match *request.method() {
        Method::GET | Method::HEAD => Ok(()),
        _ => is_of_this_site(request.uri().path(), request.headers()),
    }
}

fn may(identity: &Identity, request: &Request) -> Result<(), Problem> {
    let place = request.uri().path();
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let need = route.and_then(|route| of_route(request.method(), route));
    need.unwrap_or(Need::Name).check(identity).map_err(|refusal| forbidden(refusal, place))?;
    match need {
        Some(need) if need.changes() && *request.method() != Method::DELETE => {
            has_type(place, request.headers())
        }
        None if route.is_some() => Err(wrong_method(request)),
        // What there is not is said behind the door.
        Some(_) | None => Ok(()),
    }
}

/// A refusal as HTTP has it.
pub(crate) fn forbidden(refusal: Refusal, place: &str) -> Problem {
    Problem {
        status: if refusal.unnamed { StatusCode::UNAUTHORIZED } else { StatusCode::FORBIDDEN },
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
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let host = host.or_else(|| request.uri().authority().map(|authority| authority.as_str()));
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
