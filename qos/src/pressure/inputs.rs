//! The numbers of a decision as text by name, and the decision made again from them.
//!
//! Keys are those of [`relieve`] and [`release`]; amounts are bytes, times microseconds, parts hundredths of a
//! percent.

use std::collections::BTreeMap;
use std::str::FromStr;

use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::Bytes;

use super::machine::{Action, Deed, Switches};
use super::release::{Giving, Held, let_go};
use super::step::{Case, Step, decide};

type Inputs = BTreeMap<String, String>;

impl Action {
    /// All numbers it was decided by.
    pub fn inputs(&self) -> Inputs {
        let mut all = match &self.deed {
            Deed::Restrict(_, case) => relieve(case),
            Deed::Release(_, giving) => release(giving),
        };
        let mut add = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                all.insert(name.to_owned(), value);
            }
        };
        add("cause", self.cause.map(|cause| cause.as_str().to_owned()));
        add("pressure.some", self.signals.some.map(|part| part.to_string()));
        add("pressure.full", self.signals.full.map(|part| part.to_string()));
        add("pressure.own_limit", self.signals.own_limit.map(|part| part.to_string()));
        add("exhaustion_usec", self.signals.exhaustion_usec.map(|usec| usec.to_string()));
        add("retriggers", Some(self.retriggers.to_string()));
        all
    }

    /// Why, in a sentence.
    pub fn reason(&self) -> String {
        let mib = |bytes: Bytes| format!("{} MiB", bytes.get() >> 20);
        match &self.deed {
            Deed::Restrict(step, case) => {
                let cause = self.cause.map_or("pressure", |cause| match cause.as_str() {
                    "exhaustion" => "memory would be used up soon",
                    "available" => "little memory is available",
                    "full" => "everybody waits for memory",
                    _ => "memory is waited for",
                });
                let what = match step {
                    Step::Reclaim { amount, .. } => format!("{} are reclaimed", mib(*amount)),
                    Step::High(at) => format!("growth is held at {}", mib(*at)),
                    Step::SoftLimit(at) => format!("reclaim is steered to what is above {}", mib(*at)),
                    Step::Freeze => "it is frozen for a while".to_owned(),
                    Step::Kill => "it is killed, since nothing milder freed memory".to_owned(),
                };
                format!(
                    "{} pressure ({cause}, {} available): this {} container has {} and {} of it too much; {what}",
                    case.grade,
                    mib(case.available),
                    case.class,
                    mib(case.current),
                    mib(case.over()),
                )
            }
            Deed::Release(_, giving) if giving.protected => {
                "it is no longer a container that may be held back".to_owned()
            }
            Deed::Release(_, giving) if giving.grade > super::Grade::Calm => {
                format!("it was frozen for {} ms, which is the most", giving.held_for_usec / 1000)
            }
            Deed::Release(_, giving) => format!(
                "no pressure, and of {} available at most {} are taken by letting go, with {} in reserve",
                mib(giving.available),
                mib(giving.may_take().min(giving.available)),
                mib(giving.reserve),
            ),
        }
    }

    /// Kernel file the action is about, as decisions name it.
    pub const fn knob(&self, v2: bool) -> &'static str {
        let freezer = if v2 { "cgroup.freeze" } else { "freezer.state" };
        match &self.deed {
            Deed::Restrict(Step::Reclaim { .. }, _) => "memory.reclaim",
            Deed::Restrict(Step::High(_), _) => "memory.high",
            Deed::Restrict(Step::SoftLimit(_), _) => "memory.soft_limit_in_bytes",
            Deed::Restrict(Step::Freeze, _) => freezer,
            Deed::Restrict(Step::Kill, _) => "cgroup.kill",
            Deed::Release(_, giving) => match giving.held {
                Held::High => "memory.high",
                Held::SoftLimit => "memory.soft_limit_in_bytes",
                Held::Frozen => freezer,
            },
        }
    }

    /// What a decision shows as the new value.
    pub fn value(&self) -> String {
        match &self.deed {
            Deed::Restrict(step, _) => step.value(),
            Deed::Release(letting, _) => letting.value(),
        }
    }
}

fn put(all: &mut Inputs, name: &str, value: impl ToString) {
    all.insert(name.to_owned(), value.to_string());
}

fn put_known(all: &mut Inputs, name: &str, value: Option<impl ToString>) {
    if let Some(value) = value {
        put(all, name, value);
    }
}

/// The numbers of a restriction.
fn relieve(case: &Case) -> Inputs {
    let mut all = Inputs::new();
    put(&mut all, "formula", "pressure-step");
    put(&mut all, "grade", case.grade);
    put(&mut all, "urgent", case.urgent);
    put(&mut all, "rung", case.rung);
    put(&mut all, "available", case.available.get());
    put_known(&mut all, "short_below", case.short_below.map(Bytes::get));
    put(&mut all, "floor", case.floor.get());
    put(&mut all, "swap_free", case.swap_free.get());
    put(&mut all, "managed", case.managed);
    put(&mut all, "class", case.class);
    put(&mut all, "request", case.request.get());
    put(&mut all, "current", case.current.get());
    put(&mut all, "anon", case.anon.get());
    put(&mut all, "file", case.file.get());
    put(&mut all, "age_usec", case.age_usec);
    put_known(&mut all, "held_at", case.held_at.map(Bytes::get));
    put(&mut all, "frozen", case.frozen);
    put_known(&mut all, "held_for_usec", case.held_for_usec);
    put(&mut all, "kill_after_usec", case.kill_after_usec);
    put(&mut all, "step", case.step);
    put(&mut all, "can", can_text(case.can));
    all
}

/// The numbers of an undoing.
fn release(case: &Giving) -> Inputs {
    let mut all = Inputs::new();
    put(&mut all, "formula", "pressure-release");
    put(&mut all, "held", held_text(case.held));
    put(&mut all, "grade", case.grade);
    put(&mut all, "protected", case.protected);
    put(&mut all, "available", case.available.get());
    put(&mut all, "reserve", case.reserve.get());
    put(&mut all, "current", case.current.get());
    put_known(&mut all, "limit", case.limit.map(Bytes::get));
    put(&mut all, "peak", case.peak.get());
    put(&mut all, "growth", case.growth.get());
    put_known(&mut all, "cap", case.cap.map(Bytes::get));
    put(&mut all, "held_for_usec", case.held_for_usec);
    put(&mut all, "freeze_at_most_usec", case.freeze_at_most_usec);
    put(&mut all, "raise", case.raise.get());
    all
}

const fn held_text(held: Held) -> &'static str {
    match held {
        Held::High => "high",
        Held::SoftLimit => "soft-limit",
        Held::Frozen => "frozen",
    }
}

fn can_text(can: Switches) -> String {
    let named = [
        (can.reclaim, "reclaim"),
        (can.high, "high"),
        (can.soft_limit, "soft-limit"),
        (can.freeze, "freeze"),
        (can.kill, "kill"),
    ];
    let on: Vec<&str> = named.into_iter().filter(|(on, _)| *on).map(|(_, name)| name).collect();
    on.join(",")
}

fn can_of(text: &str) -> Switches {
    let has = |name: &str| text.split(',').any(|word| word == name);
    Switches {
        reclaim: has("reclaim"),
        high: has("high"),
        soft_limit: has("soft-limit"),
        freeze: has("freeze"),
        kill: has("kill"),
    }
}

fn get<T: FromStr>(all: &Inputs, name: &str) -> Option<T> {
    all.get(name)?.parse().ok()
}

fn bytes(all: &Inputs, name: &str) -> Option<Bytes> {
    get(all, name).map(Bytes::new)
}

fn class(all: &Inputs) -> Option<QosClass> {
    let text = all.get("class")?;
    [QosClass::BestEffort, QosClass::Burstable, QosClass::Guaranteed].into_iter().find(|c| c.as_str() == text)
}

fn case_of(all: &Inputs) -> Option<Case> {
    Some(Case {
        grade: get(all, "grade")?,
        urgent: get(all, "urgent")?,
        rung: get(all, "rung")?,
        available: bytes(all, "available")?,
        short_below: bytes(all, "short_below"),
        floor: bytes(all, "floor")?,
        swap_free: bytes(all, "swap_free")?,
        managed: get(all, "managed")?,
        class: class(all)?,
        request: bytes(all, "request")?,
        current: bytes(all, "current")?,
        anon: bytes(all, "anon")?,
        file: bytes(all, "file")?,
        age_usec: get(all, "age_usec")?,
        held_at: bytes(all, "held_at"),
        frozen: get(all, "frozen")?,
        held_for_usec: get(all, "held_for_usec"),
        kill_after_usec: get(all, "kill_after_usec")?,
        step: get(all, "step")?,
        can: can_of(all.get("can")?),
    })
}

/// The new value that the inputs of a `Relieve` decision lead to by the present rule, `none` where it would not act;
/// `None` when they are not such inputs.
pub fn replay_relieve(all: &Inputs) -> Option<String> {
    if all.get("formula").map(String::as_str) != Some("pressure-step") {
        return None;
    }
    Some(decide(&case_of(all)?).map_or_else(|| "none".to_owned(), |step| step.value()))
}

/// The same for a `Kill` decision of the pressure loop.
pub fn replay_kill(all: &Inputs) -> Option<String> {
    replay_relieve(all)
}

/// The same for a `Release` decision of the pressure loop.
pub fn replay_release(all: &Inputs) -> Option<String> {
    if all.get("formula").map(String::as_str) != Some("pressure-release") {
        return None;
    }
    let held = match all.get("held")?.as_str() {
        "high" => Held::High,
        "soft-limit" => Held::SoftLimit,
        "frozen" => Held::Frozen,
        _ => return None,
    };
    let case = Giving {
        held,
        grade: get(all, "grade")?,
        protected: get(all, "protected")?,
        available: bytes(all, "available")?,
        reserve: bytes(all, "reserve")?,
        current: bytes(all, "current")?,
        limit: bytes(all, "limit"),
        peak: bytes(all, "peak")?,
        growth: bytes(all, "growth")?,
        cap: bytes(all, "cap"),
        held_for_usec: get(all, "held_for_usec")?,
        freeze_at_most_usec: get(all, "freeze_at_most_usec")?,
        raise: bytes(all, "raise")?,
    };
    Some(let_go(&case).map_or_else(|| "none".to_owned(), |letting| letting.value()))
}
