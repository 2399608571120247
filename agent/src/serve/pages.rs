//! Pages about this node, for a browser, where `serve.dashboard` names an address: those of the recommender's dashboard that need no
//! history, of what this agent knows.
//!
//! Owned here: the listener, who may look, and from what the agent knows to the facts of pages. Not owned: HTML (`evenkeel_dashboard`).
//! Nothing can be changed here: every route is a `GET`. Whoever looks sends `serve.token` as the password of HTTP's basic
//! authentication, which browsers ask for by themselves, or as a bearer, or shows a certificate, as at `serve.address`.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evenkeel_border::ask::DecisionFilter;
use evenkeel_dashboard::facts::{
    Decision, Extent, Knob, Node, NodeContainer, ResourceTotals, Share, Switch, Viewer,
};
use evenkeel_dashboard::frame::{self, Frame, Tab};
use evenkeel_dashboard::page::{self, decisions::PRESSURE};
use evenkeel_dashboard::{HEADERS, Markup, assets, url};
use evenkeel_enforce::allocatable;
use evenkeel_enforce::converge::State as Stands;
use evenkeel_enforce::converge::board::{ContainerView, KnobView};
use evenkeel_enforce::shared::lock;
use evenkeel_model::name::ResourceName;
use evenkeel_model::qos_class::QosClass;
use evenkeel_model::sample::Field;
use evenkeel_model::workload::{ContainerResources, Requested};
use evenkeel_net::{Gate, Limits, Peer, Speech};
use evenkeel_proto::v1;
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::{Code, Status};

use super::metrics::by_own_name;
use super::{Agent, Answers, Door, Listening};
use crate::shared::LiveContainer;

/// Connections: a few people, each of whose browsers opens six.
const CONNECTIONS: Limits = Limits { connections: 64, per_peer: 32 };
/// Pages that follow what happens; more have to be loaded again.
const STREAMS: usize = 16;
/// How often those are told that something is new.
const EVERY: Duration = Duration::from_secs(2);
/// A tick may be so late that its containers are still shown.
const LATE: Duration = Duration::from_secs(2);
/// Newest decisions that pages are made of; a thousand containers are set within some 7,000.
const DECISIONS: u64 = 4_000;

/// What the routes need.
#[derive(Clone)]
struct PagesServer {
    answers: Answers,
    door: Door,
    streams: Arc<Semaphore>,
}

/// What addresses of pages carry.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PageQuery {
    q: String,
    kind: String,
    page: u32,
}

/// Serves until the agent stops.
///
/// # Errors
/// When the address cannot be bound.
pub(crate) async fn serve(
    answers: Answers,
    Listening { address, door, tls }: Listening,
) -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::bind(address).await.with_context(|| {
        format!("cannot serve pages on {address}; change serve.dashboard or free the port")
    })?;
    let gate = Gate::new("serve.dashboard", CONNECTIONS);
    let connections = evenkeel_net::at_address(listener, gate, Speech::Http, tls);
    let app = routes(answers, door, address.ip().is_loopback());
    evenkeel_net::http::serve(connections, app, std::future::pending())
        .await
        .context("the listener of pages ended")
}

fn routes(answers: Answers, door: Door, is_near: bool) -> Router {
    let served = PagesServer { answers, door, streams: Arc::new(Semaphore::new(STREAMS)) };
    let home = || async { (StatusCode::SEE_OTHER, [(header::LOCATION, url::ROOT)]) };
    let app = Router::new()
        .route("/", get(home))
        .route("/ui", get(home))
        .route("/ui/", get(node))
        .route("/ui/decisions", get(decisions))
        .route("/ui/live", get(live))
        .route("/ui/assets/{file}", get(asset))
        .fallback(|| async { (StatusCode::NOT_FOUND, "there is no such page; begin at /ui/\n") })
        .layer(from_fn_with_state(served.clone(), guarded))
        .with_state(served);
    // Beyond loopback nobody is let in without the credential, which a browser gives to no other name.
    if is_near { app.layer(from_fn(by_own_name)) } else { app }
}

/// Lets in whoever may look, and tells browsers what pages may do.
async fn guarded(State(served): State<PagesServer>, request: Request, next: Next) -> Response {
    let mut response = if let Err(why) =
        served.door.may(request.extensions().get::<Peer>(), sent(request.headers()).as_deref())
    {
        let asks = [(header::WWW_AUTHENTICATE, "Basic realm=\"evenkeel\", charset=\"UTF-8\"")];
        let how = "In a browser: any name, and the token as the password.";
        (StatusCode::UNAUTHORIZED, asks, format!("{why}\n{how}\n")).into_response()
    } else {
        next.run(request).await
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response.headers_mut().entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// The credential that a request brings, as a bearer: the password, where it is HTTP's basic authentication.
fn sent(headers: &HeaderMap) -> Option<Vec<u8>> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let basic = value.split_at_checked(6).filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"basic "));
    let Some((_, coded)) = basic else { return Some(value.to_vec()) };
    let plain = STANDARD.decode(coded.trim_ascii()).ok()?;
    let password = plain.iter().position(|byte| *byte == b':').and_then(|at| plain.get(at + 1..))?;
    Some([b"Bearer ".as_slice(), password].concat())
}

/// Answers with a page.
async fn made(page: impl Future<Output = Result<String, Status>>) -> Response {
    match page.await {
        Ok(text) => ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], text).into_response(),
        Err(error) => {
            let code = match error.code() {
                Code::ResourceExhausted | Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            };
            (code, format!("{}\n", error.message())).into_response()
        }
    }
}

/// A whole page.
fn framed(agent: &Agent, title: &str, tab: Tab, now_ms: u64, body: &Markup) -> String {
    let name = format!("holders of the token of {}", agent.context.node.node);
    let viewer = Viewer { name, everywhere: true, ..Viewer::default() };
    let enforce = &agent.context.enforce;
    let is_on = enforce.overlays.last().is_some_and(|offer| offer.panic.is_some());
    let notice = (is_on && enforce.config.overlay.accept)
        .then_some("The recommender's panic switch is on: requests of this node do not move.");
    frame::page(
        &Frame {
            extent: Extent::Node,
            viewer: &viewer,
            // It is set at the recommender, and shown by its pages.
            switch: &Switch::default(),
            now_ms,
            title,
            tab,
            namespace: "",
            refresh: Some(5),
            notice,
        },
        body,
    )
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

async fn node(State(served): State<PagesServer>, Query(asked): Query<PageQuery>) -> Response {
    made(served.answers.node_page(asked.page)).await
}

/// The text of the page of the node, so many pages on.
pub(super) fn node_text(agent: &Agent, number: usize) -> String {
    let now_ms = now_ms();
    let body = page::nodes::one(&of_node(agent, number, now_ms), now_ms);
    framed(agent, &agent.context.node.node, Tab::Nodes, now_ms, &body)
}

async fn decisions(State(served): State<PagesServer>, Query(asked): Query<PageQuery>) -> Response {
    let of = |text: String| text.chars().take(256).collect();
    let filter = DecisionFilter { kind: of(asked.kind), text: of(asked.q), page: asked.page };
    made(served.answers.decisions_page(filter)).await
}

/// The text of the page of decisions.
pub(super) fn decisions_text(agent: &Agent, DecisionFilter { kind, text, page }: DecisionFilter) -> String {
    let filter = page::decisions::DecisionFilter {
        extent: Extent::Node,
        kind,
        node: String::new(),
        text,
        page: page as usize,
    };
    let now_ms = now_ms();
    let body = page::decisions::body(&newest(agent), &filter, now_ms);
    framed(agent, "Decisions", Tab::Decisions, now_ms, &body)
}

/// A file under a name that changes with its content.
async fn asset(Path(file): Path<String>) -> Response {
    match assets::find(&file) {
        Some(found) => {
            let kept = "public, max-age=31536000, immutable";
            ([(header::CONTENT_TYPE, found.kind), (header::CACHE_CONTROL, kept)], found.content)
                .into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// One who follows: told every two seconds that there may be something new, while ticks come.
struct Follower {
    answers: Answers,
    /// Time of the tick that was the newest.
    seen: u64,
    _place: OwnedSemaphorePermit,
}

impl Follower {
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        tokio::time::sleep(EVERY).await;
        let ticked = self.answers.ticked().await.ok()?;
        let is_new = std::mem::replace(&mut self.seen, ticked) != ticked;
        // A comment keeps the connection and finds out that nobody is there.
        let text = if is_new { "event: news\ndata: {}\n\n" } else { ":\n\n" };
        Some((Ok(text.into()), self))
    }
}

async fn live(State(served): State<PagesServer>) -> Response {
    let Ok(place) = Arc::clone(&served.streams).try_acquire_owned() else {
        let why = format!("{STREAMS} pages are followed already; load the page again to see what is new\n");
        return (StatusCode::SERVICE_UNAVAILABLE, why).into_response();
    };
    let seen = served.answers.ticked().await.unwrap_or_default();
    let follower = Follower { answers: served.answers, seen, _place: place };
    let kind = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    (kind, Body::from_stream(futures::stream::unfold(follower, Follower::next))).into_response()
}

/// The newest decisions, the newest first.
fn newest(agent: &Agent) -> Vec<Decision> {
    let from = agent.decisions.next_seq().saturating_sub(DECISIONS);
    let mut history = agent.decisions.history(from);
    let most = usize::try_from(DECISIONS).unwrap_or(usize::MAX);
    let mut all: Vec<Decision> = Vec::new();
    while all.len() < most {
        let chunk = history.next_chunk(500);
        if chunk.is_empty() {
            break;
        }
        all.extend(chunk.iter().map(|decision| shown(agent, v1::Decision::from((**decision).clone()))));
    }
    all.reverse();
    all
}

fn shown(agent: &Agent, d: v1::Decision) -> Decision {
    Decision {
        time_ms: d.time_usec / 1000,
        node: agent.context.node.node.clone(),
        pod: d.pod.unwrap_or_default(),
        container: d.container.unwrap_or_default(),
        kind: d.kind,
        knob: d.knob.unwrap_or_default(),
        old: d.old.unwrap_or_default(),
        new: d.new.unwrap_or_default(),
        reason: d.reason,
        inputs: d.inputs.into_iter().collect(),
        result: d.result,
    }
}

/// What the page of the node is made of.
fn of_node(agent: &Agent, number: usize, now_ms: u64) -> page::nodes::NodePage {
    let (context, views) = (&agent.context, agent.board.containers());
    let tick = lock(&agent.usage).now(context.config.sample.interval + LATE);
    let lives = tick.as_ref().map_or(&[][..], |tick| &tick.containers);
    let mut containers: Vec<NodeContainer> = lives.iter().map(container).collect();
    containers
        .sort_by(|a, b| (&a.namespace, &a.pod, &a.container).cmp(&(&b.namespace, &b.pod, &b.container)));
    let decisions = newest(agent);
    let count = |is: &dyn Fn(&Decision) -> bool| decisions.iter().filter(|d| is(d)).count() as u64;
    let facts = &context.enforce.facts;
    let size = [facts.cpu_milli.get(), facts.memory_bytes.get()];
    let node = Node {
        share: Share {
            cluster: context.node.cluster.clone(),
            name: context.node.node.clone(),
            pods: containers.iter().map(|c| (&c.namespace, &c.pod)).collect::<BTreeSet<_>>().len() as u64,
            containers: containers.len() as u64,
            sums: sums(agent, &containers),
        },
        version: env!("CARGO_PKG_VERSION").to_owned(),
        connected: true,
        gone: false,
        seen_ms: tick.as_ref().map_or(0, |tick| tick.time_usec / 1000),
        gaps: 0,
        dropped: Vec::new(),
        size,
        oom_kills: count(&|d| d.kind == "oom-kill"),
        pressure: count(&|d| PRESSURE.contains(&d.kind.as_str())),
    };
    let knobs = views.iter().flat_map(|view| knobs(view, now_ms)).collect();
    let mode = context.config.enforce.mode.as_str();
    page::nodes::NodePage { extent: Extent::Node, node, containers, decisions, knobs, mode, page: number }
}

/// CPU, then memory: what may be requested of the node, and what its containers have.
fn sums(agent: &Agent, containers: &[NodeContainer]) -> [ResourceTotals; 2] {
    let may = allocatable::of_node(&agent.context.enforce);
    let allocatable = [
        may.get(&ResourceName::CPU).and_then(|cpu| cpu.milli_u64()),
        may.get(&ResourceName::MEMORY).and_then(|memory| memory.milli_u64()).map(|milli| milli / 1000),
    ];
    let sum = |of: fn(&NodeContainer) -> [Option<u64>; 2], at: usize| {
        containers.iter().filter_map(|c| of(c)[at]).fold(0, u64::saturating_add)
    };
    [0, 1].map(|at| ResourceTotals {
        allocatable: allocatable[at],
        requested: sum(|c| c.requests, at),
        used: sum(|c| c.used, at),
        recommended: sum(|c| c.requests, at),
        limited: sum(|c| c.limits, at),
        quota: None,
    })
}

fn container(live: &LiveContainer) -> NodeContainer {
    let (workload, sample) = (&live.tracked.workload, &live.sample);
    let asked = match workload.requested {
        Requested::Stated(resources) => resources,
        Requested::Estimated(estimate) => estimate.resources,
        Requested::Unknown => ContainerResources::default(),
    };
    let periods = sample.get(Field::CpuPeriods).filter(|all| *all > 0);
    let throttled = sample.get(Field::CpuThrottledPeriods).zip(periods);
    let classes = live.tracked.classes;
    NodeContainer {
        namespace: workload.pod.namespace.clone(),
        pod: workload.pod.name.clone(),
        container: workload.container.clone(),
        workload: workload.workload.clone(),
        class: classes.memory.or(classes.cpu).map_or("", QosClass::as_str),
        requests: [asked.cpu_request.map(|cpu| cpu.get()), asked.memory_request.map(|memory| memory.get())],
        limits: [asked.cpu_limit.map(|cpu| cpu.get()), asked.memory_limit.map(|memory| memory.get())],
        used: [
            live.cpu_milli,
            sample.get(Field::MemoryWorkingSetBytes).or(sample.get(Field::MemoryCurrentBytes)),
        ],
        throttled: throttled.map(|(throttled, all)| throttled as f64 / all as f64),
        oom_kills: sample.get(Field::OomKills).unwrap_or(0),
        pids: sample.get(Field::Pids),
    }
}

fn knobs(view: &ContainerView, now_ms: u64) -> impl Iterator<Item = Knob> {
    let workload = &view.tracked.workload;
    let pod = format!("{}/{}", workload.pod.namespace, workload.pod.name);
    view.knobs.iter().map(move |knob| Knob {
        pod: pod.clone(),
        container: workload.container.clone(),
        name: knob.name().to_owned(),
        wanted: knob.wanted.to_string(),
        actual: knob.actual.map(|actual| actual.to_string()).unwrap_or_default(),
        trouble: trouble(knob),
        why: knob.reason.to_string(),
        state: knob.state.as_str().to_owned(),
        time_ms: now_ms,
    })
}

/// Who else writes a knob, or why it does not hold or has no effect.
fn trouble(knob: &KnobView) -> String {
    let by = knob.trouble.as_ref().map(|trouble| trouble.by()).unwrap_or_default();
    match knob.state {
        Stands::Contended if by.is_empty() => "another program".to_owned(),
        Stands::Contended => format!("another program: {by}"),
        Stands::Ineffective => format!("without effect: {by}"),
        Stands::Denied => "the kernel refuses it".to_owned(),
        Stands::Converged | Stands::Dirty | Stands::Converging | Stands::Unclassified => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_sends_the_token_as_a_password() {
        let coded = |text: &str| format!("Basic {}", STANDARD.encode(text));
        for (value, want) in [
            ("Bearer secret".to_owned(), Some("Bearer secret")),
            (coded("anna:secret"), Some("Bearer secret")),
            (coded(":se:cret").replace("Basic", "basic"), Some("Bearer se:cret")),
            (coded("secret"), None),
            ("Basic %%%".to_owned(), None),
            ("Digest x".to_owned(), Some("Digest x")),
        ] {
            let headers =
                HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_str(&value).unwrap())]);
            assert_eq!(sent(&headers).as_deref(), want.map(str::as_bytes), "{value}");
        }
        assert_eq!(sent(&HeaderMap::new()), None);
    }
}
