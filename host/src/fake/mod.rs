//! Stand-ins for the kernel, for tests of this crate and of those above it. Not used by any program.
//!
//! [`FakeTree`] is a directory of ordinary files laid out like cgroupfs and procfs: the real readers and writers
//! work on it. [`FakeKernel`] lives in memory behind the two traits: it forks, freezes, denies and vanishes on
//! command, which files cannot.

mod kernel;
mod tree;

pub use kernel::{FakeDeed, FakeKernel, FakeState};
pub use tree::FakeTree;
