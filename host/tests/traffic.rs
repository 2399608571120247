//! Block I/O and network of containers: on trees of ordinary files, and against this machine's kernel.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use common::{RealCgroup, wait_for};
use evenkeel_host::fake::FakeTree;
use evenkeel_host::hierarchy::{CgroupMode, Controller, Hierarchy};
use evenkeel_host::sampler::{Descriptors, Plan, SampleContext, TrafficReader};
use evenkeel_host::write::CgroupRef;
use evenkeel_model::traffic::{BlockIo, NetworkIo, Traffic};

const PATH: &str = "/kubepods/pod1/c1";

/// A machine of ordinary files with one container, and its reader.
struct Rig {
    tree: FakeTree,
    context: SampleContext,
    reader: TrafficReader,
    place: CgroupRef,
    tick: u64,
}

impl Rig {
    fn new(mode: CgroupMode) -> Self {
        let tree = FakeTree::new(mode).unwrap();
        tree.add_cgroup(PATH).unwrap();
        devices(&tree, 1, 0);
        let opened = tree.open().unwrap();
        let context = SampleContext::new(opened, Descriptors::within(1000), Plan::refresh_every(10));
        let context = context.with_networks(&tree.roots());
        let reader = TrafficReader::open(&context, PATH);
        let place = tree.open().unwrap().dirs(PATH).unwrap()[0].at().clone();
        Self { tree, context, reader, place, tick: 0 }
    }

    /// The next look, thirty ticks and thirty seconds on.
    fn look(&mut self) -> Option<Traffic> {
        self.tick += 30;
        let (now, place) = (Duration::from_secs(self.tick), Some(&self.place));
        self.reader.look(&mut self.context, now, self.tick, 0, place)
    }
}

/// Sets what the interface of a process has received; its file is made where it is not there.
fn devices(tree: &FakeTree, pid: u32, received: u64) {
    let dir = tree.roots().proc().join(pid.to_string()).join("net");
    fs::create_dir_all(&dir).unwrap();
    let row =
        |name: &str, bytes: u64| format!("{name}: {bytes} {} 0 0 0 0 0 0 7 1 0 0 0 0 0 0\n", bytes / 100);
    fs::write(dir.join("dev"), format!("titles\nmore\n{}{}", row("lo", 5), row(" eth0", received))).unwrap();
}

#[test]
fn block_io_is_what_it_grew_by_in_both_versions() {
    let grown = BlockIo { read_bytes: 8192, written_bytes: 512, reads: 2, writes: 1 };
    let mut v2 = Rig::new(CgroupMode::V2);
    let set = |rig: &Rig, text: &str| rig.tree.set(Hierarchy::V2, PATH, "io.stat", text).unwrap();
    set(&v2, "8:0 rbytes=100 wbytes=0 rios=1 wios=0 dbytes=0 dios=0\n");
    assert_eq!(v2.look(), None, "nothing to compare with");
    set(&v2, "8:0 rbytes=8292 wbytes=0 rios=3 wios=0 dbytes=0 dios=0\n8:16 wbytes=512 wios=1\n");
    let look = v2.look().unwrap();
    assert_eq!((look.span_usec, look.block, look.network), (30_000_000, Some(grown), None));
    // Not its turn.
    assert_eq!(v2.reader.look(&mut v2.context, Duration::from_secs(70), 70, 0, None), None);
    // A counter that went back counts nothing, and is what the next one is compared with.
    set(&v2, "8:0 rbytes=1 wbytes=1 rios=1 wios=1\n");
    assert_eq!(v2.look().unwrap().block, None);
    assert_eq!(v2.look().unwrap().block, Some(BlockIo::default()));
    set(&v2, "8:0 rbytes=x\n");
    assert_eq!(v2.look().unwrap().block, None);

    let mut v1 = Rig::new(CgroupMode::V1);
    let set = |rig: &Rig, file: &str, read: u64, write: u64| {
        let text = format!(
            "8:0 Read {read}\n8:0 Write {write}\n8:0 Total {}\nTotal {}\n",
            read + write,
            read + write
        );
        rig.tree.set(Hierarchy::V1(Controller::Io), PATH, file, &text).unwrap();
    };
    assert_eq!(v1.look(), None);
    set(&v1, "blkio.throttle.io_service_bytes_recursive", 8192, 512);
    set(&v1, "blkio.throttle.io_serviced_recursive", 2, 1);
    assert_eq!(v1.look().unwrap().block, Some(grown));
}

#[test]
fn a_pods_network_is_read_through_one_process_and_the_hosts_is_not_counted() {
    let mut rig = Rig::new(CgroupMode::V2);
    assert_eq!(rig.look(), None);
    assert_eq!(rig.look().unwrap().network, None, "no process yet");
    rig.tree.set_procs(PATH, &[77]).unwrap();
    devices(&rig.tree, 77, 1000);
    assert_eq!(rig.look().unwrap().network, None, "nothing to compare with");
    devices(&rig.tree, 77, 4000);
    let want = NetworkIo { received_bytes: 3000, received_packets: 30, ..NetworkIo::default() };
    assert_eq!(rig.look().unwrap().network, Some(want));
    // Its process ends, and another one of the namespace goes on.
    rig.tree.set_procs(PATH, &[78]).unwrap();
    fs::create_dir_all(rig.tree.roots().proc().join("78/net")).unwrap();
    let dev = |pid: u32| rig.tree.roots().proc().join(pid.to_string()).join("net/dev");
    fs::hard_link(dev(77), dev(78)).unwrap();
    fs::remove_file(dev(77)).unwrap();
    assert_eq!(rig.look().unwrap().network, Some(NetworkIo::default()), "the same namespace");
    devices(&rig.tree, 78, 4500);
    assert_eq!(rig.look().unwrap().network.unwrap().received_bytes, 500);
    // One in the namespace of the first process.
    let mut host = Rig::new(CgroupMode::V2);
    host.tree.set_procs(PATH, &[79]).unwrap();
    fs::create_dir_all(host.tree.roots().proc().join("79/net")).unwrap();
    let dev = |pid: u32| host.tree.roots().proc().join(pid.to_string()).join("net/dev");
    fs::hard_link(dev(1), dev(79)).unwrap();
    assert_eq!(host.look(), None);
    let look = host.look().unwrap();
    assert_eq!((look.network, look.host_network), (None, true));
}

#[test]
fn this_kernel_tells_traffic_and_the_namespace_of_a_container() {
    let looks = |cg: &RealCgroup| {
        let context = SampleContext::new(Arc::clone(&cg.tree), Descriptors::within(10_000), Plan::default());
        let mut context = context.with_networks(&cg.roots);
        let mut reader = TrafficReader::open(&context, &cg.path);
        let place = cg.tree.dirs(&cg.path).unwrap()[0].at().clone();
        let mut look = |second| reader.look(&mut context, Duration::from_secs(second), 0, 0, Some(&place));
        assert_eq!(look(0), None);
        look(10).unwrap()
    };
    let Some(mut own) = RealCgroup::new("traffic of a container") else { return };
    let pid = own.spawn("unshare", &["-n", "sleep", "1000"]);
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/net")).unwrap();
    if !wait_for(|| namespace(&pid.to_string()) != namespace("self")) {
        common::skip("traffic of a container", "unshare -n made no namespace");
        return;
    }
    let look = looks(&own);
    assert_eq!((look.network, look.host_network), (Some(NetworkIo::default()), false));
    assert_eq!(look.block.is_some(), own.tree.layout().is_delegated(Controller::Io), "{look:?}");
    let Some(mut host) = RealCgroup::new("a container in the host's network") else { return };
    host.spawn("sleep", &["1000"]);
    let look = looks(&host);
    assert_eq!((look.network, look.host_network), (None, true));
}
