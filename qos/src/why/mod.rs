//! Why something was decided: the rule, with every number it used.
//!
//! Owned here: the closed list of rules ([`Why`]), each with a type of its own, and their two forms outside: a sentence for
//! people ([`Why::text`]) and flat text by name for the decision log and the wire ([`Why::inputs`], [`Why::read`]). Not
//! owned: the arithmetic, which is beside what it decides; making a decision again ([`crate::replay`]).
//!
//! A new rule is one variant here. It does not compile before it has its sentence and its way to be replayed.

mod class;
mod cpu;
mod flat;
mod memory;

use evenkeel_model::decision::{Decision, DecisionKind};
use evenkeel_model::workload::ContainerKind;
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

use crate::dynamic::DynamicInput;
use crate::effective::{LostEffect, ProtectionPath, WeightPath};
use crate::eviction::Ruling;
use crate::overlay::Advised;
use crate::plan::Wish;
use crate::pressure::{Released, Restricted, Thrash};
use crate::reserve::CapInput;
use crate::starvation::{Squeezed, Starved, Unsqueezed};

pub use class::{Class, ContainerScore, Infrastructure};
pub use cpu::{
    Below, Burst, ExclusiveCores, FairPart, Idle, Origin, Quota, ScaledWeight, SharedPool, Shares, Weight,
};
pub(crate) use flat::text;
pub use flat::{Inputs, Unreadable};
pub use memory::{High, InnerProtection, MemoryLimit, MemoryProtection, OomGroup, Swap};

/// The rule behind a value or a deed, with what it was decided by. Its name is the input `formula` of a decision; large
/// ones that few containers have are boxed, for an agent keeps one for every knob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// The class of a container.
    Class(Box<Class>),
    /// `oom_score_adj` of a container.
    Score(ContainerScore),
    /// `oom_score_adj` of infrastructure.
    Infrastructure(Infrastructure),
    /// `oom_score_adj` by use, within the burstable band.
    DynamicScore(Box<DynamicInput>),
    /// `cpu.shares` from a request.
    Shares(Shares),
    /// `cpu.weight` from a request by way of shares.
    Weight(Weight),
    /// `cpu.weight` in an owned subtree, in proportion to the request.
    ScaledWeight(ScaledWeight),
    /// Shares or weight of the fair mode.
    Fair(Box<FairPart>),
    /// CPU quota from a limit.
    Quota(Quota),
    /// Burst from a quota.
    Burst(Burst),
    /// `cpu.idle` by class.
    Idle(Idle),
    /// CPUs of one's own.
    ExclusiveCores(Box<ExclusiveCores>),
    /// CPUs that are nobody's own.
    SharedPool(Box<SharedPool>),
    /// Memory protection from a request.
    Protection(MemoryProtection),
    /// Protection of an inner cgroup.
    SumOfChildren(InnerProtection),
    /// `memory.high` between request and limit.
    High(High),
    /// `memory.max` from a limit.
    Limit(MemoryLimit),
    /// `memory.oom.group` as asked for.
    OomGroup(OomGroup),
    /// Swap limit by class.
    Swap(Swap),
    /// The cap of all workloads.
    WorkloadsCap(Box<CapInput>),
    /// What a protection comes to along its path.
    EffectiveProtection(ProtectionPath),
    /// Where a weight competes.
    EffectiveWeight(WeightPath),
    /// A step against memory pressure.
    PressureStep(Box<Restricted>),
    /// The end of one.
    PressureRelease(Box<Released>),
    /// The limit of a container that thrashes at its own.
    Thrash(Box<Thrash>),
    /// One step of a request towards what is recommended.
    OverlayStep(Box<Advised>),
    /// A container does not get the CPU it requested.
    Starves(Box<Starved>),
    /// A container is kept from the CPU that another one requested.
    Squeeze(Box<Squeezed>),
    /// The end of that.
    SqueezeRelease(Unsqueezed),
    /// What becomes of a container that failed; decisions of it name no rule, for their kind does.
    Ruling(Ruling),
    /// Nothing is known of what a container of this kind asks for; not a rule.
    #[serde(skip)]
    Unclassified(ContainerKind),
    /// A controller is given on to the containers below; not a rule.
    #[serde(skip)]
    Controller(Box<str>),
}

/// What decisions call [`Why::Ruling`] by their kind.
const RULING: &str = "ruling";

impl Why {
    /// Who takes the effect of a value away; `None` for what is no verdict on an effect, or where it holds.
    pub fn lost(&self) -> Option<LostEffect> {
        match self {
            Self::EffectiveProtection(path) => path.lost(),
            Self::EffectiveWeight(path) => path.lost(),
            _ => None,
        }
    }

    /// The sentence a person understands.
    pub fn text(&self) -> String {
        match self {
            Self::Class(rule) => rule.text(),
            Self::Score(rule) => rule.text(),
            Self::Infrastructure(rule) => rule.text(),
            Self::DynamicScore(rule) => rule.text(),
            Self::Shares(rule) => rule.text(),
            Self::Weight(rule) => rule.text(),
            Self::ScaledWeight(rule) => rule.text(),
            Self::Fair(rule) => rule.text(),
            Self::Quota(rule) => rule.text(),
            Self::Burst(rule) => rule.text(),
            Self::Idle(rule) => rule.text(),
            Self::ExclusiveCores(rule) => rule.text(),
            Self::SharedPool(rule) => rule.text(),
            Self::Protection(rule) => rule.text(),
            Self::SumOfChildren(rule) => rule.text(),
            Self::High(rule) => rule.text(),
            Self::Limit(rule) => rule.text(),
            Self::OomGroup(rule) => rule.text(),
            Self::Swap(rule) => rule.text(),
            Self::WorkloadsCap(rule) => rule.text(),
            Self::EffectiveProtection(rule) => rule.text(),
            Self::EffectiveWeight(rule) => rule.text(),
            Self::PressureStep(rule) => rule.text(),
            Self::PressureRelease(rule) => rule.text(),
            Self::Thrash(rule) => rule.text(),
            Self::OverlayStep(rule) => rule.text(),
            Self::Starves(rule) => rule.text(),
            Self::Squeeze(rule) => rule.text(),
            Self::SqueezeRelease(rule) => rule.text(),
            Self::Ruling(rule) => rule.reason("failed"),
            Self::Unclassified(ContainerKind::Infrastructure) => {
                "infrastructure: not classified, the node needs it".to_owned()
            }
            Self::Unclassified(_) => "nothing is known of what it requests".to_owned(),
            Self::Controller(name) => format!("containers below it have {name} knobs"),
        }
    }

    /// The numbers by name, with the rule's name as `formula`; amounts of memory in bytes, of CPU in thousandths.
    pub fn inputs(&self) -> Inputs {
        let Some((name, mut inputs)) = flat::write(self) else { return Inputs::new() };
        if name != RULING {
            inputs.insert("formula".to_owned(), name);
        }
        inputs
    }

    /// The rule of a recorded decision, with the numbers it was decided by then.
    ///
    /// # Errors
    /// Says what is missing: a name of a rule, a number, or this program's knowledge of the rule.
    pub fn read(decision: &Decision) -> Result<Self, Unreadable> {
        let name = match decision.inputs.get("formula") {
            Some(name) => name.as_str(),
            None => unnamed(decision.kind)?,
        };
        flat::read(name, &decision.inputs)
    }

    /// A wish for `value` for this reason.
    pub const fn wish<T>(self, value: T) -> Wish<T> {
        Wish { value, reason: self }
    }
}

/// The rule of a kind of decisions that name none; otherwise why they need none.
fn unnamed(kind: DecisionKind) -> Result<&'static str, Unreadable> {
    Err(Unreadable::new(match kind {
        DecisionKind::Evict | DecisionKind::Restart => return Ok(RULING),
        DecisionKind::Denied => "tells that the kernel or the configuration refused",
        DecisionKind::Ineffective => "tells that a knob has its effect again",
        DecisionKind::Contended => "tells that somebody else rewrites a knob",
        DecisionKind::Resize => "tells that a request is kept or went back to what was asked for",
        _ => "names no rule in its inputs",
    }))
}

/// For `serde(serialize_with)`: sentence and numbers, as programs that read a plan expect them.
pub(crate) fn shown<S: Serializer>(why: &Why, serializer: S) -> Result<S::Ok, S::Error> {
    let mut reason = serializer.serialize_struct("Reason", 2)?;
    reason.serialize_field("text", &why.text())?;
    reason.serialize_field("inputs", &why.inputs())?;
    reason.end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::units::MilliCpu;

    #[test]
    fn an_agent_can_keep_one_for_every_knob() {
        assert!(size_of::<Why>() <= 72, "{}", size_of::<Why>());
    }

    #[test]
    fn numbers_have_names_and_what_is_not_known_is_left_out() {
        let why = Why::Quota(Quota {
            period_usec: 100_000,
            cpu_limit_milli: Some(MilliCpu::new(1500)),
            cpus: None,
            of_pod: true,
        });
        let inputs: Vec<_> = why.inputs().into_iter().collect();
        let inputs: Vec<_> = inputs.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        assert_eq!(inputs, [("cpu_limit_milli", "1500"), ("formula", "quota"), ("period_usec", "100000")]);
        assert_eq!(why.text(), "cpu limit of the pod: 1500m of each 100000 us");
        assert!(Why::Controller("cpu".into()).inputs().is_empty());
    }
}
