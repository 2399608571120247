//! Suite `packages`: Debian packages as dpkg, lintian and man see them, and on a machine with systemd, over the state of
//! the first release, until they are purged.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use evenkeel_tests::vm::{self, Vm};
use evenkeel_tests::{machine, places, require};
use tempfile::TempDir;

/// Package, section of its manual pages.
const PACKAGES: [(&str, u32); 3] = [("evenkeel", 1), ("evenkeel-agent", 8), ("evenkeel-recommender", 8)];
/// What the tests run besides what makes packages.
const TOOLS: [&str; 4] = ["dpkg-deb", "dpkg-shlibdeps", "lintian", "man"];
/// What the guest's dpkg and the maintainer scripts run.
const IN_GUEST: &[&str] =
    &["dpkg", "zlib1g", "tar", "libc-bin", "perl-base", "init-system-helpers", "passwd"];

/// The packages, made once for all tests of this program.
fn made() -> Result<&'static Path> {
    static MADE: OnceLock<Result<TempDir, String>> = OnceLock::new();
    let made = MADE.get_or_init(|| make().map_err(|error| format!("{error:#}")));
    made.as_ref().map(TempDir::path).map_err(|error| anyhow::anyhow!("{error}"))
}

fn make() -> Result<TempDir> {
    let out = tempfile::tempdir()?;
    let programs = places::program_for_guest("evenkeel")?;
    let programs = programs.parent().context("a program without a directory")?;
    let mut deb = Command::new(places::repository().join("scripts/deb"));
    machine::run(deb.arg("--programs").arg(programs).arg("--out").arg(out.path()))?;
    Ok(out)
}

fn package(name: &str) -> Result<PathBuf> {
    let prefix = format!("{name}_");
    let entries = std::fs::read_dir(made()?)?.flatten().map(|entry| entry.path());
    let mut found = entries
        .filter(|path| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&prefix)));
    found.next().with_context(|| format!("no package {name} was made"))
}

fn unpacked(name: &str) -> Result<TempDir> {
    let root = tempfile::tempdir()?;
    machine::run(Command::new("dpkg-deb").arg("-R").arg(package(name)?).arg(root.path()))?;
    Ok(root)
}

fn missing() -> Option<String> {
    machine::missing(&TOOLS).map(|tool| format!("{tool} is not installed: scripts/test packages installs it"))
}

#[test]
fn lintian_finds_nothing() -> Result<()> {
    require!(missing().is_none(), missing().unwrap_or_default());
    for (name, _) in PACKAGES {
        let mut lintian = Command::new("lintian");
        lintian.args(["--allow-root", "--fail-on", "error,warning", "--tag-display-limit", "0"]);
        let output = lintian.arg(package(name)?).output().context("cannot run lintian")?;
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.trim().is_empty(), "{name}:\n{said}");
    }
    Ok(())
}

/// Commands that the help of a program lists, from its root on.
fn commands(program: &Path, words: &[String]) -> Result<Vec<Vec<String>>> {
    let help = machine::run(Command::new(program).args(words).arg("--help"))?;
    let mut found = vec![words.to_vec()];
    let listed = help.split("Commands:\n").nth(1).unwrap_or_default();
    for line in listed.lines().take_while(|line| !line.is_empty()) {
        let Some(word) = line.strip_prefix("  ").filter(|line| !line.starts_with(' ')) else { continue };
        let word = word.split_whitespace().next().unwrap_or_default();
        if word != "help" {
            found.extend(commands(program, &[words, &[word.to_owned()]].concat())?);
        }
    }
    Ok(found)
}

/// What man shows, without the letters that are struck twice to be bold.
fn plain(shown: &[u8]) -> String {
    let mut text = String::new();
    for letter in String::from_utf8_lossy(shown).chars() {
        if letter == '\u{8}' {
            text.pop();
        } else {
            text.push(letter);
        }
    }
    text
}

#[test]
fn every_command_has_a_manual_page_with_examples_that_man_reads_without_a_word() -> Result<()> {
    require!(missing().is_none(), missing().unwrap_or_default());
    for (name, section) in PACKAGES {
        let root = unpacked(name)?;
        let pages = root.path().join(format!("usr/share/man/man{section}"));
        for words in commands(&root.path().join("usr/bin").join(name), &[])? {
            let page = [&[name.to_owned()], words.as_slice()].concat().join("-");
            let mut man = Command::new("man");
            man.args(["--warnings", "-E", "UTF-8", "-l", "-Tutf8"])
                .arg(pages.join(format!("{page}.{section}.gz")));
            let output =
                man.env("MANROFFSEQ", "").env("MANWIDTH", "100").output().context("cannot run man")?;
            let (shown, words) = (plain(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert!(output.status.success() && words.is_empty(), "{page}: {words}");
            // Groups of commands have those of their commands.
            assert!(shown.contains("EXAMPLES") || shown.contains("SUBCOMMANDS"), "{page}:\n{shown}");
            assert!(shown.contains("SYNOPSIS"), "{page}:\n{shown}");
        }
        for shell in ["bash-completion/completions", "zsh/vendor-completions", "fish/vendor_completions.d"] {
            let scripts = std::fs::read_dir(root.path().join("usr/share").join(shell))?.count();
            assert_eq!(scripts, 1, "{name}: {shell}");
        }
    }
    Ok(())
}

#[test]
fn the_same_programs_give_the_same_packages() -> Result<()> {
    require!(missing().is_none(), missing().unwrap_or_default());
    let again = make()?;
    for entry in std::fs::read_dir(again.path())?.flatten() {
        let first = made()?.join(entry.file_name());
        assert!(std::fs::read(entry.path())? == std::fs::read(&first)?, "{} differs", first.display());
    }
    Ok(())
}

/// The packages again under an earlier version, quick to unpack for an emulated processor; the later ones likewise.
fn repacked(into: &Path, version: Option<&str>) -> Result<()> {
    std::fs::create_dir_all(into)?;
    for (name, _) in PACKAGES {
        let root = unpacked(name)?;
        let control = root.path().join("DEBIAN/control");
        let text = std::fs::read_to_string(&control)?;
        let lines = text.lines().map(|line| match version.filter(|_| line.starts_with("Version: ")) {
            Some(version) => format!("Version: {version}\n"),
            None => format!("{line}\n"),
        });
        std::fs::write(&control, lines.collect::<String>())?;
        let mut build = Command::new("dpkg-deb");
        build.args(["--root-owner-group", "-Zgzip", "-z1", "--build"]).arg(root.path());
        machine::run(build.arg(into.join(format!("{name}_amd64.deb"))))?;
    }
    Ok(())
}

/// Adds all files below a directory.
fn with_files(mut guest: vm::VmBuilder, from: &Path, to: &str) -> Result<vm::VmBuilder> {
    for entry in std::fs::read_dir(from).with_context(|| format!("cannot list {}", from.display()))?.flatten()
    {
        let target = format!("{to}/{}", entry.file_name().to_string_lossy());
        guest = match entry.file_type()?.is_dir() {
            true => with_files(guest, &entry.path(), &target)?,
            false => guest.file(entry.path(), &target),
        };
    }
    Ok(guest)
}

#[test]
fn packages_come_go_and_leave_nothing_over_state_of_the_first_release() -> Result<()> {
    require!(missing().is_none(), missing().unwrap_or_default());
    require!(vm::impossible().is_none(), vm::impossible().unwrap_or_default());
    let scratch = tempfile::tempdir()?;
    repacked(&scratch.path().join("earlier"), Some("0.0.9"))?;
    repacked(&scratch.path().join("later"), None)?;
    let repository = places::repository();
    let script = std::fs::read_to_string(repository.join("tests/tests/cases/packages.sh"))?;
    let guest = Vm::builder().memory_mib(2048).systemd().packages(IN_GUEST);
    let guest = with_files(guest, scratch.path(), "usr/src/packages")?;
    let captured = repository.join("tests/fixtures/first_release");
    let guest = with_files(guest, &captured.join("agent"), "usr/src/captured/agent")?;
    let guest = with_files(guest, &captured.join("recommender"), "usr/src/captured/recommender")?;
    let guest = guest
        .file(repository.join("systemd/evenkeel-agent.service"), "usr/src/captured/evenkeel-agent.service")
        .script(&script)
        .timeout(Duration::from_secs(600));
    let result = guest.run()?;
    ensure!(result.status == 0 && result.output.contains("step: done"), "{}", result.output);
    Ok(())
}
