//! What a token says of itself. Whoever made it up may have written anything: it is believed once the API server has
//! said whose token it is.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use evenkeel_model::narrow::f64_to_u64;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Longest token that is looked at, bytes: those of Kubernetes have one or two thousand.
const MAX_BYTES: usize = 8 << 10;

/// Claims of a JSON Web Token (RFC 7519), unproven.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claims {
    /// When it ends, seconds since 1970 (`exp`).
    pub expires: Option<u64>,
    /// For whom it was made (`aud`).
    pub audiences: Vec<String>,
}

#[derive(Deserialize)]
struct Payload {
    #[serde(default)]
    exp: Option<serde_json::Number>,
    #[serde(default)]
    aud: Option<OneOrMore>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl Claims {
    /// The claims of a token that has the form of one; `None` for any other text.
    #[must_use]
    pub fn unproven(token: &str) -> Option<Self> {
        if token.len() > MAX_BYTES {
            return None;
        }
        let mut parts = token.split('.');
        let (_head, payload) = (object(parts.next()?)?, object(parts.next()?)?);
        let _signature = decoded(parts.next()?)?;
        if parts.next().is_some() {
            return None;
        }
        let payload: Payload = serde_json::from_value(payload.into()).ok()?;
        let audiences = match payload.aud {
            None => Vec::new(),
            Some(OneOrMore::One(one)) => vec![one],
            Some(OneOrMore::More(all)) => all,
        };
        // Seconds may have a fraction (NumericDate): what is begun does not count.
        let seconds = |exp: serde_json::Number| exp.as_u64().or_else(|| exp.as_f64().map(f64_to_u64));
        Some(Self { expires: payload.exp.and_then(seconds), audiences })
    }
}

fn object(part: &str) -> Option<Map<String, Value>> {
    serde_json::from_slice(&decoded(part)?).ok()
}

fn decoded(part: &str) -> Option<Vec<u8>> {
    (!part.is_empty()).then(|| URL_SAFE_NO_PAD.decode(part).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(payload: &str) -> String {
        let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
        format!("{}.{}.{}", part(r#"{"alg":"RS256"}"#), part(payload), part("signature"))
    }

    #[test]
    fn claims_are_read_where_there_is_a_token() {
        for (payload, expires, audiences) in [
            (r#"{"exp": 7, "aud": ["a", "b"]}"#, Some(7), vec!["a", "b"]),
            (r#"{"exp": 7.9, "aud": "a"}"#, Some(7), vec!["a"]),
            (r#"{"sub": "x"}"#, None, vec![]),
            (r#"{"exp": -1}"#, Some(0), vec![]),
        ] {
            let found = Claims::unproven(&token(payload)).unwrap();
            assert_eq!(
                (found.expires, found.audiences),
                (expires, audiences.into_iter().map(str::to_owned).collect())
            );
        }
        let good = token("{}");
        let long = token(&format!(r#"{{"x": "{}"}}"#, "x".repeat(MAX_BYTES)));
        for wrong in [
            "",
            ".",
            "..",
            "a.b.c",
            "evk_0",
            &good[1..],
            &format!("{good}.x"),
            &token("[]"),
            &token("x"),
            &long,
        ] {
            assert_eq!(Claims::unproven(wrong), None, "{wrong}");
        }
    }
}
