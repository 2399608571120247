//! Who kubectl would be: the token that it would send, for a recommender that asks the API server whose it is, or the certificate
//! that it would show, for one that knows the cluster's authority.

use evenkeel_proto::line::Pair;

use super::config::{Choice, User, target};
use super::credentials::Credentials;
use crate::failure::Failure;

/// What names a user of a cluster.
#[derive(Debug)]
pub(crate) enum Caller {
    /// A bearer token.
    Token(String),
    /// A certificate and its key.
    Certificate(Pair),
}

/// The bearer token of a context's user, else the certificate; of the current context where none is named.
///
/// # Errors
/// When the user is known by something else, which the API server alone can check.
pub(crate) fn caller(context: &str) -> Result<Caller, Failure> {
    let context = Some(context.to_owned()).filter(|context| !context.is_empty());
    let target = target(&Choice { context, ..Choice::default() })?;
    of(&target.user)
}

fn of(user: &User) -> Result<Caller, Failure> {
    let refused = |why: &str| {
        Err(Failure::new(
            "cannot ask as the user of the kubeconfig",
            "--kube-auth",
            why,
            "send a token: kubectl create token NAME --audience evenkeel > FILE, then evenkeel --token-file FILE",
        ))
    };
    let credentials = Credentials::of(user)?;
    if !credentials.impersonation.is_empty() {
        return refused("it acts as somebody else, which the API server alone can be asked for");
    }
    let authorization = credentials.authorization.as_deref();
    match authorization.and_then(|value| value.strip_prefix("Bearer ")) {
        Some(token) if !token.is_empty() => Ok(Caller::Token(token.to_owned())),
        _ => match credentials.pair {
            Some(pair) => Ok(Caller::Certificate(pair)),
            None => refused("the user has neither a bearer token nor a client certificate"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(json: serde_json::Value) -> User {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn tokens_are_sent_and_certificates_shown_and_nothing_else() {
        let plugin = r#"printf '{"apiVersion": "client.authentication.k8s.io/v1", "status": {"token": "from-a-plugin"}}'"#;
        let exec = serde_json::json!({
            "apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh", "args": ["-c", plugin],
        });
        let dir = tempfile::tempdir().unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate =
            rcgen::CertificateParams::new(vec!["anna".to_owned()]).unwrap().self_signed(&key).unwrap();
        let (crt_file, key_file) = (dir.path().join("crt"), dir.path().join("key"));
        std::fs::write(&crt_file, certificate.pem()).unwrap();
        std::fs::write(&key_file, key.serialize_pem()).unwrap();
        let data = |path: &std::path::Path| {
            base64::engine::Engine::encode(
                &base64::engine::general_purpose::STANDARD,
                std::fs::read(path).unwrap(),
            )
        };
        let inline = serde_json::json!({
            "client-certificate-data": data(&crt_file), "client-key-data": data(&key_file),
        });
        for (entry, want) in [
            (serde_json::json!({ "token": "plain" }), Ok("plain")),
            (serde_json::json!({ "exec": exec }), Ok("from-a-plugin")),
            (serde_json::json!({ "username": "a", "password": "b" }), Err("neither a bearer token")),
            (serde_json::json!({}), Err("neither a bearer token")),
            (serde_json::json!({ "client-certificate": crt_file, "client-key": key_file }), Ok("BEGIN CERT")),
            (inline, Ok("BEGIN CERT")),
            (serde_json::json!({ "token": "plain", "as": "root" }), Err("somebody else")),
        ] {
            match (of(&user(entry.clone())), want) {
                (Ok(Caller::Token(found)), Ok(want)) => assert_eq!(found, want, "{entry}"),
                (Ok(Caller::Certificate(pair)), Ok(want)) => {
                    assert_eq!(pair.key, std::fs::read(&key_file).unwrap(), "{entry}");
                    assert!(String::from_utf8(pair.cert).unwrap().contains(want), "{entry}");
                }
                (Err(failure), Err(want)) => {
                    let text = format!("{} {}", failure.cause(), failure.remedy());
                    assert!(text.contains(want) && text.contains("kubectl create token"), "{entry}: {text}");
                }
                (found, _) => panic!("{entry}: {:?}", found.is_ok()),
            }
        }
    }
}
