//! Shares, weight, quota, burst and idle again.

use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::{Limit, MilliCpu};

use super::inputs::{Case, Unreplayable};
use crate::config::CpuPeriod;
use crate::cpu::{CpuQuota, shares_from_milli};
use crate::fair::{Competitor, Level, MicroCpu, Scale};
use crate::own::scaled_weight;

/// The knob of v1.
const SHARES: &str = "cpu.shares";

pub(super) fn shares(case: &Case<'_>) -> Result<String, Unreplayable> {
    Ok(shares_from_milli(case.milli("cpu_request_milli")?).to_string())
}

/// A weight of v2; on v1 the same request is shares, whatever the conversion.
pub(super) fn weight(case: &Case<'_>) -> Result<String, Unreplayable> {
    if case.knob() == SHARES {
        return shares(case);
    }
    Ok(case.conversion()?.weight_from_milli(case.milli("cpu_request_milli")?).to_string())
}

/// Likewise.
pub(super) fn scaled(case: &Case<'_>) -> Result<String, Unreplayable> {
    if case.knob() == SHARES {
        return shares(case);
    }
    Ok(scaled_weight(case.milli("cpu_request_milli")?, case.milli("node_cpu_milli")?).to_string())
}

pub(super) fn fair(case: &Case<'_>) -> Result<String, Unreplayable> {
    let level = Level {
        capacity: MicroCpu::new(case.get("capacity_micro")?),
        active_requests: MicroCpu::new(case.get("active_requests_micro")?),
        active: case.get("active_siblings")?,
        wake: MicroCpu::new(case.get("wake_micro")?),
    };
    let one = Competitor { request: case.milli("cpu_request_milli")?, is_active: case.get("active")? };
    let (target, scale) = (level.target(one), case.get::<Scale>("scale")?);
    Ok(match case.knob() {
        SHARES => scale.shares(target).to_string(),
        _ => scale.weight(target).to_string(),
    })
}

/// One rule, three files: quota and period together on v2, each alone on v1.
pub(super) fn quota(case: &Case<'_>) -> Result<String, Unreplayable> {
    let period = case.get("period_usec")?;
    let period = CpuPeriod::new(period).map_err(|e| Unreplayable(e.to_string()))?.usec();
    let limit: Option<MilliCpu> = case.known_milli("cpu_limit_milli")?;
    let quota = CpuQuota::from_limit(limit, period);
    Ok(match (case.knob(), quota.quota_usec) {
        ("cpu.cfs_period_us", _) => period.to_string(),
        ("cpu.cfs_quota_us", Limit::Max) => "-1".to_owned(),
        ("cpu.cfs_quota_us", Limit::Value(usec)) => usec.to_string(),
        (_, usec) => format!("{usec} {period}"),
    })
}

pub(super) fn burst(case: &Case<'_>) -> Result<String, Unreplayable> {
    let quota = CpuQuota {
        quota_usec: case.known("quota_usec")?.map_or(Limit::Max, Limit::Value),
        period_usec: CpuPeriod::default().usec(),
    };
    let burst = quota.burst(case.get("burst_percent")?);
    Ok(burst.unwrap_or(0).to_string())
}

pub(super) fn idle(case: &Case<'_>) -> Result<String, Unreplayable> {
    Ok(u8::from(case.class()? == QosClass::BestEffort).to_string())
}
