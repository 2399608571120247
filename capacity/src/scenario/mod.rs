//! What if: nodes go, a daemon grows, nodes are added, others are displaced, pods are moved, ties fall otherwise.
//!
//! Every scenario works on a copy of the state: analysis never changes what was asked about.

mod add;
mod board;
mod compact;
mod daemon;
mod defrag;
mod displace;
mod mix;
mod preempt;
mod trials;

pub use add::{Addition, NodeType, add, add_sets};
pub use board::Move;
pub use compact::{Compaction, compact};
pub use daemon::{DaemonAnswer, DaemonBounds, DaemonRefusal, daemon, tolerations as daemon_tolerations};
pub use defrag::{Defragmentation, defrag};
pub use displace::{Displaced, FailedPod, displace, groups};
pub use mix::{Mix, mix, mix_sets};
pub use preempt::{DefaultPreemption, Nomination, Preemption, Room, Stuck, Victim, preempt};
pub use trials::{Trials, trials};
