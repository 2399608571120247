//! The token that kubectl would send, for a recommender that asks the API server whose it is.

use super::config::{Choice, User, target};
use super::credentials::Credentials;
use crate::failure::Failure;

/// The bearer token of a context's user; of the current context where none is named.
///
/// # Errors
/// When the user is known by something that is no token, which the API server alone can check.
pub(crate) fn bearer(context: &str) -> Result<String, Failure> {
    let context = Some(context.to_owned()).filter(|context| !context.is_empty());
    let target = target(&Choice { context, ..Choice::default() })?;
    token(&target.user)
}

fn token(user: &User) -> Result<String, Failure> {
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
        Some(token) if !token.is_empty() => Ok(token.to_owned()),
        _ if credentials.certificate.is_some() => {
            refused("the user has a client certificate and no token; only the API server knows whose it is")
        }
        _ => refused("the user has no bearer token"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(json: serde_json::Value) -> User {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn tokens_are_sent_and_nothing_else() {
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
        for (entry, want) in [
            (serde_json::json!({ "token": "plain" }), Ok("plain")),
            (serde_json::json!({ "exec": exec }), Ok("from-a-plugin")),
            (serde_json::json!({ "username": "a", "password": "b" }), Err("no bearer token")),
            (serde_json::json!({}), Err("no bearer token")),
            (
                serde_json::json!({ "client-certificate": crt_file, "client-key": key_file }),
                Err("client certificate"),
            ),
            (serde_json::json!({ "token": "plain", "as": "root" }), Err("somebody else")),
        ] {
            let found = token(&user(entry.clone()));
            match (found, want) {
                (Ok(found), Ok(want)) => assert_eq!(found, want, "{entry}"),
                (Err(failure), Err(want)) => {
                    let text = format!("{} {}", failure.cause(), failure.remedy());
                    assert!(text.contains(want) && text.contains("kubectl create token"), "{entry}: {text}");
                }
                (found, _) => panic!("{entry}: {:?}", found.is_ok()),
            }
        }
    }
}
