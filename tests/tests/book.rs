//! Suite `unit`: the documentation as a book. Every page is in the summary and can be reached, every link leads somewhere, every rule,
//! kind of decision and alert is explained, and every block says what is in it.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use evenkeel_tests::book::{self, Page, pages};
use evenkeel_tests::places;

/// Info strings of blocks, but for files.
const INFOS: [&str; 9] =
    ["sh", "sh,parsed", "toml,agent", "toml,recommender", "yaml", "json", "ini", "rust", "python"];
/// Pages of the repository whose links lead to files beside them.
const OTHERS: [&str; 6] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "tests/README.md",
    "clients/python/README.md",
];

fn text(path: &str) -> Result<String> {
    std::fs::read_to_string(places::repository().join(path)).with_context(|| format!("no {path}"))
}

#[test]
fn the_summary_has_every_page_once() -> Result<()> {
    let mut listed = Page::read("SUMMARY.md")?.links();
    listed.sort_unstable();
    let names: Vec<String> = pages()?.into_iter().map(|page| page.name).collect();
    assert_eq!(listed, names, "docs/SUMMARY.md and the pages of docs");
    Ok(())
}

#[test]
fn every_link_leads_somewhere_in_the_book() -> Result<()> {
    let pages = pages()?;
    let mut broken = Vec::new();
    for page in &pages {
        for link in page.links().into_iter().filter(|link| !link.starts_with("https://")) {
            let (name, section) = link.split_once('#').unwrap_or((&link, ""));
            let name = if name.is_empty() { &page.name } else { name };
            let there = pages.iter().find(|page| page.name == name);
            let is_picture = name.ends_with(".png") && places::repository().join("docs").join(name).exists();
            let is_there = is_picture
                || there.is_some_and(|there| section.is_empty() || there.anchors().contains(section));
            if !is_there {
                broken.push(format!("{}: {link}", page.name));
            }
        }
    }
    ensure!(broken.is_empty(), "links lead to pages and sections of the book alone:\n{}", broken.join("\n"));
    for other in OTHERS {
        let directory = places::repository().join(other);
        let directory = directory.parent().context("no directory")?;
        for target in text(other)?.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap_or_default();
            let is_there = file.is_empty() || target.starts_with("https://") || directory.join(file).exists();
            ensure!(is_there, "{other}: {target}");
        }
    }
    Ok(())
}

#[test]
fn every_page_can_be_reached_from_the_first() -> Result<()> {
    let mut seen = BTreeSet::from(["README.md".to_owned()]);
    let mut waiting = vec!["README.md".to_owned()];
    while let Some(name) = waiting.pop() {
        for link in Page::read(&name)?.links() {
            let page = link.split('#').next().unwrap_or_default().to_owned();
            if page.ends_with(".md") && seen.insert(page.clone()) {
                waiting.push(page);
            }
        }
    }
    let lost: Vec<String> =
        pages()?.into_iter().map(|page| page.name).filter(|name| !seen.contains(name)).collect();
    ensure!(lost.is_empty(), "no page leads to {lost:?}");
    Ok(())
}

#[test]
fn every_block_says_what_is_in_it() -> Result<()> {
    let mut broken = Vec::new();
    for page in pages()? {
        for block in page.blocks() {
            let mut info = vec![block.language.clone()];
            info.extend(block.marks.iter().filter(|mark| !mark.starts_with("file=")).cloned());
            // Go is compiled by the suite host.
            if !INFOS.contains(&info.join(",").as_str()) && block.language != "go" {
                broken.push(format!("{}:{}: {}", page.name, block.line, info.join(",")));
            }
        }
        broken.extend(page.indented().iter().map(|line| format!("{}:{line}: indented", page.name)));
    }
    ensure!(broken.is_empty(), "blocks are fenced, with one of {INFOS:?}:\n{}", broken.join("\n"));
    Ok(())
}

/// First cells of the rows of all tables of a page, without code marks; several names of a cell each by itself.
fn rows(page: &Page) -> Result<BTreeSet<String>> {
    let text = text(&format!("docs/{}", page.name))?;
    let cells = text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    Ok(cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect())
}

/// Variants of an enum of a source file, in small letters with hyphens.
fn variants(path: &str, of: &str) -> Result<Vec<String>> {
    let text = text(path)?;
    let (_, body) =
        text.split_once(&format!("pub enum {of} {{")).with_context(|| format!("no {of} in {path}"))?;
    let body = body.split("\n}").next().unwrap_or_default();
    let mut found = Vec::new();
    let mut is_rule = true;
    for line in body.lines().map(str::trim) {
        if line.starts_with("#[serde(skip)]") {
            is_rule = false;
        } else if line.starts_with(|c: char| c.is_ascii_uppercase()) {
            let name: String = line.chars().take_while(char::is_ascii_alphanumeric).collect();
            let hyphens = name.char_indices().flat_map(|(at, c)| {
                let hyphen = (at > 0 && c.is_ascii_uppercase()).then_some('-');
                hyphen.into_iter().chain([c.to_ascii_lowercase()])
            });
            found.extend(is_rule.then(|| hyphens.collect()));
            is_rule = true;
        }
    }
    Ok(found)
}

#[test]
fn every_rule_and_kind_of_decision_is_explained() -> Result<()> {
    let explained = rows(&Page::read("decisions.md")?)?;
    let rules = variants("qos/src/why/mod.rs", "Why")?;
    let kinds = variants("model/src/decision.rs", "DecisionKind")?;
    ensure!(rules.len() > 25 && kinds.len() > 15, "the sources were not understood: {rules:?} {kinds:?}");
    let missing: Vec<&String> =
        rules.iter().chain(&kinds).filter(|name| !explained.contains(*name)).collect();
    ensure!(missing.is_empty(), "docs/decisions.md explains no {missing:?}");
    Ok(())
}

/// Alerts name their runbooks by one address, which is set in one place (`packaging/prometheus/alerts.yaml`).
#[test]
fn every_alert_has_its_runbook() -> Result<()> {
    let runbooks = Page::read("runbooks.md")?.anchors();
    let rules = text("packaging/prometheus/alerts.yaml")?;
    let mut alerts = BTreeSet::new();
    let (mut name, mut of_name) = (String::new(), 0);
    for line in rules.lines().map(str::trim) {
        if let Some(alert) = line.strip_prefix("- alert: ") {
            name = alert.to_owned();
            alerts.insert(alert.to_lowercase());
        } else if let Some(address) = line.strip_prefix("runbook_url: ") {
            let (page, section) = address.split_once('#').context("no section")?;
            ensure!(section == name.to_lowercase(), "{name}: {address}");
            ensure!(
                Path::new("docs").join(page.trim_start_matches("docs/")) == Path::new("docs/runbooks.md"),
                "{name}: {page}"
            );
            of_name += 1;
        }
    }
    ensure!(alerts.len() > 30 && of_name == alerts.len(), "{of_name} runbooks of {} alerts", alerts.len());
    let sections: BTreeSet<String> = runbooks.into_iter().filter(|section| section != "runbooks").collect();
    assert_eq!(sections, alerts, "docs/runbooks.md has a section for each alert, and no other");
    Ok(())
}

#[test]
fn commands_of_the_book_are_found() -> Result<()> {
    let (mut run, mut parsed) = (0, 0);
    for block in pages()?.iter().flat_map(Page::blocks).filter(|block| block.language == "sh") {
        let count = book::commands(&block.text).len();
        if block.has("parsed") { parsed += count } else { run += count }
    }
    // What is not run changes machines, needs a cluster or a terminal. Another one is a decision: so is a larger number here.
    ensure!(run >= 60, "{run} commands are run");
    ensure!(parsed <= 92, "{parsed} commands are read alone; run them against a pair where that is possible");
    Ok(())
}
