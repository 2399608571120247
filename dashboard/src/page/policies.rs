//! Policies: list, editor with preview, and the panic switch.

use maud::{Markup, html};

use crate::amount::{self, Resource};
use crate::facts::{PolicyFacts, Switch, Viewer, Workload};
use crate::{parts, time, url};

/// Rows of a preview.
const SHOWN: usize = 100;

/// What a new policy looks like.
pub const EXAMPLE: &str = "apiVersion: evenkeel.dev/v1
kind: Policy
metadata:
  name: web
  namespace: default
spec:
  target: {matchLabels: {app: web}}
  updatePolicy: {mode: \"off\"}
  rule: goal
";

/// The page of all of them.
#[must_use]
pub fn body(all: &[PolicyFacts], namespace: &str, viewer: &Viewer, switch: &Switch, now_ms: u64) -> Markup {
    html! {
        h1 { "Policies" }
        form.filters method="get" action=(url::to("policies", &[])) role="search" {
            label { "Namespace " input #search type="search" name="namespace" value=(namespace) autocomplete="off"; }
            button.primary { "Show" }
            a.button href=(url::to("policies/edit", &[("namespace", namespace)])) { "New policy" }
        }
        section.card data-part="policies" #policies {
            div.scroll tabindex="0" role="region" aria-label="Policies" {
                table {
                    thead { tr { @for title in ["Policy", "Mode", "Rule", "Containers", "Conditions"] { th scope="col" { (title) } } } }
                    tbody {
                        @for p in all { (row(p)) }
                        @if all.is_empty() { tr { td.nothing colspan="5" { "There is none: recommendations are shown, and nothing is done with them." } } }
                    }
                }
            }
        }
        (panic(viewer, switch, now_ms))
    }
}

fn row(p: &PolicyFacts) -> Markup {
    html! {
        tr {
            th.name scope="row" { a href=(url::to("policies/edit", &[("namespace", &p.namespace), ("name", &p.name), ("kind", &p.kind)])) { span.faint { (p.namespace) "/" } (p.name) } @if p.kind != "Policy" { " " span.tag { (p.kind) } } }
            td { @if !p.mode.is_empty() { span.tag { (p.mode) } } }
            td { (p.rule) }
            td.num { @if let Some(containers) = p.containers { (amount::count(containers)) } @else { "–" } }
            td {
                @for (kind, status, message) in &p.conditions {
                    @let tone = if status == "True" { "tag" } else { "tag warn" };
                    span class=(tone) title=(message) { (kind) @if status != "True" { ": " (status) } } " "
                }
            }
        }
    }
}

fn panic(viewer: &Viewer, switch: &Switch, now_ms: u64) -> Markup {
    html! {
        section.card.panic {
            h2 { "Panic switch" }
            p {
                @if switch.on { b.bad { "On" } " since " (time::ago(switch.since_ms, now_ms)) @if !switch.reason.is_empty() { ": " (switch.reason) } ". " @if switch.revert { "Requests are given back step by step." } }
                @else { b.good { "Off" } ". While it is on, recommendations change nothing, running containers keep the requests in force, and classes are enforced." }
            }
            @if viewer.panic {
                form.filters method="post" action=(url::to("panic", &[])) {
                    input type="hidden" name="csrf" value=(viewer.csrf);
                    label { "Reason " input name="reason" maxlength="200" required[!switch.on] autocomplete="off"; }
                    @if switch.on {
                        button name="set" value="off" { "Switch off" }
                        @if !switch.revert { button.danger name="set" value="revert" { "Give requests back" } }
                    } @else {
                        button.danger name="set" value="on" { "Freeze every change" }
                        button.danger name="set" value="revert" { "Freeze and give requests back" }
                    }
                }
            } @else { p.faint { "Setting it takes the role panic." } }
        }
    }
}

/// What the editor is made of.
#[derive(Debug, Clone, Default)]
pub struct Editor {
    /// The object as text.
    pub text: String,
    /// Its kind, namespace and name, where it is there already.
    pub existing: Option<[String; 3]>,
    /// What is wrong with it, and what helps.
    pub trouble: Option<[String; 2]>,
    /// What came of it: `created`, `unchanged` and so on; and whether it was only asked.
    pub outcome: Option<(String, bool)>,
    /// What it would recommend to the containers it selects.
    pub preview: Vec<Workload>,
    /// Its conditions.
    pub conditions: Vec<(String, String, String)>,
}

/// The editor.
#[must_use]
pub fn editor(facts: &Editor, viewer: &Viewer) -> Markup {
    html! {
        p.crumbs { a href=(url::to("policies", &[])) { "Policies" } }
        h1 { @match &facts.existing { Some([kind, namespace, name]) => { (kind) " " (namespace) "/" (name) } None => "New policy" } }
        @if let Some([why, remedy]) = &facts.trouble { section.alarm role="alert" { b { "It was not taken. " } (why) ". " span { "What helps: " (remedy) "." } } }
        @if let Some((outcome, dry)) = &facts.outcome {
            p.notice role="status" { @if *dry { "It is valid and would be " (outcome) ". Nothing was changed." } @else { "It was " (outcome) "." } }
        }
        form.ask.card method="post" action=(url::to("policies", &[])) {
            input type="hidden" name="csrf" value=(viewer.csrf);
            label for="text" { "Policy, in YAML or JSON" }
            textarea #text name="text" rows="22" spellcheck="false" required { (facts.text) }
            div.filters {
                button.primary name="do" value="preview" disabled[!viewer.apply] { "Check and preview" }
                button name="do" value="apply" disabled[!viewer.apply] { "Apply" }
                @if let Some([kind, namespace, name]) = &facts.existing {
                    input type="hidden" name="kind" value=(kind); input type="hidden" name="namespace" value=(namespace); input type="hidden" name="name" value=(name);
                    button.danger name="do" value="delete" formnovalidate disabled[!viewer.apply] { "Delete" }
                }
            }
            @if !viewer.apply { p.faint { "Checking and applying take the role apply." } }
        }
        @if !facts.conditions.is_empty() {
            section.card { h2 { "Conditions" } dl.conditions { @for (kind, status, message) in &facts.conditions { div { dt { (kind) ": " (status) } dd { (message) } } } } }
        }
        @if !facts.preview.is_empty() { (preview(&facts.preview)) }
    }
}

fn preview(all: &[Workload]) -> Markup {
    let saved = Resource::ALL.map(|r| all.iter().map(|w| w.saving(r)).sum::<i64>());
    html! {
        section.card #preview {
            h2 { "What it recommends" }
            p.summary { (amount::count(all.len() as u64)) " containers. Requests change by " b { (Resource::Cpu.change(saved[0].saturating_neg())) } " cores and " b { (Resource::Memory.change(saved[1].saturating_neg())) } "." }
            div.scroll tabindex="0" role="region" aria-label="Preview" {
                table {
                    thead { tr { th scope="col" { "Workload" } th scope="col" { "Class" } @for r in Resource::ALL { th.num scope="col" { (r.title()) } } th.num scope="col" { "Above request" } } }
                    tbody {
                        @for w in all.iter().take(SHOWN) {
                            tr { th.name scope="row" { (super::overview::link(w)) } td { (parts::class(w.class, w.changes_class)) } @for r in Resource::ALL { td.num { (parts::request(r, &w.advice[r as usize])) } } td.num { (parts::risk(w.risk())) } }
                        }
                    }
                }
            }
            @if all.len() > SHOWN { p.faint { "The first " (SHOWN) "." } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_for_those_who_may_and_texts_stay_text() {
        let hostile = "</textarea><script>alert(1)</script>";
        let policy = PolicyFacts {
            kind: hostile.into(),
            namespace: hostile.into(),
            name: hostile.into(),
            mode: hostile.into(),
            rule: hostile.into(),
            containers: Some(1),
            conditions: vec![(hostile.into(), hostile.into(), hostile.into())],
        };
        let nobody = Viewer::default();
        let switch = Switch { on: true, reason: hostile.into(), ..Switch::default() };
        let list = body(&[policy], hostile, &nobody, &switch, 0).into_string();
        assert!(
            !list.contains("<script") && list.contains("takes the role panic") && !list.contains("/ui/panic"),
            "{list}"
        );
        let somebody = Viewer { panic: true, apply: true, csrf: "t0k".into(), ..Viewer::default() };
        let list = body(&[], "", &somebody, &Switch::default(), 0).into_string();
        assert!(
            list.contains("Freeze every change") && list.contains(r#"name="csrf" value="t0k""#),
            "{list}"
        );
        let facts = Editor {
            text: hostile.into(),
            existing: Some([hostile.into(), hostile.into(), hostile.into()]),
            trouble: Some([hostile.into(), hostile.into()]),
            ..Editor::default()
        };
        let text = editor(&facts, &nobody).into_string();
        assert!(!text.contains("<script") && text.contains("disabled"), "{text}");
    }
}
