//! The pages that are read.

mod policies;

use std::sync::Arc;

use axum::extract::{Request, State as From};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use evenkeel_dashboard::facts::Switch;
use evenkeel_dashboard::frame::Tab;
use evenkeel_dashboard::page;
use evenkeel_dashboard::url;
use evenkeel_proto::v1;
use serde::Deserialize;

use super::gather::{self, Whose};
use super::{Dashboard, Sheet, Visit, problem, see, switch};
use crate::api::http::{Problem, allowed, parameters};
use crate::audit::service;
use crate::identity::Role;
pub(super) use policies::{policies, policy, shown};

type At = From<Arc<Dashboard>>;
type Answer = Result<Response, Problem>;

/// What addresses of pages carry. Each page takes what it knows of it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Query {
    pub(super) namespace: String,
    pub(super) q: String,
    pub(super) only: String,
    pub(super) sort: String,
    pub(super) page: usize,
    pub(super) form: String,
    cluster: String,
    workload: String,
    container: String,
    range: String,
    name: String,
    kind: String,
    node: String,
    who: String,
    outcome: String,
    after: String,
}

const fn sheet(title: &str, tab: Tab, refresh: Option<u32>) -> Sheet<'_> {
    Sheet { title, tab, namespace: "", refresh }
}

/// Whether the viewer may see a namespace, or a form that asks for one.
async fn within(
    dashboard: &Dashboard,
    visit: &Visit,
    page: &str,
    namespace: &str,
) -> Result<(), Box<Answer>> {
    let asked = allowed(&visit.identity, Role::View, namespace, page).await;
    asked.map_err(|refused| {
        Box::new(match namespace.is_empty() && refused.status == StatusCode::FORBIDDEN {
            true => {
                let body = page::problem::namespace(page, &refused.why);
                Ok(dashboard.page(
                    visit,
                    sheet("Which namespace?", Tab::None, None),
                    &Switch::default(),
                    &body,
                ))
            }
            false => Err(refused),
        })
    })
}

pub(super) async fn overview(From(dashboard): At, request: Request) -> Answer {
    let visit = dashboard.visit(&request).await;
    if !visit.viewer.everywhere {
        return Ok(see(&url::to("workloads", &[])));
    }
    let at = Arc::clone(&dashboard);
    let (facts, switch) = dashboard.site.ask_context("/ui/", move |c| (at.overview(c), switch(c))).await?;
    let body = page::overview::body(&facts, dashboard.site.now_usec() / 1000);
    Ok(dashboard.page(&visit, sheet("Overview", Tab::Overview, Some(15)), &switch, &body))
}

pub(super) async fn workloads(From(dashboard): At, request: Request) -> Answer {
    let query: Query = parameters(&request)?;
    let visit = dashboard.visit(&request).await;
    if let Err(other) = within(&dashboard, &visit, "workloads", &query.namespace).await {
        return *other;
    }
    let filter = filter(&query);
    let at = Arc::clone(&dashboard);
    let made = dashboard.site.ask_context("/ui/workloads", move |context| {
        let all = at.workloads();
        let mut names: Vec<String> = all.iter().map(|w| w.namespace.clone()).collect();
        names.dedup();
        names.sort_unstable();
        names.dedup();
        let known = if filter.namespace.is_empty() { names } else { vec![filter.namespace.clone()] };
        let seen: Vec<_> =
            all.iter().filter(|w| filter.namespace.is_empty() || w.namespace == filter.namespace).collect();
        let seen: Vec<_> = seen.into_iter().cloned().collect();
        (page::workloads::body(&seen, &known, &filter, at.prices.as_ref()), switch(context))
    });
    let (body, switch) = made.await?;
    let sheet = Sheet { namespace: &query.namespace, ..sheet("Workloads", Tab::Workloads, Some(15)) };
    Ok(dashboard.page(&visit, sheet, &switch, &body))
}

pub(super) fn filter(query: &Query) -> page::workloads::WorkloadFilter {
    let of = |text: &String| text.chars().take(256).collect::<String>();
    page::workloads::WorkloadFilter {
        namespace: query.namespace.clone(),
        text: of(&query.q),
        only: of(&query.only),
        sort: of(&query.sort),
        page: query.page,
    }
}

pub(super) async fn workload(From(dashboard): At, request: Request) -> Answer {
    let query: Query = parameters(&request)?;
    let visit = dashboard.visit(&request).await;
    allowed(&visit.identity, Role::View, &query.namespace, "/ui/workload").await?;
    let Query { cluster, namespace, workload, container, range, .. } = query;
    let range = if range.is_empty() { "1d".to_owned() } else { range };
    // Seconds are worth looking at as they come.
    let refresh = if range == "1m" { 4 } else { 30 };
    let whose = Whose { cluster, namespace, workload, container, range };
    let title = format!("{}/{}", whose.namespace, whose.workload);
    let place = whose.namespace.clone();
    let made = dashboard.site.ask_context("/ui/workload", move |c| (gather::workload(c, &whose), switch(c)));
    let (facts, switch) = made.await?;
    let facts = facts.ok_or_else(|| {
        problem(
            StatusCode::NOT_FOUND,
            "this workload is not known",
            "nothing of this name was measured, or its history has expired",
            "look for it among the workloads",
        )
    })?;
    let body = page::workload::body(&facts, dashboard.site.now_usec() / 1000);
    let sheet = Sheet { namespace: &place, ..sheet(&title, Tab::Workloads, Some(refresh)) };
    Ok(dashboard.page(&visit, sheet, &switch, &body))
}

pub(super) async fn nodes(From(dashboard): At, request: Request) -> Answer {
    let query: Query = parameters(&request)?;
    let visit = dashboard.visit(&request).await;
    let made = dashboard.site.ask_context("/ui/nodes", move |context| {
        let nodes = gather::nodes(context, &gather::decisions(context, ""));
        (nodes, switch(context))
    });
    let (all, switch) = made.await?;
    let filter = page::nodes::NodeFilter { text: query.q, sort: query.sort, page: query.page };
    let body = page::nodes::body(&all, &filter, dashboard.site.now_usec() / 1000);
    Ok(dashboard.page(&visit, sheet("Nodes", Tab::Nodes, Some(10)), &switch, &body))
}

pub(super) async fn node(From(dashboard): At, request: Request) -> Answer {
    let query: Query = parameters(&request)?;
    let visit = dashboard.visit(&request).await;
    let (title, number) = (query.name.clone(), query.page);
    let made = dashboard.site.ask_context("/ui/node", move |context| {
        let decisions = gather::decisions(context, &query.name);
        let is_it = |node: &evenkeel_dashboard::facts::Node| {
            node.share.name == query.name && (query.cluster.is_empty() || node.share.cluster == query.cluster)
        };
        let node = gather::nodes(context, &decisions).into_iter().find(is_it)?;
        let containers = gather::containers(context, &node.share.cluster, &query.name);
        let facts = page::nodes::NodePage { node, containers, decisions, page: number, ..Default::default() };
        Some((facts, switch(context)))
    });
    let (facts, switch) = made.await?.ok_or_else(|| {
        problem(
            StatusCode::NOT_FOUND,
            "this node is not known",
            "no agent of this name was heard",
            "look for it among the nodes",
        )
    })?;
    let body = page::nodes::one(&facts, dashboard.site.now_usec() / 1000);
    Ok(dashboard.page(&visit, sheet(&title, Tab::Nodes, Some(5)), &switch, &body))
}

/// The cluster in one file, to be kept or mailed.
pub(super) async fn report(From(dashboard): At) -> Answer {
    let at = Arc::clone(&dashboard);
    let facts = dashboard.site.ask_context("/ui/report", move |context| at.report(context)).await?;
    let text = page::report::document(&facts, dashboard.site.now_usec() / 1000);
    let head = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"evenkeel-report.html\""),
    ];
    Ok((head, text).into_response())
}

pub(super) async fn decisions(From(dashboard): At, request: Request) -> Answer {
    let query: Query = parameters(&request)?;
    let visit = dashboard.visit(&request).await;
    let filter = page::decisions::DecisionFilter {
        kind: query.kind,
        node: query.node,
        text: query.q,
        page: query.page,
        ..Default::default()
    };
    let made = dashboard.site.ask_context("/ui/decisions", move |context| {
        let kept = gather::decisions(context, "");
        (page::decisions::body(&kept, &filter, context.engine.now_usec() / 1000), switch(context))
    });
    let (body, switch) = made.await?;
    Ok(dashboard.page(&visit, sheet("Decisions", Tab::Decisions, Some(5)), &switch, &body))
}

pub(super) async fn changes(From(dashboard): At, request: Request) -> Answer {
    let query: Query = parameters(&request)?;
    let visit = dashboard.visit(&request).await;
    if let Err(other) = within(&dashboard, &visit, "changes", &query.namespace).await {
        return *other;
    }
    let Query { namespace, who, outcome, after, .. } = query;
    let shown = page::changes::ChangeFilter {
        namespace: namespace.clone(),
        who: who.clone(),
        outcome: outcome.clone(),
    };
    let asked = v1::ListChangesRequest {
        namespace,
        who,
        outcome,
        limit: 100,
        page_token: after,
        ..Default::default()
    };
    let filter = service::filter(asked).map_err(crate::api::audit::problem)?;
    let read = dashboard.site.ask_context("/ui/changes", move |c| (service::list(c, &filter), switch(c)));
    let (found, switch) = read.await?;
    let found = found.map_err(crate::api::audit::problem)?;
    let next = found.next.map(|number| number.to_string()).unwrap_or_default();
    let body = page::changes::body(&gather::changes(found.entries), &shown, &next);
    let sheet = Sheet { namespace: &shown.namespace, ..sheet("Changes", Tab::Changes, None) };
    Ok(dashboard.page(&visit, sheet, &switch, &body))
}

pub(super) async fn capacity(From(dashboard): At, request: Request) -> Answer {
    let visit = dashboard.visit(&request).await;
    let switch = dashboard.site.ask_context("/ui/capacity", switch).await?;
    let question =
        page::capacity::CapacityForm { pod: page::capacity::EXAMPLE.to_owned(), ..Default::default() };
    let body = page::capacity::body(&question, None, &visit.viewer.csrf);
    Ok(dashboard.page(&visit, sheet("Capacity", Tab::Capacity, None), &switch, &body))
}

fn or_default(namespace: &str) -> &str {
    let is_name = namespace.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if namespace.is_empty() || !is_name { "default" } else { namespace }
}
