//! Questions over REST: what is recommended, used, allocated, and what happened.

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{Extension, Query, Request, State as From};
use axum::http::StatusCode;
use axum::response::Response;
use evenkeel_model::causes::chain;
use evenkeel_proto::v1;
use serde::Deserialize;

use super::super::answers::{
    EventAnswer, NamespacesAnswer, NodeAnswer, PodAnswer, RecommendationAnswer, SeriesLine, UpdatesAnswer,
    UsageAnswer,
};
use super::super::deadline::PodAnswerError;
use super::super::grpc::{SHORT_TEXT, selector_of};
use super::super::series::{self, SeriesQuery};
use super::super::{Context, convert};
use super::Site;
use super::problem::{Json, Problem, Refusal, allowed, fault, no_turn, parameters};
use crate::allocated::AT_MOST_USEC;
use crate::config::Span;
use crate::identity::{Identity, Role};
use crate::recommend::usage::{self, UsageScope};
use crate::recommend::{kept, list, pod};
use crate::updater::told;

pub(super) const POD_RESOURCES: &str = "/recommendedPodResources";
pub(super) const RECOMMENDATIONS: &str = "/api/v1/recommendations";
pub(super) const USAGE: &str = "/api/v1/usage";
pub(super) const SERIES: &str = "/api/v1/usage/series";
pub(super) const NODES: &str = "/api/v1/nodes";
pub(super) const NAMESPACES: &str = "/api/v1/namespaces";
pub(super) const EVENTS: &str = "/api/v1/events";
pub(super) const UPDATES: &str = "/api/v1/updates";

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct PodQuery {
    /// How long the caller waits, such as 250ms: webhooks of Kubernetes say it so. Where a fresh answer takes longer, the kept
    /// one is given with its age.
    #[serde(default)]
    #[param(value_type = Option<String>)]
    timeout: Option<Span>,
}

/// Recommended resources for one pod, existing or not; the pod is the request's body.
#[utoipa::path(
    get, path = POD_RESOURCES, operation_id = "getRecommendedPodResources", params(PodQuery),
    request_body(content = Object, description = "A pod in JSON or YAML"),
    responses((status = OK, description = "Its resources", body = PodAnswer), Refusal)
)]
pub(super) async fn pod_resources(
    From(site): From<Site>,
    Extension(identity): Extension<Identity>,
    query: Result<Query<PodQuery>, QueryRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<PodAnswer>, Problem> {
    const PLACE: &str = POD_RESOURCES;
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
        return Ok(Json(kept::while_loading(&site.stored, &pod, site.clock.now_usec()).into()));
    };
    let advice = context.pod_within(context.patience(timeout.map(Span::get)), pod, Vec::new()).await;
    advice.map(|advice| Json(advice.into())).map_err(|why| match why {
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

/// The same, for clients that cannot send a body with GET.
#[utoipa::path(
    post, path = POD_RESOURCES, operation_id = "postRecommendedPodResources", params(PodQuery),
    request_body(content = Object, description = "A pod in JSON or YAML"),
    responses((status = OK, description = "Its resources", body = PodAnswer), Refusal)
)]
pub(super) async fn post_pod_resources(
    site: From<Site>,
    identity: Extension<Identity>,
    query: Result<Query<PodQuery>, QueryRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<PodAnswer>, Problem> {
    pod_resources(site, identity, query, body).await
}

#[derive(Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct PodsQuery {
    /// Only this namespace.
    namespace: String,
    /// Only workloads whose pods have these labels, such as app=web,!canary.
    selector: String,
}

/// Recommendations for every workload's container seen.
#[utoipa::path(
    get, path = RECOMMENDATIONS, operation_id = "listRecommendations", params(PodsQuery),
    responses((status = OK, description = "One entry for each container and resource", body = Vec<RecommendationAnswer>), Refusal)
)]
pub(super) async fn recommendations(
    From(site): From<Site>,
    request: Request,
) -> Result<Json<Vec<RecommendationAnswer>>, Problem> {
    const PLACE: &str = RECOMMENDATIONS;
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
    Ok(Json(found.into_iter().map(Into::into).collect()))
}

#[derive(Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
#[into_params(parameter_in = Query)]
struct UsageQuery {
    /// Only this namespace.
    namespace: String,
    /// Only this workload, such as deployment/web.
    workload: String,
    /// Only this container.
    container: String,
    /// Length of the window; 0 = all that is kept.
    window_seconds: u64,
}

/// Usage records.
#[utoipa::path(
    get, path = USAGE, operation_id = "queryUsage", params(UsageQuery),
    responses((status = OK, description = "One for each workload's container", body = Vec<UsageAnswer>), Refusal)
)]
pub(super) async fn query_usage(
    From(site): From<Site>,
    request: Request,
) -> Result<Json<Vec<UsageAnswer>>, Problem> {
    let UsageQuery { namespace, workload, container, window_seconds } = parameters(&request)?;
    let identity = Identity::of(request.extensions());
    allowed(&identity, Role::View, &namespace, USAGE).await?;
    let question = UsageScope { namespace, workload, container, window_seconds };
    let found = site.ask_desk(USAGE, move |desk| usage::query(desk, &question)).await?;
    Ok(Json(found.into_iter().map(Into::into).collect()))
}

/// Use over time, series by series, streamed.
///
/// What was used: the mean of CPU in cores, the peak of memory in bytes; of several replicas that of the one at rank 95 %, of a
/// day the mean of all. Seconds are kept for a minute, minutes and hours for retention.hours, days for retention.days.
#[utoipa::path(
    get, path = SERIES, operation_id = "querySeries", params(SeriesQuery),
    responses(
        (status = OK, description = "A value or a gap a line", content(
            (SeriesLine<'_> = "application/x-ndjson"), (String = "text/csv")
        )),
        Refusal,
    )
)]
pub(super) async fn usage_series(From(site): From<Site>, request: Request) -> Result<Response, Problem> {
    const PLACE: &str = SERIES;
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

/// Nodes whose agents have reported.
#[utoipa::path(
    get, path = NODES, operation_id = "listNodes",
    responses((status = OK, description = "The nodes", body = Vec<NodeAnswer>), Refusal)
)]
pub(super) async fn nodes(
    From(site): From<Site>,
    request: Request,
) -> Result<Json<Vec<NodeAnswer>>, Problem> {
    let NoParameters {} = parameters(&request)?;
    let found = site
        .ask_context(NODES, |c| {
            let (health, allocated) = (c.engine.health(), c.allocated.within(c, AT_MOST_USEC));
            let connected = |node: &_| health.is_node_connected(node);
            convert::nodes(&c.engine.state().study(), &allocated, connected)
        })
        .await?;
    Ok(Json(found.into_iter().map(Into::into).collect()))
}

/// What containers have of each namespace and of each cluster, against quota and allocatable.
#[utoipa::path(
    get, path = NAMESPACES, operation_id = "listNamespaces",
    responses((status = OK, description = "Namespaces, and the clusters they are in", body = NamespacesAnswer), Refusal)
)]
pub(super) async fn namespaces(
    From(site): From<Site>,
    request: Request,
) -> Result<Json<NamespacesAnswer>, Problem> {
    let NoParameters {} = parameters(&request)?;
    let ask = |c: &Context| convert::namespaces(&c.allocated.within(c, AT_MOST_USEC));
    Ok(Json(site.ask_context(NAMESPACES, ask).await?.into()))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct EventsQuery {
    /// Only this node.
    node: String,
    /// The newest so many; 1000 where it is not given.
    limit: usize,
}

impl Default for EventsQuery {
    fn default() -> Self {
        Self { node: String::new(), limit: 1000 }
    }
}

/// Decisions of the agents, oldest first.
#[utoipa::path(
    get, path = EVENTS, operation_id = "listEvents", params(EventsQuery),
    responses((status = OK, description = "The decisions", body = Vec<EventAnswer>), Refusal)
)]
pub(super) async fn events(
    From(site): From<Site>,
    request: Request,
) -> Result<Json<Vec<EventAnswer>>, Problem> {
    let EventsQuery { node, limit } = parameters(&request)?;
    let found = site.ask(EVENTS, move |_, state| convert::events(state, &node, limit)).await?;
    Ok(Json(found.into_iter().map(Into::into).collect()))
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct UpdatesQuery {
    /// Only this namespace.
    namespace: String,
    /// Only the pod of this name.
    pod: String,
    /// The last choices with all that they rest on, in the place of steps and what is left alone.
    cases: bool,
}

/// What the updater did to pods that run, oldest first, and which it leaves alone and why.
#[utoipa::path(
    get, path = UPDATES, operation_id = "listUpdates", params(UpdatesQuery),
    responses((status = OK, description = "The last 1,000 steps, and what the last pass left alone", body = UpdatesAnswer), Refusal)
)]
pub(super) async fn updates(
    From(site): From<Site>,
    request: Request,
) -> Result<Json<UpdatesAnswer>, Problem> {
    let UpdatesQuery { namespace, pod, cases } = parameters(&request)?;
    let asked = v1::ListUpdatesRequest { namespace, pod, cases };
    let told = site.ask_context(UPDATES, move |c| told::list(c, &asked)).await?;
    Ok(Json(told.into()))
}
