//! Owns the REST interface: routes, limits, and the one form of errors. `openapi.json` beside this file documents it; a
//! test holds the two together.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::{Bytes, HttpBody as _};
use axum::extract::{
    DefaultBodyLimit, Extension, FromRequest, Path, Query, Request, State as From,
    rejection::{BytesRejection, QueryRejection},
};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use evenkeel_model::causes::chain;
use evenkeel_model::shown;
use evenkeel_proto::v1;
use evenkeel_rightsizing::policy::API_VERSION;
use evenkeel_store::clock::WallClock;
use evenkeel_store::state::StoreState;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::deadline::PodAnswerError;
use super::grpc::{SHORT_TEXT, selector_of};
use super::ready::{Check, Readiness};
use super::series::{self, SeriesQuery};
use super::{Context, Late, convert, metrics, policies};
use crate::allocated::AT_MOST_USEC;
use crate::audit::{Object, Ticket, Why, watch};
use crate::config::{Config, Span};
use crate::dashboard::{self, Dashboard};
use crate::identity::{Access, Identity, Role, forbidden, guard};
use crate::policy::{ApplyOutcome, ChangeError};
use crate::recommend::stored::Stored;
use crate::recommend::usage::{self, UsageScope};
use crate::recommend::{Desk, kept, list, pod};
use crate::turns::{NoTurn, QueueSlot};
use crate::updater::told;

/// Requests with large bodies at once; with serve.max_body, 2 MiB, they take 64 MiB. Small ones are as many as connections.
const LARGE_BODIES: usize = 32;
const POLICIES: &str = "/api/v1/policies";
const OPENAPI: &str = include_str!("openapi.json");

/// What the routes need. Served from the start of the process; the rest is filled in when the log has been replayed.
#[derive(Debug, Clone)]
pub struct Site {
    readiness: Arc<Readiness>,
    context: Arc<OnceLock<Context>>,
    stored: Arc<Stored>,
    clock: WallClock,
}

/// An error as every route answers it.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) what: String,
    pub(crate) place: String,
    pub(crate) why: String,
    pub(crate) remedy: &'static str,
}

/// A value as JSON, without characters that would do something in a terminal it is shown in.
pub(crate) struct Json(pub(crate) Value);

impl IntoResponse for Json {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, "application/json")], shown::json(self.0.to_string())).into_response()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = json!({ "error": {
            "what": self.what, "where": self.place, "why": &self.why, "remedy": self.remedy,
        } });
        let why = Extension(Why(self.why));
        (self.status, why, Json(body)).into_response()
    }
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
            .route("/recommendedPodResources", get(pod_resources).post(pod_resources))
            .route("/api/v1/recommendations", get(recommendations))
            .route("/api/v1/policies", get(list_policies).post(apply_policy))
            .route(
                "/api/v1/policies/{namespace}/{name}",
                get(get_policy).put(put_policy).delete(delete_policy),
            )
            .route("/api/v1/usage", get(query_usage))
            .route("/api/v1/usage/series", get(usage_series))
            .route("/api/v1/nodes", get(nodes))
            .route("/api/v1/namespaces", get(namespaces))
            .route("/api/v1/events", get(events))
            .route("/api/v1/updates", get(updates))
            .route("/api/v1/audit", get(super::audit::changes))
            .route("/metrics", get(exposition))
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(readyz))
            .route("/openapi.json", get(|| async { ([(header::CONTENT_TYPE, "application/json")], OPENAPI) }))
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

/// Whether a request has, or may have, a body that takes one of the few places for large ones.
fn is_large(request: &Request) -> bool {
    let length = request.headers().get(header::CONTENT_LENGTH);
    match length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok()) {
        Some(length) => length > SHORT_TEXT,
        None => request.headers().contains_key(header::TRANSFER_ENCODING),
    }
}

fn no_turn(place: &str, why: NoTurn) -> Problem {
    let (status, why, remedy) = match why {
        NoTurn::Busy => (
            StatusCode::TOO_MANY_REQUESTS,
            "as many questions as may wait are waiting already",
            "ask again later",
        ),
        NoTurn::Late => (
            StatusCode::GATEWAY_TIMEOUT,
            "it took longer than serve.request_timeout",
            "ask for less, or raise serve.request_timeout",
        ),
        NoTurn::Fault => return fault(place),
    };
    let what = "the question was not answered".to_owned();
    Problem { status, what, place: place.to_owned(), why: why.to_owned(), remedy }
}

fn fault(place: &str) -> Problem {
    Problem {
        status: StatusCode::INTERNAL_SERVER_ERROR,
        what: "the question could not be answered".to_owned(),
        place: place.to_owned(),
        why: "a fault in the program".to_owned(),
        remedy: "report it with the log of this moment",
    }
}

async fn unknown(request: Request) -> Problem {
    Problem {
        status: StatusCode::NOT_FOUND,
        what: "there is nothing here".to_owned(),
        place: request.uri().path().to_owned(),
        why: "no such path".to_owned(),
        remedy: "see /openapi.json for the paths there are",
    }
}

/// A path that is there and takes other methods.
pub(crate) fn wrong_method(request: &Request) -> Problem {
    Problem {
        status: StatusCode::METHOD_NOT_ALLOWED,
        what: format!("{} is not answered here", request.method()),
        place: request.uri().path().to_owned(),
        why: "the path takes other methods".to_owned(),
        remedy: "see /openapi.json for the methods of each path",
    }
}

/// Whether a caller has a role in a namespace; in all where none is named.
pub(crate) async fn allowed(
    identity: &Identity,
    role: Role,
    namespace: &str,
    place: &str,
) -> Result<(), Problem> {
    identity.may(role, namespace).await.map_err(|refusal| forbidden(refusal, place))
}

#[derive(Deserialize)]
struct PodQuery {
    /// How long the caller waits, such as 250ms: webhooks of Kubernetes say it so.
    #[serde(default)]
    timeout: Option<Span>,
}

async fn pod_resources(
    From(site): From<Site>,
    Extension(identity): Extension<Identity>,
    query: Result<Query<PodQuery>, QueryRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json, Problem> {
    const PLACE: &str = "/recommendedPodResources";
    let refused = |status, why| Problem {
        status,
        what: "the pod cannot be read".to_owned(),
        place: PLACE.to_owned(),
        why,
        remedy: "send one pod, {\"metadata\": {...}, \"spec\": {...}}, in JSON or YAML",
    };
    let body = body.map_err(|rejection| refused(rejection.status(), rejection.body_text()))?;
    let text = std::str::from_utf8(&body).map_err(|e| refused(StatusCode::BAD_REQUEST, e.to_string()))?;
    if text.trim().is_empty() {
        return Err(refused(StatusCode::BAD_REQUEST, "the request has no body".to_owned()));
    }
    let pod = match site.context.get() {
        Some(_) if text.len() > SHORT_TEXT => {
            let (waiting, text) = (site.place_for_text(PLACE)?, text.to_owned());
            site.ask_with_text(PLACE, waiting, move |_| pod::read(&text)).await?
        }
        // Less work than changing threads for it.
        _ => pod::read(text),
    };
    let pod = pod.map_err(|e| refused(StatusCode::BAD_REQUEST, chain(&e)))?;
    allowed(&identity, Role::View, &pod.metadata.namespace, PLACE).await?;
    let Query(PodQuery { timeout }) = query.map_err(|rejection| Problem {
        status: StatusCode::BAD_REQUEST,
        what: "the query cannot be read".to_owned(),
        place: PLACE.to_owned(),
        why: rejection.body_text(),
        remedy: "write timeout as a duration, such as 250ms",
    })?;
    let Some(context) = site.context.get() else {
        return Ok(Json(convert::pod(&kept::while_loading(&site.stored, &pod, site.clock.now_usec()))));
    };
    let advice = context.pod_within(context.patience(timeout.map(Span::get)), pod, Vec::new()).await;
    advice.map(|advice| Json(convert::pod(&advice))).map_err(|why| match why {
        PodAnswerError::Late => Problem {
            status: StatusCode::GATEWAY_TIMEOUT,
            what: "the pod was not answered in time".to_owned(),
            place: PLACE.to_owned(),
            why: "a fresh answer takes longer, and none was kept of its containers".to_owned(),
            remedy: "wait longer (timeout=2s), or ask again later",
        },
        PodAnswerError::Rule(_) | PodAnswerError::Fault => fault(PLACE),
    })
}

/// The parameters of a query, or what is wrong with them.
pub(crate) fn parameters<T: serde::de::DeserializeOwned>(request: &Request) -> Result<T, Problem> {
    let query = Query::<T>::try_from_uri(request.uri()).map_err(|rejection| Problem {
        status: StatusCode::BAD_REQUEST,
        what: "the query cannot be read".to_owned(),
        place: request.uri().path().to_owned(),
        why: rejection.body_text(),
        remedy: "see /openapi.json for the parameters of each path",
    })?;
    Ok(query.0)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InNamespace {
    #[serde(default)]
    namespace: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
struct PodsQuery {
    namespace: String,
    selector: String,
}

async fn recommendations(From(site): From<Site>, request: Request) -> Result<Json, Problem> {
    const PLACE: &str = "/api/v1/recommendations";
    let PodsQuery { namespace, selector } = parameters(&request)?;
    let identity = Identity::of(request.extensions());
    allowed(&identity, Role::View, &namespace, PLACE).await?;
    let selector = selector_of(&selector).map_err(|why| Problem {
        status: StatusCode::BAD_REQUEST,
        what: "the selector cannot be read".to_owned(),
        place: PLACE.to_owned(),
        why,
        remedy: "write labels as kubectl takes them",
    })?;
    let found = match site.context.get() {
        None if selector.is_everything() => site.stored.all(&namespace, site.clock.now_usec()),
        // Labels are known of what was read back.
        _ => site.ask_desk(PLACE, move |desk| list::selected(desk, &namespace, &selector, &[])).await?,
    };
    Ok(Json(found.iter().map(convert::recommendation).collect()))
}

async fn list_policies(From(site): From<Site>, request: Request) -> Result<Json, Problem> {
    let InNamespace { namespace } = parameters(&request)?;
    let identity = Identity::of(request.extensions());
    allowed(&identity, Role::View, &namespace, POLICIES).await?;
    let ask = move |c: &Context| (policies::list(c, &namespace), policies::list_bounds(c, &namespace));
    let (items, objects) = site.ask_context(POLICIES, ask).await?;
    Ok(Json(json!({ "apiVersion": API_VERSION, "kind": "PolicyList", "items": items, "objects": objects })))
}

async fn get_policy(
    From(site): From<Site>,
    Extension(identity): Extension<Identity>,
    Path((namespace, name)): Path<(String, String)>,
    request: Request,
) -> Result<Json, Problem> {
    allowed(&identity, Role::View, &namespace, POLICIES).await?;
    let kind = kind_of(&request)?;
    let missing = no_policy(&kind, &namespace, &name);
    let found = site.ask_context(POLICIES, move |c| policies::find(c, &kind, &namespace, &name)).await?;
    found.map(Json).ok_or(missing)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
struct OfKind {
    kind: String,
}

/// The kind asked for; empty = a policy.
fn kind_of(request: &Request) -> Result<String, Problem> {
    let OfKind { kind } = parameters(request)?;
    if policies::is_kind(&kind) {
        return Ok(kind);
    }
    Err(Problem {
        status: StatusCode::BAD_REQUEST,
        what: "the object cannot be found".to_owned(),
        place: POLICIES.to_owned(),
        why: format!("kind {kind:?} is not known"),
        remedy: "give Policy, LimitRange or ResourceQuota",
    })
}

fn no_policy(kind: &str, namespace: &str, name: &str) -> Problem {
    let kind = if kind.is_empty() { "policy" } else { kind };
    Problem {
        status: StatusCode::NOT_FOUND,
        what: format!("there is no {kind} {namespace}/{name}"),
        place: POLICIES.to_owned(),
        why: "nobody applied one of this name, and no file holds one".to_owned(),
        remedy: "see /api/v1/policies for those there are",
    }
}

pub(crate) fn refused(error: &ChangeError) -> Problem {
    let (status, remedy) = match error {
        ChangeError::Invalid(_) => (StatusCode::BAD_REQUEST, "correct the field"),
        ChangeError::InFile { .. } => (StatusCode::CONFLICT, "edit the file, or choose another name"),
        ChangeError::InCluster { .. } => (StatusCode::CONFLICT, "change the object, or choose another name"),
        ChangeError::Full(_) => (StatusCode::CONFLICT, "delete some, or raise recommend.max_policies"),
        ChangeError::Store(_) | ChangeError::Unrecorded(_) => {
            (StatusCode::SERVICE_UNAVAILABLE, "see the log for what keeps the disk")
        }
    };
    Problem {
        status,
        what: "the policy was not taken".to_owned(),
        place: POLICIES.to_owned(),
        why: chain(error),
        remedy,
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
#[derive(Default)]
struct ApplyQuery {
    dry_run: bool,
}

fn unreadable_policy(status: StatusCode, why: String) -> Problem {
    Problem {
        status,
        what: "the policy cannot be read".to_owned(),
        place: POLICIES.to_owned(),
        why,
        remedy: "send one policy in JSON or YAML",
    }
}

/// A name that the object has to have, where the path says one.
pub(crate) type Named = Option<(String, String)>;

async fn apply_policy(From(site): From<Site>, request: Request) -> Result<Response, Problem> {
    apply(site, None, request).await
}

async fn put_policy(
    From(site): From<Site>,
    Path(named): Path<(String, String)>,
    request: Request,
) -> Result<Response, Problem> {
    apply(site, Some(named), request).await
}

async fn apply(site: Site, named: Named, request: Request) -> Result<Response, Problem> {
    let ApplyQuery { dry_run } = parameters(&request)?;
    let (identity, ticket) = (Identity::of(request.extensions()), Ticket::of(request.extensions()));
    // The router's limit on bodies holds for this reading, too.
    let body = Bytes::from_request(request, &()).await;
    let body = body.map_err(|rejection| unreadable_policy(rejection.status(), rejection.body_text()))?;
    let text = String::from_utf8(body.into())
        .map_err(|e| unreadable_policy(StatusCode::BAD_REQUEST, e.to_string()))?;
    let applied = applied(&site, &identity, ticket, named, text.into(), dry_run).await?;
    let preview: Vec<Value> = applied.preview.iter().map(convert::recommendation).collect();
    let status = match (applied.outcome, dry_run) {
        (ApplyOutcome::Created, false) => StatusCode::CREATED,
        _ => StatusCode::OK,
    };
    let body = json!({
        "outcome": applied.outcome.as_str(), "dryRun": dry_run, "policy": applied.object, "preview": preview,
    });
    Ok((status, Json(body)).into_response())
}

/// Applies an object, or only says what would come of it, for whoever may in its namespace.
pub(crate) async fn applied(
    site: &Site,
    identity: &Identity,
    ticket: Ticket,
    named: Named,
    text: Arc<str>,
    dry_run: bool,
) -> Result<policies::AppliedPolicy, Problem> {
    if identity.is_limited() {
        let (waiting, text) = (site.place_for_text(POLICIES)?, Arc::clone(&text));
        let found = site.ask_with_text(POLICIES, waiting, move |_| policies::namespace_of(&text));
        if let Some(namespace) = found.await? {
            ticket.about(Object::new("", &namespace, ""));
            allowed(identity, Role::Apply, &namespace, POLICIES).await?;
        }
    }
    let waiting = site.place_for_text(POLICIES)?;
    let applied = site.ask_with_text(POLICIES, waiting, move |context| {
        if let Some((namespace, name)) = named {
            ticket.about(Object::new("", &namespace, &name));
            let key = policies::key_of(&text).map_err(|e| refused(&e.into()))?;
            if key != (namespace.clone(), name.clone()) {
                let why = format!("the object is {}/{}, the path says {namespace}/{name}", key.0, key.1);
                return Err(unreadable_policy(StatusCode::BAD_REQUEST, why));
            }
        }
        policies::apply(context, &text, dry_run, &ticket).map_err(|e| refused(&e))
    });
    applied.await?
}

async fn delete_policy(
    From(site): From<Site>,
    Extension(identity): Extension<Identity>,
    Path((namespace, name)): Path<(String, String)>,
    request: Request,
) -> Result<StatusCode, Problem> {
    let ticket = Ticket::of(request.extensions());
    ticket.about(Object::new("", &namespace, &name));
    allowed(&identity, Role::Apply, &namespace, POLICIES).await?;
    let kind = kind_of(&request)?;
    let missing = no_policy(&kind, &namespace, &name);
    let ask = move |c: &Context| policies::delete(c, &kind, &namespace, &name, &ticket);
    match site.ask_context(POLICIES, ask).await?.map_err(|e| refused(&e))? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(missing),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
#[derive(Default)]
struct UsageQuery {
    namespace: String,
    workload: String,
    container: String,
    window_seconds: u64,
}

async fn query_usage(From(site): From<Site>, request: Request) -> Result<Json, Problem> {
    let UsageQuery { namespace, workload, container, window_seconds } = parameters(&request)?;
    let identity = Identity::of(request.extensions());
    allowed(&identity, Role::View, &namespace, "/api/v1/usage").await?;
    let question = UsageScope { namespace, workload, container, window_seconds };
    let found = site.ask_desk("/api/v1/usage", move |desk| usage::query(desk, &question)).await?;
    Ok(Json(found.iter().map(convert::usage).collect()))
}

async fn usage_series(From(site): From<Site>, request: Request) -> Result<Response, Problem> {
    const PLACE: &str = "/api/v1/usage/series";
    let query: SeriesQuery = parameters(&request)?;
    let identity = Identity::of(request.extensions());
    allowed(&identity, Role::View, &query.namespace, PLACE).await?;
    let asked = series::asked((&query).into()).map_err(|why| Problem {
        status: StatusCode::BAD_REQUEST,
        what: "the query cannot be read".to_owned(),
        place: PLACE.to_owned(),
        why,
        remedy: "see /openapi.json for the parameters of each path",
    })?;
    let context = site.context(PLACE)?;
    let place = context.work.watches.place().map_err(|why| no_turn(PLACE, why))?;
    let resource = asked.resource;
    Ok(series::response(series::told(context, asked, None, place), resource, query.format))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoParameters {}

async fn nodes(From(site): From<Site>, request: Request) -> Result<Json, Problem> {
    let NoParameters {} = parameters(&request)?;
    let found = site
        .ask_context("/api/v1/nodes", |c| {
            let (health, allocated) = (c.engine.health(), c.allocated.within(c, AT_MOST_USEC));
            let connected = |node: &_| health.is_node_connected(node);
            convert::nodes(&c.engine.state().study(), &allocated, connected)
        })
        .await?;
    Ok(Json(found.iter().map(convert::node).collect()))
}

async fn namespaces(From(site): From<Site>, request: Request) -> Result<Json, Problem> {
    let NoParameters {} = parameters(&request)?;
    let ask = |c: &Context| convert::namespaces(&c.allocated.within(c, AT_MOST_USEC));
    let found = site.ask_context("/api/v1/namespaces", ask).await?;
    let all = |list: &[v1::Namespace]| list.iter().map(convert::namespace).collect::<Vec<_>>();
    Ok(Json(json!({
        "namespaces": all(&found.namespaces),
        "clusters": all(&found.clusters),
        "quotaTrouble": found.quota_trouble,
    })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct EventsQuery {
    node: String,
    limit: usize,
}

impl Default for EventsQuery {
    fn default() -> Self {
        Self { node: String::new(), limit: 1000 }
    }
}

async fn events(From(site): From<Site>, request: Request) -> Result<Json, Problem> {
    let EventsQuery { node, limit } = parameters(&request)?;
    let found = site.ask("/api/v1/events", move |_, state| convert::events(state, &node, limit)).await?;
    Ok(Json(found.iter().map(convert::event).collect()))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct UpdatesQuery {
    namespace: String,
    pod: String,
    cases: bool,
}

async fn updates(From(site): From<Site>, request: Request) -> Result<Json, Problem> {
    let UpdatesQuery { namespace, pod, cases } = parameters(&request)?;
    let asked = v1::ListUpdatesRequest { namespace, pod, cases };
    let told = site.ask_context("/api/v1/updates", move |c| told::list(c, &asked)).await?;
    Ok(Json(convert::updates(&told)))
}

async fn exposition(From(site): From<Site>) -> Response {
    let text = match site.context.get() {
        Some(context) => {
            let lines = context.watched.lines(&context.config.now().capacity);
            let capacity = metrics::Capacity { lines: &lines, counters: context.capacity.counters() };
            let config = context.config.now();
            let (most, age_usec) = (config.serve.metric_rows, config.recommend.watch_interval.as_usec());
            // Left out where as many questions as may wait are waiting: the rest is what an alert needs then.
            let allocated = match most {
                0 => None,
                _ => site.ask_context("/metrics", move |c| c.allocated.within(c, age_usec)).await.ok(),
            };
            let rows = allocated.as_deref().map(|sums| metrics::rows(sums, &context.stored.kept(), most));
            metrics::exposition(context, &capacity, rows.as_deref().unwrap_or_default())
        }
        None => metrics::starting(),
    };
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response()
}

/// What is wrong with files of policies, limit ranges and quotas, on one line.
fn of_files(troubles: &[(PathBuf, String)]) -> Option<String> {
    let one = |(path, why): &(PathBuf, String)| shown::plain(&format!("{}: {why}", path.display()));
    (!troubles.is_empty()).then(|| troubles.iter().map(one).collect::<Vec<_>>().join("; "))
}

async fn readyz(From(site): From<Site>, request: Request) -> Response {
    // Strangers, such as probes, are told no reasons.
    let identity = Identity::of(request.extensions());
    let may_see = identity.sees_reasons().await;
    let verbose =
        request.uri().query().is_some_and(|query| query.split('&').any(|p| p.starts_with("verbose")));
    let idle = evenkeel_store::ingest::health::Health::default();
    let health = site.context.get().map(|context| Arc::clone(context.engine.health()));
    let mut checks = site.readiness.checks(health.as_deref().unwrap_or(&idle), site.clock.now_usec());
    if let Some(context) = site.context.get() {
        let troubles = [context.policies.troubles(), context.advisor.limits.troubles()].concat();
        checks.push(Check { name: "policies", trouble: of_files(&troubles), needed: false });
    }
    let ready = checks.iter().all(|check| check.trouble.is_none() || !check.needed);
    let mut text = String::new();
    for check in checks.iter().filter(|_| may_see) {
        let sign = if check.trouble.is_none() { '+' } else { '-' };
        if verbose || check.trouble.is_some() {
            let trouble = check.trouble.as_deref().unwrap_or("ok");
            text.push_str(&format!("[{sign}]{}: {trouble}\n", check.name));
        }
    }
    text.push_str(if ready { "ready\n" } else { "not ready\n" });
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, text).into_response()
}
