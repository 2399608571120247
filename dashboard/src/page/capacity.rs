//! How many more of a pod fit, where, and why not one more.

use maud::{Markup, html};

use crate::{amount, url};

/// Nodes shown.
const SHOWN: usize = 60;

/// What is asked.
#[derive(Debug, Clone, Default)]
pub struct CapacityForm {
    /// A pod in YAML or JSON.
    pub pod: String,
    /// Cluster; empty where there is one.
    pub cluster: String,
    /// How many at most; 0 for no limit of one's own.
    pub max: u64,
    /// Also as if every workload requested what is recommended.
    pub recommended: bool,
    /// Without these nodes, by name, with commas or blanks between them.
    pub without: String,
    /// Also with displacing pods of lower priority.
    pub preempt: bool,
    /// Also whether any one node may be lost.
    pub lose: bool,
}

impl CapacityForm {
    /// The what-if switches as options of the API's question; empty where none is set.
    #[must_use]
    pub fn options(&self) -> Vec<(&'static str, Vec<String>)> {
        let names = self.without.split([',', ' ', '\n', '\t']).filter(|name| !name.is_empty());
        let without: Vec<String> = names.map(str::to_owned).collect();
        let lose = if self.lose { vec!["any".to_owned()] } else { Vec::new() };
        let all = [("excludeNodes", without), ("lose", lose)];
        all.into_iter().filter(|(_, values)| !values.is_empty()).collect()
    }
}

/// Why one node takes no further pod.
#[derive(Debug, Clone, Default)]
pub struct NodeReasons {
    /// Node.
    pub name: String,
    /// Pods that fit on it.
    pub count: u64,
    /// The scheduler's words.
    pub reasons: Vec<String>,
    /// What is missing: resource and how much.
    pub short: Vec<(String, String)>,
}

/// The answer.
#[derive(Debug, Clone, Default)]
pub struct CapacityResult {
    /// How many fit.
    pub count: u64,
    /// Why it ends.
    pub stop: String,
    /// In the scheduler's or the quota's words.
    pub message: String,
    /// Each bound by name.
    pub bounds: Vec<(String, u64)>,
    /// The bound that holds.
    pub binding: String,
    /// Nodes, those that take most first.
    pub nodes: Vec<NodeReasons>,
    /// The smallest changes that admit one more.
    pub help: Vec<String>,
    /// What the count does not show.
    pub notes: Vec<String>,
    /// How many are lost to borders between nodes, and of which resource.
    pub lost: Option<(u64, String)>,
    /// How many would fit with recommended requests, where that was asked.
    pub recommended: Option<u64>,
    /// What the other switches came to, each in a sentence.
    pub what_if: Vec<String>,
    /// Nodes and pods that were looked at.
    pub read: (u64, u64),
}

/// The pod that stands in the form at first.
pub const EXAMPLE: &str = "apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
    - name: app
      image: web:1
      resources:
        requests: {cpu: 500m, memory: 1Gi}
";

/// The page.
#[must_use]
pub fn body(
    question: &CapacityForm,
    answer: Option<&Result<CapacityResult, [String; 2]>>,
    csrf: &str,
) -> Markup {
    html! {
        h1 { "Capacity" }
        p.summary { "How many more of a pod the cluster takes, by the rules of the default scheduler. Nothing is placed." }
        form.ask.card method="post" action=(url::to("capacity", &[])) {
            input type="hidden" name="csrf" value=(csrf);
            label for="pod" { "Pod, in YAML or JSON" }
            textarea #pod name="pod" rows="12" spellcheck="false" required { (question.pod) }
            div.filters {
                label { "At most " input type="number" name="max" min="0" max="1000000" value=(question.max); }
                label { "Cluster " input name="cluster" value=(question.cluster) autocomplete="off" placeholder="the only one"; }
                label.check { input type="checkbox" name="recommended" value="yes" checked[question.recommended]; " what if all requested what is recommended" }
            }
            fieldset.filters {
                legend { "What if" }
                label { "these nodes were away " input name="without" value=(question.without) autocomplete="off" placeholder="node-1, node-2"; }
                label.check { input type="checkbox" name="lose" value="yes" checked[question.lose]; " any one node is lost" }
                label.check { input type="checkbox" name="preempt" value="yes" checked[question.preempt]; " pods of lower priority make room" }
                button.primary { "How many?" }
            }
            p.faint { "0 = as many as fit. " }
        }
        @match answer {
            None => {}
            Some(Err([why, remedy])) => { section.card.alarm role="alert" { h2 { "The question was not answered" } p { (why) } p.faint { "What helps: " (remedy) } } }
            Some(Ok(answer)) => { (answered(answer)) }
        }
    }
}

fn answered(answer: &CapacityResult) -> Markup {
    html! {
        section.card #answer tabindex="-1" {
            h2 { "The answer" }
            p.number { (amount::count(answer.count)) @if answer.count == 1 { " more fits" } @else { " more fit" } }
            @if let Some(recommended) = answer.recommended {
                p.number.second { (amount::count(recommended)) " with recommended requests" }
            }
            p { @if answer.binding.is_empty() { (answer.stop) } @else { "Bound by " b { (answer.binding) } } ". " span.faint { (answer.message) } }
            @if let Some((lost, resource)) = &answer.lost { p { (amount::count(*lost)) " are lost to borders between nodes (" (resource) "): the sum of all nodes would hold them." } }
            @if !answer.what_if.is_empty() { h3 { "What if" } ul { @for told in &answer.what_if { li { (told) } } } }
            (bounds(answer))
            @if !answer.help.is_empty() { h3 { "What would admit one more" } ul { @for help in &answer.help { li { (help) } } } }
            @if !answer.notes.is_empty() { h3 { "What this does not show" } ul { @for note in &answer.notes { li { (note) } } } }
            p.faint { "Looked at " (amount::count(answer.read.0)) " nodes and " (amount::count(answer.read.1)) " pods." }
        }
        (nodes(answer))
    }
}

fn bounds(answer: &CapacityResult) -> Markup {
    html! {
        @if !answer.bounds.is_empty() {
            table.bounds {
                caption { "Each bound by itself" }
                thead { tr { th scope="col" { "Bound" } th.num scope="col" { "Allows" } } }
                tbody {
                    @for (name, count) in &answer.bounds {
                        tr .own[*name == answer.binding] { th scope="row" { (name) @if *name == answer.binding { " " span.tag.warn { "binds" } } } td.num { (amount::count(*count)) } }
                    }
                }
            }
        }
    }
}

fn nodes(answer: &CapacityResult) -> Markup {
    let most = answer.nodes.iter().map(|node| node.count).max().unwrap_or(0).max(1);
    html! {
        section.card {
            h2 { "By node" }
            div.scroll tabindex="0" role="region" aria-label="By node" {
                table {
                    thead { tr { th scope="col" { "Node" } th.num scope="col" { "Takes" } th scope="col" { span.hidden { "As a bar" } } th scope="col" { "Why not one more" } th scope="col" { "Short by" } } }
                    tbody {
                        @for node in answer.nodes.iter().take(SHOWN) {
                            tr {
                                th.name scope="row" { a href=(url::to("node", &[("name", &node.name)])) { (node.name) } }
                                td.num { (amount::count(node.count)) }
                                td.bar { svg.bar viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true" { rect.ground width="100" height="10" {} rect.used width=(node.count as f64 / most as f64 * 100.0) height="10" {} } }
                                td.why { (node.reasons.join(", ")) }
                                td { @for (at, (resource, by)) in node.short.iter().enumerate() { @if at > 0 { ", " } (resource) " " (by) } }
                            }
                        }
                    }
                }
            }
            @if answer.nodes.len() > SHOWN { p.faint { "The " (SHOWN) " that take most of " (amount::count(answer.nodes.len() as u64)) " nodes. All of them: " code { "evenkeel capacity -o csv" } "." } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_become_options_and_are_there_again() {
        let question = CapacityForm {
            without: " n1, n2\n".into(),
            lose: true,
            preempt: true,
            ..CapacityForm::default()
        };
        let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(question.options(), [("excludeNodes", names(&["n1", "n2"])), ("lose", names(&["any"]))]);
        assert!(CapacityForm::default().options().is_empty());
        let answer = CapacityResult { what_if: vec!["2 of 3 nodes <b>".into()], ..CapacityResult::default() };
        let text = body(&question, Some(&Ok(answer)), "w").into_string();
        assert!(
            text.contains("2 of 3 nodes &lt;b&gt;")
                && text.contains("name=\"preempt\" value=\"yes\" checked"),
            "{text}"
        );
    }

    #[test]
    fn the_binding_bound_is_marked_and_texts_of_others_stay_text() {
        let hostile = "</textarea><script>alert(1)</script>";
        let node = NodeReasons {
            name: hostile.into(),
            count: 3,
            reasons: vec![hostile.into()],
            short: vec![(hostile.into(), hostile.into())],
        };
        let answer = CapacityResult {
            count: 3,
            bounds: vec![("cpu".into(), 3), ("memory".into(), 9)],
            binding: "cpu".into(),
            message: hostile.into(),
            nodes: vec![node; 100],
            help: vec![hostile.into()],
            notes: vec![hostile.into()],
            lost: Some((2, hostile.into())),
            recommended: Some(8),
            ..CapacityResult::default()
        };
        let question =
            CapacityForm { pod: hostile.into(), cluster: hostile.into(), ..CapacityForm::default() };
        let text = body(&question, Some(&Ok(answer)), "c").into_string();
        assert!(!text.contains("<script"), "{text}");
        assert!(
            text.contains("3 more fit") && text.contains("8 with recommended") && text.contains("binds"),
            "{text}"
        );
        assert!(text.contains("The 60 that take most of 100 nodes"), "{text}");
        let refused = body(&question, Some(&Err([hostile.into(), hostile.into()])), "c").into_string();
        assert!(refused.contains("was not answered") && !refused.contains("<script"), "{refused}");
    }
}
