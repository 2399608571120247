//! The audit record over the real interfaces: each change has one entry with before and after, whoever makes it and by whatever
//! way; secrets are in none; who may see it; what happens where it cannot be written.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use crate::common;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use clap::Parser as _;
use common::{Running, http, http_on, until};
use evenkeel_proto::v1;
use evenkeel_proto::v1::audit_service_client::AuditServiceClient;
use evenkeel_proto::v1::enroll_service_client::EnrollServiceClient;
use evenkeel_proto::v1::policy_service_client::PolicyServiceClient;
use evenkeel_proto::v1::recommender_service_client::RecommenderServiceClient;
use evenkeel_recommender::cli::{Cli, Command, ca, token};
use evenkeel_recommender::config::Config;
use evenkeel_recommender::identity::Role;
use evenkeel_recommender::identity::tokens::{TokenEntry, TokenFile};
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

fn policy(name: &str, cpu: &str) -> String {
    format!(
        r#"{{"apiVersion": "evenkeel.dev/v1", "kind": "Policy", "metadata": {{"name": "{name}", "namespace": "shop"}},
            "spec": {{"target": {{}}, "resourcesPolicy": {{"containers": [{{"name": "*", "requests": {{"cpu": {{"min": "{cpu}"}}}}}}]}}}}}}"#
    )
}

fn range(cpu: &str) -> String {
    format!(
        r#"{{"apiVersion": "v1", "kind": "LimitRange", "metadata": {{"name": "bounds", "namespace": "shop"}},
            "spec": {{"limits": [{{"type": "Container", "max": {{"cpu": "{cpu}"}}}}]}}}}"#
    )
}

fn quiet(config: &mut Config) {
    config.policies = Vec::new();
    config.panic_file = PathBuf::new();
    config.tls.authority = true;
}

async fn channel(running: &Running) -> Channel {
    Endpoint::from_shared(running.grpc.to_string()).unwrap().connect().await.unwrap()
}

/// The newest entries, oldest first.
async fn entries(running: &Running, query: &str) -> Vec<Value> {
    let (status, text) = http(running.http, "GET", &format!("/api/v1/audit?limit=1000{query}"), "").await;
    assert_eq!(status, 200, "{text}");
    let page: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&page["trouble"], &page["nextPageToken"]), (&Value::Null, &Value::Null));
    page["entries"].as_array().unwrap().iter().rev().cloned().collect()
}

/// Method, object, outcome, and whether there is a before and an after.
fn told(entry: &Value) -> String {
    let text = |key: &str| entry[key].as_str().unwrap().to_owned();
    let is = |key: &str| if entry[key].is_null() { '-' } else { '+' };
    let object = format!("{} {}/{}", text("kind"), text("namespace"), text("name"));
    format!("{}: {object} {} {}{}", text("method"), text("outcome"), is("before"), is("after"))
}

fn request() -> Vec<u8> {
    let key = KeyPair::generate().unwrap();
    CertificateParams::new(Vec::new()).unwrap().serialize_request(&key).unwrap().der().to_vec()
}

/// Every file below a directory as one text.
fn everything(dir: &Path) -> String {
    let mut all = String::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => all.push_str(&everything(&entry.path())),
            false => all.push_str(&String::from_utf8_lossy(&fs::read(entry.path()).unwrap())),
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_change_leaves_one_entry_with_before_and_after_and_no_secret() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path(), quiet).await;
    let line = channel(&running).await;

    let mut policies = PolicyServiceClient::new(line.clone());
    let apply = |policy: String, dry_run| v1::ApplyRequest { policy, dry_run };
    for text in [policy("web", "100m"), policy("web", "200m"), range("2"), range("3")] {
        policies.apply(apply(text.clone(), true)).await.unwrap();
        policies.apply(apply(text.clone(), false)).await.unwrap();
        // It is so already.
        policies.apply(apply(text, false)).await.unwrap();
    }
    for (kind, name) in [("", "web"), ("LimitRange", "bounds")] {
        let object = || v1::DeleteRequest { namespace: "shop".into(), name: name.into(), kind: kind.into() };
        policies.delete(object()).await.unwrap();
        assert_eq!(policies.delete(object()).await.unwrap_err().code(), Code::NotFound);
    }
    assert!(policies.apply(apply("kind: [".into(), false)).await.is_err());
    for (method, path, body, want) in [
        ("POST", "/api/v1/policies", policy("rest", "100m"), 201),
        ("PUT", "/api/v1/policies/shop/rest", policy("rest", "300m"), 200),
        ("PUT", "/api/v1/policies/shop/other", policy("rest", "300m"), 400),
        ("DELETE", "/api/v1/policies/shop/rest", String::new(), 204),
    ] {
        assert_eq!(http(running.http, method, path, &body).await.0, want, "{method} {path}");
    }

    let mut recommender = RecommenderServiceClient::new(line.clone());
    for (on, revert) in [(true, false), (true, true), (false, false)] {
        let asked = v1::SetPanicRequest { on, revert, reason: "drill".into() };
        recommender.set_panic(asked).await.unwrap();
    }

    let mut authority = EnrollServiceClient::new(line);
    let (cluster, node) = ("test".to_owned(), "n1".to_owned());
    let made = v1::CreateTokenRequest { cluster: cluster.clone(), node: node.clone() };
    let join = authority.create_token(made).await.unwrap().into_inner().token;
    let sign = |token: &str| v1::SignRequest {
        csr: request(),
        token: token.into(),
        cluster: cluster.clone(),
        node: node.clone(),
    };
    authority.sign(sign("evk_join_of_nobody")).await.unwrap_err();
    authority.sign(sign(&join)).await.unwrap();
    let revoked = v1::RevokeRequest { cluster: cluster.clone(), node: node.clone() };
    authority.revoke(revoked).await.unwrap();

    let all = entries(&running, "").await;
    let found = &all[1..];
    assert_eq!(told(&all[0]), "start: Authority /evenkeel done -+");
    assert_eq!(all[0]["who"], "recommender");
    let want = "evenkeel.v1.PolicyService/Apply: Policy shop/web done -+
evenkeel.v1.PolicyService/Apply: Policy shop/web done ++
evenkeel.v1.PolicyService/Apply: LimitRange shop/bounds done -+
evenkeel.v1.PolicyService/Apply: LimitRange shop/bounds done ++
evenkeel.v1.PolicyService/Delete: Policy shop/web done +-
evenkeel.v1.PolicyService/Delete: Policy shop/web failed --
evenkeel.v1.PolicyService/Delete: LimitRange shop/bounds done +-
evenkeel.v1.PolicyService/Delete: LimitRange shop/bounds failed --
evenkeel.v1.PolicyService/Apply:  / failed --
POST /api/v1/policies: Policy shop/rest done -+
PUT /api/v1/policies/{namespace}/{name}: Policy shop/rest done ++
PUT /api/v1/policies/{namespace}/{name}:  shop/other failed --
DELETE /api/v1/policies/{namespace}/{name}: Policy shop/rest done +-
evenkeel.v1.RecommenderService/SetPanic: PanicSwitch /panic done ++
evenkeel.v1.RecommenderService/SetPanic: PanicSwitch /panic done ++
evenkeel.v1.RecommenderService/SetPanic: PanicSwitch /panic done ++
evenkeel.v1.EnrollService/CreateToken: JoinToken /test/n1 done -+
evenkeel.v1.EnrollService/Sign:  / refused --
evenkeel.v1.EnrollService/Sign: Certificate /test/n1 done ++
evenkeel.v1.EnrollService/Revoke: Node /test/n1 done ++";
    assert_eq!(found.iter().map(told).collect::<Vec<_>>().join("\n"), want);
    let cpu =
        |object: &Value| object["spec"]["resourcesPolicy"]["containers"][0]["requests"]["cpu"]["min"].clone();
    assert_eq!((cpu(&found[1]["before"]), cpu(&found[1]["after"])), (json!("100m"), json!("200m")));
    let off = |on: bool, revert: bool| json!({ "on": on, "revert": revert, "reason": "drill" });
    assert_eq!((&found[14]["before"], &found[14]["after"]), (&off(true, false), &off(true, true)));
    assert_eq!(found[18]["who"], "join token of test/n1");
    let (before, after) = (&found[19]["before"], &found[19]["after"]);
    assert_eq!((&before["refused"], &after["refused"]), (&json!(false), &json!(true)));
    let uid = nix::unistd::getuid().to_string();
    for entry in found {
        let (who, from) = (entry["who"].as_str().unwrap(), entry["from"].as_str().unwrap());
        assert!(who.contains(&uid) || who.starts_with("join token of"), "{who}");
        let pid = format!("unix socket, pid {}, uid {uid}", std::process::id());
        assert_eq!(from, pid);
    }
    assert_eq!(entries(&running, "&kind=LimitRange&outcome=done").await.len(), 3);
    let metrics = http(running.http, "GET", "/metrics", "").await.1;
    assert!(metrics.contains("evenkeel_recommender_audit_entries_total{outcome=\"done\"} 16"), "{metrics}");
    running.stop().await;

    let record = everything(&dir.path().join("audit"));
    assert!(record.contains("JoinToken") && !record.contains(&join) && !record.contains("evk_"), "no secret");
    let running = Running::start(dir.path(), quiet).await;
    assert_eq!(entries(&running, "").await, all, "they outlive the process");
    running.stop().await;
}

/// A command of `evenkeel-recommender`.
fn command(dir: &Path, line: &str) -> anyhow::Result<String> {
    let tokens = dir.join("tokens.toml");
    let words = format!(
        "x --config /dev/null --state-dir {} --set tls.authority=true --set access.tokens={} {line}",
        dir.display(),
        tokens.display()
    );
    let cli = Cli::try_parse_from(words.split(' '))?;
    let sources = cli.flags.sources();
    match cli.command.unwrap() {
        Command::Token { action } => token(&action, &sources),
        Command::Ca { action } => ca(&action, &sources),
        Command::Store { .. }
        | Command::Config { .. }
        | Command::Man(_)
        | Command::Completion(_)
        | Command::Webhook => {
            unreachable!("it is not asked for here")
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_leave_entries_with_and_without_a_running_recommender() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    fs::create_dir(&state).unwrap();
    let mut secrets = Vec::new();
    for line in ["ca init", "ca init", "token add anna --role view --namespace shop", "ca token test/n1"] {
        secrets.push(command(&state, line).unwrap());
    }
    let running = Running::start(&state, |config| {
        quiet(config);
        config.access.tokens = state.join("tokens.toml");
    })
    .await;
    for line in ["token remove anna", "ca revoke test/n1"] {
        command(&state, line).unwrap();
    }
    for line in ["token list", "ca list"] {
        command(&state, line).unwrap();
    }
    assert!(command(&state, "token remove anna").is_err());
    let all = until(|| async {
        let found = entries(&running, "").await;
        (found.len() >= 7).then_some(found)
    })
    .await;
    // What a running recommender reads of files has an entry of its own, when it comes in force.
    let is_file = |entry: &Value| entry["kind"] == "File";
    let mut files: Vec<_> =
        all.iter().filter(|e| is_file(e)).map(|e| e["after"]["removed"].clone()).collect();
    files.sort_by_key(Value::to_string);
    assert_eq!(files, [json!(["join token of test/n1"]), json!(["token anna"])]);
    let found: Vec<Value> = all.into_iter().filter(|entry| !is_file(entry)).collect();
    let want = "evenkeel-recommender ca init: Authority /evenkeel done -+
evenkeel-recommender token add: Token /anna done -+
evenkeel-recommender ca token: JoinToken /test/n1 done -+
evenkeel-recommender token remove: Token /anna done +-
evenkeel-recommender ca revoke: Node /test/n1 done ++";
    assert_eq!(found.iter().map(told).collect::<Vec<_>>().join("\n"), want);
    assert_eq!(found[1]["after"]["roles"], json!(["view"]));
    assert!(found.iter().all(|e| e["from"].as_str().unwrap().starts_with("command line, pid ")));
    let record = everything(&state.join("audit"));
    assert!(secrets[2..].iter().all(|secret| !record.contains(secret)) && !record.contains("sha256\":\"\""));
    running.stop().await;
}

/// A recommender with an HTTP address at which these tokens hold.
async fn with_tokens(dir: &Path, named: &[(&str, &[Role], Option<&str>)]) -> (Running, Vec<String>) {
    let mut file = TokenFile::default();
    let mut add = |(name, roles, namespace): &(&str, &[Role], Option<&str>)| {
        file.add(TokenEntry {
            name: (*name).to_owned(),
            sha256: String::new(),
            roles: roles.to_vec(),
            namespaces: namespace.map(|namespace| [namespace.to_owned()].into()),
            node: None,
            expires: None,
        })
        .unwrap()
    };
    let tokens = named.iter().map(&mut add).collect();
    let path = dir.join("tokens.toml");
    file.write(&path).unwrap();
    let running = Running::start(&dir.join("state"), |config| {
        config.policies = Vec::new();
        config.panic_file = PathBuf::new();
        config.serve.http = Some(([127, 0, 0, 1], 0).into());
        config.access.tokens = path;
    })
    .await;
    (running, tokens)
}

async fn by(running: &Running, token: &str, method: &str, path: &str, body: &str) -> (u16, Value) {
    let stream = TcpStream::connect(running.tcp.1.unwrap()).await.unwrap();
    let lines = format!("Content-Type: application/json\r\nAuthorization: Bearer {token}\r\n");
    let (status, text) = http_on(stream, method, path, &lines, body).await;
    (status, serde_json::from_str(&text).unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_refused_is_recorded_and_namespaces_are_seen_by_those_who_may() {
    let dir = tempfile::tempdir().unwrap();
    let named: [(&str, &[Role], Option<&str>); 4] = [
        ("reader", &[Role::View], None),
        ("shopkeeper", &[Role::View, Role::Apply], Some("shop")),
        ("banker", &[Role::View], Some("bank")),
        ("gambler", &[Role::Simulate], None),
    ];
    let (running, tokens) = with_tokens(dir.path(), &named).await;
    let [reader, shopkeeper, banker, gambler] = &tokens[..] else { panic!("four") };
    let bank = policy("web", "1").replace("shop", "bank");
    const PATH: &str = "/api/v1/policies";
    assert_eq!(by(&running, shopkeeper, "POST", PATH, &policy("web", "1")).await.0, 201);
    assert_eq!(by(&running, shopkeeper, "POST", PATH, &bank).await.0, 403);
    assert_eq!(by(&running, reader, "POST", PATH, &bank).await.0, 403);
    assert_eq!(by(&running, "evk_wrong", "DELETE", "/api/v1/policies/shop/web", "").await.0, 401);

    let (status, page) = by(&running, reader, "GET", "/api/v1/audit", "").await;
    assert_eq!(status, 200, "{page}");
    let found = page["entries"].as_array().unwrap();
    let seen: Vec<_> = found
        .iter()
        .map(|e| {
            (e["who"].as_str().unwrap(), e["outcome"].as_str().unwrap(), e["namespace"].as_str().unwrap())
        })
        .collect();
    let want = [
        ("nobody", "refused", "shop"),
        ("token reader", "refused", ""),
        ("token shopkeeper", "refused", "bank"),
        ("token shopkeeper", "done", "shop"),
    ];
    assert_eq!(seen, want);
    assert!(found[1]["reason"].as_str().unwrap().contains("this asks for apply"), "{}", found[1]);
    assert!(found.iter().all(|e| e["from"].as_str().unwrap().starts_with("127.0.0.1:")));

    let asked = |token: &'static str, query: &'static str| (token, query);
    for ((token, query), status, want) in [
        (asked("shopkeeper", "?namespace=shop"), 200, 2),
        (asked("shopkeeper", "?namespace=bank"), 403, 0),
        (asked("shopkeeper", ""), 403, 0),
        (asked("banker", "?namespace=bank"), 200, 1),
        (asked("gambler", ""), 403, 0),
        (asked("reader", "?who=shopkeeper"), 200, 2),
        (asked("reader", "?outcome=lost"), 400, 0),
        (asked("reader", "?since=yesterday"), 400, 0),
        (asked("reader", "?since=2000-01-01T00:00:00Z&until=2001-01-01T00:00:00Z"), 200, 0),
        (asked("reader", "?limit=1&pageToken=2"), 200, 1),
        (asked("reader", "?pageToken=x"), 400, 0),
    ] {
        let secret = match token {
            "shopkeeper" => shopkeeper,
            "banker" => banker,
            "gambler" => gambler,
            _ => reader,
        };
        let (said, page) = by(&running, secret, "GET", &format!("/api/v1/audit{query}"), "").await;
        let count = page["entries"].as_array().map_or(0, Vec::len);
        assert_eq!((said, count), (status, want), "{token} {query}: {page}");
    }
    for _ in 0..40 {
        by(&running, gambler, "POST", PATH, &bank).await;
    }
    let kept = by(&running, reader, "GET", "/api/v1/audit?who=gambler", "").await.1;
    assert_eq!(kept["entries"].as_array().unwrap().len(), 10, "the rest is counted");
    let mut client = AuditServiceClient::new(channel(&running).await);
    let asked = v1::ListChangesRequest { limit: 3, ..v1::ListChangesRequest::default() };
    let page = client.list_changes(asked).await.unwrap().into_inner();
    assert_eq!((page.entries.len(), page.next_page_token.is_empty()), (3, false));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_it_cannot_be_written_changes_are_refused_and_the_panic_switch_works() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path(), quiet).await;
    let line = channel(&running).await;
    let record = dir.path().join("audit");
    fs::remove_dir_all(&record).unwrap();
    // Nothing can be written there.
    fs::write(&record, "").unwrap();
    let mut policies = PolicyServiceClient::new(line.clone());
    let apply = || v1::ApplyRequest { policy: policy("web", "100m"), dry_run: false };
    for _ in 0..2 {
        let refused = policies.apply(apply()).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable);
        assert!(refused.message().contains("cannot be recorded"), "{refused}");
    }
    let (status, text) = http(running.http, "POST", "/api/v1/policies", &policy("web", "100m")).await;
    assert!(status == 503 && text.contains("cannot be recorded"), "{status} {text}");
    assert!(policies.list(v1::ListRequest::default()).await.unwrap().into_inner().policies.is_empty());
    let mut authority = EnrollServiceClient::new(line.clone());
    let made = v1::CreateTokenRequest { cluster: "test".into(), node: "n1".into() };
    assert_eq!(authority.create_token(made).await.unwrap_err().code(), Code::Unavailable);
    assert!(command(dir.path(), "token add anna --role view").is_err());

    let mut recommender = RecommenderServiceClient::new(line);
    let panic = |on| v1::SetPanicRequest { on, ..v1::SetPanicRequest::default() };
    recommender.set_panic(panic(true)).await.unwrap();
    assert_eq!(recommender.set_panic(panic(false)).await.unwrap_err().code(), Code::Unavailable);
    let ready = http(running.http, "GET", "/readyz?verbose", "").await;
    assert!(ready.0 == 200 && ready.1.contains("[-]audit: changes cannot be recorded"), "{ready:?}");
    let metrics = http(running.http, "GET", "/metrics", "").await.1;
    for line in ["audit_failing 1", "audit_entries_total{outcome=\"lost\"} 1"] {
        assert!(metrics.contains(&format!("evenkeel_recommender_{line}\n")), "{line}");
    }
    assert_eq!(http(running.http, "GET", "/api/v1/audit", "").await.0, 503);

    fs::remove_file(&record).unwrap();
    policies.apply(apply()).await.unwrap();
    recommender.set_panic(panic(false)).await.unwrap();
    assert_eq!(entries(&running, "").await.len(), 2);
    until(|| async {
        let ready = http(running.http, "GET", "/readyz?verbose", "").await.1;
        ready.contains("[+]audit: ok").then_some(())
    })
    .await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_sets_the_panic_switch_leaves_one_entry_each_way() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("panic");
    let running = Running::start(&dir.path().join("state"), |config| {
        config.policies = Vec::new();
        config.panic_file.clone_from(&file);
    })
    .await;
    let until_on = |on: bool, running| async move {
        until(|| async {
            let found = entries(running, "&kind=PanicSwitch").await;
            // The end of a change is written after its beginning.
            let last = found.last()?;
            (last["after"]["on"] == on && last["outcome"] == "done").then_some(found)
        })
        .await
    };
    fs::write(&file, "").unwrap();
    until_on(true, &running).await;
    fs::remove_file(&file).unwrap();
    let found = until_on(false, &running).await;
    let want = ["configuration: PanicSwitch /panic done ++"; 2];
    assert_eq!(found.iter().map(told).collect::<Vec<_>>(), want);
    assert!(found[0]["from"].as_str().unwrap().contains("/panic") && found[0]["who"] == "recommender");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_are_edited_leave_an_entry_each_and_come_in_force_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (policies, objects, tokens) = (at("p.json"), at("o.json"), at("tokens.toml"));
    let record = at("state").join("audit");
    fs::write(&policies, policy("web", "100m")).unwrap();
    let running = Running::start(&at("state"), |config| {
        quiet(config);
        config.policies = vec![policies.clone()];
        config.objects = vec![objects.clone()];
        config.access.tokens.clone_from(&tokens);
    })
    .await;
    let edits = async |count: usize| {
        let found = until(|| async {
            let found = entries(&running, "&kind=File").await;
            (found.len() >= count).then_some(found)
        })
        .await;
        assert_eq!(found.len(), count, "{found:?}");
        found
    };
    assert_eq!(edits(0).await.len(), 0, "what was there at the start");
    let (web, db) = (policy("web", "2"), policy("db", "2"));
    fs::write(&policies, format!("{web}\n---\n{db}\n")).unwrap();
    let found = edits(1).await;
    let after = &found[0]["after"];
    assert_eq!(
        (&after["added"], &after["changed"]),
        (&json!(["policy shop/db"]), &json!(["policy shop/web"]))
    );
    assert_eq!(found[0]["who"], format!("file {}", policies.display()));
    assert_eq!(found[0]["name"], policies.display().to_string());
    let uid = nix::unistd::getuid().to_string();
    assert!(found[0]["from"].as_str().unwrap().contains(&uid), "{}", found[0]);
    assert_eq!(told(&found[0]).split(": ").next(), Some("edit"));

    fs::write(&objects, range("2")).unwrap();
    edits(2).await;
    let mut file = TokenFile::default();
    let secret = file
        .add(TokenEntry {
            name: "anna".into(),
            sha256: String::new(),
            roles: vec![Role::View],
            namespaces: None,
            node: None,
            expires: None,
        })
        .unwrap();
    file.write(&tokens).unwrap();
    let found = edits(3).await;
    assert_eq!(found[1]["after"]["added"], json!(["LimitRange shop/bounds"]));
    assert_eq!(found[2]["after"]["added"], json!(["token anna"]));
    let all = everything(&record);
    assert!(!all.contains(&secret) && !all.contains(&file.token[0].sha256), "no secret");

    // Nothing can be written there: nothing comes in force, and everything does once it can.
    fs::remove_dir_all(&record).unwrap();
    fs::write(&record, "").unwrap();
    fs::remove_file(&tokens).unwrap();
    fs::write(&policies, policy("web", "3")).unwrap();
    until(|| async {
        let ready = http(running.http, "GET", "/readyz?verbose", "").await.1;
        ready.contains("[-]tokens: the change cannot be recorded").then_some(())
    })
    .await;
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    let text = http(running.http, "GET", "/api/v1/policies", "").await.1;
    assert!(text.contains("\"db\""), "{text}");
    fs::remove_file(&record).unwrap();
    let found = edits(2).await;
    let mut last: Vec<_> = found.iter().map(|e| e["after"]["removed"].clone()).collect();
    last.sort_by_key(Value::to_string);
    assert_eq!(last, [json!(["policy shop/db"]), json!(["token anna"])]);
    until(|| async {
        let text = http(running.http, "GET", "/api/v1/policies", "").await.1;
        (!text.contains("\"db\"")).then_some(())
    })
    .await;
    running.stop().await;
}

/// As on a machine: root makes tokens, the recommender has a user of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_of_root_leaves_its_entry_as_the_recommenders_user() {
    const NOBODY: u32 = 65_534;
    if !nix::unistd::geteuid().is_root() {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "it needs root");
        eprintln!("skipped: it needs root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (state, elsewhere) = (dir.path().join("state"), dir.path().join("elsewhere"));
    for path in [&state, &elsewhere] {
        fs::create_dir(path).unwrap();
    }
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::chown(&state, Some(NOBODY), Some(NOBODY)).unwrap();
    let add = |name: &str| {
        let tokens = format!("access.tokens={}", dir.path().join("tokens.toml").display());
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_evenkeel-recommender"));
        command.args(["--config", "/dev/null", "--set", &tokens, "--state-dir"]).arg(&state);
        command.args(["token", "add", name, "--role", "view"]).output().unwrap()
    };
    let added = add("anna");
    assert!(added.status.success(), "{added:?}");
    let left: Vec<_> = fs::read_dir(state.join("audit/inbox")).unwrap().map(|f| f.unwrap()).collect();
    assert_eq!(left.len(), 1);
    let meta = left[0].metadata().unwrap();
    assert_eq!((meta.uid(), meta.mode() & 0o777), (NOBODY, 0o600));
    let text = fs::read_to_string(left[0].path()).unwrap();
    assert!(text.contains("user root (0)") && text.contains("\"done\""), "{text}");
    // A link of that user's leads root nowhere.
    fs::remove_dir_all(state.join("audit/inbox")).unwrap();
    std::os::unix::fs::symlink(&elsewhere, state.join("audit/inbox")).unwrap();
    let refused = add("bert");
    assert!(!refused.status.success(), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("nothing was changed"), "{refused:?}");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    assert!(!fs::read_to_string(dir.path().join("tokens.toml")).unwrap().contains("bert"));
}
