//! Every message reads back as what was written, and no bytes do anything but be read or refused.

use std::collections::BTreeMap;
use std::fmt::Debug;

use evenkeel_border::ask::{Amount, Ask, DecisionFilter, Decisions, Failure};
use evenkeel_border::coded::{Bytes, Coded, Malformed};
use evenkeel_border::found::{Problem, Read};
use evenkeel_border::order::{
    Address, At, Authority, Call, ChangedFile, Kubelet, Manifest, Order, Renew, Serve, ServedFile, Sign, Tls,
    Units,
};
use evenkeel_border::packet::{HEAD, MOST_BYTES, Packet, PacketKind, read};
use evenkeel_border::told::{Answer, Kubelets, PodList, Told};
use evenkeel_model::workload::{
    CgroupBinding, ContainerKind, Managed, OomKill, PodFacts, PodRef, Requested, ScorePolicy, SourceKind,
    Workload,
};
use evenkeel_proto::v1;
use evenkeel_proto::v1::stream_response::Message;
use proptest::prelude::*;

fn check<T: Coded + PartialEq + Debug>(value: &T) {
    let message = value.message();
    assert_eq!(T::of(&message).as_ref(), Ok(value));
    // Cut anywhere, or with something behind, it is refused.
    for length in 0..message.len() {
        assert!(T::of(&message[..length]).is_err(), "{value:?} cut at {length}");
    }
    let longer = [&message[..], b"x"].concat();
    assert_eq!(T::of(&longer), Err(Malformed::Long(1)));
}

#[test]
fn questions_read_back() {
    let filter = DecisionFilter { kind: "hold".into(), text: "web ü".into(), page: 3 };
    let decisions = Decisions {
        from_seq: 7,
        since_usec: u64::MAX,
        kinds: vec!["oom-kill".into(), String::new()],
        pod: "shop/web".into(),
        limit: 5,
        no_follow: true,
    };
    let amount = Amount { name: "memory".into(), nano: -1, is_binary: true };
    for ask in [
        Ask::Status,
        Ask::Containers,
        Ask::WatchUsage,
        Ask::Usage(1),
        Ask::WatchDecisions(decisions),
        Ask::OomKills,
        Ask::Evictions(true),
        Ask::Fits(vec![amount.clone(), Amount { nano: i128::MAX, ..amount }]),
        Ask::Metrics,
        Ask::NodePage(2),
        Ask::DecisionsPage(filter),
        Ask::Ticked,
    ] {
        check(&ask);
    }
    check(&Failure { code: 5, message: "no".into() });
}

#[test]
fn orders_read_back() {
    let pem = || Bytes(b"-----BEGIN".to_vec());
    let address = |at: &str| Address { at: At(at.parse().unwrap()), tls: true, token: Some(pem()) };
    let serve = Serve {
        socket: true,
        service: Some(address("127.0.0.1:1")),
        metrics: Some(address("[::1]:65535")),
        dashboard: None,
        tls: Some(Tls { cert: pem(), key: pem(), client_ca: vec![pem(), Bytes::default()] }),
        types: "{}".into(),
    };
    let call = Call {
        address: "https://r:9520".into(),
        ca: Some(pem()),
        pair: Some((pem(), pem())),
        name: Some("r".into()),
        token: "t".into(),
        insecure: false,
    };
    let request =
        v1::SignRequest { csr: vec![1, 2], token: "j".into(), cluster: "c".into(), node: "n".into() };
    for order in [
        Order::Alive,
        Order::Serve(serve),
        Order::Stream(call.clone()),
        Order::Sign(Sign { call: call.clone(), request }),
        Order::Renew(Renew { call, csr: Bytes(vec![9; 300]) }),
        Order::Authority(Authority { host: "h".into(), port: 443, sha256: "ab".into() }),
        Order::Kubelet(Kubelet {
            host: "127.0.0.1".into(),
            port: 10250,
            name: "node-1".into(),
            authorities: ("/ca.crt".into(), pem()),
            token: ("/token".into(), Bytes(b"t".to_vec())),
        }),
        Order::Units(Units { slices: vec!["system.slice".into()], is_named: true }),
        Order::Manifest(Manifest {
            place: "/m/a.yaml".into(),
            types: "{}".into(),
            text: Bytes(vec![0, 255]),
        }),
    ] {
        check(&order);
    }
    for file in [
        ServedFile::Cert,
        ServedFile::Key,
        ServedFile::ClientCa(3),
        ServedFile::ServiceToken,
        ServedFile::MetricsToken,
    ] {
        check(&ChangedFile { file, now: pem() });
    }
}

#[test]
fn what_a_recommender_says_reads_back() {
    let requirements = v1::Requirements {
        requests: BTreeMap::from([("cpu".into(), "100m".into())]),
        limits: BTreeMap::from([("memory".into(), "1Gi".into()), ("cpu".into(), "1".into())]),
    };
    let pod = v1::PodRequirements {
        uid: "u".into(),
        priority: Some(-1),
        qos_class: 2,
        resources: Some(requirements.clone()),
        overhead: BTreeMap::from([("cpu".into(), "1m".into())]),
        containers: vec![v1::ContainerRequirements {
            name: "main".into(),
            kind: 1,
            resources: Some(requirements),
        }],
        ..v1::PodRequirements::default()
    };
    let entry = v1::OverlayEntry {
        namespace: "shop".into(),
        cpu_request_milli: Some(5),
        ..v1::OverlayEntry::default()
    };
    let leading = v1::Leading { leads: true, term: 4, leader: "a".into() };
    for message in [
        Message::Resume(v1::Resume { epoch: 1, leading: Some(leading.clone()), ..v1::Resume::default() }),
        Message::Ack(v1::Ack { epoch: u64::MAX, last_seq: 3 }),
        Message::Refused(v1::Refused { epoch: 1, sequence: 2, why: "w".into(), remedy: "r".into() }),
        Message::Overlay(v1::Overlay { entries: vec![entry], panic: true, ..v1::Overlay::default() }),
        Message::Ping(v1::Ping {}),
        Message::Disbelieved(v1::Disbelieved {
            dropped: vec![v1::Dropped { reason: "beyond".into(), count: 1, remedy: String::new() }],
        }),
        Message::Renewed(v1::Renewed { token_ends: 1, refused: String::new() }),
        Message::Pods(v1::NodePods {
            run: 1,
            changed: vec![pod],
            gone_uids: vec!["x".into()],
            ..v1::NodePods::default()
        }),
        Message::Leading(leading),
    ] {
        check(&Told(Some(message)));
    }
    check(&Told(None));
    check(&Answer(Some(v1::Issued { certificate: "c".into(), not_after: 3, ..v1::Issued::default() })));
    check(&Answer(None));
}

#[test]
fn what_a_kubelet_and_a_manifest_say_reads_back() {
    let pod = v1::PodRequirements { uid: "u".into(), name: "web".into(), ..v1::PodRequirements::default() };
    check(&Kubelets::Listed(PodList { pods: vec![pod], refused: vec!["shop/x: no".into()] }));
    check(&Kubelets::Refused((403, "Forbidden".into())));
    check(&Kubelets::Failed("it does not answer".into()));
    let workload = Workload {
        id: "shop/web/main".into(),
        source: SourceKind::Manifests,
        pod: PodRef { namespace: "shop".into(), name: "web".into(), uid: None },
        container: "main".into(),
        kind: ContainerKind::Regular,
        workload: "deployment/web".into(),
        image: Some("busybox:1".into()),
        command_hash: Some(7),
        cgroup: CgroupBinding::Path("/shop/web".into()),
        pid: None,
        requested: Requested::Unknown,
        pod_facts: PodFacts::default(),
        managed: Managed::No("opted out".into()),
        score_policy: ScorePolicy::Pin,
        oom_kill: Some(OomKill::Container),
    };
    let problem = Problem { what: "read".into(), where_: "a.yaml".into(), ..Problem::default() };
    check(&Read { workloads: vec![workload], problems: vec![problem] });
}

#[test]
fn what_a_message_says_of_its_length_is_not_believed() {
    // A list of four thousand million entries, of which none comes.
    let claims = [&[8][..], &u32::MAX.to_le_bytes()].concat();
    assert_eq!(Ask::of(&claims), Err(Malformed::Short));
    // Entries beyond what a message may have, each of which is there.
    let many: Vec<u8> = [&[5][..], &[0; 16], &2_000_000_u32.to_le_bytes(), &vec![0; 8_000_000]].concat();
    assert_eq!(Ask::of(&many), Err(Malformed::Parts));
    for bad in [&b"\x00"[..], b"\xff", b"\x07\x02", b"\x0b\x01\x00\x00\x00\xff"] {
        assert!(Ask::of(bad).is_err(), "{bad:?}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        again::<Ask>(&bytes);
        again::<Order>(&bytes);
        again::<Told>(&bytes);
        again::<Answer>(&bytes);
        again::<Failure>(&bytes);
        again::<ChangedFile>(&bytes);
        again::<Kubelets>(&bytes);
        again::<Read>(&bytes);
        if let Ok(packet) = read(&bytes) {
            prop_assert_eq!(packet.bytes(), bytes);
        }
    }

    #[test]
    fn packets_read_back(channel: u32, body in proptest::collection::vec(any::<u8>(), 0..MOST_BYTES - HEAD)) {
        for kind in [PacketKind::Open, PacketKind::Part, PacketKind::Last, PacketKind::Credit, PacketKind::End] {
            let packet = Packet { channel, kind, body: &body };
            let bytes = packet.bytes();
            prop_assert_eq!(read(&bytes), Ok(packet));
        }
    }
}

/// What is read is written and read as the same.
fn again<T: Coded + PartialEq + Debug>(bytes: &[u8]) {
    if let Ok(value) = T::of(bytes) {
        assert_eq!(T::of(&value.message()).as_ref(), Ok(&value));
    }
}
