//! Suite `hostile`: the recommender's own authority. A join token is for one use, one node and ten minutes; a certificate
//! has the token's name whatever is asked for; who is revoked loses the stream and is refused until joining anew.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use crate::common;

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use common::tls::{channel, hello};
use common::{Running, http, until};
use evenkeel_net::fingerprint;
use evenkeel_net::pin;
use evenkeel_net::tls::{Certificate, certificates};
use evenkeel_proto::line::Trust;
use evenkeel_proto::v1;
use evenkeel_proto::v1::enroll_service_client::EnrollServiceClient;
use evenkeel_recommender::authority::{Authority, Name};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, SanType};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::Value;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

fn name(node: &str) -> Name {
    Name { cluster: "test".into(), node: node.into() }
}

/// A key and a request that claims to be another node, the recommender and an authority.
fn request() -> (KeyPair, Vec<u8>) {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let other = "spiffe://evenkeel/evenkeel/test/node-b";
    params.subject_alt_names.push(SanType::URI(other.try_into().unwrap()));
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let csr = params.serialize_request(&key).unwrap().der().to_vec();
    (key, csr)
}

/// A recommender with its own authority, and nothing else configured.
struct Own {
    running: Running,
    dir: PathBuf,
    grpc: SocketAddr,
    socket: Channel,
}

impl Own {
    async fn start(dir: &Path) -> Self {
        let running = Running::start(dir, |config| {
            config.serve.grpc = Some(([127, 0, 0, 1], 0).into());
            config.tls.authority = true;
        })
        .await;
        let socket = Endpoint::from_shared(running.grpc.to_string()).unwrap().connect().await.unwrap();
        let grpc = running.tcp.0.unwrap();
        Self { running, dir: dir.to_owned(), grpc, socket }
    }

    fn ca(&self) -> PathBuf {
        self.dir.join("authority/ca.crt")
    }

    /// What is known before joining.
    fn stranger(&self) -> Trust {
        Trust { ca: Some(self.ca()), ..Trust::default() }
    }

    fn admin(&self) -> EnrollServiceClient<Channel> {
        EnrollServiceClient::new(self.socket.clone())
    }

    async fn token(&self, node: &str) -> String {
        let asked = v1::CreateTokenRequest { cluster: "test".into(), node: node.into() };
        self.admin().create_token(asked).await.unwrap().into_inner().token
    }

    async fn revoke(&self, node: &str) {
        let asked = v1::RevokeRequest { cluster: "test".into(), node: node.into() };
        self.admin().revoke(asked).await.unwrap();
    }

    /// Joins with a token over the address.
    async fn join(&self, token: &str, node: &str) -> Result<Trust, Status> {
        let (key, csr) = request();
        let asked = v1::SignRequest { csr, token: token.into(), cluster: "test".into(), node: node.into() };
        let mut client = EnrollServiceClient::new(channel(self.grpc, &self.stranger()).await?);
        let issued = client.sign(asked).await?.into_inner().issued.unwrap();
        Ok(self.kept(node, &issued.certificate, &key))
    }

    /// A certificate and its key in files.
    fn kept(&self, name: &str, certificate: &str, key: &KeyPair) -> Trust {
        let file = self.dir.join(format!("{name}-{}.pem", fingerprint(certificate.as_bytes())));
        fs::write(&file, format!("{certificate}{}", key.serialize_pem())).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        Trust { cert: Some(file.clone()), key: Some(file), ..self.stranger() }
    }

    /// One that the authority in a directory gave at another time.
    fn given_at(&self, authority: &Path, node: &str, at: u64) -> Trust {
        let authority = Authority::open(authority, "evenkeel", at).unwrap();
        let (key, csr) = request();
        let (token, _) = authority.token(&name(node), at).unwrap();
        let given = authority.join(&csr, &token, &name(node), at).unwrap();
        self.kept(node, &given.certificate, &key)
    }
}

fn pem(text: &str) -> Vec<u8> {
    CertificateDer::from_pem_slice(text.as_bytes()).unwrap().to_vec()
}

fn code<T: std::fmt::Debug>(said: Result<T, Status>) -> Code {
    said.unwrap_err().code()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_token_is_for_one_use_one_node_and_ten_minutes() {
    let dir = tempfile::tempdir().unwrap();
    let own = Own::start(dir.path()).await;
    // The authority is found by its fingerprint, and no other is taken for it.
    let der = certificates(&own.ca()).unwrap().swap_remove(0);
    let found = pin::authority("127.0.0.1", own.grpc.port(), &fingerprint(&der)).await.unwrap();
    assert_eq!(found, der.to_vec());
    let other = pin::authority("127.0.0.1", own.grpc.port(), &"0".repeat(64)).await.unwrap_err();
    assert!(other.to_string().contains("somebody else answers"), "{other}");

    let token = own.token("node-a").await;
    let late = Authority::open(&own.dir.join("authority"), "evenkeel", now()).unwrap();
    let (late, _) = late.token(&name("node-c"), now() - 601).unwrap();
    for (token, node, want) in [
        (token.as_str(), "node-b", "for node test/node-a, the agent says it is test/node-b"),
        (&late, "node-c", "not known"),
        ("evk_join_0", "node-a", "not known"),
        ("", "node-a", "not known"),
    ] {
        let refused = own.join(token, node).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
        assert!(refused.message().contains(want), "{want}: {refused}");
    }
    // Many at once: one is served.
    let many = futures::future::join_all((0..8).map(|_| own.join(&token, "node-a"))).await;
    let mut served = many.into_iter().filter_map(Result::ok);
    let trust = served.next().unwrap();
    assert!(served.next().is_none());
    assert_eq!(code(own.join(&token, "node-a").await), Code::PermissionDenied);

    // The certificate is the token's node's, whatever the request claimed.
    let leaf = Certificate::of(&certificates(trust.cert.as_ref().unwrap()).unwrap()[0]);
    assert_eq!(leaf.uris(), ["spiffe://evenkeel/evenkeel/test/node-a"]);
    hello(own.grpc, &trust, "node-a").await.unwrap();
    assert_eq!(code(hello(own.grpc, &trust, "node-b").await), Code::PermissionDenied);
    // It asks nothing, makes no tokens and revokes nobody; a stranger does neither.
    for trust in [&trust, &own.stranger()] {
        let mut client = EnrollServiceClient::new(channel(own.grpc, trust).await.unwrap());
        let asked = v1::CreateTokenRequest { cluster: "test".into(), node: "node-b".into() };
        assert!(client.create_token(asked).await.is_err());
        let asked = v1::RevokeRequest { cluster: "test".into(), node: "node-b".into() };
        assert!(client.revoke(asked).await.is_err());
        assert!(client.list_enrolled(v1::ListEnrolledRequest {}).await.is_err());
    }
    own.running.stop().await;
    // A used token stays used over a restart, and certificates stay good.
    let own = Own::start(dir.path()).await;
    assert_eq!(code(own.join(&token, "node-a").await), Code::PermissionDenied);
    hello(own.grpc, &trust, "node-a").await.unwrap();
    own.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_node_loses_its_stream_and_is_refused_until_it_joins_anew() {
    let dir = tempfile::tempdir().unwrap();
    let own = Own::start(dir.path()).await;
    let token = own.token("node-a").await;
    let first = own.join(&token, "node-a").await.unwrap();
    let token = own.token("node-b").await;
    let other = own.join(&token, "node-b").await.unwrap();
    hello(own.grpc, &first, "node-a").await.unwrap();
    let others = hello(own.grpc, &other, "node-b").await.unwrap();

    // Renewed with the present certificate, for the same node whatever the request claims.
    let renew = async |trust: &Trust| {
        let (key, csr) = request();
        let mut client = EnrollServiceClient::new(channel(own.grpc, trust).await?);
        let issued = client.renew(v1::RenewRequest { csr }).await?.into_inner().issued.unwrap();
        Ok::<_, Status>(own.kept("renewed", &issued.certificate, &key))
    };
    let second = renew(&first).await.unwrap();
    let stream = hello(own.grpc, &second, "node-a").await.unwrap();
    assert_eq!(code(hello(own.grpc, &second, "node-b").await), Code::PermissionDenied);
    assert_eq!(code(renew(&own.stranger()).await), Code::Unauthenticated);

    own.revoke("node-a").await;
    let ended = stream.end().await;
    assert_eq!(ended.code(), Code::Unauthenticated, "{ended}");
    assert!(ended.message().contains("node test/node-a was revoked; make a join token"), "{ended}");
    for trust in [&first, &second] {
        assert_eq!(code(hello(own.grpc, trust, "node-a").await), Code::Unauthenticated);
        assert_eq!(code(renew(trust).await), Code::Unauthenticated);
    }
    // Joined anew, and what was taken away stays away.
    let token = own.token("node-a").await;
    let third = until(|| async { own.join(&token, "node-a").await.ok() }).await;
    until(|| async { hello(own.grpc, &third, "node-a").await.ok() }).await;
    assert_eq!(code(hello(own.grpc, &first, "node-a").await), Code::Unauthenticated);
    let listed = own.admin().list_enrolled(v1::ListEnrolledRequest {}).await.unwrap().into_inner();
    let nodes: Vec<_> = listed.nodes.iter().map(|n| (n.node.as_str(), n.revoked > 0, n.refused)).collect();
    assert_eq!(nodes, [("node-a", true, false), ("node-b", false, false)]);
    // Nobody else was touched.
    others.requests.send(v1::StreamRequest { message: None }).await.unwrap();
    assert_eq!(others.end().await.code(), Code::InvalidArgument);
    own.running.stop().await;
}

/// A renewal is in the audit record before the node has it: who, from where, which certificate until when. Where that cannot be
/// written no certificate is given, and the next attempt after it can be is answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_certificate_that_is_given_or_renewed_is_in_the_audit_record() {
    let dir = tempfile::tempdir().unwrap();
    let own = Own::start(&dir.path().join("state")).await;
    let first = own.join(&own.token("node-a").await, "node-a").await.unwrap();
    let renew = async || {
        let mut client = EnrollServiceClient::new(channel(own.grpc, &first).await?);
        let issued = client.renew(v1::RenewRequest { csr: request().1 }).await?.into_inner().issued.unwrap();
        Ok::<_, Status>(issued.certificate)
    };
    let second = renew().await.unwrap();
    let entries = async || {
        let at = "/api/v1/audit?kind=Certificate";
        let page: Value = serde_json::from_str(&http(own.running.http, "GET", at, "").await.1).unwrap();
        page["entries"].as_array().unwrap().clone()
    };
    let found = entries().await;
    let told = |entry: &Value| {
        [&entry["method"], &entry["who"], &entry["name"], &entry["outcome"]]
            .map(|v| v.as_str().unwrap().to_owned())
    };
    let uri = "certificate spiffe://evenkeel/evenkeel/test/node-a";
    assert_eq!(told(&found[0]), ["evenkeel.v1.EnrollService/Renew", uri, "test/node-a", "done"]);
    assert_eq!(
        told(&found[1]),
        ["evenkeel.v1.EnrollService/Sign", "join token of test/node-a", "test/node-a", "done"]
    );
    assert!(found[0]["from"].as_str().unwrap().starts_with("127.0.0.1:"), "{}", found[0]);
    let der = pem(&second);
    assert_eq!(found[0]["after"]["sha256"], fingerprint(&der));
    assert!(found[1]["after"]["sha256"].is_string() && found[0]["after"]["certificateExpires"].is_string());

    let record = own.dir.join("audit");
    fs::remove_dir_all(&record).unwrap();
    fs::write(&record, "").unwrap();
    for _ in 0..2 {
        assert_eq!(code(renew().await), Code::Unavailable);
    }
    fs::remove_file(&record).unwrap();
    renew().await.unwrap();
    assert_eq!(entries().await.iter().filter(|entry| entry["outcome"] == "done").count(), 1);
    own.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_ends_ends_its_stream_and_another_authority_names_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let own = Own::start(dir.path()).await;
    let authority = own.dir.join("authority");
    let ends_soon = own.given_at(&authority, "node-a", now() - 86_400 + 5);
    let stream = hello(own.grpc, &ends_soon, "node-a").await.unwrap();
    let ended = stream.end().await;
    assert_eq!(ended.code(), Code::Unauthenticated, "{ended}");
    assert!(ended.message().contains("the certificate has ended"), "{ended}");
    assert!(hello(own.grpc, &ends_soon, "node-a").await.is_err());
    // The same names from an authority of the same kind.
    let foreign = own.given_at(&dir.path().join("foreign"), "node-a", now());
    assert!(hello(own.grpc, &foreign, "node-a").await.is_err());
    let told = http(own.running.http, "GET", "/metrics", "").await.1;
    for metric in ["certificate_expires_seconds", "authority_expires_seconds", "insecure 0"] {
        assert!(told.contains(&format!("evenkeel_recommender_{metric}")), "{metric}");
    }
    own.running.stop().await;
}
