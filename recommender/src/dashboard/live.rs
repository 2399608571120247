//! The one stream that open pages follow. What is told is made once for all of them, and only while somebody listens; each listener
//! has the newest only, so that a browser that does not read holds up nobody and takes no memory.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State as From};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use evenkeel_dashboard::page::overview;
use serde_json::{Map, Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::{Dashboard, problem};
use crate::api::http::Problem;
use crate::identity::Identity;

/// How often something is told.
const EVERY: Duration = Duration::from_secs(2);
/// Streams at once, and at most this part of the connections there may be: everybody else has the rest.
const MOST: usize = 500;
const PART: usize = 2;

/// What is told to open pages.
#[derive(Debug)]
pub(super) struct Live {
    news: watch::Sender<Arc<str>>,
    /// Whether the task runs that makes them.
    is_made: Mutex<bool>,
    places: Arc<Semaphore>,
    /// Streams at once.
    most: usize,
}

impl Live {
    /// Where so many connections are open at most.
    pub(super) fn of(connections: usize) -> Self {
        let most = MOST.min(connections / PART);
        Self {
            news: watch::Sender::new("".into()),
            is_made: Mutex::new(false),
            places: Arc::new(Semaphore::new(most)),
            most,
        }
    }
}

/// One who listens.
struct Listener {
    news: watch::Receiver<Arc<str>>,
    dashboard: Arc<Dashboard>,
    identity: Identity,
    _place: OwnedSemaphorePermit,
}

impl Listener {
    /// The next thing to tell; nothing when the caller may not stay, or the process ends.
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        let changed = tokio::time::timeout(EVERY, self.news.changed()).await;
        let stays =
            self.dashboard.access.stands(&self.identity).is_ok() && self.dashboard.site.readiness().answers();
        if !stays || matches!(changed, Ok(Err(_))) {
            return None;
        }
        let text = match changed {
            Ok(_) => format!("event: news\ndata: {}\n\n", *self.news.borrow_and_update()),
            // A comment, which keeps the connection and finds out that nobody is there.
            Err(_) => ":\n\n".to_owned(),
        };
        Some((Ok(text.into()), self))
    }
}

/// The stream.
pub(super) async fn stream(
    From(dashboard): From<Arc<Dashboard>>,
    request: Request,
) -> Result<Response, Problem> {
    let identity = Identity::of(request.extensions());
    let place = Arc::clone(&dashboard.live.places).try_acquire_owned().map_err(|_| {
        let why = format!("{} pages are followed already", dashboard.live.most);
        problem(
            StatusCode::SERVICE_UNAVAILABLE,
            "this page does not follow what happens",
            why,
            "load it again to see what is new",
        )
    })?;
    let news = dashboard.live.news.subscribe();
    make(&dashboard);
    let listener = Listener { news, dashboard, identity, _place: place };
    let told = futures::stream::unfold(listener, Listener::next);
    let kind = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((kind, Body::from_stream(told)).into_response())
}

/// Begins to make what is told, unless that goes on already.
fn make(dashboard: &Arc<Dashboard>) {
    let mut is_made = dashboard.live.is_made.lock().unwrap_or_else(PoisonError::into_inner);
    if std::mem::replace(&mut *is_made, true) {
        return;
    }
    let dashboard = Arc::clone(dashboard);
    tokio::spawn(async move {
        while has_listeners(&dashboard.live) {
            let at = Arc::clone(&dashboard);
            // Without an answer, nothing is told: there is a next time.
            if let Ok(news) =
                dashboard.site.ask_context("/ui/live", move |context| news(&at.overview(context))).await
            {
                dashboard.live.news.send_replace(news.into());
            }
            tokio::time::sleep(EVERY).await;
        }
    });
}

/// Whether somebody listens; when nobody does, it is noted that nothing is made any more.
fn has_listeners(live: &Live) -> bool {
    let mut is_made = live.is_made.lock().unwrap_or_else(PoisonError::into_inner);
    *is_made = live.news.receiver_count() > 0;
    *is_made
}

fn news(overview: &overview::Overview) -> String {
    let values: Map<String, Value> =
        overview::live(overview).into_iter().map(|(key, text)| (key, Value::String(text))).collect();
    json!({ "values": values }).to_string()
}
