//! Files of cgroups and of /proc, and the kernel's log.

use evenkeel_host::kernel_log::{Joiner, KernelRecord};
use evenkeel_host::knob::{CpuSet, Knob};
use evenkeel_host::psi::Pressure;
use evenkeel_host::{node, parse};

/// Bytes are taken for files of the kernel, and what a knob reads it writes back.
pub(crate) fn files(bytes: &[u8]) {
    for knob in Knob::ALL {
        if let Some(setting) = knob.parse(bytes) {
            assert_eq!(knob.parse(setting.to_string().as_bytes()), Some(setting), "{knob}");
        }
    }
    if let Some(set) = CpuSet::parse(bytes) {
        assert_eq!(CpuSet::parse(set.to_string().as_bytes()), Some(set));
    }
    if let Some(pressure) = Pressure::parse(bytes) {
        assert!((0.0..=1000.0).contains(&pressure.some.avg10));
    }
    let _ = (node::parse_meminfo(bytes), node::parse_cpu_times(bytes, 100));
    let _ = (parse::io_stat(bytes), parse::blkio(bytes), parse::net_dev(bytes));
    let _ = (parse::proc_stat(bytes), parse::pick(bytes, [b"oom_kill", b"pgsteal"]));
}

pub(crate) fn some_files() -> Vec<Vec<u8>> {
    crate::owned(&[
        "max 100000\n",
        "50000 100000\n",
        "9223372036854771712\n",
        "default 100\n",
        "0-3,5,8-11\n",
        "some avg10=1.53 avg60=0.87 avg300=0.20 total=5411\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=12\n",
        "MemTotal:       24689764 kB\nMemFree:         1423012 kB\nMemAvailable:   20100000 kB\nCached: 9 kB\n",
        "cpu  10132153 290696 3084719 46828483 16683 0 25195 0 175628 0\ncpu0 1393280 32966 572056 13343292 6130 0\n",
        "4242 (a ) b) S 1 4242 4242 0 -1 4194560 2 0 0 0 3 4 0 0 20 0 1 0 777 1024 5 18446744073709551615\n",
        "low 0\nhigh 3\nmax 17\noom 1\noom_kill 1\npgsteal 99\n",
        "-997\n",
        "8:0 rbytes=4096 wbytes=512 rios=1 wios=2 dbytes=0 dios=0\n8:16\n",
        "8:0 Read 4096\n8:0 Write 512\n8:0 Total 4608\nTotal 4608\n",
        "Inter-| Receive\n face |bytes\n  eth0: 10 1 0 0 0 0 0 0 20 2 0 0 0 0 0 0\n",
    ])
}

/// Any sequence of records, by bounded memory; a kill is told only by the kernel's own record of it.
pub(crate) fn log(bytes: &[u8]) {
    let mut joiner = Joiner::default();
    for record in bytes.split(|byte| *byte == 0) {
        if let Some(kill) = joiner.take(record) {
            assert!(KernelRecord::parse(record).is_some_and(|r| r.by_kernel && r.sequence == kill.sequence));
        }
    }
}

pub(crate) fn some_log() -> Vec<Vec<u8>> {
    crate::owned(&[
        "6,700,5000000,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/pod,\
         task_memcg=/pod/c,task=stress,pid=42,uid=0\n\0\
         3,701,5000010,-;Memory cgroup out of memory: Killed process 42 (stress) total-vm:2048kB, anon-rss:1024kB, \
         file-rss:4kB, shmem-rss:0kB, UID:0 pgtables:60kB oom_score_adj:-998\n SUBSYSTEM=x\n\0",
        "3,9,1,-;Out of memory: Killed process 7 (a: b) total-vm:8kB, anon-rss:4kB, file-rss:0kB, shmem-rss:0kB, UID:1 \
         pgtables:4kB oom_score_adj:1000\n\0",
        "30,10,2,-;systemd[1]: Started.\n\0",
    ])
}
