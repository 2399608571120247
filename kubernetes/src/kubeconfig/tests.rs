//! Kubeconfigs that are taken, and those that are refused in words.

use std::path::Path;

use serde_json::{Value, json};

use super::*;

fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn user(entry: &Value) -> AuthInfo {
    serde_json::from_value(entry.clone()).unwrap()
}

fn settle(entry: &Value) -> Result<Settled, ConnectError> {
    user::settled(user(entry), &Cluster::default(), Use::Once)
}

const SECOND: &str = "
current-context: two
contexts:
- {name: two, context: {cluster: b, user: u}}
- {name: lost, context: {cluster: nowhere, user: u}}
- {name: nobody, context: {cluster: b, user: missing}}
clusters:
- {name: a, cluster: {server: 'https://other:1'}}
- {name: b, cluster: {server: 'https://b:6443', insecure-skip-tls-verify: true, tls-server-name: ''}}
users: [{name: u, user: {token: right, tokenFile: ''}}]
";

#[test]
fn what_is_named_must_be_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), "config", SECOND);
    let choice = |context: &str| Choice {
        kubeconfig: Some(path.clone()),
        context: Some(context.to_owned()),
        server: None,
    };
    let failed = |choice: &Choice| load(choice, Use::Once).unwrap_err().to_string();
    assert!(failed(&choice("three")).contains("there are: lost, nobody, two"));
    assert!(failed(&choice("lost")).contains("no cluster is named nowhere"));
    assert!(failed(&choice("nobody")).contains("no user is named missing"));
    let at = |path: PathBuf| Choice { kubeconfig: Some(path), ..Choice::default() };
    let broken =
        failed(&at(write(dir.path(), "broken", "users: [{name: u, user: {token: hidden}}]\nclusters: 3\n")));
    assert!(broken.contains("broken") && !broken.contains("hidden"), "{broken}");
    assert!(failed(&at(dir.path().join("missing"))).contains("missing"));
    let server = |url: &str| Choice { server: Some(url.to_owned()), ..choice("two") };
    let found = load(&server("https://x:1"), Use::Once).unwrap();
    assert_eq!((found.config.cluster_url.host(), found.config.accept_invalid_certs), (Some("x"), true));
    assert!(failed(&server("x:1")).contains("no http:// or https:// URL"));
}

#[test]
fn what_names_a_user_is_taken_as_kubectl_takes_it() {
    let dir = tempfile::tempdir().unwrap();
    let token = write(dir.path(), "token", "from-file\n").display().to_string();
    for (entry, key, want) in [
        (json!({ "token": "t", "tokenFile": token }), "token", "from-file"),
        (json!({ "token": "t", "username": "u", "password": "p" }), "token", "t"),
        (json!({ "token": "", "username": "u" }), "username", "u"),
        (json!({ "token": "t", "exec": { "command": "/nonexistent" } }), "token", "t"),
        (json!({ "as": "jane", "as-uid": "7", "as-groups": ["dev"] }), "as", "jane"),
    ] {
        let fields = user::Fields::of(&settle(&entry).unwrap().user).unwrap();
        assert_eq!(fields.text(key), Some(want), "{entry}");
        assert!(!fields.has("tokenFile") && !fields.has("exec"), "{entry}");
        assert!(key == "username" || !fields.has("username"), "{entry}");
    }
    for (entry, want) in [
        (json!({ "as-groups": ["dev"] }), "without as"),
        (json!({ "as": "a\nb" }), "cannot stand in the header"),
        (json!({ "as": "a", "as-user-extra": { "k": ["\u{1}"] } }), "cannot stand in the header"),
        (json!({ "auth-provider": { "name": "gcp" } }), "exec plugin"),
        (json!({ "client-certificate-data": "eA==" }), "it has no key"),
        (json!({ "client-key-data": "eA==" }), "it has no certificate"),
        (json!({ "client-key-data": "?" }), "client-key-data"),
        (json!({ "tokenFile": "/nonexistent" }), "/nonexistent"),
    ] {
        let error = settle(&entry).unwrap_err().to_string();
        assert!(error.contains(want), "{entry}: {error}");
    }
}

#[test]
fn a_plugin_is_run_as_the_kubeconfig_says_and_nothing_it_prints_is_told() {
    let version = "client.authentication.k8s.io/v1";
    let exec = |script: &str, more: Value| {
        let mut exec = json!({ "apiVersion": version, "command": "/bin/sh", "args": ["-c", script] });
        exec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "exec": exec })
    };
    let gives = |status: &str| format!(r#"printf '{{"apiVersion": "{version}", "status": {status}}}'"#);
    let token = |entry: &Value| {
        let settled = settle(entry).unwrap();
        assert!(settled.may_change, "{entry}");
        user::Fields::of(&settled.user).unwrap().text("token").map(str::to_owned)
    };
    let by_env = format!("test \"$WHO\" = me && {}", gives(r#"{"token": "a"}"#));
    assert_eq!(
        token(&exec(&by_env, json!({ "env": [{ "name": "WHO", "value": "me" }] }))).as_deref(),
        Some("a")
    );
    // What it is told of the cluster, and that there is no terminal where it wants none.
    let told = format!(
        "case \"$KUBERNETES_EXEC_INFO\" in *'\"interactive\":false,\"cluster\":{{'*) {};; esac",
        gives(r#"{"token": "b"}"#)
    );
    let more = json!({ "interactiveMode": "Never", "provideClusterInfo": true });
    assert_eq!(token(&exec(&told, more)).as_deref(), Some("b"));
    for (script, want) in [
        ("printf 'token: secret'; exit 3".to_owned(), "it ended with"),
        ("printf secret".to_owned(), "no ExecCredential"),
        (gives("{}"), "neither a token nor a certificate"),
        (r#"printf '{"apiVersion": "v0", "status": {"token": "secret"}}'"#.to_owned(), "it answered v0"),
    ] {
        let error = settle(&exec(&script, json!({ "installHint": "get it" }))).unwrap_err().to_string();
        assert!(error.contains(want) && error.contains("get it"), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

#[test]
fn proxies_are_taken_in_words_without_their_passwords() {
    for (text, want) in [
        ("http://p:3128", Some("http://p:3128/")),
        ("p:3128", Some("http://p:3128/")),
        ("socks5://u:w@p:1080", Some("socks5://u:w@p:1080/")),
        ("ftp://u:hidden@p", None),
        ("http://", None),
    ] {
        let found = proxy_url(text);
        match want {
            Some(want) => assert_eq!(found.unwrap().to_string(), want),
            None => assert!(!found.unwrap_err().to_string().contains("hidden")),
        }
    }
}

#[test]
fn what_cannot_be_honoured_of_a_cluster_is_refused() {
    let config = |cluster: Value| {
        let cluster: Cluster = serde_json::from_value(cluster).unwrap();
        KubeconfigEntry { cluster, user: AuthInfo::default() }.target(Use::Once).map(|target| target.config)
    };
    for (cluster, want) in [
        (json!({}), "no http:// or https:// URL"),
        (json!({ "server": "https://a", "tls-server-name": "no name" }), "no host name"),
        (json!({ "server": "https://a", "certificate-authority-data": "eA==" }), "holds no certificate"),
        (json!({ "server": "https://a", "certificate-authority": "/nonexistent" }), "/nonexistent"),
    ] {
        let error = config(cluster.clone()).unwrap_err().to_string();
        assert!(error.contains(want), "{cluster}: {error}");
    }
    let named = config(
        json!({ "server": "https://a:1/prefix", "tls-server-name": "b", "proxy-url": "socks5://p:1" }),
    );
    let named = named.unwrap();
    assert_eq!((named.tls_server_name.as_deref(), named.cluster_url.path()), (Some("b"), "/prefix"));
    assert_eq!(named.proxy_url.unwrap().host(), Some("p"));
}
