//! The systemd units as systemd itself reads them.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use evenkeel_tests::{machine, places, require};

/// Unit, and the most that `systemd-analyze security` may say of it, in tenths; lower is better, and a bare unit has 96.
const UNITS: [(&str, &str); 12] = [
    ("evenkeel-agent.service", "35"),
    ("evenkeel-agent.target", ""),
    ("evenkeel-agent-enforcing.service", "22"),
    ("evenkeel-agent-network.service", "12"),
    ("evenkeel-agent-runtime.service", "14"),
    ("evenkeel-agent-reader.service", "14"),
    ("evenkeel-agent-border-network.socket", ""),
    ("evenkeel-agent-border-runtime.socket", ""),
    ("evenkeel-agent-border-reader.socket", ""),
    ("evenkeel-agent-process-events.socket", ""),
    ("evenkeel-recommender.service", "35"),
    ("evenkeel-recommender.socket", ""),
];
/// Where Debian keeps the units ours refer to.
const SYSTEM_UNITS: &str = "/lib/systemd/system";

/// A root file system as systemd-analyze needs it: its own units, ours, and something at the path of each program.
fn root(at: &Path) -> Result<()> {
    let units = at.join("etc/systemd/system");
    let programs = at.join("usr/bin");
    for directory in [&units, &programs, &at.join("usr/lib/systemd"), &at.join("bin")] {
        fs::create_dir_all(directory).context("cannot make a directory")?;
    }
    machine::run(Command::new("cp").args(["-rL", SYSTEM_UNITS]).arg(at.join("usr/lib/systemd/")))?;
    for program in ["usr/bin/evenkeel-agent", "usr/bin/evenkeel-recommender", "bin/kill"] {
        fs::copy("/bin/true", at.join(program)).context("cannot copy a program")?;
    }
    for (unit, _) in UNITS {
        let source = places::repository().join("systemd").join(unit);
        fs::copy(&source, units.join(unit)).with_context(|| format!("cannot copy {}", source.display()))?;
    }
    Ok(())
}

#[test]
fn units_verify_without_a_word_and_are_hardened() -> Result<()> {
    let missing = machine::missing(&["systemd-analyze"]);
    require!(missing.is_none(), "systemd-analyze is not installed: apt-get install systemd");
    let at = tempfile::tempdir()?;
    root(at.path())?;
    let option = format!("--root={}", at.path().display());
    for (unit, most) in UNITS {
        let output = Command::new("systemd-analyze").args([&option, "verify", unit]).output()?;
        let words = String::from_utf8_lossy(&output.stderr);
        let ours: Vec<&str> = words.lines().filter(|line| line.contains("evenkeel")).collect();
        assert!(ours.is_empty(), "{unit}: {ours:#?}");
        assert!(output.status.success(), "{unit}: {}: {words}", output.status);
        if !unit.ends_with(".service") {
            continue;
        }
        let threshold = format!("--threshold={most}");
        let security = ["--offline=true", &option, "security", &threshold, "--no-pager", unit];
        machine::run(Command::new("systemd-analyze").args(security))?;
    }
    Ok(())
}
