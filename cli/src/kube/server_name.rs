//! `tls-server-name` of a kubeconfig: the server is at one address and has another name in its certificate, as behind a
//! tunnel or a load balancer.
//!
//! Requests are made to the name in the certificate, which is then what TLS asks for and checks; the name is resolved to
//! the address of the server's URL, and `Host` is that of the URL.

use ureq::config::Config;
use ureq::http::{HeaderValue, Uri, uri};
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

use super::config::Target;
use crate::failure::Failure;

/// A server with another name.
#[derive(Debug, Clone)]
pub(super) struct Renamed {
    /// The URL with the name of the certificate.
    pub(super) url: String,
    /// What the server is called by who asks.
    pub(super) host: HeaderValue,
    /// The URL as configured.
    real: Uri,
}

impl Renamed {
    /// Of a server whose kubeconfig names one; nothing where the certificate has the name of the URL, or is not checked
    /// because there is no TLS.
    ///
    /// # Errors
    /// When the name is none, or a proxy stands between that would be told it.
    pub(super) fn of(target: &Target) -> Result<Option<Self>, Failure> {
        let wanted = target.cluster.tls_server_name.as_deref().filter(|name| !name.is_empty());
        let Some(name) = wanted.filter(|_| target.server.starts_with("https://")) else { return Ok(None) };
        let refuse = |why: &str, remedy: &str| {
            Failure::new("cannot ask the API server", format!("tls-server-name {name}"), why, remedy)
        };
        let real: Uri = target.server.parse().map_err(|_| {
            Failure::new("cannot ask the API server", &target.server, "it is no URL", "correct the server")
        })?;
        let proxied = |uri: &Uri| ureq::Proxy::try_from_env().is_some_and(|proxy| !proxy.is_no_proxy(uri));
        if target.cluster.proxy_url.as_deref().is_some_and(|url| !url.is_empty()) || proxied(&real) {
            return Err(refuse(
                "it cannot be used through a proxy",
                "add the server to NO_PROXY, or take proxy-url out",
            ));
        }
        let bad = || refuse("it is no host name", "give the name in the server's certificate");
        let name =
            if name.contains(':') { format!("[{}]", name.trim_matches(['[', ']'])) } else { name.to_owned() };
        let port = real.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
        let authority: uri::Authority = format!("{name}{port}").parse().map_err(|_| bad())?;
        if authority.host() != name {
            return Err(bad());
        }
        let host = real.authority().map(uri::Authority::as_str).unwrap_or_default();
        let host = HeaderValue::from_str(host).map_err(|_| bad())?;
        Ok(Some(Self {
            url: format!("https://{authority}{}", real.path().trim_end_matches('/')),
            host,
            real,
        }))
    }
}

impl Resolver for Renamed {
    fn resolve(
        &self,
        _uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        DefaultResolver::default().resolve(&self.real, config, timeout)
    }
}
