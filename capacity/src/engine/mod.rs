//! The two ways to an answer: a step loop that places one pod after the other, and closed forms.

pub mod closed;
mod ranked;
pub mod step;
