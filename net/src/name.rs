//! By which names a client may call this program.

use std::net::{IpAddr, SocketAddr};

use axum::extract::Request;
use axum::http::header;

/// Whom a request is for: the header Host, or the address of a proxy's request.
#[must_use]
pub fn called(request: &Request) -> Option<&str> {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    host.or_else(|| request.uri().authority().map(|authority| authority.as_str()))
}

/// Whether a host, with or without port, is localhost, an address, or one of `hosts` (in small letters). A page of another
/// site that had its own name point here would use that name; an address cannot be made to point elsewhere.
#[must_use]
pub fn is_own_name(host: &str, hosts: &[String]) -> bool {
    let name = without_port(host).to_ascii_lowercase();
    let name = name.strip_suffix('.').unwrap_or(&name);
    let literal = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(name);
    name == "localhost" || literal.parse::<IpAddr>().is_ok() || hosts.iter().any(|host| host == name)
}

/// A host without its port.
fn without_port(host: &str) -> &str {
    if host.parse::<SocketAddr>().is_err() && host.ends_with(']') {
        return host;
    }
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
}
