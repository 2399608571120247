//! Types of nodes from a table: a head, then one line each; columns are resources, except for a few.

use std::collections::BTreeMap;

use evenkeel_model::quantity::Quantity;

use super::ZONE;
use crate::object::{Node, NodeStatus, ObjectMeta, ResourceList};
use crate::scenario::NodeType;

/// Columns of a type that are not resources.
const NOT_RESOURCES: [&str; 7] =
    ["name", "architecture", "operating_systems", "price_on_demand", "price_spot", "price", "zones"];

/// Reads node types from CSV with a head.
///
/// # Errors
/// With the line and column, and what is wrong there.
pub fn node_types(text: &str) -> Result<Vec<NodeType>, String> {
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let head: Vec<&str> =
        lines.next().map(|(_, line)| line.split(',').map(str::trim).collect()).unwrap_or_default();
    if !head.contains(&"name") || !head.contains(&"cpu") || !head.contains(&"memory") {
        return Err("the first line does not name the columns name, cpu and memory".to_owned());
    }
    lines
        .map(|(line, text)| node_type(&head, text).map_err(|why| format!("line {}: {why}", line + 1)))
        .collect()
}

fn node_type(head: &[&str], line: &str) -> Result<NodeType, String> {
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    if cells.len() != head.len() {
        return Err(format!("{} cells, but {} columns", cells.len(), head.len()));
    }
    let row: BTreeMap<&str, &str> = head.iter().copied().zip(cells).collect();
    let mut allocatable = ResourceList::new();
    for (column, cell) in
        row.iter().filter(|(column, cell)| !NOT_RESOURCES.contains(column) && !cell.is_empty())
    {
        let amount: Quantity = cell.parse().map_err(|error| format!("{column}: {error}"))?;
        allocatable.insert(column.replace('_', "-"), amount);
    }
    allocatable.entry("pods".to_owned()).or_insert(Quantity::from_units(110));
    let price = ["price", "price_on_demand"]
        .iter()
        .find_map(|column| row.get(column))
        .filter(|cell| !cell.is_empty());
    let price = match price {
        Some(cell) => Some(
            cell.parse::<f64>()
                .ok()
                .filter(|p| p.is_finite())
                .ok_or(format!("price: {cell:?} is not a number"))?,
        ),
        None => None,
    };
    let first =
        |column: &str| row.get(column).and_then(|cell| cell.split('|').next()).unwrap_or("").to_owned();
    let mut labels = BTreeMap::from([("kubernetes.io/hostname".to_owned(), row["name"].to_owned())]);
    for (label, column) in
        [("kubernetes.io/arch", "architecture"), ("kubernetes.io/os", "operating_systems"), (ZONE, "zones")]
    {
        if row.contains_key(column) {
            labels.insert(label.to_owned(), first(column));
        }
    }
    let metadata = ObjectMeta { name: row["name"].to_owned(), labels, ..ObjectMeta::default() };
    let status = NodeStatus { allocatable, ..NodeStatus::default() };
    Ok(NodeType { name: row["name"].to_owned(), node: Node { metadata, status, ..Node::default() }, price })
}
