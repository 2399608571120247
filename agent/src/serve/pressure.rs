//! Pressure and holds in the wire's words.

use evenkeel_enforce::holds::Hold;
use evenkeel_enforce::pressure::view::{DomainView, View};
use evenkeel_proto::v1;

/// All of it.
pub(super) fn status(view: &View) -> v1::PressureStatus {
    let shown = view.shown();
    v1::PressureStatus {
        enabled: shown.enabled,
        domains: shown.domains.iter().map(domain).collect(),
        starving: u32::try_from(shown.starving).unwrap_or(u32::MAX),
        last_step: shown.last.map(|last| v1::PressureStep {
            time_usec: last.time_usec,
            container: last.container,
            knob: last.knob,
            value: last.value,
            why: last.why,
        }),
    }
}

fn domain(view: &DomainView) -> v1::PressureDomain {
    let percent = |part: Option<u32>| part.map(|part| f64::from(part) / 100.0);
    v1::PressureDomain {
        cgroup: view.cgroup.clone(),
        grade: view.grade.as_str().to_owned(),
        cause: view.cause.to_owned(),
        since_usec: view.since_usec,
        some_percent: percent(view.signals.some),
        full_percent: percent(view.signals.full),
        available_bytes: view.signals.available.get(),
        total_bytes: view.total.get(),
        exhaustion_usec: view.signals.exhaustion_usec,
        wake: view.wake.to_owned(),
    }
}

/// One hold.
pub(super) fn hold(hold: &Hold) -> v1::HoldStatus {
    let workload = &hold.tracked.workload;
    v1::HoldStatus {
        container: format!("{}/{}/{}", workload.pod.namespace, workload.pod.name, workload.container),
        cgroup: hold.at.path.to_string(),
        knob: hold.value.knob().name().to_owned(),
        value: hold.value.to_string(),
        original: hold.original.to_string(),
        since_usec: hold.since_usec,
        by: hold.by.as_str().to_owned(),
        why: hold.why.clone(),
    }
}
