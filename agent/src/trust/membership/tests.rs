//! Joining and renewing, at a recommender of a few lines that signs whatever it is told to.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::SystemTime;

use evenkeel_net::tls::{Tls, TlsFiles};
use evenkeel_net::{Gate, Limits, Speech};
use evenkeel_proto::v1::enroll_service_server::{EnrollService, EnrollServiceServer};
use rcgen::{BasicConstraints, CertificateSigningRequestParams, IsCa, Issuer, SanType};
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::*;
use crate::report::test_support::configured;

const HOUR: u64 = 3600;

/// What is signed next: for whom, from when and until when.
#[derive(Debug, Clone)]
struct Next {
    uri: String,
    holds: (u64, u64),
}

#[derive(Clone)]
struct Fake {
    issuer: Arc<Issuer<'static, KeyPair>>,
    next: Arc<Mutex<Next>>,
    /// How often each was asked.
    asked: Arc<Mutex<(usize, usize)>>,
}

impl Fake {
    fn issued(&self, csr: Vec<u8>) -> Option<v1::Issued> {
        let Next { uri, holds: (begins, ends) } = lock(&self.next).clone();
        let request = CertificateSigningRequestParams::from_der(&csr.into()).unwrap();
        let mut params = CertificateParams::default();
        let at = |seconds| (SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).into();
        (params.not_before, params.not_after) = (at(begins), at(ends));
        params.subject_alt_names = vec![SanType::URI(uri.as_str().try_into().unwrap())];
        let certificate = params.signed_by(&request.public_key, &*self.issuer).unwrap().pem();
        Some(v1::Issued { certificate, ..v1::Issued::default() })
    }
}

#[tonic::async_trait]
impl EnrollService for Fake {
    async fn sign(&self, request: Request<v1::SignRequest>) -> Result<Response<v1::SignResponse>, Status> {
        lock(&self.asked).0 += 1;
        let v1::SignRequest { csr, token, cluster, node } = request.into_inner();
        assert_eq!((cluster.as_str(), node.as_str()), ("test", "n1"));
        match token.as_str() {
            "good" => Ok(Response::new(v1::SignResponse { issued: self.issued(csr) })),
            _ => Err(Status::permission_denied("the join token is not known")),
        }
    }
    async fn renew(&self, request: Request<v1::RenewRequest>) -> Result<Response<v1::RenewResponse>, Status> {
        lock(&self.asked).1 += 1;
        let issued = self.issued(request.into_inner().csr);
        Ok(Response::new(v1::RenewResponse { issued }))
    }
    async fn create_token(
        &self,
        _: Request<v1::CreateTokenRequest>,
    ) -> Result<Response<v1::CreateTokenResponse>, Status> {
        Err(Status::unimplemented(""))
    }
    async fn revoke(&self, _: Request<v1::RevokeRequest>) -> Result<Response<v1::RevokeResponse>, Status> {
        Err(Status::unimplemented(""))
    }
    async fn list_enrolled(
        &self,
        _: Request<v1::ListEnrolledRequest>,
    ) -> Result<Response<v1::ListEnrolledResponse>, Status> {
        Err(Status::unimplemented(""))
    }
}

/// A recommender at an address, and the fingerprint of its authority.
async fn recommender(dir: &Path) -> (Fake, SocketAddr, String) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
    let key = KeyPair::generate().unwrap();
    let served = params.signed_by(&key, &issuer).unwrap();
    let pair = dir.join("server.pem");
    fs::write(&pair, format!("{}{}{}", served.pem(), authority.pem(), key.serialize_pem())).unwrap();
    fs::set_permissions(&pair, fs::Permissions::from_mode(0o600)).unwrap();
    let tls = Tls::open(TlsFiles { cert: pair.clone(), key: pair, client_ca: Vec::new(), cluster_ca: None })
        .unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let gate = Gate::new("test", Limits { connections: 8, per_peer: 8 });
    let incoming = evenkeel_net::at_address(listener, gate, Speech::Grpc, Some(Arc::new(tls)));
    let next = Next { uri: "spiffe://td/evenkeel/test/n1".into(), holds: (now(), now() + 24 * HOUR) };
    let fake = Fake { issuer: Arc::new(issuer), next: Arc::new(Mutex::new(next)), asked: Arc::default() };
    let serving = Server::builder().add_service(EnrollServiceServer::new(fake.clone()));
    tokio::spawn(serving.serve_with_incoming(incoming));
    (fake, at, evenkeel_net::fingerprint(authority.der()))
}

struct Node {
    membership: Membership,
    address: String,
    token: PathBuf,
    pair: PathBuf,
}

impl Node {
    fn new(dir: &Path, at: SocketAddr, sha256: &str) -> Self {
        let (address, token) = (format!("https://{at}"), dir.join("join.token"));
        let text = format!(
            "state_dir = {:?}\n[stream]\nrecommender = {address:?}\njoin_token = {token:?}\nca_sha256 = \"sha256:{sha256}\"\n",
            dir.join("state")
        );
        let context = configured(dir, 1, &text);
        private::directory(&context.config.enforce.state_dir).unwrap();
        let membership = Membership::new(&context.config, &context.node, &Outward::default());
        Self { membership, address, token, pair: dir.join("state/identity/node.pem") }
    }

    async fn trust(&self) -> anyhow::Result<Trust> {
        self.membership.trust(&self.address, &Trust::default()).await
    }

    async fn renew(&self) -> anyhow::Result<()> {
        let trust = self.trust().await.unwrap();
        self.membership.renew(&self.address, &trust).await
    }
}

#[tokio::test]
async fn a_node_joins_by_token_and_fingerprint_and_keeps_what_it_got() {
    let dir = tempfile::tempdir().unwrap();
    let (fake, at, sha256) = recommender(dir.path()).await;
    let node = Node::new(dir.path(), at, &sha256);
    let error = format!("{:#}", node.trust().await.unwrap_err());
    assert!(error.contains("evenkeel ca token n1"), "{error}");
    fs::write(&node.token, "bad\n").unwrap();
    let error = format!("{:#}", node.trust().await.unwrap_err());
    assert!(error.contains("the join token is not known"), "{error}");
    assert!(node.membership.trouble().unwrap().contains("the join token"));
    fs::write(&node.token, "good\n").unwrap();
    // A certificate for somebody else is not taken.
    let right = lock(&fake.next).uri.clone();
    lock(&fake.next).uri = "spiffe://td/evenkeel/test/n2".into();
    assert!(format!("{:#}", node.trust().await.unwrap_err()).contains("this node is /evenkeel/test/n1"));
    assert!(!node.pair.exists());
    lock(&fake.next).uri = right;
    let trust = node.trust().await.unwrap();
    assert_eq!((trust.cert.as_ref(), trust.key.as_ref()), (Some(&node.pair), Some(&node.pair)));
    assert_eq!(fs::metadata(&node.pair).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(node.membership.trouble(), None);
    let due = node.membership.due().as_secs();
    assert!((14 * HOUR..=16 * HOUR).contains(&due), "two thirds of a day: {due}");
    // It is used further, also by the next run; the token is not tried again.
    let again = Node::new(dir.path(), at, &sha256);
    again.trust().await.unwrap();
    assert_eq!(*lock(&fake.asked), (3, 0));
    // Another authority's fingerprint is none of this recommender.
    let elsewhere = tempfile::tempdir().unwrap();
    let other = Node::new(elsewhere.path(), at, &"0".repeat(64));
    assert!(format!("{:#}", other.trust().await.unwrap_err()).contains("somebody else answers"));
}

#[tokio::test]
async fn a_certificate_is_renewed_at_two_thirds_and_a_refused_one_by_a_newer_token() {
    let dir = tempfile::tempdir().unwrap();
    let (fake, at, sha256) = recommender(dir.path()).await;
    let node = Node::new(dir.path(), at, &sha256);
    fs::write(&node.token, "good").unwrap();
    lock(&fake.next).holds = (now() - 17 * HOUR, now() + 7 * HOUR);
    node.trust().await.unwrap();
    assert_eq!(node.membership.due(), Duration::ZERO);
    // What cannot be taken leaves the present one in force, and is tried again later.
    lock(&fake.next).uri = "spiffe://td/evenkeel/test/n2".into();
    node.renew().await.unwrap();
    assert!(node.membership.trouble().unwrap().contains("n2") && node.membership.due() > AGAIN / 2);
    *lock(&fake.next) =
        Next { uri: "spiffe://td/evenkeel/test/n1".into(), holds: (now(), now() + 24 * HOUR) };
    let before = fs::read(&node.pair).unwrap();
    let renewed = node.renew().await.unwrap_err();
    assert!(renewed.is::<NewCertificate>(), "{renewed:#}");
    assert!(fs::read(&node.pair).unwrap() != before && node.membership.due().as_secs() > 14 * HOUR);
    assert_eq!((*lock(&fake.asked), node.membership.trouble()), ((1, 2), None));
    // Refused: the token that was used is not tried, a newer one is.
    node.membership.refuse("node test/n1 was revoked");
    fs::File::options().write(true).open(&node.token).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    node.trust().await.unwrap();
    assert!(node.membership.trouble().unwrap().contains("was revoked"));
    fs::File::options()
        .write(true)
        .open(&node.token)
        .unwrap()
        .set_modified(SystemTime::now() + Duration::from_secs(9))
        .unwrap();
    node.trust().await.unwrap();
    assert_eq!((*lock(&fake.asked), node.membership.trouble()), ((2, 2), None));
    // One that has ended is got anew.
    lock(&fake.next).holds = (now() - 25 * HOUR, now() - HOUR);
    let text = fs::read_to_string(&node.pair).unwrap();
    assert!(text.contains("PRIVATE KEY"));
    node.membership.refuse("");
    node.trust().await.unwrap();
    lock(&fake.next).holds = (now(), now() + 24 * HOUR);
    node.trust().await.unwrap();
    assert_eq!(lock(&fake.asked).0, 4);
}

#[test]
fn nodes_that_joined_together_renew_one_after_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = configured(dir.path(), 1, "").config.clone();
    config.stream.joining = Some(Joining { token: "/nonexistent/token".into(), ca_sha256: None });
    let due = |number: u32| {
        let node = NodeKey { cluster: "test".into(), node: format!("n{number}") };
        let membership = Membership::new(&config, &node, &Outward::default());
        lock(&membership.state).holds = Some((now(), now() + 24 * HOUR));
        membership.due().as_secs() / 60
    };
    let mut minutes: Vec<u64> = (0..100).map(due).collect();
    minutes.sort_unstable();
    minutes.dedup();
    assert!(
        minutes.len() > 40 && minutes[0] >= 14 * 60 && minutes[minutes.len() - 1] <= 16 * 60,
        "{minutes:?}"
    );
}
