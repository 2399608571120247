//! `[ring]`: seconds on disk to look back at.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::check::Checker;
use super::super::scalar::Size;

/// Less does not hold the names of a large node's containers; more is what nobody means to give.
const BYTES: (u64, u64) = (1 << 20, 1 << 40);

section! {
    /// Seconds on disk to look back at, with `evenkeel top --at`.
    Ring {
        /// Bound on disk; the oldest seconds go first. "0" keeps none. Default: an hour of 1,000 busy containers, a day and more
        /// of a small node.
        bytes: Size = Size::from_mib(64),
    }
}

/// The valid section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RingRules {
    /// Bound on disk, bytes; `None` = off.
    pub bytes: Option<u64>,
}

/// Checks the section.
pub(in super::super) fn check(c: &mut Checker<'_>, raw: &Ring) -> RingRules {
    let bytes = Some(raw.bytes.get()).filter(|bytes| *bytes > 0);
    if let Some(bytes) = bytes.filter(|bytes| !(BYTES.0..=BYTES.1).contains(bytes)) {
        let reason = format!("{bytes} bytes is outside {} to {}", BYTES.0, BYTES.1);
        c.fail("ring.bytes", reason, "give a size in this range, such as \"64Mi\", or \"0\" for no ring");
    }
    RingRules { bytes }
}
