//! Pages and scripts of a small command line.

use clap::{Parser as _, Subcommand};

use super::*;
use crate::page::{PageSection, parts};

/// Looks after boats.
#[derive(Debug, clap::Parser)]
#[command(
    name = "harbour",
    version,
    after_help = "Examples:\n  harbour moor -- 'Ann'\n\nExit status: 0 done."
)]
struct Harbour {
    #[command(subcommand)]
    command: Boats,
}

#[derive(Debug, Subcommand)]
enum Boats {
    /// Ties a boat up.
    #[command(after_help = "Examples:\n  .harbour moor\n  harbour moor | wc -l")]
    Moor(ManArgs),
    /// Of no interest.
    #[command(hide = true)]
    Secret(CompletionArgs),
}

fn written() -> (tempfile::TempDir, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("man8");
    let Boats::Moor(args) = Harbour::parse_from(["harbour", "moor", "--dir", at.to_str().unwrap()]).command
    else {
        unreachable!("moor was asked for")
    };
    assert_eq!(
        man(<Harbour as clap::CommandFactory>::command(), Section::Administrators, &args).unwrap(),
        ""
    );
    let mut names: Vec<String> = std::fs::read_dir(&at)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    (dir, names)
}

#[test]
fn every_command_that_is_shown_has_a_page_and_help_has_none() {
    let (dir, names) = written();
    assert_eq!(names, ["harbour-moor.8", "harbour.8"]);
    let mode = std::fs::metadata(dir.path().join("man8/harbour.8")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o644);
    let page = std::fs::read_to_string(dir.path().join("man8/harbour.8")).unwrap();
    let sections: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix(".SH ")).collect();
    assert_eq!(
        sections,
        [
            "NAME",
            "SYNOPSIS",
            "DESCRIPTION",
            "OPTIONS",
            "SUBCOMMANDS",
            "EXAMPLES",
            "\"EXIT STATUS\"",
            "\"SEE ALSO\""
        ]
    );
    assert!(page.contains("harbour\\-moor(8)"), "{page}");
}

#[test]
fn examples_stand_as_they_are_typed() {
    let (dir, _) = written();
    let page = std::fs::read_to_string(dir.path().join("man8/harbour-moor.8")).unwrap();
    let examples = page.split(".SH EXAMPLES\n").nth(1).unwrap();
    // A line that begins with a dot would be a request to the formatter.
    let typed = ".nf\n\\&.harbour moor\nharbour moor | wc \\-l\n.fi\n";
    assert!(examples.contains(typed), "{examples}");
}

#[test]
fn what_stands_after_the_options_is_told_apart() {
    assert_eq!(
        parts("Examples:\n  a\n  b\n\nRules: c, d.\n\nSome words of advice."),
        [
            PageSection::Examples(vec!["a".to_owned(), "b".to_owned()]),
            PageSection::Text("RULES".to_owned(), "c, d.".to_owned()),
            PageSection::Text("NOTES".to_owned(), "Some words of advice.".to_owned()),
        ]
    );
    assert!(parts("").is_empty());
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let args = ManArgs { dir: Some(file.path().join("man")) };
    let (path, _) = man(Command::new("x"), Section::Users, &args).unwrap_err();
    assert_eq!(path, file.path().join("man"));
}

#[test]
fn shells_learn_the_commands() {
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let script = completion(<Harbour as clap::CommandFactory>::command(), &CompletionArgs { shell });
        assert!(script.contains("moor"), "{shell}: {script}");
    }
}
