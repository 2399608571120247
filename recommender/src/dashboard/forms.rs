//! What forms ask: a question about capacity, a change of a policy, the panic switch. Each goes the way of the API's own request, with
//! its checks and its entry in the audit record; what is new here is the word that every form carries.

use std::sync::Arc;

use axum::extract::{Request, State as From};
use axum::http::StatusCode;
use axum::response::Response;
use evenkeel_dashboard::frame::Tab;
use evenkeel_dashboard::{page, url};
use evenkeel_proto::v1;
use evenkeel_proto::v1::recommender_service_server::RecommenderService as _;
use tokio::sync::watch;
use tonic::Code;

use super::form::FormFields;
use super::session::Sessions;
use super::{Dashboard, Sheet, Visit, gather, pages, problem, see, switch};
use crate::api::capacity as api;
use crate::api::grpc::Api;
use crate::api::http::{Problem, allowed, applied, refused};
use crate::audit::{Object, Ticket};
use crate::capacity::{self, EstimateError};
use crate::identity::{Identity, Role};

type At = From<Arc<Dashboard>>;
type Answer = Result<Response, Problem>;

/// Longest list of nodes in a form.
const LONGEST: usize = 10_000;

/// The form of a request, once it carries the word of its page.
async fn form(dashboard: &Dashboard, request: Request) -> Result<(Visit, FormFields), Problem> {
    let visit = dashboard.visit(&request);
    let visit = visit.await;
    let form = FormFields::of(request).await?;
    Sessions::checked(&form.text("csrf"), &visit.viewer.csrf)?;
    Ok((visit, form))
}

pub(super) async fn capacity(From(dashboard): At, request: Request) -> Answer {
    let (visit, form) = form(&dashboard, request).await?;
    let question = page::capacity::CapacityForm {
        pod: form.text("pod"),
        cluster: form.text("cluster").trim().to_owned(),
        max: form.text("max").trim().parse().unwrap_or(0),
        recommended: form.text("recommended") == "yes",
        without: form.text("without").chars().take(LONGEST).collect(),
        preempt: form.text("preempt") == "yes",
        lose: form.text("lose") == "yes",
    };
    let mut options: serde_json::Map<String, serde_json::Value> =
        question.options().into_iter().map(|(key, values)| (key.to_owned(), values.into())).collect();
    if question.preempt {
        options.insert("preempt".to_owned(), true.into());
    }
    let asked = v1::EstimateRequest {
        pods: vec![question.pod.clone()],
        max: question.max,
        recommended: question.recommended,
        cluster: question.cluster.clone(),
        options_json: if options.is_empty() {
            String::new()
        } else {
            serde_json::Value::from(options).to_string()
        },
        ..Default::default()
    };
    let context = dashboard.site.context("/ui/capacity")?;
    let answer = api::ask(&context, std::future::pending(), move |context, wanted| {
        let types = capacity::types(context);
        let asked = api::asked(asked, types.as_ref(), wanted).map_err(EstimateError::Unreadable)?;
        let whole = capacity::estimate(context, asked, wanted)?;
        Ok(super::answer::answer(&serde_json::to_value(&whole).unwrap_or_default()))
    });
    let answer = answer.await.map_err(|refused| {
        let Problem { why, remedy, .. } = refused.problem();
        [why, remedy.to_owned()]
    });
    let status = if answer.is_ok() { StatusCode::OK } else { StatusCode::BAD_REQUEST };
    let body = page::capacity::body(&question, Some(&answer), &visit.viewer.csrf);
    let switch = dashboard.site.ask_context("/ui/capacity", switch).await?;
    let sheet = Sheet { title: "Capacity", tab: Tab::Capacity, namespace: "", refresh: None };
    let mut response = dashboard.page(&visit, sheet, &switch, &body);
    *response.status_mut() = status;
    Ok(response)
}

pub(super) async fn policies(From(dashboard): At, request: Request) -> Answer {
    let ticket = Ticket::of(request.extensions());
    let (visit, form) = form(&dashboard, request).await?;
    match form.text("do").as_str() {
        "delete" => delete(&dashboard, &visit, &form, ticket).await,
        "apply" => apply(&dashboard, &visit, &form, ticket, false).await,
        // Asking changes nothing, whatever else a form says.
        _ => apply(&dashboard, &visit, &form, ticket, true).await,
    }
}

async fn apply(dashboard: &Dashboard, visit: &Visit, form: &FormFields, ticket: Ticket, dry: bool) -> Answer {
    let text = form.text("text");
    let made = applied(&dashboard.site, &visit.identity, ticket, None, text.as_str().into(), dry).await;
    let mut editor = page::policies::Editor { text, existing: existing(form), ..Default::default() };
    let status = match made {
        Ok(applied) => {
            let word = |key: &str| applied.object["metadata"][key].as_str().unwrap_or_default().to_owned();
            let kind = applied.object["kind"].as_str().unwrap_or_default().to_owned();
            if !dry {
                editor.existing = Some([kind, word("namespace"), word("name")]);
            }
            editor.outcome = Some((applied.outcome.as_str().to_owned(), dry));
            editor.preview = gather::workloads(applied.preview.iter());
            editor.conditions = gather::conditions(&applied.object);
            StatusCode::OK
        }
        Err(refused) if refused.status == StatusCode::FORBIDDEN => return Err(refused),
        Err(Problem { status, why, remedy, .. }) => {
            editor.trouble = Some([why, remedy.to_owned()]);
            status
        }
    };
    let mut response = pages::shown(dashboard, visit, &editor).await?;
    *response.status_mut() = status;
    Ok(response)
}

fn existing(form: &FormFields) -> Option<[String; 3]> {
    let all = ["kind", "namespace", "name"].map(|field| form.text(field));
    (!all[2].is_empty()).then_some(all)
}

async fn delete(dashboard: &Dashboard, visit: &Visit, form: &FormFields, ticket: Ticket) -> Answer {
    let wrong = |why: String| {
        problem(StatusCode::NOT_FOUND, "nothing was deleted", why, "see the list of those there are")
    };
    let [kind, namespace, name] =
        existing(form).ok_or_else(|| wrong("the form names no policy".to_owned()))?;
    if !crate::api::policies::is_kind(&kind) {
        return Err(wrong(format!("kind {kind:?} is not known")));
    }
    ticket.about(Object::new(&kind, &namespace, &name));
    allowed(&visit.identity, Role::Apply, &namespace, "/ui/policies").await?;
    let missing = wrong(format!("there is no {kind} {namespace}/{name}"));
    let deleted = dashboard.site.ask_context("/ui/policies", move |context| {
        crate::api::policies::delete(context, &kind, &namespace, &name, &ticket)
    });
    match deleted.await?.map_err(|error| refused(&error))? {
        true => Ok(see(&url::to("policies", &[]))),
        false => Err(missing),
    }
}

pub(super) async fn panic(From(dashboard): At, request: Request) -> Answer {
    let (identity, ticket) = (Identity::of(request.extensions()), Ticket::of(request.extensions()));
    let (_, form) = form(&dashboard, request).await?;
    let (on, revert) = match form.text("set").as_str() {
        "on" => (true, false),
        "revert" => (true, true),
        "off" => (false, false),
        other => {
            let why = format!("the form asks to set it {other:?}");
            return Err(problem(
                StatusCode::BAD_REQUEST,
                "the switch was not set",
                why,
                "send the form from its page",
            ));
        }
    };
    let mut asked = tonic::Request::new(v1::SetPanicRequest {
        on,
        reason: form.text("reason").trim().to_owned(),
        revert,
    });
    asked.extensions_mut().insert(identity);
    asked.extensions_mut().insert(ticket);
    // What waits for the end of the process there are watches, which this is none of.
    let (_kept, stopping) = watch::channel(false);
    let api = Api { late: dashboard.site.late(), stopping };
    match api.set_panic(asked).await {
        Ok(_) => Ok(see(&url::to("policies", &[]))),
        Err(status) => {
            let code = match status.code() {
                Code::InvalidArgument => StatusCode::BAD_REQUEST,
                Code::FailedPrecondition => StatusCode::CONFLICT,
                _ => StatusCode::SERVICE_UNAVAILABLE,
            };
            Err(problem(
                code,
                "the switch was not set",
                status.message(),
                "see what holds it, then try again",
            ))
        }
    }
}
