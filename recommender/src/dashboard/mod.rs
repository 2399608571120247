//! Owns the dashboard's routes: who looks (`session`), what the pages are made of (`gather`, `answer`), the pages themselves (`pages`), forms
//! (`forms`), exports (`export`) and the one stream that open pages follow (`live`). Not owned: HTML (`evenkeel_dashboard`), who may ask
//! what (`identity`, whose door is in front of every route), changes and their record, which are those of the API.
//!
//! What is asked goes the way of every question: with a turn, a time limit and the role of its row in `identity::table::PAGES`.

mod answer;
mod export;
mod form;
mod forms;
mod gather;
mod live;
mod pages;
mod session;

use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use evenkeel_dashboard::facts::{Extent, Prices, Switch, Viewer, Workload};
use evenkeel_dashboard::frame::{self, Frame, Tab};
use evenkeel_dashboard::{HEADERS, assets, page, url};
use sha2::{Digest as _, Sha256};

use self::live::Live;
use self::session::Sessions;
use crate::api::Context;
use crate::api::http::{Problem, Site};
use crate::config::{Config, DashboardSection};
use crate::identity::{Access, Identity, Role};

/// Longest answer of the API that is turned into a page of its error.
const MAX_PROBLEM: usize = 64 << 10;
const ROOT: &str = "/ui/";

/// The dashboard of one recommender.
#[derive(Debug)]
pub(crate) struct Dashboard {
    site: Site,
    access: Arc<Access>,
    sessions: Sessions,
    live: Arc<Live>,
    prices: Option<Prices>,
    /// Whether addresses are served with TLS: cookies go back over nothing else then.
    is_encrypted: bool,
    /// All workloads, as of a pass over them.
    workloads: Mutex<Option<(u64, Arc<Vec<Workload>>)>>,
}

/// Who looks at a page.
struct Visit {
    identity: Identity,
    viewer: Viewer,
}

/// What a page is, but its body.
#[derive(Clone, Copy)]
struct Sheet<'a> {
    title: &'a str,
    tab: Tab,
    namespace: &'a str,
    refresh: Option<u32>,
}

impl Dashboard {
    /// The dashboard of a site.
    pub(crate) fn new(site: &Site, config: &Config, access: &Arc<Access>) -> Arc<Self> {
        Arc::new(Self {
            site: site.clone(),
            access: Arc::clone(access),
            sessions: Sessions::new(),
            live: Arc::new(Live::of(config.serve.max_connections)),
            prices: prices(&config.dashboard),
            is_encrypted: config.tls_files().is_some(),
            workloads: Mutex::default(),
        })
    }

    /// Who looks, and what they may. The request's body may not be looked at by other threads, so it is not kept.
    fn visit<'a>(&'a self, request: &Request) -> impl Future<Output = Visit> + Send + use<'a> {
        let identity = Identity::of(request.extensions());
        let session = request.headers().get(header::COOKIE).and_then(session::of_cookies);
        async move {
            let name = identity.name().unwrap_or_default();
            let viewer = Viewer {
                signed_in: session.is_some(),
                everywhere: identity.may(Role::View, "").await.is_ok(),
                simulate: identity.may(Role::Simulate, "").await.is_ok(),
                apply: identity.has(Role::Apply).is_ok(),
                panic: identity.may(Role::Panic, "").await.is_ok(),
                csrf: self.sessions.word(&name, session.as_deref().unwrap_or_default()),
                name,
            };
            Visit { identity, viewer }
        }
    }

    /// All workloads, as of the last pass over them. May take its time.
    fn workloads(&self) -> Arc<Vec<Workload>> {
        let stored = self.site.stored();
        let pass = stored.passed().0;
        let mut made = self.workloads.lock().unwrap_or_else(PoisonError::into_inner);
        // Before the first pass there is nothing to tell one from another.
        if let Some((_, all)) = made.as_ref().filter(|(of, _)| *of == pass && pass > 0) {
            return Arc::clone(all);
        }
        let all = Arc::new(gather::workloads(stored.kept().all()));
        *made = Some((pass, Arc::clone(&all)));
        all
    }

    /// A whole page.
    fn page(
        &self,
        visit: &Visit,
        sheet: Sheet<'_>,
        switch: &Switch,
        body: &evenkeel_dashboard::Markup,
    ) -> Response {
        let notice = (!self.site.readiness().answers())
            .then_some("History is still being read back: what is shown was kept of the run before.");
        let Sheet { title, tab, namespace, refresh } = sheet;
        let now_ms = self.site.now_usec() / 1000;
        let extent = Extent::Cluster;
        let frame =
            Frame { extent, viewer: &visit.viewer, switch, now_ms, title, tab, namespace, refresh, notice };
        html(StatusCode::OK, frame::page(&frame, body))
    }
}

fn prices(section: &DashboardSection) -> Option<Prices> {
    let (core_hour, gib_hour) = section.core_hour.zip(section.gib_hour)?;
    Some(Prices { core_hour, gib_hour, currency: section.currency.clone() })
}

fn switch(context: &Context) -> Switch {
    let now = context.engine.state().panic();
    Switch { on: now.on, revert: now.on && now.revert, reason: now.reason, since_ms: now.since_usec / 1000 }
}

fn html(status: StatusCode, text: String) -> Response {
    (status, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], text).into_response()
}

/// To another page; what changed something answers so, so that loading again does not send it again.
fn see(address: &str) -> Response {
    (StatusCode::SEE_OTHER, [(header::LOCATION, address.to_owned())]).into_response()
}

/// The routes, each with a row in `identity::table::PAGES`.
pub(crate) fn routes(dashboard: &Arc<Dashboard>) -> Router<Site> {
    let home = || async { see(ROOT) };
    Router::new()
        .route("/", get(home))
        .route("/ui", get(home))
        .route("/ui/", get(pages::overview))
        .route("/ui/assets/{file}", get(asset))
        .route("/ui/sign-in", get(session::page).post(session::sign_in))
        .route("/ui/sign-out", post(session::sign_out))
        .route("/ui/workloads", get(pages::workloads))
        .route("/ui/report", get(pages::report))
        .route("/ui/workloads/export", get(export::workloads))
        .route("/ui/workload", get(pages::workload))
        .route("/ui/nodes", get(pages::nodes))
        .route("/ui/node", get(pages::node))
        .route("/ui/decisions", get(pages::decisions))
        .route("/ui/changes", get(pages::changes))
        .route("/ui/capacity", get(pages::capacity).post(forms::capacity))
        .route("/ui/policies", get(pages::policies).post(forms::policies))
        .route("/ui/policies/edit", get(pages::policy))
        .route("/ui/panic", post(forms::panic))
        .route("/ui/live", get(live::stream))
        .with_state(Arc::clone(dashboard))
}

/// A file under a name that changes with its content.
async fn asset(Path(file): Path<String>) -> Response {
    match assets::find(&file) {
        Some(found) => {
            let kept = HeaderValue::from_static("public, max-age=31536000, immutable");
            (
                [(header::CONTENT_TYPE, HeaderValue::from_static(found.kind)), (header::CACHE_CONTROL, kept)],
                found.content,
            )
                .into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// Around the door, for pages alone: a session stands for its token, errors become pages, and browsers are told what pages may do.
pub(crate) async fn around(dashboard: Arc<Dashboard>, mut request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    if path != "/" && path != "/ui" && !path.starts_with(ROOT) {
        return next.run(request).await;
    }
    dashboard.sessions.stand_in(request.headers_mut());
    let asked =
        ErrorContext { is_get: *request.method() == Method::GET, path, to: request.uri().to_string() };
    let response = next.run(request).await;
    let mut response = dashboard.shown(asked, response).await;
    guarded(response.headers_mut());
    response
}

/// What of a request matters to how an error is shown.
struct ErrorContext {
    is_get: bool,
    path: String,
    to: String,
}

impl Dashboard {
    /// The answer as a page, where it is an error of the API.
    async fn shown(&self, asked: ErrorContext, response: Response) -> Response {
        let status = response.status();
        let is_json =
            response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
        if !is_json || !(status.is_client_error() || status.is_server_error()) {
            return response;
        }
        if status == StatusCode::UNAUTHORIZED && asked.is_get {
            return see(&url::to("sign-in", &[("next", asked.to.as_str())]));
        }
        let (mut head, body) = response.into_parts();
        let body = axum::body::to_bytes(body, MAX_PROBLEM).await.unwrap_or_default();
        let error: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        let text = |key: &str| error["error"][key].as_str().unwrap_or_default().to_owned();
        let body = page::problem::body(&text("what"), &text("why"), &text("remedy"));
        tracing::debug!(path = asked.path, %status, "a page was not shown");
        head.headers.remove(header::CONTENT_LENGTH);
        head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        Response::from_parts(head, Body::from(frame::bare("Not shown", &body)))
    }
}

/// Tells browsers what a page may load and who may hold it.
fn guarded(headers: &mut HeaderMap) {
    for (name, value) in HEADERS {
        headers.insert(header::HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    // Pages are of one viewer and moment.
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

fn hash(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        // With its length, so that no two lists of parts are one text.
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A refusal of this module.
fn problem(status: StatusCode, what: &str, why: impl Into<String>, remedy: &'static str) -> Problem {
    Problem { status, what: what.to_owned(), place: ROOT.to_owned(), why: why.into(), remedy }
}
