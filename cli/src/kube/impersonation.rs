//! Asking as somebody else: `as`, `as-uid`, `as-groups` and `as-user-extra` of a kubeconfig, as the headers by which the
//! API server is asked to take the caller for another (kubernetes.io, "Authenticating", "User impersonation").

use ureq::http::{HeaderName, HeaderValue};

use super::config::User;
use super::percent_encoded;
use crate::failure::Failure;

/// The headers, in the order of the kubeconfig; none where nobody is impersonated.
///
/// # Errors
/// When groups or more are named and no user, or a value cannot stand in a header.
pub(super) fn headers(user: &User) -> Result<Vec<(HeaderName, HeaderValue)>, Failure> {
    let named = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let (name, uid) = (named(&user.as_user), named(&user.as_uid));
    if name.is_none() && (uid.is_some() || !user.as_groups.is_empty() || !user.as_user_extra.is_empty()) {
        return Err(refused(
            "as-uid, as-groups or as-user-extra is there without as",
            "name the user under as",
        ));
    }
    let mut all = Vec::new();
    let mut add = |key: &str, value: &str| -> Result<(), Failure> {
        let why = |_| refused(&format!("{value:?} cannot stand in the header {key}"), "correct it");
        let value = HeaderValue::from_str(value).map_err(why)?;
        let key = HeaderName::from_bytes(key.as_bytes());
        let key = key.map_err(|_| refused("a key of as-user-extra is too long", "shorten it"))?;
        all.push((key, value));
        Ok(())
    };
    if let Some(name) = name {
        add("Impersonate-User", &name)?;
    }
    if let Some(uid) = uid {
        add("Impersonate-Uid", &uid)?;
    }
    for group in &user.as_groups {
        add("Impersonate-Group", group)?;
    }
    for (key, values) in &user.as_user_extra {
        for value in values {
            add(&format!("Impersonate-Extra-{}", escaped(key)), value)?;
        }
    }
    Ok(all)
}

fn refused(why: &str, remedy: &str) -> Failure {
    Failure::new("cannot use the kubeconfig", "user", why, remedy)
}

/// A key as part of a header's name: what may not be there is escaped, as client-go does.
fn escaped(key: &str) -> String {
    // RFC 9110, section 5.6.2, without the percent sign that escapes.
    percent_encoded(key, b"!#$&'*+-.^_`|~")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Vec<(String, String)>, String> {
        let user: User = serde_saphyr::from_str(text).unwrap();
        let all = headers(&user).map_err(|failure| failure.summary())?;
        Ok(all.iter().map(|(k, v)| (k.to_string(), v.to_str().unwrap().to_owned())).collect())
    }

    #[test]
    fn everything_a_kubeconfig_can_say_is_asked_for() {
        let text =
            "{as: jane, as-uid: '7', as-groups: [dev, ops], as-user-extra: {acme.com/Project: [a, b]}}";
        let want = [
            ("impersonate-user", "jane"),
            ("impersonate-uid", "7"),
            ("impersonate-group", "dev"),
            ("impersonate-group", "ops"),
            ("impersonate-extra-acme.com%2fproject", "a"),
            ("impersonate-extra-acme.com%2fproject", "b"),
        ];
        let want: Vec<_> = want.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        assert_eq!(of(text).unwrap(), want);
        assert_eq!(of("{token: t, as-groups: null}").unwrap(), []);
    }

    #[test]
    fn what_cannot_be_asked_for_is_refused_in_words() {
        assert!(of("{as-groups: [dev]}").unwrap_err().contains("without as"));
        assert!(of("{as: \"a\\nb\"}").unwrap_err().contains("cannot stand in the header"));
    }
}
