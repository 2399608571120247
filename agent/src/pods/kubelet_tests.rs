//! A kubelet over TLS that answers what it should, what it should not, or nothing; and what is known then.

use std::path::Path;

use evenkeel_enforce::shared::SourceUpdate;
use evenkeel_model::workload::SourceKind;
use evenkeel_proto::v1;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::report::test_support::tracked;

/// What a kubelet answers: the bytes, and whether it hangs up then.
type Answer = Arc<std::sync::Mutex<(Vec<u8>, bool)>>;

struct Fixture {
    dir: tempfile::TempDir,
    asked: HttpsEndpoint,
    answer: Answer,
    /// Heads of requests.
    heard: Arc<std::sync::Mutex<Vec<String>>>,
}

fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn list(pods: &[(&str, &str)]) -> String {
    let pod = |(uid, cpu): &(&str, &str)| {
        let resources = json!({ "requests": { "cpu": cpu } });
        json!({
            "metadata": { "name": format!("web-{uid}"), "namespace": "shop", "uid": uid },
            "spec": { "containers": [{ "name": "main", "resources": resources }] },
            "status": { "phase": "Running", "qosClass": "Burstable" },
        })
    };
    json!({ "kind": "PodList", "items": pods.iter().map(pod).collect::<Vec<Value>>() }).to_string()
}

/// A kubelet whose certificate has the node's name, as one has that made its own.
async fn kubelet(answer: Vec<u8>) -> Fixture {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["node-1".to_owned()]).unwrap().self_signed(&key).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        std::fs::write(dir.path().join(name), text).unwrap();
        dir.path().join(name)
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let asked = HttpsEndpoint {
        host: "127.0.0.1".to_owned(),
        port: listener.local_addr().unwrap().port(),
        name: "node-1".to_owned(),
        authorities: write("ca.crt", &certificate.pem()),
        token: write("token", "right\n"),
    };
    let der = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], der)
            .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let (answer, heard) = (Arc::new(std::sync::Mutex::new((answer, true))), Arc::default());
    let (answers, hears) = (Arc::clone(&answer), Arc::<std::sync::Mutex<Vec<String>>>::clone(&heard));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, answers, hears) = (acceptor.clone(), Arc::clone(&answers), Arc::clone(&hears));
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let (mut head, mut byte) = (Vec::new(), [0]);
                while !head.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).await.is_ok() {
                    head.push(byte[0]);
                }
                hears.lock().unwrap().push(String::from_utf8_lossy(&head).into_owned());
                let (bytes, hangs_up) = answers.lock().unwrap().clone();
                // Whoever asked may have heard enough.
                let _ = stream.write_all(&bytes).await;
                let _ = stream.flush().await;
                if !hangs_up {
                    let _ = stream.read(&mut byte).await;
                }
            });
        }
    });
    Fixture { dir, asked, answer, heard }
}

async fn until(what: &str, is: impl Fn() -> bool) {
    for _ in 0..6000 {
        if is() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never: {what}");
}

/// What a runtime runs of these pods.
fn runs(uids: &[&str]) -> SourceUpdate {
    let workload = |uid: &&str| {
        let mut workload = (*tracked(1, uid).workload).clone();
        workload.pod.uid = Some((*uid).to_owned());
        Arc::new(workload)
    };
    SourceUpdate {
        source: SourceKind::Cri,
        address: "/run/containerd.sock".to_owned(),
        workloads: uids.iter().map(workload).collect(),
        problems: Vec::new(),
        healthy: true,
    }
}

fn cpu(pods: &Pods, uid: &str) -> Option<String> {
    let by_uid = pods.by_uid();
    let container = by_uid.get(uid)?.containers.first()?;
    container.resources.requests.cpu().map(|cpu| cpu.canonical())
}

#[tokio::test]
async fn its_pods_are_known_followed_and_go_behind_the_recommenders_word() {
    let fixture = kubelet(ok(&list(&[("a", "1"), ("b", "1")]))).await;
    let pods = Arc::new(Pods::none());
    let kubelet = Kubelet { asked: fixture.asked.clone(), interval: Duration::from_secs(3600) };
    let follows = tokio::spawn(run(kubelet, Outward::Here, Arc::clone(&pods)));
    until("its pods", || cpu(&pods, "b").as_deref() == Some("1")).await;
    let head = fixture.heard.lock().unwrap()[0].to_ascii_lowercase();
    assert!(
        head.starts_with("get /pods http/1.1\r\n") && head.contains("authorization: bearer right\r\n"),
        "{head}"
    );
    let status = pods.status().unwrap();
    assert_eq!((status.pods, status.kept, status.kubelet.as_ref().unwrap().pods), (2, false, 2));
    // A container came, one was resized, one went: it is asked again, long before its time.
    fixture.answer.lock().unwrap().0 = ok(&list(&[("a", "3"), ("c", "1")]));
    pods.found(&runs(&["a", "c"]));
    until("the change", || cpu(&pods, "a").as_deref() == Some("3")).await;
    assert_eq!((cpu(&pods, "b"), cpu(&pods, "c").as_deref()), (None, Some("1")));
    // The recommender tells of one of them.
    let told = v1::PodRequirements {
        uid: "a".into(),
        namespace: "shop".into(),
        name: "web-a".into(),
        ..Default::default()
    };
    pods.take(v1::NodePods { run: 7, generation: 1, whole: true, changed: vec![told], ..Default::default() });
    assert_eq!((cpu(&pods, "a"), cpu(&pods, "c").as_deref(), pods.by_uid().len()), (None, Some("1"), 2));
    follows.abort();
}

#[tokio::test]
async fn what_it_says_stays_when_it_fails_and_why_is_told_with_what_helps() {
    let fixture = kubelet(ok(&list(&[("a", "1")]))).await;
    let pods = Pods::none();
    pods.take_kubelets(ask(&fixture.asked, &Outward::Here).await);
    let trouble = |pods: &Pods| pods.status().unwrap().kubelet.unwrap().trouble;
    assert_eq!(trouble(&pods), "");
    let status = |status: &str, body: &str| {
        format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
    };
    let forbidden = "Forbidden (user=system:serviceaccount:evenkeel:evenkeel-agent, verb=get, resource=nodes, subresource(s)=[pods proxy])";
    let mut endless = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
    endless.resize(MOST_BYTES + 4096, b' ');
    for (answer, want) in [
        (status("401 Unauthorized", "Unauthorized"), vec!["401", "token", "audience"]),
        (
            status("403 Forbidden", forbidden),
            vec!["system:serviceaccount", "get nodes/pods", "kubernetes.view"],
        ),
        (status("500 X", "<html>"), vec!["it answers 500"]),
        (ok("{}"), vec!["no PodList"]),
        (b"220 mail.example.com ESMTP\r\n".to_vec(), vec!["HTTP"]),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}".to_vec(), vec!["ends early"]),
        (endless, vec!["above 64 MiB"]),
    ] {
        fixture.answer.lock().unwrap().0 = answer;
        pods.take_kubelets(ask(&fixture.asked, &Outward::Here).await);
        let told = trouble(&pods);
        assert!(want.iter().all(|part| told.contains(part)), "{want:?}: {told}");
        assert!(!told.contains("right"), "the token is not told: {told}");
        assert_eq!(cpu(&pods, "a").as_deref(), Some("1"), "{told}");
    }
    fixture.answer.lock().unwrap().0 = ok(&list(&[("a", "2")]));
    pods.take_kubelets(ask(&fixture.asked, &Outward::Here).await);
    assert_eq!((trouble(&pods), cpu(&pods, "a").as_deref()), (String::new(), Some("2")));
}

#[test]
fn what_it_said_of_a_pod_stays_while_a_runtime_runs_it() {
    let pods = Pods::none();
    let lists = |uids: &[(&str, &str)]| pods.take_kubelets(read_pod_list(list(uids).as_bytes()));
    let known = || ["a", "b", "c"].map(|uid| cpu(&pods, uid).is_some());
    lists(&[("a", "1"), ("b", "1")]);
    pods.found(&runs(&["a", "b"]));
    // It started again, and lists nothing yet; then some; then all, of which one is another now.
    for (listed, want) in [
        (vec![], [true, true, false]),
        (vec![("c", "1")], [true, true, true]),
        (vec![("a", "3"), ("b", "1")], [true, true, false]),
    ] {
        lists(&listed);
        assert_eq!(known(), want, "{listed:?}");
    }
    assert_eq!(cpu(&pods, "a").as_deref(), Some("3"));
    // One ended, and the next list does not have it.
    pods.found(&runs(&["b"]));
    assert_eq!(known(), [true, true, false]);
    lists(&[]);
    assert_eq!(known(), [false, true, false]);
    // What is there counts where both together are more than a node can have.
    let many: Vec<String> = (0..evenkeel_proto::pods::MAX_PODS).map(|at| format!("p{at}")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|uid| (uid.as_str(), "1")).collect();
    lists(&many);
    assert_eq!((known()[1], pods.by_uid().len()), (false, many.len()));
}

#[tokio::test]
async fn what_it_said_is_known_to_the_next_run_while_it_is_asked() {
    let dir = tempfile::tempdir().unwrap();
    let open = |is_asked| {
        let node = evenkeel_model::node::NodeKey { cluster: "test".into(), node: "a".into() };
        let (pods, is_damaged) = Pods::open(dir.path().to_owned(), node, is_asked);
        assert!(!is_damaged);
        Arc::new(pods)
    };
    let keep = |pods: Arc<Pods>| pods.keep(tokio::sync::watch::channel(true).1);
    let known = |pods: &Pods| ["a", "b"].map(|uid| cpu(pods, uid).is_some());
    let lists = |pods: &Pods, uids: &[(&str, &str)]| pods.take_kubelets(read_pod_list(list(uids).as_bytes()));
    let first = open(true);
    keep(Arc::clone(&first)).await;
    assert!(!dir.path().join("pods.json").exists(), "it said nothing");
    lists(&first, &[("a", "1"), ("b", "2")]);
    keep(first).await;
    let next = open(true);
    assert_eq!((known(&next), cpu(&next, "b").as_deref()), ([true, true], Some("2")));
    next.take_kubelets(Err("it is away".into()));
    let status = next.status().unwrap().kubelet.unwrap();
    assert_eq!((status.pods, status.read_usec > 0, status.trouble.as_str()), (2, true, "it is away"));
    // It started again, too, and answers before a runtime does.
    lists(&next, &[]);
    assert_eq!(known(&next), [true, true]);
    next.found(&runs(&["a"]));
    lists(&next, &[]);
    assert_eq!(known(&next), [true, false]);
    keep(next).await;
    let unasked = open(false);
    assert!(unasked.status().is_none() && known(&unasked) == [false, false]);
    assert_eq!(known(&open(true)), [true, false]);
}

#[tokio::test]
async fn it_is_believed_by_its_certificate_alone_and_not_waited_for() {
    let fixture = kubelet(ok(&list(&[]))).await;
    let why = |asked: HttpsEndpoint| async move { ask(&asked, &Outward::Here).await.unwrap_err() };
    let other = HttpsEndpoint { name: "node-2".to_owned(), ..fixture.asked.clone() };
    assert!(why(other).await.contains("certificate"));
    let stranger = kubelet(ok(&list(&[]))).await;
    let unknown = HttpsEndpoint { authorities: stranger.asked.authorities.clone(), ..fixture.asked.clone() };
    assert!(why(unknown).await.contains("certificate"));
    for (asked, want) in [
        (HttpsEndpoint { authorities: "/nonexistent".into(), ..fixture.asked.clone() }, "/nonexistent"),
        (HttpsEndpoint { token: "/nonexistent".into(), ..fixture.asked.clone() }, "/nonexistent"),
        (
            HttpsEndpoint { authorities: fixture.asked.token.clone(), ..fixture.asked.clone() },
            "no certificate",
        ),
    ] {
        assert!(why(asked).await.contains(want));
    }
    assert!(fixture.heard.lock().unwrap().is_empty(), "no token was sent");
    *fixture.answer.lock().unwrap() = (Vec::new(), false);
    let vouchers = Vouchers::read(&fixture.asked).unwrap();
    let soon = get(&fixture.asked, &vouchers, PATH, Duration::from_millis(200), MOST_BYTES).await;
    assert_eq!(soon, Err(NoAnswer::Failed("it does not answer within 200ms".to_owned())));
    assert!(Path::new(fixture.dir.path()).exists());
}

/// The way to a part that has the network, for as long as the test takes.
fn network() -> Outward {
    use evenkeel_border::link::{Bounds, Link, Side};

    let bounds =
        Bounds { theirs: 4, ours: 4, message: 16 << 20, waiting: 24 << 20, packets: 0, descriptors: false };
    let (ours, theirs) = evenkeel_border::socket::pair().unwrap();
    let (link, _) = Link::start(ours, Side::First, bounds).unwrap();
    let (_, mut orders) = Link::start(theirs, Side::Second, bounds).unwrap();
    tokio::spawn(async move {
        while let Some(channel) = orders.recv().await {
            let Order::Kubelet(asked) = Order::of(&channel.receive().await.unwrap()).unwrap() else {
                panic!("another order")
            };
            let said = crate::parts::network::kubelet::ask(asked).await;
            channel.send(&said.message()).await.unwrap();
            channel.end(Ok(())).await;
        }
    });
    let gate = Gate::default();
    gate.set(Some(link));
    Outward::There(gate)
}

#[tokio::test]
async fn the_part_that_has_the_network_asks_it_where_there_is_one() {
    let fixture = kubelet(ok(&list(&[("a", "1"), ("b", "1")]))).await;
    let pods = Pods::none();
    let there = network();
    pods.take_kubelets(ask(&fixture.asked, &there).await);
    assert_eq!((cpu(&pods, "a").as_deref(), pods.by_uid().len()), (Some("1"), 2));
    let head = fixture.heard.lock().unwrap()[0].to_ascii_lowercase();
    assert!(head.contains("authorization: bearer right\r\n"), "{head}");
    // What it refuses is told with what helps, and the files by their names here.
    fixture.answer.lock().unwrap().0 = b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n".to_vec();
    let why = ask(&fixture.asked, &there).await.unwrap_err();
    assert!(why.contains("401") && why.contains(&fixture.asked.token.display().to_string()), "{why}");
    let unreadable = HttpsEndpoint { authorities: fixture.asked.token.clone(), ..fixture.asked.clone() };
    let why = ask(&unreadable, &there).await.unwrap_err();
    assert!(why.contains("no certificate") && why.contains("token"), "{why}");
    let away = Outward::There(Gate::default());
    assert!(ask(&fixture.asked, &away).await.unwrap_err().contains("started again"));
}

#[test]
fn what_a_hostile_network_lists_is_read_as_what_a_recommender_says() {
    let pod = |uid: &str| v1::PodRequirements { uid: uid.into(), name: "web".into(), ..Default::default() };
    let refused = vec!["x".repeat(100_000); 100];
    let read = listed(vec![pod("a"), pod(&"x".repeat(100_000))], refused);
    assert!(read.pods.len() <= 2 && read.refused.len() == MOST_REFUSED);
    assert!(read.refused.iter().all(|text| text.len() <= MOST_TOLD));
}
