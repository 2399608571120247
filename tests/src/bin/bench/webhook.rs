//! How fast the admission webhook answers API servers.
//!
//! A real webhook is pinned to one processor, and answers from the status of 1,000 objects that it follows at an API server of the bench's own; no
//! recommender is there: each pod has one container more than its object speaks of, as one with a sidecar that was put into it, so that each review
//! also looks for a recommender. It is asked over TLS from another processor, at a fixed rate and over as many connections as a few API servers keep, each
//! time counted from when the question was due. An echo of the same server, which reads whose review it is and lets it through, is asked the same
//! way: what it costs is what TLS, HTTP and the kernel cost.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use evenkeel_net::tls::{Tls, TlsFiles};
use evenkeel_net::{Gate, Limits, Speech};
use evenkeel_tests::daemon::{Daemon, Program, Ready, free_port};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::ServerName;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::figure::{Figure, Target};
use crate::ingest::pin;
use crate::pair::Place;
use crate::run::Run;
use crate::usage::{cpu_time, percentile, thread_time};

/// Questions a second.
const RATE: u32 = 500;
/// Connections: three API servers with a few each.
const CONNECTIONS: usize = 8;
/// Objects, each of which governs the pods of one workload.
const OBJECTS: usize = 1_000;
/// Questions before it is measured.
const BEFORE: usize = 500;
const PATH: &str = "/admit/pods";
/// Where the echo tells the CPU time of its thread, nanoseconds.
const CPU: &str = "/cpu";

/// Gives both figures.
pub(crate) fn run(run: &Run) -> Result<Vec<Figure>> {
    let place = Place::new()?;
    let files = certificate(&place)?;
    let api = api_server()?;
    let all = sched_getaffinity(Pid::from_raw(0)).context("cannot read the own processors")?;
    let cpus: Vec<usize> = (0..CpuSet::count()).filter(|cpu| all.is_set(*cpu).unwrap_or(false)).collect();
    let (first, last) = cpus.first().copied().zip(cpus.last().copied()).context("no processor")?;
    // A child inherits its parent thread's processors (sched_setaffinity(2)).
    pin(last)?;
    let started = webhook(&place, &files, api).and_then(|webhook| Ok((webhook, echo(&files)?)));
    pin(first)?;
    let figures = started.and_then(|((webhook, port), echo)| {
        let figures = measure(run, &webhook, (port, echo), &files);
        webhook.stop()?;
        figures
    });
    sched_setaffinity(Pid::from_raw(0), &all).context("cannot go back to all processors")?;
    figures
}

fn certificate(place: &Place) -> Result<TlsFiles> {
    let key = KeyPair::generate().context("no key")?;
    let made =
        CertificateParams::new(vec!["localhost".to_owned()]).and_then(|params| params.self_signed(&key));
    let made = made.context("no certificate")?;
    let (cert, private) = (place.path("tls.crt"), place.path("tls.key"));
    std::fs::write(&cert, made.pem()).context("cannot write the certificate")?;
    std::fs::write(&private, key.serialize_pem()).context("cannot write the key")?;
    std::fs::set_permissions(&private, std::fs::Permissions::from_mode(0o600)).context("no private key")?;
    TlsFiles::named(&cert, &private, Path::new("")).ok().flatten().context("no files")
}

/// The webhook's process and port.
fn webhook(place: &Place, files: &TlsFiles, api: SocketAddr) -> Result<(Daemon, u16)> {
    let port = free_port()?;
    let kubeconfig = place.path("kubeconfig");
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "bench",
        "clusters": [{ "name": "bench", "cluster": { "server": format!("http://{api}") } }],
        "users": [{ "name": "bench", "user": {} }],
        "contexts": [{ "name": "bench", "context": { "cluster": "bench", "user": "bench" } }],
    });
    std::fs::write(&kubeconfig, text.to_string()).context("cannot write the kubeconfig")?;
    let config: PathBuf = place.path("webhook.toml");
    let text = format!(
        "[kubernetes]\nkubeconfig = {kubeconfig:?}\n[webhook]\naddress = \"127.0.0.1:{port}\"\nmode = \"apply\"\nobjects = true\n\
         recommender = \"unix://{}\"\ncert = {:?}\nkey = {:?}\n",
        place.path("nobody.sock").display(),
        files.cert,
        files.key,
    );
    std::fs::write(&config, text).context("cannot write the configuration")?;
    let program = Program::new("evenkeel-recommender")?.args(&["webhook", "--config"]).path(&config);
    let program = program.ready(Ready::Says("the webhook serves".to_owned()));
    let directory = config.parent().context("no directory")?;
    Ok((program.start(directory)?, port))
}

/// Of a review, whose it is; the rest is passed over.
#[derive(Default, Deserialize)]
struct Asked<'a> {
    #[serde(borrow)]
    request: Named<'a>,
}

#[derive(Default, Deserialize)]
struct Named<'a> {
    uid: &'a str,
}

/// A server of the same make that lets through whatever it is asked about, on a thread of its own; its port.
fn echo(files: &TlsFiles) -> Result<u16> {
    let tls = Arc::new(Tls::open(files.clone())?);
    let listener = TcpListener::bind("127.0.0.1:0").context("no port")?;
    let port = listener.local_addr()?.port();
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::spawn(move || {
        runtime.block_on(async move {
            let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
            let gate = Gate::new("echo", Limits { connections: 64, per_peer: 64 });
            let connections = evenkeel_net::at_address(listener, gate, Speech::Http, Some(tls));
            let answer = |body: Bytes| async move {
                let review: Asked<'_> = serde_json::from_slice(&body).unwrap_or_default();
                format!(
                    r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{{"uid":"{}","allowed":true}}}}"#,
                    review.request.uid
                )
            };
            let used = || async { thread_time().map_or(0, |used| used.as_nanos()).to_string() };
            let router = Router::new().route(PATH, post(answer)).route(CPU, post(used));
            let _ended = evenkeel_net::http::serve(connections, router, std::future::pending::<()>()).await;
        });
    });
    Ok(port)
}

/// An API server that lists the objects, holds watches open and knows nothing else.
fn api_server() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no port")?;
    let address = listener.local_addr()?;
    let objects: Arc<str> = list((0..OBJECTS).map(object).collect()).into();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(std::io::Result::ok) {
            let objects = Arc::clone(&objects);
            std::thread::spawn(move || answer(&stream, &objects));
        }
    });
    Ok(address)
}

fn list(items: Vec<Value>) -> String {
    json!({ "kind": "List", "apiVersion": "v1", "metadata": { "resourceVersion": "1" }, "items": items })
        .to_string()
}

fn answer(stream: &TcpStream, objects: &str) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let mut out = stream.try_clone()?;
    loop {
        let Some(asked) = lines.next().transpose()? else { return Ok(()) };
        for line in lines.by_ref() {
            if line?.is_empty() {
                break;
            }
        }
        let kind = "Content-Type: application/json";
        if asked.contains("watch=true") {
            write!(out, "HTTP/1.1 200 OK\r\n{kind}\r\nTransfer-Encoding: chunked\r\n\r\n")?;
            continue;
        }
        let empty = list(Vec::new());
        let body = if asked.contains("evenkeel.dev") { objects } else { &empty };
        write!(out, "HTTP/1.1 200 OK\r\n{kind}\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
    }
}

fn object(number: usize) -> Value {
    let requests = json!({ "cpu": format!("{}m", 100 + number), "memory": "256Mi" });
    json!({
        "apiVersion": "evenkeel.dev/v1", "kind": "VerticalPodAutoscaler",
        "metadata": {
            "name": format!("w-{number}"), "namespace": "bench", "uid": format!("u-{number}"), "generation": 1,
            "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": { "target": { "matchLabels": { "app": format!("w-{number}") } } },
        "status": {
            "observedGeneration": 1,
            "recommendation": { "containers": [{ "name": "main", "resources": { "requests": requests } }] },
        },
    })
}

/// A review of a pod with what pods usually have: a sidecar, mounts, probes, an environment.
fn review(number: usize) -> Vec<u8> {
    let app = format!("w-{}", number % OBJECTS);
    let env: Vec<Value> =
        (0..12).map(|at| json!({ "name": format!("SETTING_{at}"), "value": "x".repeat(24) })).collect();
    let probe = json!({ "httpGet": { "path": "/healthz", "port": 8080 }, "periodSeconds": 10 });
    let mounts = json!([{ "name": "kube-api-access", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true }]);
    let container = |name: &str| {
        json!({
            "name": name, "image": format!("registry.example/{name}:1"), "env": env, "livenessProbe": probe, "readinessProbe": probe,
            "volumeMounts": mounts, "resources": if name == "main" { json!({}) } else { json!({ "requests": { "cpu": "10m", "memory": "16Mi" } }) },
        })
    };
    let owner = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{app}-5d9c"), "uid": "u", "controller": true });
    let pod = json!({
        "metadata": {
            "generateName": format!("{app}-5d9c-"), "labels": { "app": app, "pod-template-hash": "5d9c" }, "ownerReferences": [owner],
        },
        "spec": { "containers": [container("main"), container("proxy")], "serviceAccountName": "default" },
    });
    let request = json!({
        "uid": format!("r-{number}"), "kind": { "group": "", "version": "v1", "kind": "Pod" }, "namespace": "bench",
        "operation": "CREATE", "object": pod, "oldObject": null, "dryRun": false,
    });
    let review =
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request });
    review.to_string().into_bytes()
}

type Line = BufStream<TlsStream<tokio::net::TcpStream>>;

/// Asks one question; the answer's body.
async fn ask(line: &mut Line, path: &str, body: &[u8]) -> Result<Vec<u8>> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    line.write_all(head.as_bytes()).await?;
    line.write_all(body).await?;
    line.flush().await?;
    let (mut length, mut text) = (None, String::new());
    loop {
        text.clear();
        ensure!(line.read_line(&mut text).await? > 0, "the connection ended");
        match text.trim_end().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = Some(value.parse()?);
            }
            None if text.trim_end().is_empty() => break,
            None => ensure!(text.starts_with("HTTP/1.1 200"), "it answers {}", text.trim_end()),
            Some(_) => {}
        }
    }
    let mut answer = vec![0; length.context("an answer without a length")?];
    line.read_exact(&mut answer).await?;
    Ok(answer)
}

async fn connect(port: u16, files: &TlsFiles) -> Result<Line> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in evenkeel_net::tls::certificates(&files.cert)? {
        roots.add(certificate)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
    stream.set_nodelay(true)?;
    let name = ServerName::try_from("localhost")?;
    Ok(BufStream::new(TlsConnector::from(Arc::new(config)).connect(name, stream).await?))
}

/// Milliseconds of each question from when it was due, at the rate, over all connections.
async fn at_rate(run: &Run, port: u16, files: &TlsFiles, questions: usize) -> Result<Vec<f64>> {
    let reviews: Arc<Vec<Vec<u8>>> = Arc::new((0..OBJECTS).map(review).collect());
    let (apart, start) = (Duration::from_secs(1) / RATE, Instant::now() + Duration::from_millis(50));
    let mut asking = tokio::task::JoinSet::new();
    for of in 0..CONNECTIONS {
        let (mut line, reviews) = (connect(port, files).await?, Arc::clone(&reviews));
        asking.spawn(async move {
            let mut took = Vec::new();
            for number in (of..questions).step_by(CONNECTIONS) {
                let due = start + apart * u32::try_from(number)?;
                tokio::time::sleep_until(due.into()).await;
                ask(&mut line, PATH, &reviews[number % reviews.len()]).await?;
                took.push(due.elapsed().as_secs_f64() * 1e3);
            }
            Ok::<_, anyhow::Error>(took)
        });
    }
    let mut all = Vec::new();
    while let Some(took) = asking.join_next().await {
        run.check()?;
        all.extend(took??);
    }
    Ok(all)
}

/// Waits until objects are answered from.
async fn known(run: &Run, port: u16, files: &TlsFiles) -> Result<()> {
    let began = Instant::now();
    let mut line = connect(port, files).await?;
    loop {
        run.check()?;
        let answer: Value = serde_json::from_slice(&ask(&mut line, PATH, &review(OBJECTS - 1)).await?)?;
        if answer["response"]["patch"].is_string() {
            return Ok(());
        }
        if began.elapsed() > Duration::from_secs(60) {
            bail!("the webhook does not answer from its objects within a minute: {answer}");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// CPU time of the echo's thread so far.
async fn used(port: u16, files: &TlsFiles) -> Result<Duration> {
    let told = ask(&mut connect(port, files).await?, CPU, b"").await?;
    Ok(Duration::from_nanos(String::from_utf8(told)?.parse().context("no CPU time")?))
}

fn measure(run: &Run, webhook: &Daemon, (port, echo): (u16, u16), files: &TlsFiles) -> Result<Vec<Figure>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let questions = RATE as usize * run.length.as_secs().max(1) as usize;
    run.say(&format!("asking {questions} times at {RATE} a second, and an echo"));
    let (echoed, of_echo_cpu, asked, cpu) = runtime.block_on(async {
        known(run, port, files).await?;
        at_rate(run, echo, files, BEFORE).await?;
        let before = used(echo, files).await?;
        let echoed = at_rate(run, echo, files, questions).await?;
        let of_echo = used(echo, files).await?.saturating_sub(before);
        at_rate(run, port, files, BEFORE).await?;
        let before = cpu_time(webhook.pid()?)?;
        let asked = at_rate(run, port, files, questions).await?;
        let cpu = cpu_time(webhook.pid()?)?.saturating_sub(before);
        Ok::<_, anyhow::Error>((echoed, of_echo, asked, cpu))
    })?;
    let p99 = percentile(&asked, 990).context("nothing was asked")?;
    let of_echo = percentile(&echoed, 990).context("nothing was echoed")?;
    let each = |cpu: Duration, of: &[f64]| cpu.as_secs_f64() * 1e3 / of.len().max(1) as f64;
    let body = review(0).len();
    Ok(vec![
        Figure::new("webhook/review-p99", p99, "ms", Target::AtMost(20.0)).baseline(of_echo).what(format!(
            "reviews of {body} bytes over TLS 1.3 at {RATE} a second over {CONNECTIONS} connections, {OBJECTS} objects \
             followed, each counted from when it was due; BASELINE an echo of the same server; median {:.2}",
            percentile(&asked, 500).unwrap_or_default()
        )),
        Figure::new("webhook/review-cpu", each(cpu, &asked), "ms", Target::AtMost(0.1))
            .baseline(each(of_echo_cpu, &echoed))
            .what(format!(
                "CPU time of the webhook's process for each of these {} reviews, handshakes, TLS and all else that it does \
                 included; BASELINE the echo's thread for each of its own",
                asked.len()
            )),
    ])
}
