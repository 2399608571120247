//! Whatever a kernel file says, reading it never panics, and what is understood is in range.

use evenkeel_host::knob::{CpuSet, Knob};
use evenkeel_host::psi::Pressure;
use evenkeel_host::{node, parse};
use proptest::prelude::*;

/// Bytes that look like kernel files often enough to get past the first check.
fn kernel_like() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"some avg10=0.00 total=".to_vec()),
        Just(b"some avg10=1.00 avg60=0.00 avg300=99.99 total=".to_vec()),
        Just(b"\nfull avg10=".to_vec()),
        Just(b"MemTotal: ".to_vec()),
        Just(b" kB\n".to_vec()),
        Just(b"cpu  ".to_vec()),
        Just(b"+cpu".to_vec()),
        Just(b"0-3,7".to_vec()),
        Just(b"oom_kill ".to_vec()),
        Just(b"8:0 rbytes=".to_vec()),
        Just(b"8:0 Read ".to_vec()),
        Just(b"a\nb\neth0:1 2 3 4 5 6 7 8 ".to_vec()),
        Just(b"max".to_vec()),
        Just(b"-".to_vec()),
        Just(b"\n".to_vec()),
        Just(b" ".to_vec()),
        Just(b"7 (a b) S 1 2 3 4 5 ".to_vec()),
        any::<u64>().prop_map(|n| n.to_string().into_bytes()),
        prop::collection::vec(any::<u8>(), 0..8),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|p| p.concat())
}

proptest! {
    #[test]
    fn nothing_panics(bytes in prop_oneof![kernel_like(), prop::collection::vec(any::<u8>(), 0..512)]) {
        let _any = (parse::uint(&bytes), parse::int(&bytes), parse::limit(&bytes), parse::v1_limit(&bytes));
        let _any = (parse::pressure_some_total(&bytes), parse::proc_stat(&bytes), parse::first_line(&bytes));
        let _any = (parse::io_stat(&bytes), parse::blkio(&bytes), parse::net_dev(&bytes));
        let _any = parse::pick(&bytes, [b"oom_kill", b"some", b"", b"max"]);
        let (mut pids, mut malformed) = (Vec::new(), 0);
        prop_assert!(parse::procs(&bytes, &mut pids, &mut malformed) <= bytes.len());
        prop_assert!(!pids.contains(&0));
        let _any = (node::parse_meminfo(&bytes), node::parse_cpu_times(&bytes, 100));
        if let Some(pressure) = Pressure::parse(&bytes) {
            prop_assert!((0.0..1000.0).contains(&pressure.some.avg10));
        }
        if let Some(set) = CpuSet::parse(&bytes) {
            prop_assert_eq!(CpuSet::parse(set.to_string().as_bytes()), Some(set));
        }
        for knob in Knob::ALL {
            if let Some(setting) = knob.parse(&bytes) {
                prop_assert_eq!(knob.parse(setting.to_string().as_bytes()), Some(setting));
            }
        }
    }

    #[test]
    fn numbers_are_read_as_written(n in any::<u64>(), i in any::<i64>()) {
        prop_assert_eq!(parse::uint(n.to_string().as_bytes()), Some(n));
        prop_assert_eq!(parse::int(i.to_string().as_bytes()), Some(i));
    }

    #[test]
    fn a_process_list_cut_anywhere_is_read_whole(pids in prop::collection::vec(1u32.., 0..40), cut in any::<prop::sample::Index>()) {
        let text: String = pids.iter().map(|p| format!("{p}\n")).collect();
        let text = text.as_bytes();
        let at = if text.is_empty() { 0 } else { cut.index(text.len()) };
        let (mut found, mut malformed) = (Vec::new(), 0);
        let rest = parse::procs(&text[..at], &mut found, &mut malformed);
        parse::procs(&text[at - rest..], &mut found, &mut malformed);
        prop_assert_eq!((found, malformed), (pids, 0));
    }
}
