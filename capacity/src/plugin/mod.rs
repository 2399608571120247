//! The rules of the scheduler: which nodes a pod may go to, and which of them it should.
//!
//! Owned here: every filter and score of the default profile, each prepared once per pod and then kept up to date
//! with what is placed. Not owned: which of them are on ([`crate::profile`]), the order of questions
//! ([`crate::engine`]). Source: kube-scheduler v1.36, `pkg/scheduler/framework/plugins`.

mod affinity;
mod binding;
mod built_in;
mod cycle;
mod local;
mod reason;
mod registry;
mod score;
mod spread;
mod volume;

pub(crate) use affinity::spread_over;
pub use cycle::Cycle;
pub(crate) use local::unborne_taint;
pub use reason::{Code, Rejection, Short};
pub(crate) use registry::{AnyFilter, AnyScore};
pub use registry::{FilterPlugin, PluginView, PostFilterPlugin, RegisterError, Registry, ScorePlugin, Sees};
pub use score::Scores;
pub(crate) use score::{fewer_is_better, more_is_better};
pub(crate) use spread::{Constraint, NO_DOMAIN, SpreadRules, Terms};
pub(crate) use volume::VolumeRules;
