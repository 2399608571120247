//! The two ways to an answer: a step loop that places one pod after the other, and closed forms.

mod ranked;
pub mod step;
