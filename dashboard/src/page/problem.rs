//! What could not be answered.

use maud::{Markup, html};

use crate::url;

/// What went wrong, why, and what helps.
#[must_use]
pub fn body(what: &str, why: &str, remedy: &str) -> Markup {
    html! {
        section.card.problem role="alert" {
            h1 { (what) }
            p { (why) }
            @if !remedy.is_empty() { p.faint { "What helps: " (remedy) } }
            p { a href=(url::to("workloads", &[])) { "Workloads" } " · " a href=(url::to("sign-in", &[])) { "Sign in as somebody else" } }
        }
    }
}

/// A form that asks for a namespace, for those who may see some only.
#[must_use]
pub fn namespace(page: &str, why: &str) -> Markup {
    html! {
        section.card {
            h1 { "Which namespace?" }
            p { (why) }
            form.filters method="get" action=(url::to(page, &[])) {
                label for="namespace" { "Namespace" }
                input #namespace name="namespace" required autocomplete="off";
                button.primary { "Show" }
            }
        }
    }
}
