//! Links between two good sides, and against a hostile other.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use super::*;
use crate::coded::VERSION;

const BOUNDS: Bounds =
    Bounds { theirs: 4, ours: 4, message: 1 << 20, waiting: 2 << 20, packets: 0, descriptors: false };

type Half = (Link, mpsc::Receiver<Channel>);

fn both(bounds: Bounds) -> (Half, Half) {
    let (one, other) = socket::pair().unwrap();
    let first = Link::start(one, Side::First, bounds).unwrap();
    (first, Link::start(other, Side::Second, Bounds { descriptors: true, ..bounds }).unwrap())
}

/// A link, and the bare socket of a hostile other.
fn against(bounds: Bounds) -> (Half, OwnedFd) {
    let (one, other) = socket::pair().unwrap();
    rustix::io::ioctl_fionbio(&other, true).unwrap();
    (Link::start(one, Side::First, bounds).unwrap(), other)
}

/// Sends a packet as soon as there is room, unless the link ended before.
async fn sent(hostile: &OwnedFd, packet: &[u8]) {
    while let Err(error) = socket::send(hostile, packet, None) {
        if error.kind() != io::ErrorKind::WouldBlock {
            return;
        }
        tokio::task::yield_now().await;
    }
    tokio::task::yield_now().await;
}

#[tokio::test]
async fn messages_of_any_length_arrive_in_order_and_the_end_after_them() {
    let ((link, _), (_other, mut incoming)) = both(BOUNDS);
    let asked = link.open().await.unwrap();
    let served = tokio::spawn(async move {
        let channel = incoming.recv().await.unwrap();
        let mut seen = Vec::new();
        for _ in 0..20 {
            seen.push(channel.receive().await.unwrap());
        }
        for message in &seen {
            channel.send(message).await.unwrap();
        }
        channel.end(Err(Failure { code: 5, message: "no more".into() })).await;
        incoming
    });
    let message = |n: usize| vec![u8::try_from(n).unwrap(); n * 10_000];
    for n in 0..20 {
        asked.send(&message(n)).await.unwrap();
    }
    for n in 0..20 {
        assert_eq!(asked.receive().await.unwrap(), message(n));
    }
    let failed = asked.receive().await.unwrap_err();
    assert!(matches!(&failed, Ended::Failed(failure) if failure.code == 5), "{failed:?}");
    served.await.unwrap();
}

#[tokio::test]
async fn no_more_channels_than_may_be_and_one_that_ended_makes_room() {
    let ((link, _), (_other, mut incoming)) = both(BOUNDS);
    for round in 0..100 {
        let mut open = Vec::new();
        for _ in 0..BOUNDS.ours {
            // Of the round before, until the other side has said that it ends them too.
            let opened = loop {
                match link.open().await {
                    Err(Ended::Busy) => tokio::task::yield_now().await,
                    other => break other,
                }
            };
            open.push(opened.unwrap_or_else(|error| panic!("round {round}: {error}")));
        }
        assert!(matches!(link.open().await, Err(Ended::Busy)));
        for _ in 0..BOUNDS.ours {
            drop(incoming.recv().await.unwrap());
        }
    }
}

#[tokio::test]
async fn a_descriptor_comes_with_its_message_where_it_may() {
    let ((link, mut first), (other, mut incoming)) = both(BOUNDS);
    let file = std::fs::File::open("/dev/null").unwrap();
    let channel = link.open().await.unwrap();
    let there = incoming.recv().await.unwrap();
    channel.send(&[1; 100_000]).await.unwrap();
    channel.send_with(&[2; 100_000], Some(file.as_fd())).await.unwrap();
    assert!(there.receive_with().await.unwrap().1.is_none());
    let (message, descriptor) = there.receive_with().await.unwrap();
    assert_eq!((message, descriptor.is_some()), (vec![2; 100_000], true));
    // The first side takes none.
    let refused = other.open().await.unwrap();
    let _refused = refused.send_with(b"x", Some(file.as_fd())).await;
    assert!(link.gone().await.contains("descriptor"));
    drop(first.recv().await);
    assert!(first.recv().await.is_none());
}

#[tokio::test]
async fn a_slow_reader_holds_up_its_own_channel_alone() {
    let ((link, _), (_other, mut incoming)) = both(BOUNDS);
    let (slow, quick) = (link.open().await.unwrap(), link.open().await.unwrap());
    let (_slow, quick_there) = (incoming.recv().await.unwrap(), incoming.recv().await.unwrap());
    for _ in 0..WINDOW {
        slow.send(b"x").await.unwrap();
    }
    let waits = tokio::time::timeout(Duration::from_millis(20), slow.send(b"x")).await;
    assert!(waits.is_err(), "beyond the window it waits");
    for n in 0..100_u32 {
        quick.send(&n.message()).await.unwrap();
        assert_eq!(quick_there.receive().await.unwrap(), n.message());
    }
}

/// What a hostile other sends, and what is said of it.
#[tokio::test]
async fn what_cannot_be_meant_ends_the_link() {
    let packet = |channel, kind, body: &[u8]| Packet { channel, kind, body }.bytes();
    let open = packet(2, PacketKind::Open, &[]);
    let long = packet(2, PacketKind::Part, &[0; MOST_BYTES - HEAD]);
    let cases: Vec<(&str, Vec<Vec<u8>>)> = vec![
        ("no packet", vec![b"rubbish, and more of it".to_vec()]),
        ("no packet", vec![vec![VERSION]]),
        ("no packet", vec![vec![VERSION + 1, 1, 2, 0, 0, 0]]),
        ("brought more", vec![vec![0; MOST_BYTES + 1]]),
        ("may not", vec![packet(1, PacketKind::Open, &[])]),
        ("may not", vec![packet(0, PacketKind::Open, &[])]),
        ("may not", vec![open.clone(), open.clone()]),
        ("more channels", (1..=5).map(|n| packet(2 * n, PacketKind::Open, &[])).collect()),
        ("longer", [vec![open.clone()], vec![long; 40]].concat()),
        ("more messages", [vec![open.clone()], vec![packet(2, PacketKind::Last, b"x"); 5]].concat()),
        ("credit", vec![open.clone(), packet(2, PacketKind::Credit, &5_u32.to_le_bytes())]),
        ("credit", vec![open.clone(), packet(2, PacketKind::Credit, b"x")]),
        ("ended", vec![open.clone(), packet(2, PacketKind::End, &[]), packet(2, PacketKind::Last, b"x")]),
        ("no reason", vec![open.clone(), packet(2, PacketKind::End, b"x")]),
        ("has ended", vec![vec![]]),
    ];
    for (want, packets) in cases {
        let ((link, _incoming), hostile) = against(BOUNDS);
        for packet in packets {
            let within = Duration::from_secs(20);
            tokio::time::timeout(within, sent(&hostile, &packet))
                .await
                .expect("the link stands and takes nothing");
        }
        let why = tokio::time::timeout(Duration::from_secs(20), link.gone()).await;
        assert!(why.as_ref().is_ok_and(|why| why.contains(want)), "{want}: {why:?}");
        assert!(matches!(link.open().await, Err(Ended::Gone(_))));
    }
}

#[tokio::test]
async fn what_waits_of_all_channels_is_bounded() {
    let bounds = Bounds { waiting: 100_000, ..BOUNDS };
    let ((link, _incoming), hostile) = against(bounds);
    for channel in [2, 4, 6, 8] {
        sent(&hostile, &Packet { channel, kind: PacketKind::Open, body: &[] }.bytes()).await;
        sent(&hostile, &Packet { channel, kind: PacketKind::Part, body: &[0; 26_000] }.bytes()).await;
    }
    assert!(link.gone().await.contains("more than may wait"));
}

#[tokio::test]
async fn a_flood_waits_where_it_comes_from_and_silence_costs_nothing() {
    let bounds = Bounds { packets: 10, ..BOUNDS };
    let ((link, _incoming), hostile) = against(bounds);
    let ignored = Packet { channel: 100, kind: PacketKind::Last, body: &[0; 1000] }.bytes();
    let mut sent = 0;
    while socket::send(&hostile, &ignored, None).is_ok() {
        sent += 1;
        assert!(sent < 10_000, "the kernel's buffer bounds what waits");
        tokio::task::yield_now().await;
    }
    assert!(link.open().await.is_ok(), "it stands");
}
