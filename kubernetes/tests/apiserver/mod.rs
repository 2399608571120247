//! A Kubernetes API server for tests: reviews of tokens and rights, and pods, over TLS, with answers of the form that a real one gives
//! (1.36). It can fall silent, fail, and take its time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use axum::body::Body;
use axum::extract::{Path as InPath, State};
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

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
    /// Namespace, name; uid, node.
    pods: BTreeMap<(String, String), (String, String)>,
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
            pods: BTreeMap::new(),
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
        let router = Router::new()
            .route("/apis/authentication.k8s.io/v1/tokenreviews", post(review_token))
            .route("/apis/authorization.k8s.io/v1/subjectaccessreviews", post(review_access))
            .route("/api/v1/namespaces/{namespace}/pods/{name}", get(pod))
            .with_state(Arc::clone(&known));
        tokio::spawn(serve(listener, TlsAcceptor::from(Arc::new(config)), router, Arc::clone(&known)));
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
        let key = ("evenkeel".to_owned(), pod.to_owned());
        self.known.lock().unwrap().pods.insert(key, (uid.to_owned(), node.to_owned()));
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

async fn serve(listener: TcpListener, tls: TlsAcceptor, router: Router, known: Arc<Mutex<Known>>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        let (tls, router, known) = (tls.clone(), router.clone(), Arc::clone(&known));
        tokio::spawn(async move {
            let Ok(stream) = tls.accept(stream).await else { return };
            let answer = service_fn(move |request: Request<hyper::body::Incoming>| {
                let (router, known) = (router.clone(), Arc::clone(&known));
                async move { answered(router, known, request.map(Body::new)).await }
            });
            let _ended = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), answer)
                .await;
        });
    }
}

async fn answered(
    router: Router,
    known: Arc<Mutex<Known>>,
    request: Request<Body>,
) -> Result<Response, std::convert::Infallible> {
    let own = format!("Bearer {RECOMMENDER}");
    if request.headers().get(header::AUTHORIZATION).is_none_or(|value| value.as_bytes() != own.as_bytes()) {
        return Ok(status(401, "Unauthorized"));
    }
    let mood = known.lock().unwrap().mood;
    match mood {
        Mood::Well => {}
        Mood::Fails(code) => return Ok(status(code, "an error on the server")),
        Mood::Silent => std::future::pending().await,
        Mood::Slow(time) => tokio::time::sleep(time).await,
    }
    router.oneshot(request).await
}

fn status(code: u16, message: &str) -> Response {
    let reason = match code {
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        _ => "InternalError",
    };
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason,
        "code": code,
    });
    (StatusCode::from_u16(code).unwrap(), Json(body)).into_response()
}

async fn review_token(State(known): State<Arc<Mutex<Known>>>, Json(mut review): Json<Value>) -> Response {
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

async fn review_access(State(known): State<Arc<Mutex<Known>>>, Json(mut review): Json<Value>) -> Response {
    let mut known = known.lock().unwrap();
    let spec = &review["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of = &spec["resourceAttributes"];
    let (user, verb, resource) = (text(&spec["user"]), text(&of["verb"]), text(&of["resource"]));
    let namespace = text(&of["namespace"]);
    known.asked.push((user.clone(), format!("{verb} {resource}"), namespace.clone()));
    let right = |namespace: &str| (user.clone(), verb.clone(), resource.clone(), namespace.to_owned());
    let is_group = of["group"] == "evenkeel.dev" && spec["groups"] == json!(["system:authenticated"]);
    let allowed =
        is_group && (known.rights.contains(&right("")) || known.rights.contains(&right(&namespace)));
    review["status"] = json!({ "allowed": allowed, "reason": "" });
    (StatusCode::CREATED, Json(review)).into_response()
}

async fn pod(State(known): State<Arc<Mutex<Known>>>, InPath(key): InPath<(String, String)>) -> Response {
    let known = known.lock().unwrap();
    let Some((uid, node)) = known.pods.get(&key) else { return status(404, "pods not found") };
    let body = json!({
        "kind": "Pod", "apiVersion": "v1", "metadata": { "name": key.1, "namespace": key.0, "uid": uid },
        "spec": { "nodeName": node, "containers": [] },
    });
    Json(body).into_response()
}
