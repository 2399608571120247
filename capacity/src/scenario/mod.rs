//! What if: nodes go, a daemon grows, nodes are added, others are displaced, ties fall otherwise.
//!
//! Every scenario works on a copy of the state: analysis never changes what was asked about.

mod add;
mod daemon;
mod displace;
mod preempt;
mod trials;

pub use add::{Addition, NodeType, add};
pub use daemon::{DaemonAnswer, DaemonRefusal, daemon, tolerations as daemon_tolerations};
pub use displace::{Displaced, FailedPod, displace, groups};
pub use preempt::{Preemption, Victim, preempt};
pub use trials::{Trials, trials};
