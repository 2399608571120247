//! What is around every page: head, navigation, the panic switch, the foot.

use maud::{DOCTYPE, Markup, html};

use crate::facts::{Extent, Switch, Viewer};
use crate::{assets, time, url};

/// Which entry of the navigation a page belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tab {
    /// The cluster at a glance.
    Overview,
    /// Workloads.
    Workloads,
    /// Nodes.
    Nodes,
    /// Decisions of agents.
    Decisions,
    /// Capacity questions.
    Capacity,
    /// Policies.
    Policies,
    /// The audit record.
    Changes,
    /// None of them.
    None,
}

/// Path, title, shortcut, and whether it is about all namespaces, by tab.
const TABS: [(Tab, &str, &str, char, bool); 7] = [
    (Tab::Overview, "", "Overview", 'o', true),
    (Tab::Workloads, "workloads", "Workloads", 'w', false),
    (Tab::Nodes, "nodes", "Nodes", 'n', true),
    (Tab::Decisions, "decisions", "Decisions", 'd', true),
    (Tab::Capacity, "capacity", "Capacity", 'c', true),
    (Tab::Policies, "policies", "Policies", 'p', false),
    (Tab::Changes, "changes", "Changes", 'h', false),
];

/// Those of one node, whose agent knows neither history nor policies.
const OF_NODE: [(Tab, &str, &str, char, bool); 2] =
    [(Tab::Nodes, "", "Node", 'n', true), (Tab::Decisions, "decisions", "Decisions", 'd', true)];

const fn tabs(extent: Extent) -> &'static [(Tab, &'static str, &'static str, char, bool)] {
    match extent {
        Extent::Cluster => &TABS,
        Extent::Node => &OF_NODE,
    }
}

/// What is around a page.
#[derive(Debug, Clone)]
pub struct Frame<'a> {
    /// What the pages are about.
    pub extent: Extent,
    /// Who looks at it.
    pub viewer: &'a Viewer,
    /// The panic switch.
    pub switch: &'a Switch,
    /// The present, milliseconds since 1970.
    pub now_ms: u64,
    /// Title of the page.
    pub title: &'a str,
    /// Its place in the navigation.
    pub tab: Tab,
    /// The namespace that is looked at; empty for all.
    pub namespace: &'a str,
    /// After how many seconds at the earliest the script fetches it anew when something happened; never without.
    pub refresh: Option<u32>,
    /// What is missing for now, such as history that is read back.
    pub notice: Option<&'a str>,
}

/// A whole page.
#[must_use]
pub fn page(frame: &Frame<'_>, body: &Markup) -> String {
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            (head(frame.title))
            body {
                a.skip href="#main" { "Skip to the content" }
                (header(frame))
                main #main tabindex="-1" data-refresh=[frame.refresh] {
                    (switch(frame.switch, frame.now_ms))
                    @if let Some(notice) = frame.notice { p.notice role="status" { (notice) } }
                    (body)
                }
                (foot(frame))
            }
        }
    };
    cleaned(&markup.into_string())
}

/// A page for those who are not signed in, without navigation.
#[must_use]
pub fn bare(title: &str, body: &Markup) -> String {
    let markup = html! {
        (DOCTYPE)
        html lang="en" { (head(title)) body.bare { main #main { (body) } } }
    };
    cleaned(&markup.into_string())
}

fn head(title: &str) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            title { (title) " · Evenkeel" }
            link rel="icon" href=(assets::ICON.address()) type="image/svg+xml";
            link rel="stylesheet" href=(assets::STYLE.address());
            // Not deferred: it sets the colours that were chosen before anything is drawn.
            script src=(assets::SCRIPT.address()) {}
        }
    }
}

fn header(frame: &Frame<'_>) -> Markup {
    let viewer = frame.viewer;
    let shown = |tab: Tab, everywhere: bool| match tab {
        Tab::Capacity => viewer.simulate,
        _ => viewer.everywhere || !everywhere,
    };
    html! {
        header.top {
            a.brand href=(url::ROOT) { img src=(assets::ICON.address()) alt="" width="28" height="28"; " Evenkeel" }
            nav aria-label="Pages" {
                @for (tab, path, title, key, everywhere) in tabs(frame.extent).iter().copied().filter(|(tab, .., all)| shown(*tab, *all)) {
                    @let namespace = if everywhere { "" } else { frame.namespace };
                    a href=(url::to(path, &[("namespace", namespace)])) data-key=(key)
                        aria-current=[(tab == frame.tab).then_some("page")] { (title) }
                }
            }
            div.tools {
                // The stream is about all namespaces.
                @if viewer.everywhere { span.live #live role="status" title="Whether this page follows what happens" {} }
                button.theme #theme type="button" hidden aria-label="Colours: as the system" { "◐" }
                @if viewer.signed_in {
                    form.out method="post" action=(url::to("sign-out", &[])) {
                        input type="hidden" name="csrf" value=(viewer.csrf);
                        button.quiet { "Sign out" }
                    }
                }
            }
        }
    }
}

/// The panic switch, where it is on.
fn switch(switch: &Switch, now_ms: u64) -> Markup {
    html! {
        @if switch.on {
            div.alarm role="alert" {
                strong { @if switch.revert { "Panic: requests are given back" } @else { "Panic: recommendations change nothing" } }
                " since " (time::ago(switch.since_ms, now_ms)) ". "
                @if !switch.reason.is_empty() { "Reason: " (switch.reason) ". " }
                a href=(url::to("policies", &[])) { "The switch" }
            }
        }
    }
}

fn foot(frame: &Frame<'_>) -> Markup {
    html! {
        footer {
            p {
                "Seen by " b { (frame.viewer.name) } " at "
                time datetime=(time::rfc3339(frame.now_ms)) { (time::moment(frame.now_ms)) } " UTC · Evenkeel " (env!("CARGO_PKG_VERSION"))
            }
            p.keys { kbd { "/" } " search · " kbd { "g" } " then a letter: go to a page · " kbd { "?" } " all keys" }
        }
        dialog #help aria-labelledby="help-title" {
            h2 #help-title { "Keys" }
            dl {
                @for (_, _, title, key, _) in tabs(frame.extent) { div { dt { kbd { "g" } " " kbd { (key) } } dd { (title) } } }
                div { dt { kbd { "/" } } dd { "Search in this page's list" } }
                div { dt { kbd { "t" } } dd { "Colours: system, light, dark" } }
                div { dt { kbd { "Esc" } } dd { "Close" } }
            }
            form method="dialog" { button { "Close" } }
        }
    }
}

/// Without characters that turn text around or are no text: names of others stay where they are.
pub(crate) fn cleaned(page: &str) -> String {
    let is_bad = |c: char| {
        (c.is_control() && !matches!(c, '\n' | '\t'))
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    if page.contains(is_bad) { page.replace(is_bad, "\u{fffd}") } else { page.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_names_where_it_is_and_hides_what_is_not_for_its_viewer() {
        let viewer = Viewer { name: "anna".into(), ..Viewer::default() };
        let frame = Frame {
            extent: Extent::Cluster,
            viewer: &viewer,
            switch: &Switch { on: true, reason: "drill \u{202e}<b>".into(), ..Switch::default() },
            now_ms: 1_795_564_800_000,
            title: "Workloads",
            tab: Tab::Workloads,
            namespace: "shop",
            refresh: Some(5),
            notice: Some("history is being read back"),
        };
        let text = page(&frame, &html! { p { "body" } });
        assert!(
            text.contains(r#"href="/ui/workloads?namespace=shop" data-key="w" aria-current="page""#),
            "{text}"
        );
        assert!(
            !text.contains("/ui/nodes") && !text.contains("/ui/capacity") && !text.contains("Sign out"),
            "{text}"
        );
        assert!(text.contains("Reason: drill \u{fffd}&lt;b&gt;"), "{text}");
        assert!(text.contains("history is being read back") && text.contains(r#"data-refresh="5""#));
    }

    #[test]
    fn nothing_is_inline() {
        let frame = Frame {
            extent: Extent::Node,
            viewer: &Viewer { signed_in: true, everywhere: true, simulate: true, ..Viewer::default() },
            switch: &Switch::default(),
            now_ms: 0,
            title: "x",
            tab: Tab::None,
            namespace: "",
            refresh: None,
            notice: None,
        };
        let text = page(&frame, &html! {});
        for wrong in [" style=", "<style", "<script>", " onclick", "javascript:", "http:", "https:"] {
            assert!(!text.contains(wrong), "{wrong}: {text}");
        }
    }
}
