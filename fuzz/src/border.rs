//! What crosses the border between the agent's processes: packets, and every kind of message.

use std::fmt::Debug;

use evenkeel_border::ask::{Ask, DecisionFilter, Decisions, Failure};
use evenkeel_border::coded::{Bytes, Coded};
use evenkeel_border::found::{Found, Problem, Read};
use evenkeel_border::order::{Authority, Call, ChangedFile, Order, ServedFile};
use evenkeel_border::packet::{self, Packet, PacketKind};
use evenkeel_border::told::{Answer, Kubelets, PodList, Told};
use evenkeel_model::workload::SourceKind;

/// The first byte says which reader the others are for.
pub(crate) fn read(bytes: &[u8]) {
    let Some((which, bytes)) = bytes.split_first() else { return };
    match which % 10 {
        0 => again::<Ask>(bytes),
        1 => again::<Order>(bytes),
        2 => again::<Told>(bytes),
        3 => again::<Answer>(bytes),
        4 => again::<Failure>(bytes),
        5 => again::<ChangedFile>(bytes),
        6 => again::<Kubelets>(bytes),
        7 => again::<Read>(bytes),
        8 => again::<Found>(bytes),
        _ => {
            if let Ok(packet) = packet::read(bytes) {
                assert_eq!(packet.bytes(), bytes);
            }
        }
    }
}

/// What is read is written and read as the same.
fn again<T: Coded + PartialEq + Debug>(bytes: &[u8]) {
    if let Ok(value) = T::of(bytes) {
        assert_eq!(T::of(&value.message()).as_ref(), Ok(&value));
    }
}

pub(crate) fn some() -> Vec<Vec<u8>> {
    let after = |which: u8, message: Vec<u8>| [vec![which], message].concat();
    let decisions = Decisions {
        kinds: vec!["hold".into(), "oom-kill".into()],
        pod: "shop/web".into(),
        ..Decisions::default()
    };
    let call = Call { address: "https://r:1".into(), ca: Some(Bytes(vec![1; 9])), ..Call::default() };
    let authority = Authority { host: "h".into(), port: 443, sha256: "ab".into() };
    let overlay = [&[1, 4, 1][..], &3_u32.to_le_bytes(), b"why", &[0; 12], &[0; 4], &[1]].concat();
    let problem = Problem { what: "read".into(), why: "no".into(), ..Problem::default() };
    let found = Found {
        source: SourceKind::Cri,
        address: "/run/c.sock".into(),
        workloads: Vec::new(),
        problems: vec![problem.clone()],
        healthy: true,
    };
    vec![
        after(0, Ask::WatchDecisions(decisions).message()),
        after(
            0,
            Ask::DecisionsPage(DecisionFilter { text: "web".into(), ..DecisionFilter::default() }).message(),
        ),
        after(1, Order::Stream(call).message()),
        after(1, Order::Authority(authority).message()),
        after(2, overlay),
        after(3, vec![0]),
        after(4, Failure { code: 3, message: "no".into() }.message()),
        after(5, ChangedFile { file: ServedFile::ClientCa(1), now: Bytes(vec![7; 20]) }.message()),
        after(6, Kubelets::Refused((403, "no".into())).message()),
        after(6, Kubelets::Listed(PodList { refused: vec!["a".into()], ..PodList::default() }).message()),
        after(7, Read { problems: vec![problem], ..Read::default() }.message()),
        after(8, found.message()),
        after(9, Packet { channel: 3, kind: PacketKind::Last, body: b"message" }.bytes()),
    ]
}
