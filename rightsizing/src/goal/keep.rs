//! When a request is not worth a change.

use super::GoalParams;
use super::cpu::Costs;
use super::params::ChangeFrequency;
use super::profile::Profile;
use crate::Resource;
use crate::rule::Question;
use evenkeel_model::narrow::f64_to_u64;

/// A CPU request that changes by the hour stays while another one would be better by no more than this part of
/// itself: on the public traces requests then change two to seven times a day.
const WORTH: f64 = 0.03;

/// Parts by which a CPU request that is raised within the day may be below or above the new answer before it follows.
/// Answers move by less from one hour to the next: on the public traces requests then change as often as by the day.
const BELOW: f64 = 0.02;
const ABOVE: f64 = 0.1;

/// What was answered before, where it is kept.
///
/// Memory: a higher answer, until the new one is lower by more than `memory_keep`; a lower one never, because it would
/// take back what a peak has taught. CPU by the day: never, as keeping costs slack and the answer hardly moves. CPU raised
/// within the day: while the new one is near. CPU by the hour: while the new one is hardly better.
pub(super) fn previous(
    params: &GoalParams,
    question: &Question,
    request: u64,
    profile: &Profile,
) -> Option<u64> {
    let previous = question.previous?;
    match question.resource {
        Resource::Memory => {
            let mature = params.mature(profile.age_days());
            let most = request as f64 * (1.0 + params.memory_keep * mature);
            (previous >= request && previous as f64 <= most).then_some(previous)
        }
        Resource::Cpu if params.change == ChangeFrequency::Day => None,
        // A raise that is over must not be kept.
        Resource::Cpu if params.change == ChangeFrequency::Raise => {
            let near = request as f64 / (1.0 + BELOW)..=request as f64 * (1.0 + ABOVE);
            near.contains(&(previous as f64)).then_some(previous)
        }
        Resource::Cpu => {
            let costs = Costs::new(params, profile.curve(), params.young(profile.age_days()));
            (costs.worse_by(previous as f64, request as f64) <= WORTH).then_some(previous)
        }
    }
}

/// The present request where it is enough and hardly too much, or else the new one.
pub(super) fn current(params: &GoalParams, question: &Question, request: u64) -> u64 {
    let near = f64_to_u64(request as f64 * (1.0 + params.settle));
    question.current.filter(|current| (request..=near).contains(current)).unwrap_or(request)
}
