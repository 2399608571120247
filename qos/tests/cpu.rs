//! Shares, weights and quotas: tables from the kubelet and the runtimes, and properties over all inputs.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use evenkeel_model::units::{CpuShares, CpuWeight, Limit, MilliCpu};
use evenkeel_qos::cpu::WeightConversion::{Linear, Quadratic, Systemd};
use evenkeel_qos::cpu::{CpuQuota, WeightConversion, milli_from_shares, shares_from_milli};
use proptest::prelude::*;

fn shares(milli: u64) -> u32 {
    shares_from_milli(MilliCpu::new(milli)).get()
}

fn weight(conversion: WeightConversion, shares: u32) -> u32 {
    conversion.weight_from_shares(CpuShares::new(shares).unwrap()).get()
}

#[test]
fn shares_follow_requests() {
    let table: [(u64, u32); 12] = [
        (0, 2),
        (1, 2),
        (2, 2),
        (3, 3),
        (10, 10),
        (100, 102),
        (250, 256),
        (500, 512),
        (1000, 1024),
        (2500, 2560),
        (256_000, 262_144),
        (u64::MAX, 262_144),
    ];
    for (milli, expected) in table {
        assert_eq!(shares(milli), expected, "{milli}m");
    }
}

#[test]
fn excess_cpu_goes_in_proportion_to_requests() {
    // 60 % and 30 % of a CPU: 2 to 1.
    assert_eq!((shares(600), shares(300)), (614, 307));
}

#[test]
fn requests_come_back_from_shares() {
    for milli in 2..=256_000 {
        assert_eq!(milli_from_shares(shares_from_milli(MilliCpu::new(milli))).get(), milli);
    }
    assert_eq!(milli_from_shares(CpuShares::MIN).get(), 2);
}

#[test]
fn weights_of_the_three_conversions() {
    // shares, linear, quadratic, systemd
    let table: [(u32, u32, u32, u32); 8] = [
        (2, 1, 1, 1),
        (3, 1, 2, 1),
        (10, 1, 4, 1),
        (102, 4, 17, 9),
        (512, 20, 59, 50),
        (1024, 39, 100, 100),
        (10_240, 391, 639, 1000),
        (262_144, 10_000, 10_000, 10_000),
    ];
    for (s, linear, quadratic, systemd) in table {
        let found = (weight(Linear, s), weight(Quadratic, s), weight(Systemd, s));
        assert_eq!(found, (linear, quadratic, systemd), "{s} shares");
    }
    assert_eq!(WeightConversion::default(), Quadratic);
    assert_eq!(Quadratic.weight_from_milli(MilliCpu::new(1000)).get(), 100);
    assert_eq!(Quadratic.weight_from_milli(MilliCpu::ZERO).get(), 1);
}

#[test]
fn every_conversion_grows_with_shares_over_all_inputs() {
    for conversion in [Linear, Quadratic, Systemd] {
        let mut last = 0;
        for s in CpuShares::MIN.get()..=CpuShares::MAX.get() {
            let w = weight(conversion, s);
            assert!(w >= last, "{conversion}: {s} shares give {w} after {last}");
            last = w;
        }
        assert_eq!(last, 10_000);
    }
}

#[test]
fn weights_go_back_to_shares() {
    // KEP-2254's own inverse.
    assert_eq!(Linear.shares_from_weight(CpuWeight::new(39).unwrap()).get(), 998);
    assert_eq!(Linear.shares_from_weight(CpuWeight::MAX).get(), 262_144);
    assert_eq!(Quadratic.shares_from_weight(CpuWeight::MIN).get(), 2);
    assert_eq!(Systemd.shares_from_weight(CpuWeight::new(100).unwrap()).get(), 1024);
    for conversion in [Quadratic, Systemd] {
        for s in [2, 3, 100, 1024, 5000, 262_144] {
            let w = conversion.weight_from_shares(CpuShares::new(s).unwrap());
            assert_eq!(
                conversion.weight_from_shares(conversion.shares_from_weight(w)),
                w,
                "{conversion} {s}"
            );
        }
    }
}

#[test]
fn limits_become_quota() {
    let table: [(Option<u64>, u64, Limit<u64>); 9] = [
        (None, 100_000, Limit::Max),
        (Some(0), 100_000, Limit::Max),
        (Some(1), 100_000, Limit::Value(1000)),
        (Some(10), 100_000, Limit::Value(1000)),
        (Some(11), 100_000, Limit::Value(1100)),
        (Some(500), 100_000, Limit::Value(50_000)),
        (Some(1500), 100_000, Limit::Value(150_000)),
        (Some(333), 5_000, Limit::Value(1665)),
        (Some(u64::MAX), 1_000_000, Limit::Value(u64::MAX)),
    ];
    for (limit, period, expected) in table {
        let quota = CpuQuota::from_limit(limit.map(MilliCpu::new), period);
        assert_eq!(quota, CpuQuota { quota_usec: expected, period_usec: period }, "{limit:?}");
    }
}

#[test]
fn quota_goes_back_to_a_limit() {
    let of = |quota_usec, period_usec| CpuQuota { quota_usec, period_usec }.limit().map(MilliCpu::get);
    assert_eq!(of(Limit::Value(50_000), 100_000), Some(500));
    assert_eq!(of(Limit::Value(1665), 5_000), Some(333));
    assert_eq!(of(Limit::Max, 100_000), None);
    assert_eq!(of(Limit::Value(1), 0), None);
    assert_eq!(of(Limit::Value(u64::MAX), 1), Some(u64::MAX));
}

proptest! {
    #[test]
    fn shares_grow_with_requests(a in any::<u64>(), b in any::<u64>()) {
        prop_assert!(shares(a.min(b)) <= shares(a.max(b)));
    }

    #[test]
    fn limits_of_at_least_ten_milli_survive_the_round_trip(milli in 10..10_000_000_u64) {
        prop_assert_eq!(CpuQuota::from_limit(Some(MilliCpu::new(milli)), 100_000).limit(), Some(MilliCpu::new(milli)));
    }
}
