//! Owns the rows of `/metrics` by node, namespace, cluster and workload: bounded in number, the first by name.

use evenkeel_metrics::{FamilyKind, Labels, Number, Page};
use evenkeel_model::quantity::Quantity;
use evenkeel_proto::v1;

use super::OWN;
use crate::allocated::Allocated;
use crate::recommend::stored::StoredRecommendations;

/// One sum of a place, as a metric.
struct Column<T> {
    name: &'static str,
    help: &'static str,
    value: fn(&T) -> Option<u64>,
}

const SUMS: [Column<v1::AllocatedResource>; 7] = [
    Column { name: "allocatable", help: "What pods may request", value: |sum| sum.allocatable },
    Column {
        name: "requested",
        help: "Requests of the containers that run",
        value: |sum| Some(sum.requested),
    },
    Column {
        name: "limited",
        help: "Limits of the containers that have one",
        value: |sum| Some(sum.limited),
    },
    Column { name: "used", help: "Use of the containers that run", value: |sum| Some(sum.used) },
    Column {
        name: "recommended",
        help: "Recommended requests, or the present ones where nothing is recommended",
        value: |sum| Some(sum.recommended),
    },
    Column { name: "quota_requests", help: "Least quota on requests", value: |sum| sum.quota_requests },
    Column { name: "quota_limits", help: "Least quota on limits", value: |sum| sum.quota_limits },
];

const OF_WORKLOADS: [Column<v1::Recommendation>; 3] = [
    Column { name: "request", help: "What each container of a workload requests", value: |r| r.current },
    Column { name: "limit", help: "The limit of each container of a workload", value: |r| r.current_limit },
    Column {
        name: "recommended",
        help: "What each container of a workload should request",
        value: |r| r.request,
    },
];

/// Rows of at most so many nodes, namespaces and workloads' containers each.
pub(crate) fn rows(sums: &Allocated, kept: &StoredRecommendations, most: usize) -> Page {
    let mut page = Page::new(OWN);
    let nodes =
        sums.nodes.iter().map(|(key, sum)| (labels([("cluster", &key.cluster), ("node", &key.node)]), sum));
    by_resource(&mut page, "node", nodes.take(most));
    let of_namespace =
        |(cluster, namespace): &(String, String)| labels([("cluster", cluster), ("namespace", namespace)]);
    let namespaces = sums.namespaces.iter().map(|(key, sum)| (of_namespace(key), sum));
    by_resource(&mut page, "namespace", namespaces.take(most));
    let clusters = sums.clusters.iter().map(|(cluster, sum)| (labels([("cluster", cluster)]), sum));
    by_resource(&mut page, "cluster", clusters.take(most));
    let containers = by_workload(&mut page, kept, most);
    let left =
        [("nodes", sums.nodes.len()), ("namespaces", sums.namespaces.len()), ("containers", containers)];
    page.by(
        FamilyKind::Gauge,
        "rows_left_out",
        "Nodes, namespaces and workloads' containers beyond serve.metric_rows.",
        "of",
        left.map(|(of, count)| (of, count.saturating_sub(most) as u64)),
    );
    page
}

fn by_resource<'a>(page: &mut Page, place: &str, all: impl Iterator<Item = (Labels, &'a v1::Allocated)>) {
    let all: Vec<_> = all.collect();
    for Column { name, help, value } in &SUMS {
        let rows = all.iter().flat_map(|(labels, sum)| {
            let both =
                [("cpu", &sum.cpu), ("memory", &sum.memory)].into_iter().filter_map(|(resource, sum)| {
                    Some((of_resource(labels, resource), number(resource, sum.as_ref().and_then(value)?)))
                });
            let others = sum.others.iter().filter_map(|(resource, sum)| {
                let amount = of_other(name, sum).and_then(|amount| Quantity::parse(amount).ok())?;
                Some((of_resource(labels, resource), Number::from(amount.nano() as f64 / 1e9)))
            });
            both.chain(others)
        });
        page.family(FamilyKind::Gauge, &format!("{place}_{name}"), &in_units(help), rows);
    }
}

/// The sum of another resource, as far as it is told.
fn of_other<'a>(name: &str, sum: &'a v1::AllocatedAmount) -> Option<&'a str> {
    match name {
        "allocatable" => Some(&sum.allocatable),
        "requested" => Some(&sum.requested),
        _ => None,
    }
}

/// Recommendations of what runs; how many containers of workloads there are.
fn by_workload(page: &mut Page, kept: &StoredRecommendations, most: usize) -> usize {
    let is_same = |a: &v1::Recommendation, b: &v1::Recommendation| {
        a.container == b.container
            && a.workload == b.workload
            && a.namespace == b.namespace
            && a.cluster == b.cluster
    };
    // What is kept is in the order of its places, so that one container's resources stand side by side. Only the rows that
    // are shown are looked at closely: there may be a hundred times as many.
    let mut count = 0;
    let mut shown: Vec<(Labels, Vec<&v1::Recommendation>)> = Vec::new();
    let mut before: Option<&v1::Recommendation> = None;
    for r in kept.all().filter(|r| r.replicas > 0) {
        let is_next = !before.is_some_and(|before| is_same(before, r));
        before = Some(r);
        count += usize::from(is_next);
        if is_next && count <= most {
            shown.push((of_container(r), vec![r]));
        } else if count <= most
            && let Some((_, both)) = shown.last_mut()
        {
            both.push(r);
        }
    }
    for Column { name, help, value } in &OF_WORKLOADS {
        let rows = shown.iter().flat_map(|(labels, both)| {
            both.iter()
                .filter_map(|r| Some((of_resource(labels, &r.resource), number(&r.resource, value(r)?))))
        });
        page.family(FamilyKind::Gauge, &format!("workload_{name}"), &in_units(help), rows);
    }
    count
}

fn of_container(r: &v1::Recommendation) -> Labels {
    labels([
        ("cluster", &r.cluster),
        ("namespace", &r.namespace),
        ("workload", &r.workload),
        ("container", &r.container),
    ])
}

fn in_units(help: &str) -> String {
    format!("{help}: cpu in cores, memory in bytes, others in their units.")
}

/// A value in the base unit of its resource.
fn number(resource: &str, value: u64) -> Number {
    if resource == "cpu" { Number::from(value as f64 / 1e3) } else { Number::from(value) }
}

fn labels<const N: usize>(pairs: [(&'static str, &String); N]) -> Labels {
    Labels::of(pairs.map(|(name, value)| (name, value.clone())))
}

fn of_resource(labels: &Labels, resource: &str) -> Labels {
    labels.and([("resource", resource)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_store::key::NodeKey;

    #[test]
    fn rows_are_bounded_counted_and_escaped() {
        let cpu = v1::AllocatedResource { allocatable: Some(4000), requested: 1500, ..Default::default() };
        let x = v1::AllocatedAmount { allocatable: "4".into(), requested: "1500m".into() };
        let others = [("example.com/x".to_owned(), x)].into();
        let sum = v1::Allocated { cpu: Some(cpu), others, ..Default::default() };
        let mut sums = Allocated::default();
        for node in ["a\"b", "c", "d"] {
            sums.nodes.insert(NodeKey { cluster: "x".into(), node: node.into() }, sum.clone());
        }
        let of = |workload: &str, replicas| v1::Recommendation {
            workload: workload.into(),
            resource: "memory".into(),
            request: Some(64 << 20),
            replicas,
            ..Default::default()
        };
        let kept = StoredRecommendations::of([of("deployment/w", 2), of("deployment/gone", 0)]);
        let text = rows(&sums, &kept, 2).finish();
        let has = |line: &str| assert!(text.contains(&format!("{OWN}_{line}\n")), "{line} not in {text}");
        has("node_allocatable{cluster=\"x\",node=\"a\\\"b\",resource=\"cpu\"} 4.0");
        has("node_requested{cluster=\"x\",node=\"c\",resource=\"cpu\"} 1.5");
        has("node_requested{cluster=\"x\",node=\"c\",resource=\"example.com/x\"} 1.5");
        has("rows_left_out{of=\"nodes\"} 1");
        has("rows_left_out{of=\"containers\"} 0");
        has(
            "workload_recommended{cluster=\"\",namespace=\"\",workload=\"deployment/w\",container=\"\",resource=\"memory\"} 67108864",
        );
        assert!(!text.contains("node=\"d\"") && !text.contains("gone"), "{text}");

        let cpu =
            |workload| v1::Recommendation { resource: "cpu".into(), request: Some(250), ..of(workload, 1) };
        let kept =
            StoredRecommendations::of([of("a", 1), cpu("a"), of("b", 1), cpu("b"), of("c", 1), cpu("c")]);
        let text = rows(&sums, &kept, 2).finish();
        let shown = text.lines().filter(|line| line.contains("workload_recommended{")).count();
        assert_eq!(shown, 4, "both resources of the first two: {text}");
        assert!(text.contains("rows_left_out{of=\"containers\"} 1\n"), "{text}");
    }
}
