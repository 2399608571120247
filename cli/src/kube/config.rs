//! Where the API server is and who asks: kubeconfig files, or a pod's service account.
//!
//! Files are merged as kubectl does: the first that sets a value wins, and paths inside a file are relative to it
//! (kubernetes.io, "Organizing Cluster Access Using kubeconfig Files").

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::failure::Failure;

/// Where a pod finds its service account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// What was chosen on the command line.
#[derive(Debug, Clone, Default)]
pub(crate) struct Choice {
    /// File, instead of `KUBECONFIG` and the one in the home directory.
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context, instead of the current one.
    pub(crate) context: Option<String>,
    /// Server, instead of the one of the context.
    pub(crate) server: Option<String>,
}

/// A server and who asks it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Target {
    /// Its URL.
    pub(crate) server: String,
    /// How it is known.
    pub(crate) cluster: Cluster,
    /// Who asks.
    pub(crate) user: User,
}

/// How a server is known.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(crate) struct Cluster {
    server: String,
    /// Bundle that its certificate is checked with.
    pub(crate) certificate_authority: Option<PathBuf>,
    /// The same in base64.
    pub(crate) certificate_authority_data: Option<String>,
    /// Its certificate is not checked at all.
    pub(crate) insecure_skip_tls_verify: bool,
    /// The name in its certificate, where it is not the URL's.
    pub(crate) tls_server_name: Option<String>,
    /// Way to it.
    pub(crate) proxy_url: Option<String>,
}

/// Who asks.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(crate) struct User {
    /// Certificate.
    pub(crate) client_certificate: Option<PathBuf>,
    /// The same in base64.
    pub(crate) client_certificate_data: Option<String>,
    /// Its key.
    pub(crate) client_key: Option<PathBuf>,
    /// The same in base64.
    pub(crate) client_key_data: Option<String>,
    /// Bearer token.
    pub(crate) token: Option<String>,
    /// File with it, read again when it is refused.
    #[serde(rename = "tokenFile")]
    pub(crate) token_file: Option<PathBuf>,
    /// Basic authentication.
    pub(crate) username: Option<String>,
    /// Basic authentication.
    pub(crate) password: Option<String>,
    /// A program that gives a token or certificate.
    pub(crate) exec: Option<Exec>,
    /// Whom the server is asked to take the caller for.
    #[serde(rename = "as")]
    pub(crate) as_user: Option<String>,
    /// That user's identifier.
    pub(crate) as_uid: Option<String>,
    /// That user's groups.
    #[serde(deserialize_with = "or_default")]
    pub(crate) as_groups: Vec<String>,
    /// What else is known of that user.
    #[serde(deserialize_with = "or_default")]
    pub(crate) as_user_extra: BTreeMap<String, Vec<String>>,
    /// Built into former clients; nothing answers to it now.
    auth_provider: Option<serde_json::Value>,
}

/// A program that gives a token or certificate.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Exec {
    /// Version of the object it prints.
    pub(crate) api_version: String,
    /// Program; a path with a slash is relative to the kubeconfig.
    pub(crate) command: String,
    /// Arguments.
    #[serde(deserialize_with = "or_default")]
    pub(crate) args: Vec<String>,
    /// Further environment.
    #[serde(deserialize_with = "or_default")]
    pub(crate) env: Vec<Variable>,
    /// What to do where it is missing.
    pub(crate) install_hint: String,
}

/// One variable of an environment.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Variable {
    /// Name.
    pub(crate) name: String,
    /// Value.
    pub(crate) value: String,
}

/// An explicit nothing is the default, as kubectl reads it.
fn or_default<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Context {
    cluster: String,
    user: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct File {
    current_context: String,
    #[serde(deserialize_with = "or_default")]
    clusters: Vec<NamedCluster>,
    #[serde(deserialize_with = "or_default")]
    users: Vec<NamedUser>,
    #[serde(deserialize_with = "or_default")]
    contexts: Vec<NamedContext>,
}

#[derive(Debug, Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Debug, Deserialize)]
struct NamedUser {
    name: String,
    #[serde(deserialize_with = "or_default")]
    user: User,
}

#[derive(Debug, Deserialize)]
struct NamedContext {
    name: String,
    context: Context,
}

/// Everything the files say together.
#[derive(Debug, Default)]
struct Merged {
    current: String,
    clusters: BTreeMap<String, Cluster>,
    users: BTreeMap<String, User>,
    contexts: BTreeMap<String, Context>,
}

/// The server to ask.
///
/// # Errors
/// When no server is configured, or what is configured cannot be used.
pub(crate) fn target(choice: &Choice) -> Result<Target, Failure> {
    let (paths, named) = paths(choice);
    let mut merged = Merged::default();
    for path in &paths {
        // Of several files, those that are missing are passed over.
        if path.exists() || named == Named::Here {
            merged.take(path)?;
        }
    }
    let mut target = match merged.chosen(choice)? {
        Some(target) => target,
        None => match in_cluster(Path::new(ACCOUNT)) {
            Some(target) => target,
            None if choice.server.is_some() => Target::default(),
            None => return Err(nowhere(&paths)),
        },
    };
    if let Some(server) = &choice.server {
        target.server.clone_from(server);
    }
    checked(target)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Named {
    /// On the command line: it must be there.
    Here,
    Elsewhere,
}

fn paths(choice: &Choice) -> (Vec<PathBuf>, Named) {
    if let Some(path) = &choice.kubeconfig {
        return (vec![path.clone()], Named::Here);
    }
    match env::var_os("KUBECONFIG").filter(|list| !list.is_empty()) {
        Some(list) => {
            (env::split_paths(&list).filter(|path| !path.as_os_str().is_empty()).collect(), Named::Elsewhere)
        }
        None => {
            let home = env::var_os("HOME").map(PathBuf::from);
            (home.map(|home| home.join(".kube/config")).into_iter().collect(), Named::Elsewhere)
        }
    }
}

fn nowhere(paths: &[PathBuf]) -> Failure {
    let looked: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    let why = format!("neither {} nor a pod's service account is there", looked.join(", "));
    Failure::new(
        "no API server is known",
        "kubeconfig",
        why,
        "set KUBECONFIG, or give --kubeconfig or --server",
    )
}

impl Merged {
    fn take(&mut self, path: &Path) -> Result<(), Failure> {
        let failed = |why: String| {
            Failure::new(
                "cannot use the kubeconfig",
                path.display().to_string(),
                why,
                "correct it, or name another with --kubeconfig",
            )
        };
        let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        let read: Option<File> = serde_saphyr::from_str(&text).map_err(|error| failed(error.to_string()))?;
        let File { current_context, clusters, users, contexts } = read.unwrap_or_default();
        let folder = path.parent().unwrap_or(Path::new(""));
        if self.current.is_empty() {
            self.current = current_context;
        }
        for NamedCluster { name, mut cluster } in clusters {
            relative(&mut cluster.certificate_authority, folder);
            self.clusters.entry(name).or_insert(cluster);
        }
        for NamedUser { name, mut user } in users {
            relative(&mut user.client_certificate, folder);
            relative(&mut user.client_key, folder);
            relative(&mut user.token_file, folder);
            if let Some(exec) = &mut user.exec
                && exec.command.contains('/')
            {
                exec.command = folder.join(&exec.command).display().to_string();
            }
            self.users.entry(name).or_insert(user);
        }
        for NamedContext { name, context } in contexts {
            self.contexts.entry(name).or_insert(context);
        }
        Ok(())
    }

    /// The server of the context in force; nothing when no context is.
    fn chosen(&mut self, choice: &Choice) -> Result<Option<Target>, Failure> {
        let name = choice.context.clone().unwrap_or_else(|| self.current.clone());
        if name.is_empty() {
            return Ok(None);
        }
        let missing = |what: &str, name: &str, known: Vec<&String>| {
            let known: Vec<&str> = known.into_iter().map(String::as_str).collect();
            let why = format!("no {what} is named {name}; there are: {}", known.join(", "));
            Failure::new(
                "cannot use the kubeconfig",
                format!("{what} {name}"),
                why,
                "choose one with --context",
            )
        };
        let Some(context) = self.contexts.remove(&name) else {
            return Err(missing("context", &name, self.contexts.keys().collect()));
        };
        let Some(cluster) = self.clusters.remove(&context.cluster) else {
            return Err(missing("cluster", &context.cluster, self.clusters.keys().collect()));
        };
        let user = match self.users.remove(&context.user) {
            Some(user) => user,
            None if context.user.is_empty() => User::default(),
            None => return Err(missing("user", &context.user, self.users.keys().collect())),
        };
        Ok(Some(Target { server: cluster.server.clone(), cluster, user }))
    }
}

fn relative(path: &mut Option<PathBuf>, folder: &Path) {
    *path = path.take().filter(|path| !path.as_os_str().is_empty()).map(|path| folder.join(path));
}

/// The server as a pod is told of it (kubernetes.io, "Accessing the Kubernetes API from a Pod").
fn in_cluster(account: &Path) -> Option<Target> {
    let host = env::var("KUBERNETES_SERVICE_HOST").ok()?;
    let port = env::var("KUBERNETES_SERVICE_PORT").ok()?;
    let token = account.join("token");
    if !token.exists() {
        return None;
    }
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let cluster = Cluster { certificate_authority: Some(account.join("ca.crt")), ..Cluster::default() };
    let user = User { token_file: Some(token), ..User::default() };
    Some(Target { server: format!("https://{host}:{port}"), cluster, user })
}

/// What cannot be honoured is refused rather than passed over.
fn checked(target: Target) -> Result<Target, Failure> {
    let refuse =
        |why: &str, remedy: &str| Err(Failure::new("cannot ask the API server", &target.server, why, remedy));
    if !target.server.starts_with("https://") && !target.server.starts_with("http://") {
        return refuse("the server is no http:// or https:// URL", "correct it, or give --server");
    }
    if target.user.auth_provider.is_some() && target.user.exec.is_none() {
        return refuse("auth-provider was removed from Kubernetes 1.26", "use an exec plugin or a token");
    }
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    const FIRST: &str = "
current-context: one
contexts: [{name: one, context: {cluster: a, user: u}}]
clusters: [{name: a, cluster: {server: 'https://a:6443', certificate-authority: ca.crt}}]
users: null
";
    const SECOND: &str = "
current-context: two
contexts:
- {name: two, context: {cluster: b, user: u}}
- {name: lost, context: {cluster: nowhere, user: u}}
clusters:
- {name: a, cluster: {server: 'https://other:1'}}
- {name: b, cluster: {server: 'https://b:6443', insecure-skip-tls-verify: true}}
users: [{name: u, user: {tokenFile: t, exec: {command: ./plugin, args: null, env: [{name: A, value: b}]}}}]
";

    #[test]
    fn the_first_file_wins_and_paths_are_relative_to_theirs() {
        let dir = tempfile::tempdir().unwrap();
        let mut merged = Merged::default();
        for (name, text) in [("first", FIRST), ("second", SECOND)] {
            merged.take(&write(dir.path(), name, text)).unwrap();
        }
        let target = merged.chosen(&Choice::default()).unwrap().unwrap();
        assert_eq!(target.server, "https://a:6443");
        assert_eq!(target.cluster.certificate_authority, Some(dir.path().join("ca.crt")));
        assert_eq!(target.user.token_file, Some(dir.path().join("t")));
        assert_eq!(target.user.exec.unwrap().command, dir.path().join("./plugin").display().to_string());
    }

    #[test]
    fn what_is_named_must_be_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = write(dir.path(), "config", SECOND);
        let failed = |choice: Choice| target(&choice).unwrap_err().summary();
        let choice = |context: &str| Choice {
            kubeconfig: Some(path.clone()),
            context: Some(context.to_owned()),
            server: None,
        };
        assert!(failed(choice("three")).contains("there are: lost, two"));
        assert!(failed(choice("lost")).contains("no cluster is named nowhere"));
        let broken = write(dir.path(), "broken", "clusters: 3\n");
        let at = |path: PathBuf| Choice { kubeconfig: Some(path), ..Choice::default() };
        assert!(failed(at(broken)).contains("broken"));
        assert!(failed(at(dir.path().join("missing"))).contains("missing"));
        let found = target(&Choice { server: Some("https://x:1".to_owned()), ..choice("two") }).unwrap();
        assert_eq!((found.server.as_str(), found.cluster.insecure_skip_tls_verify), ("https://x:1", true));
        let plain = Choice { server: Some("x:1".to_owned()), ..choice("two") };
        assert!(failed(plain).contains("no http:// or https:// URL"));
    }
}
