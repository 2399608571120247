//! `[pressure]`: when memory counts as short, and what is then done for a while.

use std::ops::RangeInclusive;
use std::time::Duration;

use evenkeel_enforce::pressure::rules::PressureRules;
use evenkeel_enforce::shared::micros;
use evenkeel_model::units::Bytes;
use evenkeel_qos::pressure::{Band, Bands, Pair, PressureConfig, Switches};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::check::Checker;
use super::super::scalar::{Size, Span};

section! {
    /// What is done about memory that runs short: graded steps on BestEffort containers first, then on Burstable ones
    /// over their request, each undone when there is enough again. Guaranteed containers are never touched.
    Pressure {
        /// Whether anything is done. Off, pressure is still shown.
        enabled: bool = true,
        /// Available memory below which a kill is possible. Default: the kubelet's hard eviction threshold
        /// (memory.available<100Mi).
        kill_below: Size = Size::from_mib(100),
        /// How long milder steps must have been in vain before a kill. Default: the kernel frees what it can in less.
        kill_after: Span = Span::from_secs(2),
        /// Time between two kills. Default: oomd's delay after a kill (post_action_delay).
        kill_cool_down: Span = Span::from_secs(15),
        /// How long a container may be frozen. Default: the patience of usual liveness probes (period 10s).
        freeze_at_most: Span = Span::from_secs(8),
        /// Part of a container's memory that one step takes, percent. Default: ten steps to nothing.
        step_percent: u32 = 10,
        /// Part of memory that must stay available when something is undone, percent; more than where warning ends.
        reserve_percent: u32 = 15,
        /// Percentages of available memory are of this much at most: five percent of a terabyte is no shortage.
        available_of_at_most: Size = Size::from_mib(64 << 10),
        /// The look ahead counts only while less than this part of memory is available, percent.
        look_ahead_below_percent: u32 = 50,
        /// Time spent waiting for memory counts only while less than this part of memory is available, percent: whoever
        /// waits while there is plenty waits at a limit of its own, for which nobody else is touched. On cgroup v2
        /// time spent at such limits does not count in any case. Default: where the warning begins.
        stall_below_percent: u32 = 10,
        /// Time below a grade's way out before the grade ends.
        calm_after: Span = Span::from_secs(3),
        /// Time after undoing a step before the same is done to the same container again.
        redo_after: Span = Span::from_secs(5),
        /// Returns within this time count towards escalation.
        retrigger_window: Span = Span::from_secs(600),
        /// So many returns take a container one step higher.
        retriggers: u32 = 3,
        /// Window of the kernel's triggers; two seconds or a multiple where shorter ones are not permitted.
        window: Span = Span::from_secs(1),
        /// Which steps may be taken.
        steps: Steps = Steps::default(),
        /// When memory is reclaimed.
        warning: Warning = Warning::default(),
        /// When growth is held back.
        high: High = High::default(),
        /// When growth is stopped.
        critical: Critical = Critical::default(),
    }
}

section! {
    /// Which steps may be taken, from the mildest.
    Steps {
        /// Ask the kernel to reclaim memory of a container (memory.reclaim; v2, Linux 5.19).
        reclaim: bool = true,
        /// Hold a container's growth back for a while (memory.high; the soft limit on v1).
        high: bool = true,
        /// Freeze a container for a while, when nothing else stops memory from running out.
        freeze: bool = true,
        /// Kill a container, when nothing milder frees memory and available memory is below kill_below.
        /// On v1 processes of other users need features.v1_kill.
        kill: bool = true,
    }
}

/// One grade's table; the three differ in their defaults only.
macro_rules! grade {
    ($(#[$doc:meta])* $name:ident {
        $some:literal $some_leave:literal $full:literal $full_leave:literal
        $available:literal $available_leave:literal $exhaustion:literal $dwell:literal $cool_down:literal
    }) => {
        section! {
            $(#[$doc])*
            $name {
                /// Part of the time in which some wait for memory, percent. Defaults of the three grades: a tenth of
                /// systemd-oomd's way to its limit, its limit on Fedora's user slices, nearly all the time.
                some_percent: u32 = $some,
                /// It ends below this.
                some_leave_percent: u32 = $some_leave,
                /// Part of the time in which all wait, percent. Default of critical: two thirds of systemd-oomd's
                /// DefaultMemoryPressureLimit (60 %), since steps here are undone.
                full_percent: u32 = $full,
                /// It ends below this.
                full_leave_percent: u32 = $full_leave,
                /// Part of memory that is available, percent. Defaults: earlyoom's 10 % and 5 %, and half of that.
                available_percent: u32 = $available,
                /// It ends above this.
                available_leave_percent: u32 = $available_leave,
                /// Memory would be used up within this time at the rate of the last second; "0s" does not look ahead.
                exhaustion: Span = Span::from_secs($exhaustion),
                /// How long a threshold is passed before it counts; a look ahead counts at once.
                dwell: Span = Span::from_millis($dwell),
                /// Time between two steps.
                cool_down: Span = Span::from_millis($cool_down),
            }
        }

        impl $name {
            fn band(&self, c: &mut Checker<'_>, key: &str) -> Band {
                let pair = |c: &mut Checker<'_>, name: &str, enter: u32, leave: u32, falls: bool| {
                    percent(c, &format!("{key}.{name}_percent"), enter);
                    let wrong = if falls { leave <= enter } else { leave >= enter };
                    if wrong {
                        let side = if falls { "above" } else { "below" };
                        let reason = format!("{leave} is not {side} {key}.{name}_percent = {enter}");
                        c.fail(&format!("{key}.{name}_leave_percent"), reason, "a grade must end on the far side of where it begins");
                    }
                    Pair { enter: enter.saturating_mul(100), leave: leave.saturating_mul(100) }
                };
                let ahead = self.exhaustion.get();
                Band {
                    some: pair(c, "some", self.some_percent, self.some_leave_percent, false),
                    full: pair(c, "full", self.full_percent, self.full_leave_percent, false),
                    available: pair(c, "available", self.available_percent, self.available_leave_percent, true),
                    exhaustion_usec: (!ahead.is_zero()).then(|| micros(ahead)),
                    dwell_usec: micros(c.span(&format!("{key}.dwell"), self.dwell.get(), DWELL)),
                    cool_down_usec: micros(c.span(&format!("{key}.cool_down"), self.cool_down.get(), COOL_DOWN)),
                }
            }
        }
    };
}

grade!(
    /// When memory is reclaimed.
    Warning { 10 5 5 2 10 12 0 1000 2000 }
);
grade!(
    /// When growth is held back.
    High { 40 20 15 7 5 7 10 1000 1000 }
);
grade!(
    /// When growth is stopped.
    Critical { 80 60 40 20 2 4 2 0 250 }
);

const DWELL: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(600);
const COOL_DOWN: RangeInclusive<Duration> = Duration::from_millis(50)..=Duration::from_secs(600);
const FREEZE: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(60);
/// WINDOW_MIN_US and WINDOW_MAX_US of kernel/sched/psi.c.
const WINDOW: RangeInclusive<Duration> = Duration::from_millis(500)..=Duration::from_secs(10);
const SPAN: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3600);

/// Checks the section.
pub(in super::super) fn check(c: &mut Checker<'_>, raw: &Pressure) -> PressureRules {
    let bands = bands(c, raw);
    percent(c, "pressure.step_percent", raw.step_percent);
    percent(c, "pressure.reserve_percent", raw.reserve_percent);
    if raw.reserve_percent <= raw.warning.available_leave_percent {
        let reason = format!(
            "{} is not above pressure.warning.available_leave_percent = {}, so undoing would bring the warning back",
            raw.reserve_percent, raw.warning.available_leave_percent
        );
        c.fail("pressure.reserve_percent", reason, "give more than where the warning ends");
    }
    if raw.retriggers == 0 {
        c.fail("pressure.retriggers", "0 would escalate at once".into(), "give 1 or more");
    }
    let rules = PressureConfig {
        bands,
        can: Switches {
            reclaim: raw.steps.reclaim,
            high: raw.steps.high,
            soft_limit: raw.steps.high,
            freeze: raw.steps.freeze,
            kill: raw.steps.kill,
        },
        step: raw.step_percent.saturating_mul(100),
        reserve: raw.reserve_percent.saturating_mul(100),
        floor: Bytes::new(raw.kill_below.get()),
        kill_after_usec: span(c, "pressure.kill_after", raw.kill_after),
        kill_cool_down_usec: span(c, "pressure.kill_cool_down", raw.kill_cool_down),
        freeze_at_most_usec: micros(c.span("pressure.freeze_at_most", raw.freeze_at_most.get(), FREEZE)),
        redo_after_usec: span(c, "pressure.redo_after", raw.redo_after),
        retrigger_window_usec: span(c, "pressure.retrigger_window", raw.retrigger_window),
        retriggers: raw.retriggers,
    };
    let window_usec = micros(c.span("pressure.window", raw.window.get(), WINDOW));
    PressureRules { enabled: raw.enabled, rules, window_usec }
}

fn bands(c: &mut Checker<'_>, raw: &Pressure) -> Bands {
    percent(c, "pressure.look_ahead_below_percent", raw.look_ahead_below_percent);
    percent(c, "pressure.stall_below_percent", raw.stall_below_percent);
    let bands = Bands {
        warning: raw.warning.band(c, "pressure.warning"),
        high: raw.high.band(c, "pressure.high"),
        critical: raw.critical.band(c, "pressure.critical"),
        basis_at_most: Bytes::new(raw.available_of_at_most.get()),
        look_ahead_below: raw.look_ahead_below_percent.saturating_mul(100),
        stall_below: raw.stall_below_percent.saturating_mul(100),
        calm_after_usec: span(c, "pressure.calm_after", raw.calm_after),
    };
    let named = [
        ("pressure.warning", bands.warning),
        ("pressure.high", bands.high),
        ("pressure.critical", bands.critical),
    ];
    for pair in named.windows(2) {
        let [(milder, a), (worse, b)] = pair else { continue };
        let wrong = [
            ("some", b.some.enter < a.some.enter),
            ("full", b.full.enter < a.full.enter),
            ("available", b.available.enter > a.available.enter),
        ];
        for (name, _) in wrong.into_iter().filter(|(_, wrong)| *wrong) {
            let key = format!("{worse}.{name}_percent");
            c.fail(&key, format!("it is reached before {milder}.{name}_percent"), "order the grades");
        }
        if let (Some(mild), Some(bad)) = (a.exhaustion_usec, b.exhaustion_usec)
            && bad > mild
        {
            c.fail(
                &format!("{worse}.exhaustion"),
                format!("it looks further ahead than {milder}"),
                "order the grades",
            );
        }
    }
    bands
}

fn span(c: &mut Checker<'_>, key: &str, value: Span) -> u64 {
    micros(c.span(key, value.get(), SPAN))
}

pub(super) fn percent(c: &mut Checker<'_>, key: &str, value: u32) {
    if !(1..=100).contains(&value) {
        c.fail(key, format!("{value} is not a percentage"), "give 1 to 100");
    }
}
