//! A Kubernetes API server for tests: objects that are listed, watched, made, changed and deleted, reviews of tokens and rights, over TLS,
//! with answers of the form that a real one gives (1.36; `replays.rs` compares them with recorded ones). Pods that are made go through the webhooks
//! that are registered. It can fall silent, fail, and take its time.

#![allow(dead_code, reason = "each test uses a part of it")]

mod admission;
mod cel;
pub(crate) mod definition;
mod pods;
pub(crate) mod recorded;
mod refusal;
mod rest;
mod select;
mod store;
mod watches;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use axum::Json;
use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use rest::{Asked, Named};
use store::Store;

/// The audience of an API server itself.
pub(crate) const OWN: &str = "https://kubernetes.default.svc.cluster.local";
/// The token of the recommender's own account.
const RECOMMENDER: &str = "recommender";

/// How it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    /// As it should.
    Well,
    /// Each question fails with this status.
    Fails(u16),
    /// No question is answered.
    Silent,
    /// Each answer takes so long.
    Slow(Duration),
}

/// What a node makes of a resize.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It has no room now.
    Deferred,
    /// It never does it.
    Infeasible,
    /// It says nothing.
    Silent,
}

/// Whose a token is.
#[derive(Debug, Clone)]
pub(crate) struct Account {
    pub(crate) user: String,
    pub(crate) audiences: Vec<String>,
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

#[derive(Debug)]
struct Known {
    mood: Mood,
    accounts: BTreeMap<String, Account>,
    /// User, verb, resource, namespace; the empty one for all.
    rights: BTreeSet<(String, String, String, String)>,
    store: Store,
    /// Plurals that the recommender may not see.
    forbidden: BTreeSet<String>,
    /// Groups that there are not.
    absent: BTreeSet<String>,
    /// How long a watch lasts at most.
    watch_lasts: Option<Duration>,
    /// Refusals of the next lists and watches, each with `Retry-After`.
    storm: VecDeque<(u16, Option<u64>)>,
    /// The same of the next writes, but those of checkpoints.
    write_storm: VecDeque<(u16, Option<u64>)>,
    /// The next answer to a request with this in its path breaks off; what was asked for is done.
    loses: Option<String>,
    /// The next request with this in its path is answered with this status.
    refuses: Option<(String, u16)>,
    /// What a node makes of resizes of a pod: nothing is at once in force.
    fates: BTreeMap<(String, String), Fate>,
    /// Somebody else is the kubelet: here no resize is granted.
    has_kubelet: bool,
    /// What was asked for: method, path and parameters.
    asked_for: Vec<String>,
    /// Tokens and namespaces asked about.
    reviewed: Vec<String>,
    asked: Vec<(String, String, String)>,
}

/// A running one.
#[derive(Debug, Clone)]
pub(crate) struct ApiServer {
    at: SocketAddr,
    ca: String,
    known: Arc<Mutex<Known>>,
}

impl ApiServer {
    pub(crate) async fn start() -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let known = Known {
            mood: Mood::Well,
            accounts: BTreeMap::new(),
            rights: BTreeSet::new(),
            store: Store::new(),
            forbidden: BTreeSet::new(),
            absent: BTreeSet::new(),
            watch_lasts: None,
            storm: VecDeque::new(),
            write_storm: VecDeque::new(),
            loses: None,
            refuses: None,
            fates: BTreeMap::new(),
            has_kubelet: false,
            asked_for: Vec::new(),
            reviewed: Vec::new(),
            asked: Vec::new(),
        };
        let (at, known) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(known)));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let chain = vec![CertificateDer::from(certificate.der().to_vec())];
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, PrivateKeyDer::try_from(key.serialize_der()).unwrap())
            .unwrap();
        tokio::spawn(serve(listener, TlsAcceptor::from(Arc::new(config)), Arc::clone(&known)));
        Self { at, ca: certificate.pem(), known }
    }

    /// A file for kubectl that leads here.
    pub(crate) fn kubeconfig(&self, dir: &Path) -> PathBuf {
        let (ca, file) = (dir.join("apiserver-ca.crt"), dir.join("kubeconfig"));
        fs::write(&ca, &self.ca).unwrap();
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {
                "server": format!("https://localhost:{}", self.at.port()), "certificate-authority": ca,
            }}],
            "users": [{"name": "recommender", "user": {"token": RECOMMENDER}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "recommender"}}],
        });
        fs::write(&file, text.to_string()).unwrap();
        file
    }

    pub(crate) fn is(&self, mood: Mood) {
        self.known.lock().unwrap().mood = mood;
    }

    /// Gives an account a token of these audiences that ends in so many seconds.
    pub(crate) fn token(
        &self,
        user: &str,
        audiences: &[&str],
        seconds: i64,
        extra: &[(&str, &str)],
    ) -> String {
        let token = made_up(audiences, seconds);
        let of = |(key, value): &(&str, &str)| {
            (format!("authentication.kubernetes.io/{key}"), vec![(*value).to_owned()])
        };
        let account = Account {
            user: user.to_owned(),
            audiences: audiences.iter().map(|audience| (*audience).to_owned()).collect(),
            extra: extra.iter().map(of).collect(),
        };
        self.known.lock().unwrap().accounts.insert(token.clone(), account);
        token
    }

    /// The projected token of the agent's pod on a node.
    pub(crate) fn agent(&self, node: &str, seconds: i64) -> String {
        let pod = format!("evenkeel-agent-{node}");
        let extra = [("node-name", node), ("pod-name", pod.as_str()), ("pod-uid", "u1")];
        self.token("system:serviceaccount:evenkeel:evenkeel-agent", &["evenkeel"], seconds, &extra)
    }

    /// A token of kubectl.
    pub(crate) fn person(&self, user: &str) -> String {
        self.token(user, &[OWN], 3600, &[])
    }

    /// A token is nobody's any more.
    pub(crate) fn forget(&self, token: &str) {
        self.known.lock().unwrap().accounts.remove(token);
    }

    /// Lets somebody do something, in a namespace or in all.
    pub(crate) fn allow(&self, user: &str, verb: &str, resource: &str, namespace: &str) {
        let right = [user, verb, resource, namespace].map(str::to_owned).into();
        self.known.lock().unwrap().rights.insert(right);
    }

    /// The same no more.
    pub(crate) fn deny(&self, user: &str) {
        self.known.lock().unwrap().rights.retain(|(of, ..)| of != user);
    }

    /// A pod of the agents' namespace.
    pub(crate) fn runs(&self, pod: &str, uid: &str, node: &str) {
        self.put(json!({
            "kind": "Pod", "apiVersion": "v1", "metadata": { "name": pod, "namespace": "evenkeel", "uid": uid },
            "spec": { "nodeName": node, "containers": [] },
        }));
    }

    /// What the node makes of the next resizes of a pod; without, they are in force at once.
    pub(crate) fn fate(&self, namespace: &str, pod: &str, fate: Option<Fate>) {
        let key = (namespace.to_owned(), pod.to_owned());
        let mut known = self.known.lock().unwrap();
        match fate {
            Some(fate) => drop(known.fates.insert(key, fate)),
            None => {
                known.fates.remove(&key);
                pods::grant(&mut known, &key);
            }
        }
    }

    /// Resizes are left to a kubelet that watches pods and writes their status.
    pub(crate) fn has_kubelet(&self) {
        self.known.lock().unwrap().has_kubelet = true;
    }

    /// Makes or changes an object; how it is then.
    pub(crate) fn put(&self, object: Value) -> Value {
        let collection = collection(&object);
        self.known.lock().unwrap().store.put(&collection, object)
    }

    /// Makes an object as a client does, at the path of its list: status, and the object or the refusal.
    pub(crate) async fn make(&self, path: &str, object: &Value) -> (u16, Value) {
        let asked = Asked {
            method: "POST".to_owned(),
            path: path.to_owned(),
            parameters: HashMap::new(),
            accept: String::new(),
            content_type: "application/json".to_owned(),
            body: object.to_string().into(),
        };
        let answer = match admission::admitted(&self.known, asked).await {
            Ok(asked) => rest::answer(&self.known, &asked),
            Err(refused) => refused,
        };
        let status = answer.status().as_u16();
        let body = axum::body::to_bytes(answer.into_body(), 4 << 20).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }

    /// Makes or changes an object that is kept where this is listed.
    pub(crate) fn put_at(&self, collection: &str, object: Value) {
        self.known.lock().unwrap().store.put(collection, object);
    }

    /// Puts many objects, by namespace and name, where they are listed.
    pub(crate) fn fill(&self, collection: &str, objects: impl Iterator<Item = ((String, String), String)>) {
        self.known.lock().unwrap().store.fill(collection, objects);
    }

    /// Takes an object out.
    pub(crate) fn delete(&self, collection: &str, namespace: &str, name: &str) {
        let key = (namespace.to_owned(), name.to_owned());
        self.known.lock().unwrap().store.delete(collection, &key).unwrap();
    }

    /// Every object, by where its kind is listed, namespace and name.
    pub(crate) fn everything(&self) -> BTreeMap<(String, String, String), Value> {
        let known = self.known.lock().unwrap();
        let all = known.store.objects.iter().flat_map(|(collection, objects)| {
            objects.iter().map(move |((namespace, name), text)| {
                let key = (collection.to_string(), namespace.clone(), name.clone());
                (key, serde_json::from_str(text).unwrap())
            })
        });
        all.collect()
    }

    /// Forgets all versions before the present one, as etcd's compaction does.
    pub(crate) fn compact(&self) {
        self.known.lock().unwrap().store.compact();
    }

    /// The newest version.
    pub(crate) fn version(&self) -> u64 {
        self.known.lock().unwrap().store.version
    }

    /// Sets the newest version, so that recorded ones fit.
    pub(crate) fn set_version(&self, version: u64) {
        self.known.lock().unwrap().store.version = version;
    }

    /// Nobody sees these any more, or all do again.
    pub(crate) fn forbid(&self, plural: &str, yes: bool) {
        let forbidden = &mut self.known.lock().unwrap().forbidden;
        if yes {
            forbidden.insert(plural.to_owned())
        } else {
            forbidden.remove(plural)
        };
    }

    /// The kinds of a group are not there, or are again.
    pub(crate) fn lacks(&self, group: &str, yes: bool) {
        let absent = &mut self.known.lock().unwrap().absent;
        if yes {
            absent.insert(group.to_owned())
        } else {
            absent.remove(group)
        };
    }

    /// An object as it is.
    pub(crate) fn object(&self, collection: &str, namespace: &str, name: &str) -> Option<Value> {
        let key = (namespace.to_owned(), name.to_owned());
        let known = self.known.lock().unwrap();
        known.store.get(collection, &key).map(|text| serde_json::from_str(text).unwrap())
    }

    /// The next so many writes of objects are refused.
    pub(crate) fn write_storm(&self, times: usize, status: u16, retry_after: Option<u64>) {
        self.known.lock().unwrap().write_storm.extend(std::iter::repeat_n((status, retry_after), times));
    }

    /// Refusals of writes that nobody has got yet.
    pub(crate) fn write_storm_left(&self) -> usize {
        self.known.lock().unwrap().write_storm.len()
    }

    /// The next request with this in its path is refused with a status.
    pub(crate) fn refuses(&self, path: &str, status: u16) {
        self.known.lock().unwrap().refuses = Some((path.to_owned(), status));
    }

    /// The answer to the next request with this in its path is lost on the way.
    pub(crate) fn loses(&self, path: &str) {
        self.known.lock().unwrap().loses = Some(path.to_owned());
    }

    /// Each watch ends after this time.
    pub(crate) fn watches_last(&self, lasts: Option<Duration>) {
        self.known.lock().unwrap().watch_lasts = lasts;
    }

    /// The next so many lists and watches are refused.
    pub(crate) fn storm(&self, times: usize, status: u16, retry_after: Option<u64>) {
        self.known.lock().unwrap().storm.extend(std::iter::repeat_n((status, retry_after), times));
    }

    /// Refusals that nobody has got yet.
    pub(crate) fn storm_left(&self) -> usize {
        self.known.lock().unwrap().storm.len()
    }

    /// Method, path and parameters of everything that was asked for and has this in it.
    pub(crate) fn asked_for(&self, with: &str) -> Vec<String> {
        let known = self.known.lock().unwrap();
        known.asked_for.iter().filter(|asked| asked.contains(with)).cloned().collect()
    }

    /// Where it listens.
    pub(crate) fn url(&self) -> String {
        format!("https://localhost:{}", self.at.port())
    }

    /// The certificate of who signed its own.
    pub(crate) fn authority(&self) -> &str {
        &self.ca
    }

    /// How often it was asked about tokens.
    pub(crate) fn reviews(&self) -> usize {
        self.known.lock().unwrap().reviewed.len()
    }

    /// Whether it was asked about this one.
    pub(crate) fn saw(&self, token: &str) -> bool {
        self.known.lock().unwrap().reviewed.iter().any(|seen| seen == token)
    }

    /// What rights it was asked about: user, verb and resource, namespace.
    pub(crate) fn rights_asked(&self) -> Vec<(String, String, String)> {
        self.known.lock().unwrap().asked.clone()
    }
}

/// A token that nobody gave out, which says what it likes.
pub(crate) fn made_up(audiences: &[&str], seconds: i64) -> String {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let id = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64;
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let head = part(json!({"alg": "RS256", "kid": "k"}));
    let payload = part(json!({
        "aud": audiences, "exp": now + seconds, "iss": OWN, "jti": id,
        "sub": "system:serviceaccount:evenkeel:evenkeel-agent",
    }));
    format!("{head}.{payload}.{}", URL_SAFE_NO_PAD.encode(format!("signature {id}")))
}

/// Where objects like this one are listed.
fn collection(object: &Value) -> String {
    let (kind, version) = (object["kind"].as_str().unwrap(), object["apiVersion"].as_str().unwrap());
    let plural = match kind.to_lowercase() {
        kind if kind.ends_with("class") => format!("{kind}es"),
        kind if kind.ends_with('y') => format!("{}ies", kind.trim_end_matches('y')),
        kind => format!("{kind}s"),
    };
    let root = if version == "v1" { "/api" } else { "/apis" };
    format!("{root}/{version}/{plural}")
}

async fn serve(listener: TcpListener, tls: TlsAcceptor, known: Arc<Mutex<Known>>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        let (tls, known) = (tls.clone(), Arc::clone(&known));
        tokio::spawn(async move {
            let Ok(stream) = tls.accept(stream).await else { return };
            let answer = service_fn(move |request: Request<hyper::body::Incoming>| {
                let known = Arc::clone(&known);
                async move { Ok::<_, std::convert::Infallible>(answered(known, request.map(Body::new)).await) }
            });
            let _ended = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), answer)
                .await;
        });
    }
}

async fn answered(known: Arc<Mutex<Known>>, request: Request<Body>) -> Response {
    let (head, body) = request.into_parts();
    let text =
        |name| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let path = head.uri.path().to_owned();
    let own = format!("Bearer {RECOMMENDER}");
    match text(header::AUTHORIZATION) {
        bearer if bearer == own => {}
        bearer if bearer.is_empty() => {
            let Named { group, plural, .. } = Named::parse(&path).unwrap_or_default();
            return refusal::forbidden("system:anonymous", "list", &group, &plural);
        }
        _ => return refusal::status(401, "Unauthorized", "Unauthorized", Value::Null),
    }
    let mood = known.lock().unwrap().mood;
    match mood {
        Mood::Well => {}
        Mood::Fails(403) => return refusal::status(403, "Forbidden", "an error on the server", Value::Null),
        Mood::Fails(code) => return rest::storm(code, None),
        Mood::Silent => std::future::pending().await,
        Mood::Slow(time) => tokio::time::sleep(time).await,
    }
    let body = axum::body::to_bytes(body, 4 << 20).await.unwrap_or_default();
    match path.as_str() {
        "/apis/authentication.k8s.io/v1/tokenreviews" => {
            return review_token(&known, serde_json::from_slice(&body).unwrap());
        }
        "/apis/authorization.k8s.io/v1/subjectaccessreviews" => {
            return review_access(&known, serde_json::from_slice(&body).unwrap());
        }
        _ => {}
    }
    let refused = {
        let mut known = known.lock().unwrap();
        known.asked_for.push(format!("{} {}", head.method, head.uri));
        match head.method.as_str() {
            "GET" => known.storm.pop_front(),
            _ if path.contains("checkpoints") => None,
            _ => known.write_storm.pop_front(),
        }
    };
    if let Some((status, seconds)) = refused {
        return rest::storm(status, seconds);
    }
    let refused = known.lock().unwrap().refuses.take_if(|(part, _)| path.contains(part.as_str()));
    if let Some((_, status)) = refused {
        return rest::storm(status, None);
    }
    let parameters = head.uri.query().unwrap_or_default().split('&').filter_map(|part| {
        let (key, value) = part.split_once('=')?;
        Some((key.to_owned(), plain(value)))
    });
    let asked = Asked {
        method: head.method.to_string(),
        path,
        parameters: parameters.collect(),
        accept: text(header::ACCEPT),
        content_type: text(header::CONTENT_TYPE),
        body,
    };
    let is_lost = known.lock().unwrap().loses.take_if(|part| asked.path.contains(part.as_str())).is_some();
    let answer = match admission::admitted(&known, asked).await {
        Ok(asked) => rest::answer(&known, &asked),
        Err(refused) => refused,
    };
    if is_lost { cut(answer) } else { answer }
}

/// The head of an answer and the first byte.
fn cut(answer: Response) -> Response {
    let mut head = answer.into_parts().0;
    head.headers.insert(header::CONTENT_LENGTH, 1000.into());
    let parts = [Ok("{"), Err(std::io::Error::other("cut"))];
    Response::from_parts(head, Body::from_stream(futures::stream::iter(parts)))
}

/// The time as objects have it.
fn now() -> String {
    let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    jiff::Timestamp::from_second(seconds as i64).unwrap().to_string()
}

/// A value of a query without its escapes.
fn plain(text: &str) -> String {
    let (mut bytes, mut out) = (text.bytes(), Vec::new());
    while let Some(byte) = bytes.next() {
        let hex = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16)).unwrap_or(0) as u8;
        out.push(match byte {
            b'+' => b' ',
            b'%' => hex(bytes.next()) * 16 + hex(bytes.next()),
            other => other,
        });
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn review_token(known: &Mutex<Known>, mut review: Value) -> Response {
    let mut known = known.lock().unwrap();
    let token = review["spec"]["token"].as_str().unwrap_or_default().to_owned();
    known.reviewed.push(token.clone());
    let asked: Vec<String> = serde_json::from_value(review["spec"]["audiences"].clone()).unwrap_or_default();
    let asked = if asked.is_empty() { vec![OWN.to_owned()] } else { asked };
    let account = known.accounts.get(&token);
    let both = |account: &Account| {
        asked.iter().filter(|one| account.audiences.contains(one)).cloned().collect::<Vec<_>>()
    };
    review["status"] = match account.map(|account| (account, both(account))) {
        Some((account, audiences)) if !audiences.is_empty() => json!({
            "authenticated": true,
            "user": {
                "username": account.user, "uid": format!("uid of {}", account.user),
                "groups": ["system:authenticated"], "extra": account.extra,
            },
            "audiences": audiences,
        }),
        _ => {
            json!({ "user": {}, "error": "[invalid bearer token, token audiences are not valid for the target audiences]" })
        }
    };
    (StatusCode::CREATED, Json(review)).into_response()
}

fn review_access(known: &Mutex<Known>, mut review: Value) -> Response {
    let mut known = known.lock().unwrap();
    let spec = &review["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of = &spec["resourceAttributes"];
    let (user, verb, resource) = (text(&spec["user"]), text(&of["verb"]), text(&of["resource"]));
    let namespace = text(&of["namespace"]);
    known.asked.push((user.clone(), format!("{verb} {resource}"), namespace.clone()));
    let mut names: Vec<String> = serde_json::from_value(spec["groups"].clone()).unwrap();
    let is_group = of["group"] == "evenkeel.dev" && names.pop().as_deref() == Some("system:authenticated");
    // Rights are a user's, or a group's.
    names.push(user);
    let has = |name: &String, namespace: &str| {
        known.rights.contains(&(name.clone(), verb.clone(), resource.clone(), namespace.to_owned()))
    };
    let allowed = is_group && names.iter().any(|name| has(name, "") || has(name, &namespace));
    review["status"] = json!({ "allowed": allowed, "reason": "" });
    (StatusCode::CREATED, Json(review)).into_response()
}
