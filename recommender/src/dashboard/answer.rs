//! The pinned form of an answer about capacity, as the page of capacity shows it.

use std::collections::BTreeMap;

use evenkeel_dashboard::page::capacity;
use serde_json::Value;

/// What switches of a question came to, of its pinned form, each in a sentence; at most so many nodes are named.
fn what_if(whole: &Value) -> Vec<String> {
    const NAMED: usize = 20;
    let mut told = Vec::new();
    let preempt = &whole["preempt"];
    if let (Some(count), Some(without)) = (preempt["count"].as_u64(), preempt["without"].as_u64()) {
        let victims = preempt["victims"].as_array().map_or(0, Vec::len);
        told.push(format!(
            "With displacing, {count} fit, {without} of them without; {victims} pods make room."
        ));
    }
    let lost: Vec<&Value> = whole["lose"].as_array().into_iter().flatten().collect();
    let is_harmless = |lost: &&&Value| lost["failed"].as_array().is_none_or(Vec::is_empty);
    if !lost.is_empty() {
        let harmless = lost.iter().filter(is_harmless).count();
        told.push(format!(
            "{harmless} of {} nodes can be lost without a pod that finds no other place.",
            lost.len()
        ));
    }
    for one in lost.iter().filter(|lost| !is_harmless(lost)).take(NAMED) {
        let nodes: Vec<&str> =
            one["nodes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let (placed, pods) = (one["placed"].as_u64().unwrap_or(0), one["pods"].as_u64().unwrap_or(0));
        told.push(format!("{} lost: {placed} of {pods} pods find another place.", nodes.join(", ")));
    }
    told
}

/// The answer to a question about capacity, of its pinned form.
pub(super) fn answer(whole: &Value) -> capacity::CapacityResult {
    let text = |value: &Value| value.as_str().map(str::to_owned).unwrap_or_default();
    let list = |value: &Value| -> Vec<String> { value.as_array().into_iter().flatten().map(text).collect() };
    let counts = |value: &Value| -> Vec<(String, u64)> {
        let all = value.as_object().into_iter().flatten();
        all.map(|(name, count)| (name.clone(), count.as_u64().unwrap_or(0))).collect()
    };
    let mut nodes: BTreeMap<String, capacity::NodeReasons> = BTreeMap::new();
    for (name, count) in counts(&whole["perNode"]) {
        nodes.insert(name.clone(), capacity::NodeReasons { name, count, ..capacity::NodeReasons::default() });
    }
    for told in whole["nodes"].as_array().into_iter().flatten() {
        let name = text(&told["node"]);
        let node = nodes
            .entry(name.clone())
            .or_insert_with(|| capacity::NodeReasons { name, ..capacity::NodeReasons::default() });
        node.reasons = list(&told["reasons"]);
        let short = told["short"].as_object().into_iter().flatten();
        node.short = short.map(|(resource, by)| (resource.clone(), text(by))).collect();
    }
    let mut nodes: Vec<capacity::NodeReasons> = nodes.into_values().collect();
    nodes.sort_by_key(|node| std::cmp::Reverse(node.count));
    let help = |help: &Value| format!("{} (admits {})", text(&help["change"]), help["admits"]);
    let lost = whole["fragmentation"]["lost"].as_u64().filter(|lost| *lost > 0);
    capacity::CapacityResult {
        count: whole["count"].as_u64().unwrap_or(0),
        stop: text(&whole["stop"]),
        message: text(&whole["message"]),
        bounds: counts(&whole["bounds"]),
        binding: text(&whole["binding"]),
        nodes,
        help: whole["help"].as_array().into_iter().flatten().map(help).collect(),
        notes: list(&whole["notes"]),
        lost: lost.map(|lost| (lost, text(&whole["fragmentation"]["resource"]))),
        what_if: what_if(whole),
        recommended: whole["recommended"]["count"].as_u64(),
        read: (
            whole["snapshot"]["nodes"].as_u64().unwrap_or(0),
            whole["snapshot"]["pods"].as_u64().unwrap_or(0),
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn switches_of_a_question_are_told_in_sentences() {
        let whole = json!({
            "preempt": { "count": 5, "without": 3, "victims": [{}, {}] },
            "lose": [
                { "nodes": ["n1"], "pods": 2, "placed": 2, "failed": [] },
                { "nodes": ["n2"], "pods": 4, "placed": 1, "failed": [{}] },
            ],
        });
        let told = what_if(&whole);
        assert_eq!(
            told,
            [
                "With displacing, 5 fit, 3 of them without; 2 pods make room.",
                "1 of 2 nodes can be lost without a pod that finds no other place.",
                "n2 lost: 1 of 4 pods find another place.",
            ]
        );
        assert!(what_if(&json!({})).is_empty());
    }
}
