//! Suite `hostile`: addresses over TLS. Who shows no certificate of the right authority, an ended one, another node's, or
//! speaks an older TLS or none, sends nothing; a new certificate is served without a restart.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use crate::common;

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use common::apiserver::ApiServer;
use common::tls::{channel, hello};
use common::{Running, http, until};
use evenkeel_proto::line::{Pair, Trust, endpoint};
use evenkeel_proto::v1;
use evenkeel_proto::v1::policy_service_client::PolicyServiceClient;
use evenkeel_proto::v1::recommender_service_client::RecommenderServiceClient;
use evenkeel_recommender::config::{CertificateSection, Config, NodeNameSection, Span};
use evenkeel_recommender::identity::Role;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::Code;

const DOMAIN: &str = "test.example";

/// An authority, with the files it gave out.
struct Authority {
    dir: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(dir: PathBuf) -> Self {
        fs::create_dir_all(&dir).unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        fs::write(dir.join("ca.crt"), certificate.pem()).unwrap();
        Self { dir, issuer: Issuer::new(params, key) }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Certificate and key `NAME.crt`, `NAME.key`.
    fn give(&self, name: &str, uri: Option<&str>, ends: Duration) {
        self.give_named(name, &["localhost"], uri, ends);
    }

    /// The same with names of DNS.
    fn give_named(&self, name: &str, dns: &[&str], uri: Option<&str>, ends: Duration) {
        let dns: Vec<String> = dns.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(dns).unwrap();
        params.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
        params.subject_alt_names.extend(uri.map(|uri| SanType::URI(uri.try_into().unwrap())));
        params.not_before = (SystemTime::now() - Duration::from_secs(86_400)).into();
        params.not_after = (SystemTime::UNIX_EPOCH + ends).into();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        fs::write(self.file(&format!("{name}.crt")), certificate.pem()).unwrap();
        let private = self.file(&format!("{name}.key"));
        fs::write(&private, key.serialize_pem()).unwrap();
        fs::set_permissions(private, fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// Certificate and key of a subject, as kubeconfigs hold them.
    fn give_to(&self, common_name: &str, groups: &[&str], uri: Option<&str>) -> Pair {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.remove(DnType::CommonName);
        params.distinguished_name.push(DnType::CommonName, common_name);
        for group in groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        params.subject_alt_names.extend(uri.map(|uri| SanType::URI(uri.try_into().unwrap())));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Pair { cert: certificate.pem().into_bytes(), key: key.serialize_pem().into_bytes() }
    }

    /// What a client of this authority trusts, with one of its certificates.
    fn trust(&self, name: &str) -> Trust {
        let file = |ending: &str| Some(self.file(&format!("{name}.{ending}")));
        Trust { ca: Some(self.file("ca.crt")), cert: file("crt"), key: file("key"), ..Trust::default() }
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap()
}

fn tomorrow() -> Duration {
    now() + Duration::from_secs(86_400)
}

fn node(name: &str) -> String {
    format!("spiffe://{DOMAIN}/evenkeel/test/{name}")
}

/// A recommender whose addresses are encrypted, and its authority.
async fn encrypted(dir: &Path) -> (Running, Authority, SocketAddr, SocketAddr) {
    encrypted_with(dir, |_| {}).await
}

/// The same with something else configured.
async fn encrypted_with(
    dir: &Path,
    adjust: impl FnOnce(&mut Config),
) -> (Running, Authority, SocketAddr, SocketAddr) {
    let authority = Authority::new(dir.join("ca"));
    authority.give("server", None, tomorrow());
    let people =
        |name: String, roles: &[Role]| CertificateSection { name, roles: roles.to_vec(), namespaces: None };
    let running = Running::start(dir, |config| {
        config.serve.grpc = Some(([127, 0, 0, 1], 0).into());
        config.serve.http = config.serve.grpc;
        config.tls.cert = authority.file("server.crt");
        config.tls.key = authority.file("server.key");
        config.tls.client_ca = authority.file("ca.crt");
        config.tls.trust_domain = DOMAIN.into();
        config.access.certificates = vec![
            people(format!("spiffe://{DOMAIN}/viewers/*"), &[Role::View]),
            people(format!("spiffe://{DOMAIN}/admins/*"), &[Role::View, Role::Apply]),
        ];
        adjust(config);
    })
    .await;
    let (Some(grpc), Some(web)) = running.tcp else { panic!("it has addresses") };
    (running, authority, grpc, web)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_names_a_node_and_nothing_else_does() {
    let dir = tempfile::tempdir().unwrap();
    let (running, authority, grpc, _) = encrypted(dir.path()).await;
    let stranger = Authority::new(dir.path().join("other"));
    for (name, uri, ends) in [
        ("a", Some(node("node-a")), tomorrow()),
        ("b", Some(node("node-b")), tomorrow()),
        ("ended", Some(node("node-a")), now() - Duration::from_secs(60)),
        ("elsewhere", Some("spiffe://other.example/evenkeel/test/node-a".to_owned()), tomorrow()),
        ("person", Some(format!("spiffe://{DOMAIN}/people/anna")), tomorrow()),
        ("nameless", None, tomorrow()),
    ] {
        authority.give(name, uri.as_deref(), ends);
    }
    stranger.give("a", Some(&node("node-a")), tomorrow());
    // The authority that it trusts is the recommender's, its certificate another's.
    let swapped = Trust { ca: Some(authority.file("ca.crt")), ..stranger.trust("a") };
    let none = Trust { cert: None, key: None, ..authority.trust("a") };
    for (trust, name, want) in [
        (authority.trust("a"), "node-a", Ok(())),
        (authority.trust("b"), "node-b", Ok(())),
        (authority.trust("b"), "node-a", Err(Some(Code::PermissionDenied))),
        (authority.trust("elsewhere"), "node-a", Err(Some(Code::Unauthenticated))),
        (authority.trust("person"), "node-a", Err(Some(Code::Unauthenticated))),
        (authority.trust("nameless"), "node-a", Err(Some(Code::Unauthenticated))),
        (none.clone(), "node-a", Err(Some(Code::Unauthenticated))),
        // The handshake fails; of TLS 1.3 the client may notice only when it speaks.
        (authority.trust("ended"), "node-a", Err(None)),
        (swapped, "node-a", Err(None)),
        (stranger.trust("a"), "node-a", Err(None)),
    ] {
        let said = hello(grpc, &trust, name).await;
        match want {
            Ok(()) => assert!(said.is_ok(), "{trust:?} as {name}: {said:?}"),
            Err(Some(code)) => assert_eq!(said.unwrap_err().code(), code, "{trust:?} as {name}"),
            Err(None) => assert!(said.is_err(), "{trust:?} as {name}"),
        }
    }
    // A node's certificate sends frames and asks nothing.
    let channel =
        endpoint(&format!("https://{grpc}"), &authority.trust("a")).unwrap().connect().await.unwrap();
    let refused =
        RecommenderServiceClient::new(channel).list_nodes(v1::ListNodesRequest {}).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    let metrics = http(running.http, "GET", "/metrics", "").await.1;
    let failed = "evenkeel_recommender_failed_handshakes_total{listener=\"grpc\"}";
    let count = metrics.lines().find_map(|line| line.strip_prefix(failed)).unwrap().trim();
    assert!(count.parse::<u64>().unwrap() >= 2, "{count}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_authority_names_nodes_by_the_patterns_that_are_configured() {
    let dir = tempfile::tempdir().unwrap();
    let pattern =
        |name: &str, cluster: &str| NodeNameSection { name: name.to_owned(), cluster: cluster.to_owned() };
    let (running, authority, grpc, _) = encrypted_with(dir.path(), |config| {
        config.tls.nodes = vec![
            pattern("spiffe://mesh.example/host/CLUSTER/NODE", ""),
            pattern("NODE.nodes.example", "test"),
        ];
    })
    .await;
    let uri = |path: &str| format!("spiffe://mesh.example/{path}");
    for (name, dns, uri, want) in [
        ("uri", vec!["localhost"], Some(uri("host/test/node-a")), Ok(())),
        ("usual", vec!["localhost"], Some(node("node-a")), Ok(())),
        ("dns", vec!["Node-A.nodes.example", "localhost"], None, Ok(())),
        ("both", vec!["node-a.nodes.example"], Some(uri("host/test/node-a")), Ok(())),
        ("other", vec!["node-b.nodes.example"], None, Err(Code::PermissionDenied)),
        ("cluster", vec!["localhost"], Some(uri("host/prod/node-a")), Err(Code::PermissionDenied)),
        // Two nodes are none, and neither is what only looks like one.
        ("two", vec!["node-a.nodes.example", "node-b.nodes.example"], None, Err(Code::Unauthenticated)),
        ("mixed", vec!["node-b.nodes.example"], Some(uri("host/test/node-a")), Err(Code::Unauthenticated)),
        ("deeper", vec!["localhost"], Some(uri("host/test/node-a/x")), Err(Code::Unauthenticated)),
        ("longer", vec!["node-a.nodes.example.evil"], None, Err(Code::Unauthenticated)),
        ("any", vec!["*.nodes.example"], None, Err(Code::Unauthenticated)),
    ] {
        authority.give_named(name, &dns, uri.as_deref(), tomorrow());
        let said = hello(grpc, &authority.trust(name), "node-a").await.map(drop);
        assert_eq!(said.as_ref().map_err(tonic::Status::code).copied(), want, "{name}: {said:?}");
    }
    running.stop().await;
}

/// What a client of these versions of TLS is shown: the server's certificate.
async fn shown(
    at: SocketAddr,
    ca: &Path,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> std::io::Result<Vec<u8>> {
    let mut roots = rustls::RootCertStore::empty();
    for authority in CertificateDer::pem_file_iter(ca).unwrap() {
        roots.add(authority.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let name = ServerName::IpAddress(at.ip().into());
    let mut stream = connector.connect(name, TcpStream::connect(at).await?).await?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    // It may close without saying so in TLS.
    let _ended = stream.read_to_string(&mut answer).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    Ok(stream.get_ref().1.peer_certificates().unwrap()[0].to_vec())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn older_tls_and_none_are_not_spoken_and_a_new_certificate_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let (running, authority, grpc, web) = encrypted(dir.path()).await;
    let ca = authority.file("ca.crt");
    let before = shown(web, &ca, &[&rustls::version::TLS13]).await.unwrap();
    assert!(shown(web, &ca, &[&rustls::version::TLS12]).await.is_err(), "no older version");
    for at in [web, grpc] {
        let mut stream = TcpStream::connect(at).await.unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        let _reset = stream.read_to_end(&mut answer).await;
        assert!(!answer.starts_with(b"HTTP"), "nothing is said in plain text");
    }
    // A broken one first: what was read before is served, and that is told.
    fs::write(authority.file("server.crt"), "nonsense").unwrap();
    until(|| async {
        let told = http(running.http, "GET", "/readyz?verbose", "").await.1;
        told.contains("[-]certificate: ").then_some(())
    })
    .await;
    assert_eq!(shown(web, &ca, &[&rustls::version::TLS13]).await.unwrap(), before);
    authority.give("server", None, tomorrow());
    until(|| async {
        let now = shown(web, &ca, &[&rustls::version::TLS13]).await.ok()?;
        (now != before).then_some(())
    })
    .await;
    // One that ends soon is told of.
    authority.give("server", None, now() + Duration::from_secs(600));
    until(|| async {
        let told = http(running.http, "GET", "/readyz?verbose", "").await.1;
        told.contains("the certificate ends in").then_some(())
    })
    .await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_gives_people_the_roles_of_its_name_s_pattern() {
    let dir = tempfile::tempdir().unwrap();
    let (running, authority, grpc, _) = encrypted(dir.path()).await;
    for (name, path, may_view, may_apply) in [
        ("viewer", "viewers/anna", true, false),
        ("admin", "admins/bert", true, true),
        ("deeper", "admins/x/bert", false, false),
        ("stranger", "people/carl", false, false),
    ] {
        authority.give(name, Some(&format!("spiffe://{DOMAIN}/{path}")), tomorrow());
        let channel = channel(grpc, &authority.trust(name)).await.unwrap();
        let viewed = RecommenderServiceClient::new(channel.clone()).list_nodes(v1::ListNodesRequest {}).await;
        assert_eq!(viewed.is_ok(), may_view, "{name}: {viewed:?}");
        let applied = PolicyServiceClient::new(channel).apply(v1::ApplyRequest::default()).await.unwrap_err();
        assert_eq!(applied.code() == Code::InvalidArgument, may_apply, "{name}: {applied}");
        assert!(hello(grpc, &authority.trust(name), "node-a").await.is_err(), "nobody of them is a node");
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_of_the_cluster_names_its_user_and_no_node() {
    let dir = tempfile::tempdir().unwrap();
    let api = ApiServer::start().await;
    let cluster = Authority::new(dir.path().join("cluster"));
    let (running, authority, grpc, _) = encrypted_with(dir.path(), |config| {
        config.kubernetes.enabled = true;
        config.kubernetes.kubeconfig = api.kubeconfig(dir.path());
        config.kubernetes.client_ca = cluster.file("ca.crt");
        config.kubernetes.answers_hold = Span::from_secs(1);
    })
    .await;
    api.allow("anna", "get", "recommendations", "");
    api.allow("operators", "update", "panic", "");
    let uri = node("node-a");
    let admin = format!("spiffe://{DOMAIN}/admins/bert");
    let shows =
        |pair: Pair| Trust { ca: Some(authority.file("ca.crt")), pair: Some(pair), ..Trust::default() };
    let (view, panic) = ("recommendations", "panic");
    for (pair, name, may) in [
        (cluster.give_to("anna", &[], None), "anna", vec![view]),
        (cluster.give_to("bert", &["people", "operators"], None), "bert", vec![panic]),
        (cluster.give_to("nobody", &[], None), "nobody", vec![]),
        // What the listener's authority would make a node or an administrator of is a user under the cluster's.
        (cluster.give_to("anna", &[], Some(&uri)), "anna", vec![view]),
        (cluster.give_to("carl", &[], Some(&admin)), "carl", vec![]),
        (
            cluster.give_to("system:serviceaccount:evenkeel:evenkeel-agent", &[], None),
            "system:serviceaccount",
            vec![],
        ),
    ] {
        let trust = shows(pair);
        let mut client = RecommenderServiceClient::new(channel(grpc, &trust).await.unwrap());
        let viewed = client.list_nodes(v1::ListNodesRequest {}).await;
        let panicked = client.set_panic(v1::SetPanicRequest::default()).await;
        for (resource, said) in [(view, viewed.map(drop)), (panic, panicked.map(drop))] {
            match may.contains(&resource) {
                true => assert!(said.is_ok(), "{name} {resource}: {said:?}"),
                false => {
                    let refused = said.unwrap_err();
                    assert_eq!(refused.code(), Code::PermissionDenied, "{name} {resource}: {refused}");
                    let told = refused.message();
                    assert!(
                        told.contains(&format!("Kubernetes user {name}")) && told.contains(resource),
                        "{told}"
                    );
                }
            }
        }
        let refused = hello(grpc, &trust, "node-a").await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{name} is no node: {refused}");
    }
    // Nobody has no name; a subject that the listener's authority signed is no user of the cluster.
    for pair in [cluster.give_to("", &["operators"], None), authority.give_to("anna", &["operators"], None)] {
        let mut client = RecommenderServiceClient::new(channel(grpc, &shows(pair)).await.unwrap());
        let refused = client.list_nodes(v1::ListNodesRequest {}).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    }
    // A right that is taken back ends what rests on it, though the certificate holds on.
    let anna = shows(cluster.give_to("anna", &[], None));
    let mut client = RecommenderServiceClient::new(channel(grpc, &anna).await.unwrap());
    let asked = v1::WatchRecommendationsRequest::default();
    let mut watched = client.watch_recommendations(asked).await.unwrap().into_inner();
    api.deny("anna");
    let ended = loop {
        match watched.message().await {
            Ok(message) => assert!(message.is_some(), "it ends with a reason"),
            Err(status) => break status,
        }
    };
    assert_eq!(ended.code(), Code::PermissionDenied, "{ended}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_text_that_is_accepted_is_shown_everywhere() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path(), |config| {
        config.serve.http = Some(([0, 0, 0, 0], 0).into());
        config.insecure = true;
    })
    .await;
    let ready = http(running.http, "GET", "/readyz?verbose", "").await.1;
    assert!(ready.contains("[-]encryption: serve.http = 0.0.0.0:0 can be reached"), "{ready}");
    let metrics = http(running.http, "GET", "/metrics", "").await.1;
    assert!(metrics.contains("evenkeel_recommender_insecure 1\n"), "{metrics}");
    // As `evenkeel nodes` and `evenkeel doctor` tell it.
    let mut client = RecommenderServiceClient::connect(running.grpc.to_string()).await.unwrap();
    let troubles = client.list_nodes(v1::ListNodesRequest {}).await.unwrap().into_inner().troubles;
    assert!(troubles.get("encryption").is_some_and(|told| told.contains("insecure = true")), "{troubles:?}");
    running.stop().await;
}

#[test]
fn plain_text_for_other_machines_is_refused_at_start() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path().join("ca"));
    authority.give("server", None, tomorrow());
    fs::set_permissions(authority.file("server.key"), fs::Permissions::from_mode(0o644)).unwrap();
    let set = |key: &str, path: &Path| format!("{key}={}", path.display());
    let cert = set("tls.cert", &authority.file("server.crt"));
    let key = set("tls.key", &authority.file("server.key"));
    let missing = set("tls.key", Path::new("/no/such.key"));
    for (settings, want) in [
        (vec!["serve.grpc=0.0.0.0:0"], "insecure = true"),
        (vec!["serve.http=[::]:0"], "serve.http = [::]:0"),
        (vec!["serve.grpc=0.0.0.0:0", &cert], "both cert and key"),
        (vec!["serve.grpc=0.0.0.0:0", &cert, &missing], "/no/such.key"),
        (vec!["serve.grpc=0.0.0.0:0", &cert, &key], "chmod 0600"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel-recommender"));
        command.args(["--config", "/dev/null", "--socket"]).arg(dir.path().join("r.sock"));
        command.arg("--state-dir").arg(dir.path().join("state"));
        settings.iter().for_each(|setting| {
            command.args(["--set", setting]);
        });
        let ended = command.output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(78), "{settings:?}: {said}");
        assert!(said.contains(want), "{settings:?}: {said}");
    }
}
