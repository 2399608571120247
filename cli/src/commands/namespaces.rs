//! `evenkeel namespaces`: what containers have of each namespace and of each cluster.

use std::io::Write as _;

use clap::Args;
use evenkeel_proto::v1::{self, ListNamespacesRequest};
use serde::Serialize;

use super::allocated::{self, Allocated};
use crate::client::{self, Address};
use crate::failure::Failure;
use crate::output::{Output, YesOrNo};
use crate::table::{Cell, Table, clean};

/// Show what is requested, limited, used and recommended in each namespace and cluster.
///
/// A namespace is set against its least quota (of the files in objects, and of those applied by evenkeel policy apply), a cluster
/// (namespace *) against what its nodes may give. Recommended are the requests that rest on two days of history, and the present ones of the rest. CPU is in
/// thousandths of a core and memory in bytes in JSON and YAML.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel namespaces
  evenkeel namespaces -o wide
  evenkeel namespaces -o json")]
pub(crate) struct NamespacesArgs {}

#[derive(Serialize)]
struct NamespaceRow {
    cluster: String,
    /// Nothing: the whole cluster.
    namespace: Option<String>,
    allocated: Allocated,
}

impl From<v1::Namespace> for NamespaceRow {
    fn from(n: v1::Namespace) -> Self {
        Self {
            cluster: n.cluster,
            namespace: (!n.name.is_empty()).then_some(n.name),
            allocated: n.allocated.unwrap_or_default().into(),
        }
    }
}

pub(crate) async fn run(_: &NamespacesArgs, address: &Address, output: &Output) -> Result<YesOrNo, Failure> {
    let mut recommender = client::recommender(address).await?;
    let answer =
        recommender.list_namespaces(ListNamespacesRequest {}).await.map_err(|e| address.failed(&e))?;
    let v1::ListNamespacesResponse { namespaces, clusters, quota_trouble } = answer.into_inner();
    let rows: Vec<NamespaceRow> = namespaces.into_iter().chain(clusters).map(NamespaceRow::from).collect();
    output.answer(&rows, || table(&rows, output.is_wide()))?;
    if !quota_trouble.is_empty() {
        // Whoever reads the table sees it.
        let _unread =
            writeln!(std::io::stderr(), "evenkeel: quotas are not known: {}", clean(&quota_trouble));
    }
    Ok(YesOrNo::Yes)
}

fn table(rows: &[NamespaceRow], wide: bool) -> Table {
    let amounts = allocated::titles(wide);
    let titles = ["CLUSTER", "NAMESPACE", "PODS", "CONTAINERS"];
    let others = wide.then_some("OTHERS");
    let titles = titles.into_iter().chain(amounts.iter().map(String::as_str)).chain(others);
    let titles: Vec<&str> = titles.collect();
    let mut table = Table::new(&titles);
    for r in rows {
        let mut row: Vec<Cell> =
            vec![r.cluster.as_str().into(), r.namespace.as_deref().unwrap_or("*").into()];
        row.extend(r.allocated.counts().map(Cell::from));
        row.extend(allocated::cells(Some(&r.allocated), wide));
        row.extend(wide.then(|| allocated::others(Some(&r.allocated))));
        table.row(row);
    }
    table
}
