//! What is shown of a container, a knob, a source and the node.

use std::fmt;
use std::sync::Arc;

use evenkeel_host::knob::Setting;
use evenkeel_model::workload::SourceKind;
use evenkeel_qos::why::Why;

use super::super::container::State;
use super::LET_ONE_OWN;
use crate::shared::{SourceProblem, Tracked};

/// One container as status shows it.
#[derive(Debug, Clone)]
pub struct ContainerView {
    /// Who it is.
    pub tracked: Arc<Tracked>,
    /// The worst of its parts.
    pub state: State,
    /// Number of its present wish.
    pub generation: u64,
    /// When all processes were last seen right, microseconds since 1970.
    pub verified_at_usec: Option<u64>,
    /// Processes seen then.
    pub processes: u32,
    /// Its knobs.
    pub knobs: Vec<KnobView>,
    /// Why it is sampled only.
    pub unmanaged: Option<String>,
}

/// One knob as status shows it. Text of it is made for who asks: one is kept for every knob of every container.
#[derive(Debug, Clone)]
pub struct KnobView {
    /// Value wished.
    pub wanted: Setting,
    /// Value last read back.
    pub actual: Option<Setting>,
    /// Where it stands.
    pub state: State,
    /// Why it should be so, or why it is not.
    pub reason: Reason,
    /// What is wrong with it for as long as it lasts: contended or without effect.
    pub trouble: Option<Box<Trouble>>,
}

impl KnobView {
    /// Kernel's name.
    pub fn name(&self) -> &'static str {
        self.wanted.knob().name()
    }
}

/// Why a knob should hold what is wished, or why it does not.
#[derive(Debug, Clone)]
pub enum Reason {
    /// The rule that wishes it, or by which it has no effect.
    Rule(Arc<Why>),
    /// What stands against it.
    Against(Arc<str>),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(why) => f.write_str(&why.text()),
            Self::Against(text) => f.write_str(text),
        }
    }
}

/// Something that lasts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// How often it was seen.
    pub count: u32,
    /// When it was seen first, microseconds since 1970.
    pub since_usec: u64,
    /// What it comes from.
    pub cause: Cause,
}

/// What a trouble comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// Somebody else writes it: this, where that could be read.
    Rewritten(Option<Box<str>>),
    /// An ancestor takes the effect away.
    Ineffective(Arc<Why>),
}

impl Trouble {
    /// The ancestor that takes the effect away, or the value somebody else writes.
    pub fn by(&self) -> String {
        match &self.cause {
            Cause::Rewritten(value) => {
                value.as_ref().map(|value| format!("rewritten to {value}")).unwrap_or_default()
            }
            Cause::Ineffective(why) => why.lost().map(|lost| lost.by).unwrap_or_default(),
        }
    }

    /// What a person can do.
    pub fn remedy(&self) -> String {
        match &self.cause {
            Cause::Rewritten(_) => LET_ONE_OWN.to_owned(),
            Cause::Ineffective(why) => why.lost().map(|lost| lost.remedy).unwrap_or_default(),
        }
    }
}

/// One source as status shows it.
#[derive(Debug, Clone)]
pub struct SourceView {
    /// Which.
    pub kind: SourceKind,
    /// Directory or socket.
    pub address: String,
    /// It can be read.
    pub healthy: bool,
    /// Containers it sees.
    pub containers: usize,
    /// What it could not use.
    pub problems: Vec<SourceProblem>,
}

/// One knob of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeKnob {
    /// Kernel's name.
    pub name: &'static str,
    /// `ok`, `off`, `denied`, `unsupported`.
    pub state: &'static str,
    /// Why it is not ok.
    pub why: String,
    /// What a person can do.
    pub remedy: String,
}

/// How new processes are noticed.
#[derive(Debug, Clone, Default)]
pub struct WakeView {
    /// Process events arrive.
    pub process_events: bool,
    /// Changes of the cgroup tree arrive.
    pub cgroup_events: bool,
    /// Why one is missing.
    pub why: Option<String>,
}
