//! All workloads that a search found, as CSV, JSON or patches for kubectl.

use std::sync::Arc;

use axum::extract::{Request, State as From};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use evenkeel_dashboard::facts::{ResourceAdvice, Workload};
use evenkeel_model::shown;
use evenkeel_rightsizing::patch::{self, ResourceChange};
use serde_json::{Value, json};

use super::pages::{Query, filter};
use super::{Dashboard, problem};
use crate::api::http::{Problem, allowed, parameters};
use crate::identity::{Identity, Role};

const PLACE: &str = "/ui/workloads/export";
const HEAD: &str = "cluster,namespace,workload,container,replicas,class,class_then,policy,mode,resource,current,request,lower,upper,limit,risk_now,risk_then,rule,tier,young\n";

/// What can be written.
#[derive(Clone, Copy)]
enum ExportFormat {
    Csv,
    Json,
    Patch,
}

impl ExportFormat {
    fn of(name: &str) -> Option<Self> {
        match name {
            "csv" => Some(Self::Csv),
            "json" => Some(Self::Json),
            "patch" => Some(Self::Patch),
            _ => None,
        }
    }

    fn write(self, all: &[&Workload]) -> String {
        match self {
            Self::Csv => csv(all),
            Self::Json => shown::json(all.iter().map(|w| object(w)).collect::<Value>().to_string()),
            Self::Patch => patches(all),
        }
    }

    const fn head(self) -> [(header::HeaderName, &'static str); 2] {
        let (kind, name) = match self {
            Self::Csv => ("text/csv; charset=utf-8", "attachment; filename=\"recommendations.csv\""),
            Self::Json => ("application/json", "attachment; filename=\"recommendations.json\""),
            Self::Patch => {
                ("text/x-shellscript; charset=utf-8", "attachment; filename=\"recommendations.sh\"")
            }
        };
        [(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, name)]
    }
}

pub(super) async fn workloads(
    From(dashboard): From<Arc<Dashboard>>,
    request: Request,
) -> Result<Response, Problem> {
    let query: Query = parameters(&request)?;
    let identity = Identity::of(request.extensions());
    allowed(&identity, Role::View, &query.namespace, PLACE).await?;
    let form = ExportFormat::of(&query.form).ok_or_else(|| {
        let why = format!("form {:?} is not known", query.form);
        problem(StatusCode::BAD_REQUEST, "nothing was written", why, "ask for csv, json or patch")
    })?;
    let filter = filter(&query);
    let at = Arc::clone(&dashboard);
    let made = dashboard.site.ask_context(PLACE, move |_| {
        let all = at.workloads();
        let mut found: Vec<&Workload> = all.iter().filter(|w| filter.takes(w)).collect();
        filter.order(&mut found, at.prices.as_ref());
        form.write(&found)
    });
    Ok((form.head(), made.await?).into_response())
}

fn csv(all: &[&Workload]) -> String {
    let mut text = HEAD.to_owned();
    let number = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
    let share = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
    for w in all {
        let words =
            [&w.cluster, &w.namespace, &w.workload, &w.container].map(|word| shown::csv(word)).join(",");
        let [policy, mode] = [&w.policy, &w.mode].map(|word| shown::csv(word));
        for (resource, a) in ["cpu", "memory"].into_iter().zip(&w.advice) {
            text.push_str(&format!(
                "{words},{},{},{},{policy},{mode},{resource},{},{},{},{},{},{},{},{},{},{}\n",
                w.replicas,
                w.class[0],
                w.class[1],
                number(a.current),
                number(a.request),
                number(a.lower),
                number(a.upper),
                number(a.limit),
                share(a.risk_now),
                share(a.risk_then),
                shown::csv(&a.rule),
                shown::csv(&a.tier),
                a.young,
            ));
        }
    }
    text
}

/// Commands that carry out what was found. What rests on less than two days of history says so, and what changes a class.
fn patches(all: &[&Workload]) -> String {
    let changes: Vec<ResourceChange<'_>> = all.iter().flat_map(|w| changes(w)).collect();
    let commands = patch::commands(&changes);
    if commands.is_empty() { "# nothing is to change\n".to_owned() } else { commands }
}

/// What is recommended for both resources of a workload's container.
fn changes(w: &Workload) -> [ResourceChange<'_>; 2] {
    let of = |resource, a: &ResourceAdvice| ResourceChange {
        namespace: &w.namespace,
        workload: &w.workload,
        container: &w.container,
        init: w.init,
        resource,
        current: a.current,
        request: a.request,
        current_limit: a.current_limit,
        limit: a.limit,
        young: a.young,
        class: w.changes_class.then_some(w.class),
    };
    let [cpu, memory] = &w.advice;
    [of("cpu", cpu), of("memory", memory)]
}

fn object(w: &Workload) -> Value {
    json!({
        "cluster": w.cluster,
        "namespace": w.namespace,
        "workload": w.workload,
        "container": w.container,
        "image": w.image,
        "replicas": w.replicas,
        "qosClass": { "before": w.class[0], "after": w.class[1] },
        "changesClass": w.changes_class,
        "policy": w.policy,
        "mode": w.mode,
        "cpu": advice(&w.advice[0]),
        "memory": advice(&w.advice[1]),
    })
}

fn advice(a: &ResourceAdvice) -> Value {
    json!({
        "current": a.current,
        "request": a.request,
        "lower": a.lower,
        "upper": a.upper,
        "limit": a.limit,
        "currentLimit": a.current_limit,
        "risk": { "now": a.risk_now, "then": a.risk_then },
        "rule": a.rule,
        "tier": a.tier,
        "young": a.young,
        "notes": a.notes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_its_columns_and_no_name_is_a_formula() {
        let w = Workload { namespace: "=cmd()".into(), workload: "a,\"b\"".into(), ..Workload::default() };
        let text = csv(&[&w]);
        let columns = HEAD.split(',').count();
        assert_eq!(text.lines().count(), 3);
        assert!(!text.contains(",=cmd"), "{text}");
        let plain = csv(&[&Workload::default()]);
        assert!(plain.lines().all(|line| line.split(',').count() == columns), "{plain}");
        assert_eq!(object(&w)["workload"], "a,\"b\"");
        let mut saver =
            Workload { namespace: "shop".into(), workload: "deployment/web".into(), ..Workload::default() };
        saver.advice[0] =
            ResourceAdvice { current: Some(500), request: Some(250), ..ResourceAdvice::default() };
        let text = patches(&[&w, &saver]);
        assert!(text.contains("kubectl patch deployment web --namespace shop --type strategic"), "{text}");
        assert_eq!(patches(&[&w]), "# nothing is to change\n");
    }
}
