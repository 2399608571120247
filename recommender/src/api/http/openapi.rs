//! The document of the interface: made of what answers, the forms of answers, and the definition of the objects.

use std::sync::LazyLock;

use axum::http::header;
use axum::response::IntoResponse;
use evenkeel_model::yaml::{self, YamlBounds};
use serde_json::{Value, json};
use utoipa::OpenApi;

use super::super::answers::AppliedAnswer;
use super::super::{audit, capacity};
use super::problem::ErrorAnswer;
use super::{health, policies, questions};

/// What is answered; the door's table (`identity/table.rs`) is held to the same list.
#[derive(OpenApi)]
#[openapi(
    paths(
        questions::pod_resources,
        questions::post_pod_resources,
        questions::recommendations,
        policies::list,
        policies::apply,
        policies::get,
        policies::put,
        policies::delete,
        questions::query_usage,
        questions::usage_series,
        questions::nodes,
        questions::namespaces,
        questions::events,
        questions::updates,
        audit::changes,
        capacity::estimate,
        capacity::watched,
        capacity::snapshot,
        health::exposition,
        health::healthz,
        health::readyz,
        document,
    ),
    components(schemas(ErrorAnswer, AppliedAnswer)),
    info(
        title = "Evenkeel recommender",
        version = "1",
        description = "What containers use and should request, and the policies about it. Callers are users of this machine at the \
                   Unix socket, and holders of tokens (Authorization: Bearer) at addresses; docs/security.md says who may \
                   what. Every path answers 401 or 403 to others.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    )
)]
struct Document;

/// The definition of the objects as it is installed in clusters; a test holds it to what the reader of policies takes.
const DEFINITION: &str = include_str!("../../../../packaging/kubernetes/crd.yaml");

/// This document.
#[utoipa::path(
    get, path = "/openapi.json", operation_id = "openapi",
    responses((status = OK, description = "The document", body = Object))
)]
pub(super) async fn document() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], text())
}

/// The document, OpenAPI 3.1 in JSON. It is made once, when it is asked for first.
pub fn text() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| made().to_string());
    &TEXT
}

fn made() -> Value {
    let mut whole = serde_json::to_value(Document::openapi()).expect("a document has only text keys");
    let mut definitions: Vec<Value> = yaml::documents(DEFINITION, YamlBounds { documents: 1, nodes: 10_000 })
        .expect("the definition is YAML");
    let mut policy = definitions.remove(0)["spec"]["versions"][0]["schema"]["openAPIV3Schema"].take();
    policy["properties"]["apiVersion"] = json!({ "const": "evenkeel.dev/v1" });
    policy["properties"]["kind"] = json!({ "enum": ["Policy", "VerticalPodAutoscaler"] });
    policy["properties"]["status"] = json!({
        "type": "object", "description": "recommendation, conditions, conflicts and source; ignored when given",
    });
    whole["components"]["schemas"]["Policy"] = policy;
    whole
}
