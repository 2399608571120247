//! What becomes of a pod before it is kept, in the order of the API server: what its kind fills in, LimitRanger, and the mutating webhooks that are
//! registered, which are called over TLS (kubernetes.io, "Admission Controllers", "Dynamic Admission Control"). Of a registration, address, authority,
//! time and failure policy count; each is taken to be about all pods.

#![allow(clippy::result_large_err, reason = "a refusal is sent at once")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::rest::{Asked, Named};
use super::{Known, now, pods, refusal};

const REGISTRATIONS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const RANGES: &str = "/api/v1/limitranges";
/// Where LimitRanger says what it filled in.
const LIMIT_RANGER: &str = "kubernetes.io/limit-ranger";

/// The question with the pod as it is to be kept; questions about anything else as they are.
pub(super) async fn admitted(known: &Arc<Mutex<Known>>, asked: Asked) -> Result<Asked, Response> {
    let makes_pod = |named: &Named| named.plural == "pods" && named.name.is_empty() && asked.method == "POST";
    let Some(named) = Named::parse(&asked.path).filter(makes_pod) else { return Ok(asked) };
    // What is no object is refused where it would be kept.
    let Ok(mut pod) = serde_json::from_slice::<Value>(&asked.body) else { return Ok(asked) };
    if !pod["metadata"].is_object() {
        return Ok(asked);
    }
    fill_in(&mut pod, &named.namespace);
    let hooks = {
        let known = known.lock().unwrap();
        for range in
            objects(&known, RANGES).iter().filter(|of| of["metadata"]["namespace"] == *named.namespace)
        {
            limit(&mut pod, &range["spec"]["limits"]);
        }
        objects(&known, REGISTRATIONS)
            .iter()
            .flat_map(|of| list(&of["webhooks"]).to_vec())
            .collect::<Vec<_>>()
    };
    for hook in &hooks {
        let name = hook["name"].as_str().unwrap_or_default();
        match reviewed(hook, &named.namespace, &mut pod).await {
            Ok(()) => {}
            Err(Said::No(why)) => {
                let message = format!("admission webhook {name:?} denied the request: {why}");
                return Err(refusal::status(403, "Forbidden", &message, json!({})));
            }
            Err(Said::Nothing(why)) if hook["failurePolicy"] != "Ignore" => {
                let message = format!("failed calling webhook {name:?}: failed to call webhook: {why}");
                return Err(refusal::status(500, "InternalError", &message, json!({})));
            }
            Err(Said::Nothing(_)) => {}
        }
    }
    pod["status"] = json!({ "phase": "Pending", "qosClass": pods::class(&pod["spec"]) });
    Ok(Asked { body: pod.to_string().into(), ..asked })
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn objects(known: &Known, collection: &str) -> Vec<Value> {
    let all = known.store.objects.get(collection).into_iter().flatten();
    all.map(|(_, text)| serde_json::from_str(text).unwrap()).collect()
}

/// What the kind fills in: identity, and requests that are not given beside limits.
fn fill_in(pod: &mut Value, namespace: &str) {
    let metadata = &mut pod["metadata"];
    if let Some(prefix) = metadata["generateName"].as_str().filter(|_| metadata["name"].is_null()) {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        metadata["name"] = format!("{prefix}{number:05x}").into();
    }
    metadata["namespace"] = namespace.into();
    metadata["generation"] = 1.into();
    metadata["creationTimestamp"] = now().into();
    for container in containers(pod) {
        let resources = &mut container["resources"];
        if resources.is_null() {
            *resources = json!({});
        }
        let limits = resources["limits"].clone();
        for (name, amount) in limits.as_object().into_iter().flatten() {
            if resources["requests"][name].is_null() {
                resources["requests"][name] = amount.clone();
            }
        }
    }
}

fn containers(pod: &mut Value) -> &mut [Value] {
    pod["spec"]["containers"].as_array_mut().map_or(&mut [][..], Vec::as_mut_slice)
}

/// Fills in the defaults of a LimitRange, and says so as LimitRanger does.
fn limit(pod: &mut Value, limits: &Value) {
    let mut told = Vec::new();
    for limit in list(limits).iter().filter(|limit| limit["type"] == "Container") {
        for container in containers(pod) {
            for (from, to, word) in
                [("defaultRequest", "requests", "request"), ("default", "limits", "limit")]
            {
                let mut set = Vec::new();
                for (resource, amount) in limit[from].as_object().into_iter().flatten() {
                    if container["resources"][to][resource].is_null() {
                        container["resources"][to][resource] = amount.clone();
                        set.push(resource.as_str());
                    }
                }
                if !set.is_empty() {
                    let name = container["name"].as_str().unwrap_or_default();
                    told.push(format!("{} {word} for container {name}", set.join(", ")));
                }
            }
        }
    }
    if !told.is_empty() {
        let told = format!("LimitRanger plugin set: {}", told.join("; "));
        pod["metadata"]["annotations"][LIMIT_RANGER] = told.into();
    }
}

/// What a webhook said that let nothing through.
enum Said {
    No(String),
    Nothing(String),
}

/// Asks a webhook about a pod, and changes it as the webhook says.
async fn reviewed(hook: &Value, namespace: &str, pod: &mut Value) -> Result<(), Said> {
    let request = json!({
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "kind": { "group": "", "version": "v1", "kind": "Pod" },
        "resource": { "group": "", "version": "v1", "resource": "pods" }, "name": "", "namespace": namespace,
        "operation": "CREATE", "userInfo": { "username": "recommender" }, "object": pod, "oldObject": null, "dryRun": false,
    });
    let review =
        json!({ "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request });
    let seconds = hook["timeoutSeconds"].as_u64().unwrap_or(10);
    let asked =
        tokio::time::timeout(Duration::from_secs(seconds), exchange(&hook["clientConfig"], &review)).await;
    let answer =
        asked.map_err(|_| Said::Nothing("context deadline exceeded".to_owned()))?.map_err(Said::Nothing)?;
    let response = &answer["response"];
    if response["uid"] != review["request"]["uid"] {
        return Err(Said::Nothing("the response's uid is another one".to_owned()));
    }
    if response["allowed"] != true {
        return Err(Said::No(
            response["status"]["message"].as_str().unwrap_or("without explanation").to_owned(),
        ));
    }
    let Some(patch) = response["patch"].as_str() else { return Ok(()) };
    let patch =
        STANDARD.decode(patch).ok().and_then(|bytes| serde_json::from_slice::<Vec<Value>>(&bytes).ok());
    let patch = patch.ok_or_else(|| Said::Nothing("the patch is none".to_owned()))?;
    apply(pod, &patch).map_err(Said::Nothing)
}

/// One request over a connection of its own, to the URL of a registration.
async fn exchange(config: &Value, review: &Value) -> Result<Value, String> {
    let url = config["url"].as_str().ok_or("no endpoints available for service")?;
    let rest = url.strip_prefix("https://").ok_or("the URL has to be https")?;
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host).to_owned();
    let bundle = STANDARD.decode(config["caBundle"].as_str().unwrap_or_default()).unwrap_or_default();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&bundle).filter_map(Result::ok));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(authority).await.map_err(|error| error.to_string())?;
    let name = ServerName::try_from(host).map_err(|error| error.to_string())?;
    let connected = TlsConnector::from(Arc::new(tls)).connect(name, stream).await;
    let mut stream = connected.map_err(|error| format!("tls: {error}"))?;
    let (body, path) = (review.to_string(), if path.is_empty() { "/" } else { path });
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {authority}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let sent = stream.write_all(format!("{head}{body}").as_bytes()).await;
    sent.map_err(|error| error.to_string())?;
    let mut answer = Vec::new();
    // Not everybody says good-bye before closing.
    let read = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| format!("no answer: {read:?}"))?;
    if !head.starts_with("HTTP/1.1 200") {
        return Err(format!("{}: {body}", head.lines().next().unwrap_or_default()));
    }
    serde_json::from_str(body).map_err(|error| error.to_string())
}

/// RFC 6902, as far as objects and lists are added to, replaced and removed.
fn apply(object: &mut Value, patch: &[Value]) -> Result<(), String> {
    for operation in patch {
        let path = operation["path"].as_str().unwrap_or_default();
        let wrong = || format!("{operation} cannot be applied");
        let (parent, key) = path.rsplit_once('/').ok_or_else(wrong)?;
        let (key, value) = (key.replace("~1", "/").replace("~0", "~"), operation["value"].clone());
        match (operation["op"].as_str(), object.pointer_mut(parent)) {
            (Some("add" | "replace"), Some(Value::Object(fields))) => drop(fields.insert(key, value)),
            (Some("remove"), Some(Value::Object(fields))) => drop(fields.remove(&key).ok_or_else(wrong)?),
            (Some("add"), Some(Value::Array(all))) => {
                let at = if key == "-" { all.len() } else { key.parse().map_err(|_| wrong())? };
                if at > all.len() {
                    return Err(wrong());
                }
                all.insert(at, value);
            }
            _ => return Err(wrong()),
        }
    }
    Ok(())
}
