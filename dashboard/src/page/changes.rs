//! Who changed what: the audit record.

use maud::{Markup, html};

use crate::facts::AuditChange;
use crate::url;

/// What is looked for.
#[derive(Debug, Clone, Default)]
pub struct ChangeFilter {
    /// Namespace; empty for all.
    pub namespace: String,
    /// Who made it.
    pub who: String,
    /// What came of it: done, failed, refused, unknown; empty for all.
    pub outcome: String,
}

/// The page; `next` is the token of the page behind, where there is one.
#[must_use]
pub fn body(all: &[AuditChange], filter: &ChangeFilter, next: &str) -> Markup {
    html! {
        h1 { "Changes" }
        form.filters method="get" action=(url::to("changes", &[])) role="search" {
            label { "Namespace " input name="namespace" value=(filter.namespace) autocomplete="off"; }
            label { "Who " input #search type="search" name="who" value=(filter.who); }
            label { "Outcome " select name="outcome" {
                option value="" { "all" }
                @for outcome in ["done", "failed", "refused", "unknown"] { option value=(outcome) selected[outcome == filter.outcome] { (outcome) } }
            } }
            button.primary { "Show" }
        }
        section.card {
            div.scroll tabindex="0" role="region" aria-label="Changes" {
                table {
                    thead { tr { @for title in ["When", "Who", "What", "By", "Outcome"] { th scope="col" { (title) } } } }
                    tbody {
                        @for c in all {
                            tr {
                                td.when { (c.time) } td.name { (c.who) @if !c.from.is_empty() { br; span.faint { (c.from) } } } td.name { (c.object) } td { code { (c.method) } }
                                td { span class=(tone(&c.outcome)) { (c.outcome) } @if !c.why.is_empty() { p.why { (c.why) } } }
                            }
                        }
                        @if all.is_empty() { tr { td.nothing colspan="5" { "No change is in the record that fits this search." } } }
                    }
                }
            }
            @if !next.is_empty() {
                nav.pager aria-label="Pages of the list" { a rel="next" href=(url::to("changes", &[("namespace", &filter.namespace), ("who", &filter.who), ("outcome", &filter.outcome), ("after", next)])) { "Older →" } }
            }
        }
    }
}

fn tone(outcome: &str) -> &'static str {
    match outcome {
        "done" => "tag good",
        "failed" | "unknown" => "tag warn",
        "refused" => "tag bad",
        _ => "tag",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_stay_text() {
        let hostile = "</td><script>alert(1)</script>";
        let c = AuditChange {
            time: hostile.into(),
            who: hostile.into(),
            from: hostile.into(),
            method: hostile.into(),
            object: hostile.into(),
            outcome: hostile.into(),
            why: hostile.into(),
        };
        let filter = ChangeFilter { namespace: hostile.into(), who: hostile.into(), outcome: hostile.into() };
        let text = body(&[c], &filter, hostile).into_string();
        assert!(!text.contains("<script") && text.contains("Older"), "{text}");
    }
}
