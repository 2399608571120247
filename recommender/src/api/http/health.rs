//! How the recommender does: metrics, and whether it is ready.

use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::{Request, State as From};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use evenkeel_metrics::CONTENT_TYPE;
use evenkeel_model::shown;

use super::super::metrics;
use super::super::ready::Check;
use super::Site;
use crate::identity::Identity;

/// Metrics in the text form of OpenMetrics 1.0.
#[utoipa::path(
    get, path = "/metrics", operation_id = "metrics",
    responses((status = OK, description = "The metrics", body = String, content_type = "application/openmetrics-text"))
)]
pub(super) async fn exposition(From(site): From<Site>) -> Response {
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
            metrics::exposition(context, &capacity, rows.as_ref())
        }
        None => metrics::starting(),
    };
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response()
}

/// What is wrong with files of policies, limit ranges and quotas, on one line.
fn of_files(troubles: &[(PathBuf, String)]) -> Option<String> {
    let one = |(path, why): &(PathBuf, String)| shown::plain(&format!("{}: {why}", path.display()));
    (!troubles.is_empty()).then(|| troubles.iter().map(one).collect::<Vec<_>>().join("; "))
}

/// Whether the process runs.
#[utoipa::path(
    get, path = "/healthz", operation_id = "healthz",
    responses((status = OK, description = "It does", body = String, content_type = "text/plain"))
)]
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether questions are answered from everything acknowledged, and what arrives can be kept.
#[utoipa::path(
    get, path = "/readyz", operation_id = "readyz",
    params(("verbose" = Option<String>, Query, description = "List every check")),
    responses(
        (status = OK, description = "Ready", body = String, content_type = "text/plain"),
        (status = SERVICE_UNAVAILABLE, description = "Not ready, with the reason", body = String, content_type = "text/plain"),
    )
)]
pub(super) async fn readyz(From(site): From<Site>, request: Request) -> Response {
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
