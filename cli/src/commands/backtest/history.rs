//! Series of a recommender's stored history, minute by minute.

use evenkeel_proto::v1::QuerySeriesRequest;
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::backtest::trace::TraceSeries;

use crate::client::{Address, block_on};
use crate::commands::series;
use crate::failure::Failure;

/// What is stored of these workloads, or of all of a namespace, or of all.
///
/// # Errors
/// When the recommender does not answer, or has nothing of one of them.
pub(super) fn trace(
    workloads: &[String],
    namespace: &str,
    resource: Resource,
    address: &Address,
) -> Result<Vec<TraceSeries>, Failure> {
    let whole = [String::new()];
    let asked = if workloads.is_empty() { &whole[..] } else { workloads };
    block_on(async {
        let mut all: Vec<TraceSeries> = Vec::new();
        for text in asked {
            let (mut found, mut gaps) = series::stored(address, request(text, namespace, resource)).await?;
            if found.is_empty()
                && let Some(pod) = of_pod(text, resource)
            {
                (found, gaps) = series::stored(address, pod).await?;
            }
            gaps.tell();
            if found.is_empty() {
                let (what, remedy) =
                    ("nothing is stored to be replayed", "evenkeel usage lists what there is");
                let place = if text.is_empty() { "--history" } else { text };
                return Err(Failure::new(what, place, "the recommender has no minute of it", remedy));
            }
            all.extend(found);
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all.dedup_by(|a, b| a.name == b.name);
        Ok(all)
    })
}

/// `shop/deployment/web`, `deployment/web`, or the name of a pod.
pub(crate) fn request(text: &str, namespace: &str, resource: Resource) -> QuerySeriesRequest {
    let (namespace, workload) = match text.split_once('/') {
        Some((before, rest)) if rest.contains('/') => (before, rest),
        _ => (namespace, text),
    };
    QuerySeriesRequest {
        namespace: namespace.to_owned(),
        workload: workload.to_owned(),
        resource: resource.as_str().to_owned(),
        step_seconds: 60,
        ..QuerySeriesRequest::default()
    }
}

/// What `shop/web-1` may mean as well: a pod without a controller in its namespace, as `evenkeel usage` shows it.
fn of_pod(text: &str, resource: Resource) -> Option<QuerySeriesRequest> {
    let (namespace, pod) = text.split_once('/').filter(|(_, pod)| !pod.contains('/'))?;
    Some(request(pod, namespace, resource))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_may_have_its_namespace_in_front() {
        let pod = |text| of_pod(text, Resource::Cpu).map(|request| (request.namespace, request.workload));
        assert_eq!(pod("shop/web-1"), Some(("shop".to_owned(), "web-1".to_owned())));
        assert_eq!((pod("web-1"), pod("shop/deployment/web")), (None, None));
    }

    #[test]
    fn a_workload_may_have_its_namespace_in_front() {
        for (text, namespace, want) in [
            ("shop/deployment/web", "", ("shop", "deployment/web")),
            ("shop/deployment/web", "other", ("shop", "deployment/web")),
            ("deployment/web", "shop", ("shop", "deployment/web")),
            ("web-1", "", ("", "web-1")),
            ("", "shop", ("shop", "")),
        ] {
            let request = request(text, namespace, Resource::Cpu);
            assert_eq!((request.namespace.as_str(), request.workload.as_str()), want, "{text}");
        }
    }
}
