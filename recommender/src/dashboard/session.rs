//! Signing in: a session in memory stands for a token, so that the browser holds neither token nor rights, and a token that is taken
//! back ends its sessions. Sessions count below `/ui/` alone; the API takes no cookie.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{Request, State as From};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use evenkeel_dashboard::page;
use evenkeel_net::Peer;
use serde::Deserialize;

use super::form::FormFields;
use super::{Dashboard, ROOT, hash, hexadecimal, html, problem, see};
use crate::api::http::{Problem, parameters};
use crate::identity::{Identity, Role};

/// The cookie's name.
const COOKIE: &str = "evenkeel_session";
/// How long a session lasts.
const LIFE: Duration = Duration::from_secs(12 * 3600);
/// Sessions at once; the oldest goes when there are more.
const MOST: usize = 1_000;
/// Longest token that is looked at: those of Kubernetes have one to four KiB.
const MAX_TOKEN: usize = 16 << 10;

/// The sessions of this run.
#[derive(Debug)]
pub(super) struct Sessions {
    /// By the hash of the cookie's value.
    all: Mutex<HashMap<[u8; 32], Session>>,
    /// Mixed into the words of forms; nothing where no chance was to be had, and then no form is taken.
    secret: Option<[u8; 32]>,
}

struct Session {
    token: String,
    began: Instant,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("began", &self.began).finish_non_exhaustive()
    }
}

impl Sessions {
    pub(super) fn new() -> Self {
        Self { all: Mutex::default(), secret: chance() }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<[u8; 32], Session>> {
        // Every change of it is one call.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins one: the cookie's value, or nothing where no chance is to be had.
    fn begin(&self, token: String, now: Instant) -> Option<String> {
        let value = hexadecimal(&chance()?);
        let mut all = self.all();
        all.retain(|_, session| now.duration_since(session.began) < LIFE);
        if all.len() >= MOST {
            let oldest = all.iter().min_by_key(|(_, session)| session.began).map(|(key, _)| *key);
            oldest.map(|key| all.remove(&key));
        }
        all.insert(hash(&[value.as_bytes()]), Session { token, began: now });
        Some(value)
    }

    fn token(&self, value: &str, now: Instant) -> Option<String> {
        let all = self.all();
        let session = all.get(&hash(&[value.as_bytes()]))?;
        (now.duration_since(session.began) < LIFE).then(|| session.token.clone())
    }

    fn end(&self, value: &str) {
        self.all().remove(&hash(&[value.as_bytes()]));
    }

    /// Puts a session's token where the door looks for one, unless the caller sent one.
    pub(super) fn stand_in(&self, headers: &mut HeaderMap) {
        if headers.contains_key(header::AUTHORIZATION) {
            return;
        }
        let value = headers.get(header::COOKIE).and_then(of_cookies);
        let token = value.and_then(|value| self.token(&value, Instant::now()));
        let header = token.and_then(|token| HeaderValue::from_str(&format!("Bearer {token}")).ok());
        if let Some(mut header) = header {
            header.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, header);
        }
    }

    /// The word that forms of a viewer carry: a page of another site can neither read nor guess it.
    pub(super) fn word(&self, name: &str, session: &str) -> String {
        let secret = self.secret.as_ref().map(|secret| hash(&[secret, name.as_bytes(), session.as_bytes()]));
        secret.map(|word| hexadecimal(&word[..20])).unwrap_or_default()
    }

    /// Whether a form carries its viewer's word.
    ///
    /// # Errors
    /// When it does not.
    pub(super) fn checked(given: &str, word: &str) -> Result<(), Problem> {
        let same = given.len() == word.len() && !word.is_empty();
        // All of it is compared, whatever is found.
        let differs = given.bytes().zip(word.bytes()).fold(0, |differs, (a, b)| differs | (a ^ b));
        if same && differs == 0 {
            return Ok(());
        }
        Err(problem(
            StatusCode::FORBIDDEN,
            "the form was not taken",
            "it does not carry the word of the page that it came from; nothing was changed",
            "load the page again, then send its form",
        ))
    }
}

fn chance() -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes)).ok()?;
    Some(bytes)
}

/// The session's value among the cookies of a request.
pub(super) fn of_cookies(cookies: &HeaderValue) -> Option<String> {
    let all = cookies.to_str().ok()?.split(';').filter_map(|cookie| cookie.trim().split_once('='));
    let value = all.filter(|(name, _)| *name == COOKIE).map(|(_, value)| value).next()?;
    (value.len() == 64).then(|| value.to_owned())
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Next {
    next: String,
}

/// A page of ours, whatever an address says: nobody is led elsewhere by signing in.
fn own(next: &str) -> &str {
    let is_own = next.starts_with(ROOT) && next.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if is_own && !next.starts_with("/ui/sign") && !next.starts_with("/ui/live") { next } else { ROOT }
}

/// Where to sign in.
pub(super) async fn page(request: Request) -> Result<Response, Problem> {
    let Next { next } = parameters(&request)?;
    Ok(html(StatusCode::OK, page::sign_in::page(None, own(&next))))
}

/// Signs in with a token.
pub(super) async fn sign_in(
    From(dashboard): From<Arc<Dashboard>>,
    request: Request,
) -> Result<Response, Problem> {
    let peer = request.extensions().get::<Peer>().cloned();
    from_a_browser_here(request.headers())?;
    let form = FormFields::of(request).await?;
    let (token, next) = (form.text("token").trim().to_owned(), form.text("next"));
    let next = own(&next).to_owned();
    let refused = |why: &str| html(StatusCode::UNAUTHORIZED, page::sign_in::page(Some(why), &next));
    if token.is_empty() || token.len() > MAX_TOKEN {
        return Ok(refused("This is no token."));
    }
    let known = dashboard.access.bearer(&token, peer.as_ref()).await;
    let looked = known.and_then(|identity| identity.has(Role::View).map(|()| identity));
    match looked {
        Err(refusal) => {
            dashboard.access.refuse("somebody who signs in", "/ui/sign-in", &refusal.why);
            Ok(refused(&format!("{}; {}", refusal.why, refusal.remedy)))
        }
        Ok(_) => match dashboard.sessions.begin(token, Instant::now()) {
            Some(value) => Ok(with_cookie(see(&next), &value, LIFE, dashboard.is_encrypted)),
            None => Ok(refused("No session can be made: /dev/urandom cannot be read.")),
        },
    }
}

/// Ends a session.
pub(super) async fn sign_out(
    From(dashboard): From<Arc<Dashboard>>,
    request: Request,
) -> Result<Response, Problem> {
    let value = request.headers().get(header::COOKIE).and_then(of_cookies).unwrap_or_default();
    let name = Identity::of(request.extensions()).name().unwrap_or_default();
    let form = FormFields::of(request).await?;
    Sessions::checked(&form.text("csrf"), &dashboard.sessions.word(&name, &value))?;
    dashboard.sessions.end(&value);
    Ok(with_cookie(see("/ui/sign-in"), "", Duration::ZERO, dashboard.is_encrypted))
}

/// Signing in carries no word of a page yet: a browser has to say that a page of this site sends it, so that nobody is signed in
/// as somebody else without knowing.
fn from_a_browser_here(headers: &HeaderMap) -> Result<(), Problem> {
    // The door looked at what they say.
    if headers.contains_key(header::ORIGIN) || headers.contains_key("sec-fetch-site") {
        return Ok(());
    }
    Err(problem(
        StatusCode::FORBIDDEN,
        "nobody was signed in",
        "the request does not say which page sends it",
        "sign in with a browser; programs send Authorization: Bearer TOKEN to the API",
    ))
}

fn with_cookie(mut response: Response, value: &str, life: Duration, is_encrypted: bool) -> Response {
    let secure = if is_encrypted { "; Secure" } else { "" };
    let cookie =
        format!("{COOKIE}={value}; Path=/ui/; Max-Age={}; HttpOnly; SameSite=Strict{secure}", life.as_secs());
    match HeaderValue::from_str(&cookie) {
        Ok(cookie) => {
            response.headers_mut().append(header::SET_COOKIE, cookie);
            response
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_stands_for_its_token_until_its_time_is_over() {
        let sessions = Sessions::new();
        let now = Instant::now();
        let value = sessions.begin("ek_x".into(), now).unwrap();
        assert_eq!(sessions.token(&value, now).as_deref(), Some("ek_x"));
        assert_eq!(sessions.token(&value, now + LIFE), None);
        assert_eq!(sessions.token(&"0".repeat(64), now), None);
        for _ in 0..MOST {
            sessions.begin("ek_y".into(), now + Duration::from_secs(1)).unwrap();
        }
        assert_eq!(sessions.token(&value, now), None, "the oldest went");
        assert_eq!(sessions.all().len(), MOST);
        assert!(!format!("{sessions:?}").contains("ek_y"), "no token in a log");
    }

    #[test]
    fn a_cookie_is_taken_out_of_many_and_a_token_that_was_sent_goes_first() {
        let sessions = Sessions::new();
        let value = sessions.begin("ek_x".into(), Instant::now()).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, format!("a=b; evenkeel_session={value}; c").parse().unwrap());
        let mut own = headers.clone();
        sessions.stand_in(&mut headers);
        assert_eq!(headers[header::AUTHORIZATION], "Bearer ek_x");
        own.insert(header::AUTHORIZATION, "Bearer other".parse().unwrap());
        sessions.stand_in(&mut own);
        assert_eq!(own[header::AUTHORIZATION], "Bearer other");
    }

    #[test]
    fn a_form_needs_the_word_of_its_viewer_and_session() {
        let sessions = Sessions::new();
        let word = sessions.word("anna", "s1");
        assert!(Sessions::checked(&word, &word).is_ok());
        for wrong in [
            "",
            "x",
            &sessions.word("anna", "s2"),
            &sessions.word("bert", "s1"),
            &Sessions::new().word("anna", "s1"),
        ] {
            assert!(Sessions::checked(wrong, &word).is_err(), "{wrong}");
        }
        assert!(Sessions::checked("", "").is_err(), "without a secret no form is taken");
        assert_ne!(sessions.word("a", "bc"), sessions.word("ab", "c"));
    }

    #[test]
    fn nobody_is_led_to_another_site() {
        for (next, want) in [
            ("/ui/workloads?q=a", "/ui/workloads?q=a"),
            ("//evil.example/ui/", ROOT),
            ("https://evil.example/", ROOT),
            ("/ui/\r\nSet-Cookie: x", ROOT),
            ("/ui/\\evil", ROOT),
            ("/ui/sign-out", ROOT),
            ("", ROOT),
        ] {
            assert_eq!(own(next), want, "{next}");
        }
    }
}
