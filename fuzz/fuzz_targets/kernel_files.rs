//! Any bytes are taken for kernel files without panic, and what a knob reads it writes back; `cargo +nightly fuzz run
//! kernel_files`.
#![no_main]

use evenkeel_host::knob::{CpuSet, Knob};
use evenkeel_host::psi::Pressure;
use evenkeel_host::{node, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
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
    let _ = (parse::proc_stat(bytes), parse::pick(bytes, [b"oom_kill", b"pgsteal"]));
});
