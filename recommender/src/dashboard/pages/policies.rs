//! Pages of policies: the list, and one in an editor.

use axum::extract::{Request, State as From};
use axum::http::StatusCode;
use evenkeel_dashboard::frame::Tab;
use evenkeel_dashboard::page;

use super::super::gather;
use super::super::{Dashboard, Sheet, Visit, problem, switch};
use super::{Answer, At, Query, or_default, sheet, within};
use crate::api::http::{allowed, parameters};
use crate::api::policies as api;
use crate::identity::Role;

pub(crate) async fn policies(From(dashboard): At, request: Request) -> Answer {
    let query: Query = parameters(&request)?;
    let visit = dashboard.visit(&request).await;
    if let Err(other) = within(&dashboard, &visit, "policies", &query.namespace).await {
        return *other;
    }
    let namespace = query.namespace.clone();
    let made = dashboard.site.ask_context("/ui/policies", move |context| {
        let all = [api::list(context, &namespace), api::list_bounds(context, &namespace)].concat();
        (gather::policies(&all), switch(context))
    });
    let (all, switch) = made.await?;
    let now_ms = dashboard.site.now_usec() / 1000;
    let body = page::policies::body(&all, &query.namespace, &visit.viewer, &switch, now_ms);
    let sheet = Sheet { namespace: &query.namespace, ..sheet("Policies", Tab::Policies, Some(15)) };
    Ok(dashboard.page(&visit, sheet, &switch, &body))
}

pub(crate) async fn policy(From(dashboard): At, request: Request) -> Answer {
    let Query { namespace, name, kind, .. } = parameters(&request)?;
    let visit = dashboard.visit(&request).await;
    if name.is_empty() {
        let text = page::policies::EXAMPLE
            .replace("namespace: default", &format!("namespace: {}", or_default(&namespace)));
        let editor = page::policies::Editor { text, ..Default::default() };
        return shown(&dashboard, &visit, &editor).await;
    }
    allowed(&visit.identity, Role::View, &namespace, "/ui/policies/edit").await?;
    let missing = problem(
        StatusCode::NOT_FOUND,
        "this policy is not there",
        format!("there is no {kind} {namespace}/{name}"),
        "see the list of those there are",
    );
    if !api::is_kind(&kind) {
        return Err(missing);
    }
    let (of, space, called) = (kind.clone(), namespace.clone(), name.clone());
    let found =
        dashboard.site.ask_context("/ui/policies/edit", move |c| api::find(c, &of, &space, &called)).await?;
    let object = found.ok_or(missing)?;
    let kind = if kind.is_empty() { "Policy".to_owned() } else { kind };
    let editor = page::policies::Editor {
        conditions: gather::conditions(&object),
        text: editable(object),
        existing: Some([kind, namespace, name]),
        ..Default::default()
    };
    shown(&dashboard, &visit, &editor).await
}

/// An object as it can be applied again: without what the recommender said of it.
pub(super) fn editable(mut object: serde_json::Value) -> String {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
        if let Some(metadata) = fields.get_mut("metadata").and_then(serde_json::Value::as_object_mut) {
            metadata.remove("creationTimestamp");
        }
    }
    serde_json::to_string_pretty(&object).unwrap_or_default()
}

/// The editor.
pub(crate) async fn shown(dashboard: &Dashboard, visit: &Visit, editor: &page::policies::Editor) -> Answer {
    let switch = dashboard.site.ask_context("/ui/policies/edit", switch).await?;
    let body = page::policies::editor(editor, &visit.viewer);
    let title = editor
        .existing
        .as_ref()
        .map_or_else(|| "New policy".to_owned(), |[_, namespace, name]| format!("{namespace}/{name}"));
    Ok(dashboard.page(visit, sheet(&title, Tab::Policies, None), &switch, &body))
}
