//! Answers of the API server: a request, a status, and what to do about a bad one.

use std::time::Duration;

use http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde::Deserialize;

use super::cut::TooLarge;
use crate::connect::told;

/// Bytes read of an answer that is a refusal.
const MOST_REFUSAL: usize = 64 << 10;

/// Why something did not come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The version or page that was asked for is gone (410).
    Gone(String),
    /// Ask later (429, and 5xx with `Retry-After`).
    Later(String, Option<Duration>),
    /// Who asks may not.
    Forbidden(String),
    /// Who asks is nobody.
    Unauthorized(String),
    /// There is no such kind.
    Absent(String),
    /// The request is wrong (other 4xx), and would be another time.
    Wrong(String),
    /// Anything else; another time it may be well.
    Failed(String),
}

impl From<TooLarge> for Trouble {
    fn from(error: TooLarge) -> Self {
        Self::Failed(error.to_string())
    }
}

/// What the API server says of what went wrong (`Status`); the code is the answer's own.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ApiStatus {
    message: String,
}

impl Trouble {
    /// What a status means.
    pub(crate) fn of(code: u16, words: &str, after: Option<Duration>) -> Self {
        let text = format!("status {code}: {words}");
        match code {
            410 => Self::Gone(text),
            429 => Self::Later(text, after),
            403 => Self::Forbidden(text),
            401 => Self::Unauthorized(text),
            404 => Self::Absent(text),
            _ if after.is_some() => Self::Later(text, after),
            400..=499 => Self::Wrong(text),
            _ => Self::Failed(text),
        }
    }

    /// In words.
    pub(crate) fn words(&self) -> &str {
        match self {
            Self::Gone(words)
            | Self::Later(words, _)
            | Self::Forbidden(words)
            | Self::Unauthorized(words)
            | Self::Absent(words)
            | Self::Wrong(words)
            | Self::Failed(words) => words,
        }
    }
}

/// Asks, and gives the answer's body if it is a good one.
///
/// # Errors
/// [`Trouble`].
pub(crate) async fn get(
    client: &Client,
    path: &str,
    accept: &'static str,
    patience: Duration,
) -> Result<Body, Trouble> {
    good(ask(client, path, accept, patience).await?, patience).await
}

/// Asks, and gives the answer whatever it is.
///
/// # Errors
/// [`Trouble::Failed`], when there is none.
pub(crate) async fn ask(
    client: &Client,
    path: &str,
    accept: &'static str,
    patience: Duration,
) -> Result<Response<Body>, Trouble> {
    let request = Request::get(path).header(header::ACCEPT, accept).body(Body::empty());
    let request = request.map_err(|error| Trouble::Failed(error.to_string()))?;
    let answer = tokio::time::timeout(patience, client.send(request)).await.map_err(|_| silent(patience))?;
    answer.map_err(|error| Trouble::Failed(told(&error)))
}

/// The body of an answer if it is a good one.
///
/// # Errors
/// [`Trouble`], as the server says it.
pub(crate) async fn good(answer: Response<Body>, patience: Duration) -> Result<Body, Trouble> {
    if answer.status() == StatusCode::OK {
        return Ok(answer.into_body());
    }
    tokio::time::timeout(patience, refusal(answer)).await.map_or_else(|_| Err(silent(patience)), Err)
}

fn silent(patience: Duration) -> Trouble {
    Trouble::Failed(format!("no answer within {} ms", patience.as_millis()))
}

async fn refusal(answer: Response<Body>) -> Trouble {
    let ApiRefusal { code, words, after } = refused(answer).await;
    Trouble::of(code, &words, after)
}

/// A refusal as it was said.
#[derive(Debug)]
pub(crate) struct ApiRefusal {
    pub(crate) code: u16,
    pub(crate) words: String,
    /// When to ask again.
    pub(crate) after: Option<Duration>,
}

/// Reads a refusal.
pub(crate) async fn refused(answer: Response<Body>) -> ApiRefusal {
    let code = answer.status().as_u16();
    let after = answer.headers().get(header::RETRY_AFTER);
    let after = after.and_then(|text| text.to_str().ok()?.parse().ok()).map(Duration::from_secs);
    let (mut body, mut text) = (answer.into_body(), Vec::new());
    while let Some(Ok(frame)) = body.frame().await {
        let bytes = frame.data_ref().map_or(&[][..], |bytes| bytes);
        let room = MOST_REFUSAL.saturating_sub(text.len());
        text.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if text.len() == MOST_REFUSAL {
            break;
        }
    }
    ApiRefusal { code, words: words(&text), after }
}

/// The message of a `Status`, or the first line of plain text.
fn words(text: &[u8]) -> String {
    const MOST: usize = 300;
    let said = serde_json::from_slice::<ApiStatus>(text).map(|said| said.message).unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    let line = if said.is_empty() { text.lines().next().unwrap_or_default() } else { &said };
    let plain = line.chars().filter(|c| !c.is_control()).take(MOST).collect::<String>();
    if plain.is_empty() { "no reason given".to_owned() } else { plain }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_what_to_do() {
        let second = Some(Duration::from_secs(1));
        for (code, after, want) in [
            (410, None, Trouble::Gone("status 410: x".into())),
            (429, second, Trouble::Later("status 429: x".into(), second)),
            (504, second, Trouble::Later("status 504: x".into(), second)),
            (500, None, Trouble::Failed("status 500: x".into())),
            (403, None, Trouble::Forbidden("status 403: x".into())),
            (401, None, Trouble::Unauthorized("status 401: x".into())),
            (404, None, Trouble::Absent("status 404: x".into())),
            (400, None, Trouble::Wrong("status 400: x".into())),
        ] {
            assert_eq!(Trouble::of(code, "x", after), want);
        }
        for (text, want) in [
            (r#"{"kind":"Status","message":"no\u001b"}"#, "no"),
            ("404 page not found\n", "404 page not found"),
            ("", "no reason given"),
        ] {
            assert_eq!(words(text.as_bytes()), want);
        }
    }
}
