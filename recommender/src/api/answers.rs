//! Owns the JSON forms of answers. Names are pinned; `/openapi.json` is made of these types.

mod changes;
mod cluster;
mod estimate;
mod recommended;

pub(crate) use changes::{AppliedAnswer, AuditPage, PolicyListAnswer, PolicyObject, UpdatesAnswer};
pub(crate) use cluster::{EventAnswer, NamespacesAnswer, NodeAnswer, WatchedAnswer};
pub(crate) use estimate::{EstimateAnswer, EstimateQuestion};
pub(crate) use recommended::{
    PodAnswer, RecommendationAnswer, SeriesGap, SeriesLine, SeriesValue, UsageAnswer,
};

/// Time as RFC 3339 in UTC; nothing for 0, which stands for never.
pub(crate) fn time(usec: u64) -> Option<String> {
    let at = i64::try_from(usec).ok().and_then(|usec| jiff::Timestamp::from_microsecond(usec).ok());
    at.filter(|_| usec > 0).map(|at| at.to_string())
}

/// A text of a message, in which an empty one stands for none.
fn filled(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}
