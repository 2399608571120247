//! The one form of errors, and what every route may refuse.

use std::collections::BTreeMap;

use axum::extract::{Extension, Query, Request};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use evenkeel_model::shown;
use serde::Serialize;
use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::{Ref, RefOr, ResponseBuilder};
use utoipa::{IntoResponses, ToSchema};

use crate::audit::Why;
use crate::identity::{Identity, Role, forbidden};
use crate::turns::NoTurn;

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
pub(crate) struct Json<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        let text = serde_json::to_string(&self.0).expect("an answer has only text keys and finite numbers");
        ([(header::CONTENT_TYPE, "application/json")], shown::json(text)).into_response()
    }
}

/// What every path may answer.
pub(crate) struct Refusal;

impl IntoResponses for Refusal {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        BTreeMap::from([("default".to_owned(), described("What went wrong", "Error"))])
    }
}

/// An answer for the document, of a schema that is there by this name.
pub(super) fn described(what: &str, schema: &str) -> RefOr<utoipa::openapi::Response> {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(schema))).build();
    ResponseBuilder::new().description(what).content("application/json", content).build().into()
}

/// What went wrong.
#[derive(Serialize, ToSchema)]
#[schema(as = Error)]
pub(super) struct ErrorAnswer {
    error: Explained,
}

/// For whoever has to do something about it.
#[derive(Serialize, ToSchema)]
struct Explained {
    what: String,
    /// A path, a field or an option.
    #[serde(rename = "where")]
    place: String,
    why: String,
    remedy: &'static str,
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let why = Extension(Why(self.why.clone()));
        let error = Explained { what: self.what, place: self.place, why: self.why, remedy: self.remedy };
        (self.status, why, Json(ErrorAnswer { error })).into_response()
    }
}

pub(super) fn no_turn(place: &str, why: NoTurn) -> Problem {
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

pub(super) fn fault(place: &str) -> Problem {
    Problem {
        status: StatusCode::INTERNAL_SERVER_ERROR,
        what: "the question could not be answered".to_owned(),
        place: place.to_owned(),
        why: "a fault in the program".to_owned(),
        remedy: "report it with the log of this moment",
    }
}

pub(super) async fn unknown(request: Request) -> Problem {
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
