//! Owns the REST interface: routes and limits. `/openapi.json` is made of the what answers and of the forms of answers.

mod health;
mod openapi;
mod policies;
mod problem;
mod questions;

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::HttpBody as _;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::IntoResponse;
use axum::routing::get;
use evenkeel_store::clock::WallClock;
use evenkeel_store::state::StoreState;
use tokio::sync::Semaphore;

use super::grpc::SHORT_TEXT;
use super::ready::Readiness;
use super::{Context, Late};
use crate::audit::watch;
use crate::config::Config;
use crate::dashboard::{self, Dashboard};
use crate::identity::{Access, guard};
use crate::recommend::Desk;
use crate::recommend::stored::Stored;
use crate::turns::{NoTurn, QueueSlot};
pub use openapi::text as openapi;
pub(crate) use policies::{applied, refused};
pub(crate) use problem::{Json, Problem, Refusal, allowed, parameters, wrong_method};
use problem::{no_turn, unknown};

/// Requests with large bodies at once; with serve.max_body, 2 MiB, they take 64 MiB. Small ones are as many as connections.
const LARGE_BODIES: usize = 32;

/// What the routes need. Served from the start of the process; the rest is filled in when the log has been replayed.
#[derive(Debug, Clone)]
pub struct Site {
    readiness: Arc<Readiness>,
    context: Arc<OnceLock<Context>>,
    stored: Arc<Stored>,
    clock: WallClock,
}

impl Site {
    /// A site that answers questions once it is given what it needs.
    pub fn new(readiness: Arc<Readiness>, stored: Arc<Stored>, clock: WallClock) -> Self {
        Self { readiness, context: Arc::default(), stored, clock }
    }

    /// The same for gRPC.
    pub(crate) fn late(&self) -> Late {
        Late {
            context: Arc::clone(&self.context),
            stored: Arc::clone(&self.stored),
            clock: self.clock.clone(),
        }
    }

    /// Begins to answer questions.
    pub fn open(&self, context: Context) {
        // Set once; a second time would be the same process opening its state again, which it does not.
        let _already = self.context.set(context);
    }

    /// The routes, with the limits of the configuration, behind their door.
    pub(crate) fn router(&self, config: &Config, access: &Arc<Access>) -> Router {
        let serve = &config.serve;
        let pages = config.dashboard.enabled.then(|| Dashboard::new(self, config, access));
        let access = Arc::clone(access);
        let door = move |request: Request, next: Next| guard(Arc::clone(&access), request, next);
        let audit = Arc::clone(self.readiness.audit());
        let recorded = move |request: Request, next: Next| watch(Arc::clone(&audit), request, next);
        let patience = serve.request_timeout.get();
        let limited = move |request: Request, next: Next| async move {
            let place = request.uri().path().to_owned();
            tokio::time::timeout(patience, next.run(request)).await.unwrap_or_else(|_| {
                Problem {
                    status: StatusCode::GATEWAY_TIMEOUT,
                    what: "the request was not finished".to_owned(),
                    place,
                    why: format!("it took longer than {} ms", patience.as_millis()),
                    remedy: "ask for less, or raise serve.request_timeout",
                }
                .into_response()
            })
        };
        let (large, site) = (Arc::new(Semaphore::new(LARGE_BODIES)), self.clone());
        let spared = move |request: Request, next: Next| {
            let (large, site) = (Arc::clone(&large), site.clone());
            async move {
                let _place = match is_large(&request) {
                    true => Some(large.try_acquire_owned().map_err(|_| {
                        let why = site.context.get().map_or(NoTurn::Busy, |c| c.work.texts.refuse());
                        no_turn(request.uri().path(), why)
                    })?),
                    false => None,
                };
                Ok::<_, Problem>(next.run(request).await)
            }
        };
        let site = self.clone();
        let counted = move |request: Request, next: Next| {
            let site = site.clone();
            async move {
                let has_text = request.body().size_hint().upper() != Some(0);
                let answer = next.run(request).await;
                let refused =
                    matches!(answer.status(), StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE);
                if let Some(context) = site.context.get().filter(|_| has_text && refused) {
                    context.work.refuse_text();
                }
                answer
            }
        };
        let routes = pages.iter().fold(Router::new(), |routes, pages| routes.merge(dashboard::routes(pages)));
        let routes = routes
            .merge(questions())
            .layer(middleware::from_fn(spared))
            .layer(middleware::from_fn(limited))
            .layer(DefaultBodyLimit::max(serve.max_body.as_usize()))
            // With limits of their own.
            .merge(super::capacity::routes())
            .layer(middleware::from_fn(counted))
            .fallback(unknown)
            // Around all of it: what is not listed in the door's table is answered to nobody.
            .layer(middleware::from_fn(door))
            // And around that: who is refused a change is recorded, too.
            .layer(middleware::from_fn(recorded));
        let routes = match pages {
            Some(pages) => routes.layer(middleware::from_fn(move |request: Request, next: Next| {
                dashboard::around(Arc::clone(&pages), request, next)
            })),
            None => routes,
        };
        routes.with_state(self.clone())
    }

    /// What questions are answered from, once everything was read back.
    pub(crate) fn context(&self, place: &str) -> Result<Context, Problem> {
        self.context.get().cloned().ok_or_else(|| Problem {
            status: StatusCode::SERVICE_UNAVAILABLE,
            what: "questions are not answered yet".to_owned(),
            place: place.to_owned(),
            why: "what was acknowledged before the restart is still being read back".to_owned(),
            remedy: "wait until /readyz answers 200",
        })
    }

    /// What was kept of every workload, also while history is read back.
    pub(crate) fn stored(&self) -> &Arc<Stored> {
        &self.stored
    }

    /// The present, microseconds since 1970.
    pub(crate) fn now_usec(&self) -> u64 {
        self.clock.now_usec()
    }

    /// How the process does.
    pub(crate) fn readiness(&self) -> &Arc<Readiness> {
        &self.readiness
    }

    /// Answers a question from the state, on a thread where it may take its time.
    async fn ask<T: Send + 'static>(
        &self,
        place: &str,
        question: impl FnOnce(&Context, &StoreState) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        self.ask_context(place, move |context| question(context, &context.engine.state().study())).await
    }

    /// Answers a question about recommendations.
    async fn ask_desk<T: Send + 'static>(
        &self,
        place: &str,
        question: impl FnOnce(&Desk<'_>) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        self.ask_context(place, move |context| context.at_desk(question)).await
    }

    pub(crate) async fn ask_context<T: Send + 'static>(
        &self,
        place: &str,
        question: impl FnOnce(&Context) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let context = self.context(place)?;
        let (turns, patience) =
            (context.work.questions.clone(), context.config.now().serve.request_timeout.get());
        let answer = turns.run(patience, move |wanted| question(&context.asked_by(wanted))).await;
        answer.map_err(|why| no_turn(place, why))
    }

    /// The same for questions that begin with reading what somebody else wrote.
    async fn ask_with_text<T: Send + 'static>(
        &self,
        place: &str,
        waiting: QueueSlot,
        question: impl FnOnce(&Context) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let context = self.context(place)?;
        let (turns, patience) =
            (context.work.texts.clone(), context.config.now().serve.request_timeout.get());
        let answer = turns.run_from(waiting, patience, move |w| question(&context.asked_by(w))).await;
        answer.map_err(|why| no_turn(place, why))
    }

    /// A place among those whose text waits to be read.
    fn place_for_text(&self, place: &str) -> Result<QueueSlot, Problem> {
        self.context(place)?.work.texts.place().map_err(|why| no_turn(place, why))
    }
}

/// What is answered with the limits that questions have. `openapi.rs` lists the same.
fn questions() -> Router<Site> {
    use questions::{EVENTS, NAMESPACES, NODES, POD_RESOURCES, RECOMMENDATIONS, SERIES, UPDATES, USAGE};
    Router::new()
        .route(POD_RESOURCES, get(questions::pod_resources).post(questions::post_pod_resources))
        .route(RECOMMENDATIONS, get(questions::recommendations))
        .route(policies::POLICIES, get(policies::list).post(policies::apply))
        .route(policies::POLICY, get(policies::get).put(policies::put).delete(policies::delete))
        .route(USAGE, get(questions::query_usage))
        .route(SERIES, get(questions::usage_series))
        .route(NODES, get(questions::nodes))
        .route(NAMESPACES, get(questions::namespaces))
        .route(EVENTS, get(questions::events))
        .route(UPDATES, get(questions::updates))
        .route(super::audit::PLACE, get(super::audit::changes))
        .route("/metrics", get(health::exposition))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/openapi.json", get(openapi::document))
}

/// Whether a request has, or may have, a body that takes one of the few places for large ones.
fn is_large(request: &Request) -> bool {
    let length = request.headers().get(header::CONTENT_LENGTH);
    match length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok()) {
        Some(length) => length > SHORT_TEXT,
        None => request.headers().contains_key(header::TRANSFER_ENCODING),
    }
}
