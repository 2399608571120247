//! When a request is not worth a change.
//!
//! A percentile of a sliding window moves a little with every sample, and jumps when bursts make up just the part of the
//! time that it leaves out: they are in it today and not tomorrow. Following that costs a change a day and buys nothing.

use super::Params;
use crate::Resource;
use crate::rule::Question;

/// What was answered before, where it still serves: it would have met the objective for what was seen (`needed`), and
/// the new answer is no more than a factor away, either way. Young containers follow every answer (`age_days`), because
/// their first ones rest on next to nothing.
pub(super) fn previous(
    params: &Params,
    question: &Question,
    request: u64,
    needed: f64,
    age_days: f64,
) -> Option<u64> {
    let part = match question.resource {
        Resource::Cpu => params.cpu_keep,
        Resource::Memory => params.memory_keep,
    };
    let factor = 1.0 + part * params.mature(age_days);
    let near = request as f64 / factor..=request as f64 * factor;
    question.previous.filter(|previous| *previous as f64 >= needed && near.contains(&(*previous as f64)))
}

/// The present request where it is enough and hardly too much, or else the new one.
pub(super) fn current(params: &Params, question: &Question, request: u64) -> u64 {
    let near = (request as f64 * (1.0 + params.settle)) as u64;
    question.current.filter(|current| (request..=near).contains(current)).unwrap_or(request)
}
