//! What containers used lately, as far as enforcement asks for it.
//!
//! Owned here: the question. Not owned: sampling and keeping samples, which whoever runs this crate does.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use evenkeel_model::sample::Sample;
use evenkeel_model::units::Bytes;

use crate::shared::Tracked;

/// The newest samples. Slots are those of [`Tracked`].
pub trait LatestSamples: Send {
    /// Time of the latest tick, microseconds since 1970; 0 before the first.
    fn time_usec(&self) -> u64;

    /// The latest sample of every container that has one, by slot.
    fn each(&self, take: &mut dyn FnMut(u32, &Sample));

    /// The last `span` of a container before a moment, microseconds since 1970; also of one that ended lately, and
    /// with what was seen of it before this program was started.
    fn before(&self, tracked: &Tracked, time_usec: u64, span: Duration) -> Option<LastSeconds>;
}

/// The newest samples, shared with whoever takes them.
pub type Usage = Arc<Mutex<dyn LatestSamples>>;

/// A container's last seconds before a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastSeconds {
    /// Memory charged at the last sample.
    pub usage: Option<Bytes>,
    /// Working set at the last sample.
    pub working_set: Option<Bytes>,
    /// `-2s 61Mi 250m, -1s 64Mi 251m`: seconds before, working set, CPU.
    pub text: String,
}
