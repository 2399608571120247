//! `[admission]`: what becomes of manifests that do not fit.

use evenkeel_enforce::admission::Mode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::check::Checker;

section! {
    /// What becomes of a manifest that brings the sum of requests above what is allocatable, on a node without a kubelet.
    Admission {
        /// "report": it is applied, and told what is short. "refuse": its containers are sampled and not written until it
        /// fits. Who was admitted stays, also over restarts. Default: what harms nobody.
        mode: Mode = Mode::Report,
    }
}

/// Checks the section.
pub(in super::super) fn check(c: &mut Checker<'_>, raw: &Admission, kubelet_rules: bool) -> Mode {
    if kubelet_rules && raw.mode == Mode::Refuse {
        let reason = "the kubelet admits pods where rules = \"kubelet\"".to_owned();
        c.fail("admission.mode", reason, "leave it at \"report\" beside a kubelet");
    }
    raw.mode
}
