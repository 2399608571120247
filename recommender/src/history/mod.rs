//! Owns the past of every container: what rules may ask of it, and the seam to stores outside.
//!
//! [`View`] answers the rules for one container's resource. [`exchange`] has the values that go to other engines and
//! come back from them. Not owned: how frames become seconds (`state`), what follows from the past (`recommend`).

pub mod exchange;
mod key;
mod view;

pub use key::Subject;
pub use view::{Of, View};
