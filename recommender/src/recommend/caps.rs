//! Owns what bounds a value, in order: policy, LimitRange, ResourceQuota, largest node, limit; and what is said about a limit
//! that killed.

use evenkeel_model::narrow::f64_to_u64;
use evenkeel_model::quantity::Quantity;
use evenkeel_rightsizing::history::{Cause, History};
use evenkeel_rightsizing::policy::bounds::{NamedBound, capped, limit_cap};
use evenkeel_rightsizing::policy::{LimitsMode, RequestBounds};
use evenkeel_rightsizing::{Resource, goal};

use super::advice::{Around, index};
use super::limits::Allowed;

/// Tier of an answer that is the default of a LimitRange, because nothing is known.
pub(super) const DEFAULTED: &str = "LimitRange";

/// What a container has of one resource now.
#[derive(Debug, Clone, Copy, Default)]
pub struct Present {
    /// Request.
    pub request: Option<u64>,
    /// Limit.
    pub limit: Option<u64>,
    /// Containers running now.
    pub replicas: u32,
}

/// Everything that bounds one value, in order.
pub(super) fn all(
    around: &Around<'_>,
    allowed: &Allowed,
    resource: Resource,
    present: Present,
) -> Vec<NamedCap> {
    let mut caps = Vec::new();
    let mut push = |least: Option<u64>, most: Option<u64>, whose: &'static str| {
        caps.extend(least.map(|v| NamedCap { bound: v, least: true, whose }));
        caps.extend(most.map(|v| NamedCap { bound: v, least: false, whose }));
    };
    let RequestBounds { min, max } = around.policy.map(|p| p.bounds(resource)).unwrap_or_default();
    push(min, max, "policy");
    push(allowed.min, allowed.max, "LimitRange");
    push(None, allowed.pod_max, "LimitRange");
    // The limit that will stand beside the request, and does not follow it.
    let stays = match around.limits {
        LimitsMode::Keep => present.limit.or(allowed.default_limit),
        LimitsMode::Ratio if present.limit.is_some() => None,
        LimitsMode::None | LimitsMode::Ratio => allowed.default_limit,
    };
    if let (Some(limit), Some(ratio)) = (stays, allowed.ratio_milli) {
        push(Some(scaled(limit, 1000, ratio, true)), None, "LimitRange ratio");
    }
    push(None, stays.filter(|_| limit_cap(around.limits, present.limit).is_none()), "LimitRange default");
    // A limit that keeps its ratio has to stay below the greatest one allowed, too, and within its quota.
    let before = present.request.or(present.limit);
    let follows = present.limit.zip(before).filter(|_| around.limits == LimitsMode::Ratio);
    if let (Some(max), Some((limit, before))) = (allowed.max, follows) {
        push(None, Some(scaled(max, before, limit, false)), "LimitRange");
    }
    // What is left of a quota is shared by the containers that would all be raised. A quota counts what they request now: where
    // they run and that is not known, nobody can say what it lets them request.
    let share = |left: Option<u64>| left.map(|left| left / u64::from(present.replicas.max(1)));
    let counted = before.or((present.replicas == 0).then_some(0));
    let most = counted.zip(share(allowed.requests_left)).map(|(now, more)| now.saturating_add(more));
    push(None, most, "ResourceQuota");
    if let (Some(more), Some((limit, before))) = (share(allowed.limits_left), follows) {
        push(None, Some(scaled(limit.saturating_add(more), before, limit, false)), "ResourceQuota");
    }
    push(None, around.largest[index(resource)], "largest node");
    push(None, limit_cap(around.limits, present.limit), "limit");
    caps
}

/// `value * times / by`, rounded up where that is wished; `value` where nothing divides it.
pub(crate) fn scaled(value: u64, times: u64, by: u64, up: bool) -> u64 {
    let product = u128::from(value) * u128::from(times);
    let quotient = if up { product.div_ceil(u128::from(by.max(1))) } else { product / u128::from(by.max(1)) };
    if by == 0 { value } else { u64::try_from(quotient).unwrap_or(u64::MAX) }
}

/// Days for which a kill at a limit is told of: those for which `goal` remembers kills.
const KILLS_DAYS: u64 = 14;

/// The greatest limit at which a container was killed for want of memory. One that used less than half of its limit then was
/// killed because its node, or a group above it, had no more.
pub(super) fn killed_at(history: &dyn History, now_ms: u64) -> Option<u64> {
    let events = history.events(now_ms.saturating_sub(KILLS_DAYS * 86_400_000));
    let at_limit = events
        .iter()
        .filter(|event| event.cause == Cause::OomKill)
        .filter_map(|event| event.limit.filter(|limit| event.usage.is_none_or(|usage| usage >= limit / 2)));
    at_limit.max()
}

/// What to do about a limit that stays and killed: no request helps then. Within everything else that bounds the value.
pub(super) fn raise_limit(
    mode: LimitsMode,
    value: Option<u64>,
    killed_at: Option<u64>,
    limit: Option<u64>,
    caps: &[NamedCap],
) -> Option<String> {
    const MIB: u64 = 1 << 20;
    let (limit, killed_at) = (limit?, killed_at?);
    // Raised since.
    if mode != LimitsMode::Keep || killed_at < limit {
        return None;
    }
    let goal = goal::GoalParams::default();
    let least =
        limit.saturating_add(f64_to_u64(limit as f64 * goal.oom_margin)).max(limit + goal.oom_min_bytes);
    let wanted = value.unwrap_or(0).max(least).next_multiple_of(MIB);
    let others = caps.iter().filter(|cap| cap.whose != "limit").map(NamedCap::cap);
    let wanted = capped(wanted, others).0;
    let text = |bytes: u64| Quantity::from_bytes(bytes).canonical();
    (wanted > limit)
        .then(|| format!("killed at its limit of {}: raise the limit to {}", text(limit), text(wanted)))
}

/// A cap and whose it is.
#[derive(Debug)]
pub(super) struct NamedCap {
    bound: u64,
    least: bool,
    whose: &'static str,
}

impl NamedCap {
    /// Its name: whose, and which end where both exist.
    pub(super) fn cap(&self) -> NamedBound<'static> {
        match (self.whose, self.least) {
            ("policy", true) => NamedBound::AtLeast(self.bound, "policy min"),
            ("policy", false) => NamedBound::AtMost(self.bound, "policy max"),
            ("LimitRange", true) => NamedBound::AtLeast(self.bound, "LimitRange min"),
            ("LimitRange", false) => NamedBound::AtMost(self.bound, "LimitRange max"),
            (whose, true) => NamedBound::AtLeast(self.bound, whose),
            (whose, false) => NamedBound::AtMost(self.bound, whose),
        }
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_rightsizing::history::{Day, Event, Hour, Minute, Scope};

    use super::*;

    const MIB: u64 = 1 << 20;

    fn around(limits: LimitsMode) -> Around<'static> {
        Around { cluster: None, namespace: "", policy: None, limits, largest: [None; 2] }
    }

    fn within(mode: LimitsMode, allowed: Allowed, present: Present, value: u64) -> (u64, Vec<&'static str>) {
        let caps = all(&around(mode), &allowed, Resource::Memory, present);
        capped(value, caps.iter().map(NamedCap::cap))
    }

    #[test]
    fn what_a_namespace_allows_caps_and_is_named() {
        let present = Present { request: Some(100), limit: Some(200), replicas: 4 };
        let bare = Present { request: None, limit: None, replicas: 0 };
        let none = Allowed::default();
        let (keep, ratio, free) = (LimitsMode::Keep, LimitsMode::Ratio, LimitsMode::None);
        for (mode, allowed, present, value, want) in [
            (keep, none, present, 150, (150, vec![])),
            (keep, none, present, 300, (200, vec!["limit"])),
            (keep, Allowed { min: Some(160), ..none }, present, 150, (160, vec!["LimitRange min"])),
            (keep, Allowed { pod_max: Some(120), ..none }, present, 150, (120, vec!["LimitRange max"])),
            // The API server gives it a limit, which a request must not exceed.
            (keep, Allowed { default_limit: Some(90), ..none }, bare, 150, (90, vec!["LimitRange default"])),
            (
                free,
                Allowed { default_limit: Some(90), ..none },
                present,
                150,
                (90, vec!["LimitRange default"]),
            ),
            (keep, Allowed { default_limit: Some(90), ..none }, present, 150, (150, vec![])),
            // A limit of 200 needs a request of at least a quarter of it.
            (keep, Allowed { ratio_milli: Some(4_000), ..none }, present, 20, (50, vec!["LimitRange ratio"])),
            (ratio, Allowed { ratio_milli: Some(4_000), ..none }, present, 20, (20, vec![])),
            // Four replicas share what is left.
            (keep, Allowed { requests_left: Some(80), ..none }, present, 150, (120, vec!["ResourceQuota"])),
            (keep, Allowed { requests_left: Some(0), ..none }, present, 50, (50, vec![])),
            (keep, Allowed { requests_left: Some(80), ..none }, bare, 150, (80, vec!["ResourceQuota"])),
            // It runs, and what the quota counts of it is not known.
            (
                keep,
                Allowed { requests_left: Some(80), ..none },
                Present { replicas: 2, ..bare },
                150,
                (150, vec![]),
            ),
            // The limit follows: 160 more for four are 40 more, and half of it requests.
            (ratio, Allowed { limits_left: Some(160), ..none }, present, 150, (120, vec!["ResourceQuota"])),
        ] {
            assert_eq!(within(mode, allowed, present, value), want, "{mode:?} {allowed:?} {present:?}");
        }
        let beside = |mode, allowed: Allowed| allowed.limit_beside(mode, 20, 120);
        assert_eq!(beside(ratio, Allowed { ratio_milli: Some(4_000), ..none }), 80);
        assert_eq!(beside(ratio, Allowed { ratio_milli: Some(500), ..none }), 20);
        assert_eq!(beside(keep, Allowed { ratio_milli: Some(4_000), ..none }), 120);
    }

    struct Killed(Vec<Event>);

    impl History for Killed {
        fn minutes(&self, _: Scope, _: u64) -> Vec<Minute> {
            Vec::new()
        }
        fn hours(&self, _: Scope, _: u64) -> Vec<Hour> {
            Vec::new()
        }
        fn days(&self, _: Scope, _: u64) -> Vec<Day> {
            Vec::new()
        }
        fn events(&self, _: u64) -> Vec<Event> {
            self.0.clone()
        }
    }

    #[test]
    fn a_limit_that_killed_is_to_be_raised() {
        let event = |usage: Option<u64>, limit: Option<u64>| Event {
            time_ms: 5,
            cause: Cause::OomKill,
            usage: usage.map(|mib| mib * MIB),
            request: None,
            limit: limit.map(|mib| mib * MIB),
            age_ms: None,
        };
        let evicted = Event { cause: Cause::Eviction, ..event(None, Some(900)) };
        let at = |events: Vec<Event>| killed_at(&Killed(events), 10);
        assert_eq!(at(vec![event(Some(500), Some(512)), event(None, Some(256)), evicted]), Some(512 * MIB));
        // There a node or a group above had no more.
        assert_eq!(at(vec![event(Some(20), Some(512)), event(Some(20), None)]), None);

        let text = |mode, value: u64, killed, limit: u64, allowed: Allowed| {
            let present = Present { request: Some(limit * MIB), limit: Some(limit * MIB), replicas: 1 };
            let caps = all(&around(mode), &allowed, Resource::Memory, present);
            raise_limit(mode, Some(value * MIB), killed, Some(limit * MIB), &caps)
        };
        let (keep, free) = (LimitsMode::Keep, Allowed::default());
        let killed = Some(512 * MIB);
        let said = |mib: u64| Some(format!("killed at its limit of 512Mi: raise the limit to {mib}Mi"));
        assert_eq!(text(keep, 900, killed, 512, free), said(900));
        assert_eq!(text(keep, 300, killed, 512, free), said(615), "a fifth more, whatever the rule says");
        assert_eq!(text(keep, 900, killed, 512, Allowed { max: Some(700 * MIB), ..free }), said(700));
        for (mode, killed, limit, allowed) in [
            (LimitsMode::None, killed, 512, free),
            (LimitsMode::Ratio, killed, 512, free),
            (keep, None, 512, free),
            (keep, killed, 600, free),
            (keep, killed, 512, Allowed { max: Some(512 * MIB), ..free }),
        ] {
            assert_eq!(text(mode, 900, killed, limit, allowed), None, "{mode:?} {killed:?} {limit}");
        }
    }
}
