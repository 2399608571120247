//! Checks of what changes pods that run: whether it does, and what it leaves alone that somebody should look at.

use evenkeel_proto::v1::{ListUpdatesRequest, ListUpdatesResponse};

use super::Finding;
use crate::client::{self, Address};
use crate::commands::updates;

const CHECK: &str = "updater";
/// Steps that met another version of a pod, of the last ones: one or two are a kubelet that wrote at the same time.
const CONFLICTS: usize = 5;
/// Steps that count for it.
const LAST: usize = 100;
/// Reasons that do not pass by themselves.
const FOR_SOMEBODY: [&str; 8] = [
    "OtherUpdater",
    "ChangedByOthers",
    "Unsupported",
    "ClassWouldChange",
    "NoRoom",
    "AdmissionUnproven",
    "BackOff",
    "CanaryWorse",
];

/// What the recommender's updater says; nothing where none is, or who asks may not know.
pub(super) async fn finding(address: &Address) -> Option<Finding> {
    let mut recommender = client::recommender(address).await.ok()?;
    let told = recommender.list_updates(ListUpdatesRequest::default()).await.ok()?;
    of_updates(&told.into_inner())
}

fn of_updates(told: &ListUpdatesResponse) -> Option<Finding> {
    if matches!(told.mode.as_str(), "" | "off") {
        return None;
    }
    let left = updates::reasons(told);
    let words: Vec<String> = left.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    let mode = &told.mode;
    let last = told.steps.iter().rev().take(LAST);
    let conflicts = last.filter(|step| step.outcome == "conflict").count();
    if left.contains_key("Frozen") {
        return Some(Finding::warn(
            CHECK,
            format!("{mode}, and frozen: {}", words.join(", ")),
            "let go of the panic switch when it is over: evenkeel updates says who holds it",
        ));
    }
    if FOR_SOMEBODY.iter().any(|reason| left.contains_key(*reason)) {
        return Some(Finding::warn(
            CHECK,
            format!("{mode}; left alone: {}", words.join(", ")),
            "evenkeel updates says why of each, docs/updater.md what helps",
        ));
    }
    if conflicts >= CONFLICTS {
        return Some(Finding::warn(
            CHECK,
            format!("{mode}; {conflicts} of the last steps met pods that somebody changed meanwhile"),
            "see that one updater has them: kubernetes.lease where there are several recommenders",
        ));
    }
    let rest =
        if words.is_empty() { String::new() } else { format!("; left alone for now: {}", words.join(", ")) };
    Some(Finding::ok(CHECK, format!("{mode}, {} looks at pods{rest}", told.passes)))
}

#[cfg(test)]
mod tests {
    use evenkeel_proto::v1::{PodLeftAlone, PodUpdate};

    use super::super::CheckStatus;
    use super::*;

    #[test]
    fn what_needs_somebody_is_told() {
        let told = |mode: &str, reasons: &[&str], conflicts: usize| {
            let left =
                |reason: &&str| PodLeftAlone { reason: (*reason).to_owned(), ..PodLeftAlone::default() };
            let step = PodUpdate { outcome: "conflict".into(), ..PodUpdate::default() };
            of_updates(&ListUpdatesResponse {
                mode: mode.into(),
                passes: 7,
                steps: vec![step; conflicts],
                left_alone: reasons.iter().map(left).collect(),
                ..ListUpdatesResponse::default()
            })
        };
        for mode in ["", "off"] {
            assert!(told(mode, &["NoRoom"], 9).is_none());
        }
        for (reasons, conflicts, state, words) in [
            (&[][..], 0, CheckStatus::Ok, "on, 7 looks at pods"),
            (&["TooYoung", "Budget"][..], 2, CheckStatus::Ok, "left alone for now: Budget 1, TooYoung 1"),
            (
                &["NoRoom", "TooYoung", "NoRoom"][..],
                0,
                CheckStatus::Warn,
                "on; left alone: NoRoom 2, TooYoung 1",
            ),
            (&["OtherUpdater"][..], 0, CheckStatus::Warn, "OtherUpdater 1"),
            (&["Frozen"][..], 0, CheckStatus::Warn, "on, and frozen"),
            (&[][..], 5, CheckStatus::Warn, "5 of the last steps met pods"),
        ] {
            let found = told("on", reasons, conflicts).unwrap();
            assert!(
                found.state == state && found.found.contains(words),
                "{reasons:?} {conflicts}: {found:?}"
            );
            assert_eq!(found.page, "doctor.md#updater");
        }
    }
}
