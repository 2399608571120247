//! Where the API server is and who asks it: kubeconfig files as kubectl takes them, or the account of a pod.
//!
//! Reading and merging of files are kube's. Here stands what kube does otherwise than kubectl: of several files those that are missing are
//! passed over; names that are nowhere are told with those that are somewhere; an empty text is none; a proxy of the environment is not
//! asked for a server that `NO_PROXY` names; what cannot be honoured is refused in words, without secrets. Who asks is settled in
//! [`user`], plugins are run by [`plugin`].

mod caller;
mod plugin;
mod user;

use std::env;
use std::fmt::Display;
use std::path::PathBuf;

use http::{HeaderValue, Uri, header};
use hyper_util::client::proxy::matcher::Matcher;
use kube::Config;
use kube::config::{
    AuthInfo, Cluster, Context, Kubeconfig, KubeconfigError, NamedAuthInfo, NamedCluster, NamedContext,
};
use rustls::pki_types::ServerName;

pub use caller::{Caller, caller};
use user::Settled;
pub(crate) use user::unusable;

use crate::connect::ConnectError;

/// What of a kubeconfig cannot be used.
pub(crate) const UNUSABLE: &str = "cannot use the kubeconfig";
/// The one name of parts that were chosen already.
const CHOSEN: &str = "chosen";

/// Where the API server is, as it is told to kubectl.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// The file, instead of those of `KUBECONFIG` and the one in the home directory.
    pub kubeconfig: Option<PathBuf>,
    /// A context of it, instead of the current one.
    pub context: Option<String>,
    /// The server's URL, instead of the context's.
    pub server: Option<String>,
}

/// How long a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Some questions: tokens are got once, plugins run once.
    Once,
    /// As long as the program runs: kube gets tokens anew before they end.
    ForLong,
}

/// A server and who asks it.
#[derive(Debug)]
pub(crate) struct ApiTarget {
    pub(crate) config: Config,
    /// Reading it again may give other credentials.
    pub(crate) may_change: bool,
}

/// What stands in files about a server and its user.
#[derive(Debug, Clone, Default)]
pub(crate) struct KubeconfigEntry {
    pub(crate) cluster: Cluster,
    pub(crate) user: AuthInfo,
}

/// The server that is meant.
///
/// # Errors
/// When none is known, or what is said of it cannot be used.
pub(crate) fn load(choice: &Choice, usage: Use) -> Result<ApiTarget, ConnectError> {
    let mut target = match entry(choice)? {
        Some(entry) => entry.target(usage)?,
        None => match (Config::incluster(), &choice.server) {
            (Ok(config), None) => ApiTarget { config, may_change: true },
            (Ok(mut config), Some(server)) => {
                config.cluster_url = url(server)?;
                ApiTarget { config, may_change: true }
            }
            (Err(_), Some(server)) => {
                let cluster = Cluster { server: Some(server.clone()), ..Cluster::default() };
                KubeconfigEntry { cluster, user: AuthInfo::default() }.target(usage)?
            }
            (Err(pod), None) => return Err(nowhere(choice, &pod)),
        },
    };
    // Whoever asks decides about asking again.
    target.config.default_retry = false;
    let agent = HeaderValue::from_static(concat!("evenkeel/", env!("CARGO_PKG_VERSION")));
    target.config.headers.push((header::USER_AGENT, agent));
    Ok(target)
}

/// What the files say of the context that is meant; nothing where there is none.
fn entry(choice: &Choice) -> Result<Option<KubeconfigEntry>, ConnectError> {
    let merged = merged(choice)?;
    let Some(name) = choice.context.as_ref().or(merged.current_context.as_ref()) else { return Ok(None) };
    let contexts = || merged.contexts.iter().map(|named| (named.name.as_str(), named.context.as_ref()));
    let context = found("context", name, contexts())?;
    let clusters = merged.clusters.iter().map(|named| (named.name.as_str(), named.cluster.as_ref()));
    let mut cluster = found("cluster", &context.cluster, clusters)?;
    let user = match context.user.as_ref().filter(|name| !name.is_empty()) {
        Some(name) => {
            let users = merged.auth_infos.iter();
            let nobody = AuthInfo::default();
            let users = users.map(|named| (named.name.as_str(), named.auth_info.as_ref().or(Some(&nobody))));
            found("user", name, users)?
        }
        None => AuthInfo::default(),
    };
    if choice.server.is_some() {
        cluster.server.clone_from(&choice.server);
    }
    Ok(Some(KubeconfigEntry { cluster, user }))
}

/// All files together: the first that sets a value wins, and paths in a file are relative to it (kubernetes.io, "Organizing Cluster Access
/// Using kubeconfig Files").
fn merged(choice: &Choice) -> Result<Kubeconfig, ConnectError> {
    let mut merged = Kubeconfig::default();
    for path in paths(choice) {
        if choice.kubeconfig.is_none() && !path.exists() {
            continue;
        }
        let failed = |error: KubeconfigError| {
            let remedy = "correct it, or name the file and context that kubectl uses";
            ConnectError::new(UNUSABLE, path.display(), words(&error), remedy)
        };
        let mut next = Kubeconfig::read_from(&path).map_err(failed)?;
        next.current_context.take_if(|name| name.is_empty());
        merged = merged.merge(next).map_err(failed)?;
    }
    Ok(merged)
}

fn paths(choice: &Choice) -> Vec<PathBuf> {
    if let Some(path) = &choice.kubeconfig {
        return vec![path.clone()];
    }
    match env::var_os("KUBECONFIG").filter(|list| !list.is_empty()) {
        Some(list) => env::split_paths(&list).filter(|path| !path.as_os_str().is_empty()).collect(),
        None => {
            env::var_os("HOME").map(|home| PathBuf::from(home).join(".kube/config")).into_iter().collect()
        }
    }
}

/// Without the lines of the file, where tokens are.
fn words(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::Parse(error) => error.without_snippet().to_string(),
        error => error.to_string(),
    }
}

fn found<'a, T: Clone + 'a>(
    what: &str,
    name: &str,
    all: impl Iterator<Item = (&'a str, Option<&'a T>)> + Clone,
) -> Result<T, ConnectError> {
    if let Some(found) = all.clone().find_map(|(known, one)| one.filter(|_| known == name)) {
        return Ok(found.clone());
    }
    let mut known: Vec<&str> = all.map(|(known, _)| known).collect();
    known.sort_unstable();
    let why = format!("no {what} is named {name}; there are: {}", known.join(", "));
    Err(ConnectError::new(
        UNUSABLE,
        format!("{what} {name}"),
        why,
        "choose another context, or correct the file",
    ))
}

fn nowhere(choice: &Choice, pod: &dyn Display) -> ConnectError {
    let looked: Vec<String> = paths(choice).iter().map(|path| path.display().to_string()).collect();
    let why = format!(
        "no context is set in {}, and this is no pod with a service account ({pod})",
        if looked.is_empty() { "any file".to_owned() } else { looked.join(", ") }
    );
    let remedy = "name a file or a server, or run it in a pod with automountServiceAccountToken";
    ConnectError::new("no API server is known", "kubeconfig", why, remedy)
}

fn url(server: &str) -> Result<Uri, ConnectError> {
    let refused =
        |why: &str| ConnectError::new("cannot ask the API server", server, why, "correct the server's URL");
    if !server.starts_with("https://") && !server.starts_with("http://") {
        return Err(refused("the server is no http:// or https:// URL"));
    }
    server.parse().map_err(|_| refused("it is no URL"))
}

impl KubeconfigEntry {
    /// As kube takes it.
    ///
    /// # Errors
    /// When something of it cannot be honoured.
    pub(crate) fn target(mut self, usage: Use) -> Result<ApiTarget, ConnectError> {
        let cluster = &mut self.cluster;
        for text in [
            &mut cluster.certificate_authority,
            &mut cluster.certificate_authority_data,
            &mut cluster.proxy_url,
            &mut cluster.tls_server_name,
        ] {
            text.take_if(|text| is_none(text));
        }
        let server = url(cluster.server.as_deref().unwrap_or_default())?;
        let is_secure = server.scheme_str() == Some("https");
        if let Some(name) = &cluster.tls_server_name
            && ServerName::try_from(name.as_str()).is_err()
        {
            let place = format!("tls-server-name {name}");
            let remedy = "give the name in the server's certificate";
            return Err(ConnectError::new(UNUSABLE, place, "it is no host name", remedy));
        }
        let proxy = cluster.proxy_url.clone().or_else(|| from_environment(&server));
        let proxy = proxy.map(|text| proxy_url(&text)).transpose()?;
        let Settled { user, may_change } = user::settled(self.user, &self.cluster, usage)?;
        let context =
            Context { cluster: CHOSEN.to_owned(), user: Some(CHOSEN.to_owned()), ..Context::default() };
        let file = Kubeconfig {
            current_context: Some(CHOSEN.to_owned()),
            contexts: vec![NamedContext {
                name: CHOSEN.to_owned(),
                context: Some(context),
                ..Default::default()
            }],
            clusters: vec![NamedCluster {
                name: CHOSEN.to_owned(),
                cluster: Some(Cluster { proxy_url: None, ..self.cluster }),
                ..Default::default()
            }],
            auth_infos: vec![NamedAuthInfo {
                name: CHOSEN.to_owned(),
                auth_info: Some(user),
                ..Default::default()
            }],
            ..Kubeconfig::default()
        };
        let unusable = |why: String| {
            ConnectError::new(UNUSABLE, server.to_string(), why, "correct it, or choose another context")
        };
        let mut config = Config::try_from(file).map_err(|error| unusable(words(&error)))?;
        config.proxy_url = proxy;
        if !is_secure {
            // No certificate is looked at: none of the system's need be there.
            config.root_cert = Some(Vec::new());
        } else if config.root_cert.as_ref().is_some_and(Vec::is_empty) {
            return Err(unusable("the authority's bundle holds no certificate".to_owned()));
        }
        Ok(ApiTarget { config, may_change })
    }
}

/// Whether a text is none: kube makes of an empty path the folder of its file, with a slash at the end.
fn is_none(text: &str) -> bool {
    text.is_empty() || (text.starts_with('/') && text.ends_with('/'))
}

/// The proxy that the environment has for a server, as curl and Go understand it: `NO_PROXY` wins.
fn from_environment(server: &Uri) -> Option<String> {
    Matcher::from_env().intercept(server)?;
    let of_scheme = if server.scheme_str() == Some("https") {
        ["HTTPS_PROXY", "https_proxy"]
    } else {
        ["HTTP_PROXY", "http_proxy"]
    };
    let mut names = of_scheme.into_iter().chain(["ALL_PROXY", "all_proxy"]);
    names.find_map(|name| env::var(name).ok().filter(|text| !text.is_empty()))
}

fn proxy_url(text: &str) -> Result<Uri, ConnectError> {
    // The text may hold a password.
    let refused = || {
        let remedy = "give http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT";
        ConnectError::new(UNUSABLE, "proxy-url", "it is no proxy that can be used", remedy)
    };
    let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let url: Uri = whole.parse().map_err(|_| refused())?;
    match url.scheme_str() {
        Some("http" | "https" | "socks5") if url.host().is_some_and(|host| !host.is_empty()) => Ok(url),
        _ => Err(refused()),
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
