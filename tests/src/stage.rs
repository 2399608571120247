//! Staging: what must be copied so that a program runs in an empty root file system.
//!
//! A program linked dynamically takes its loader and libraries along, so the very binaries cargo built run in guests
//! and images, and nothing is built a second time for them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::machine;

/// A file to copy: where it lies here, and its absolute path in the other root file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staged {
    /// Path on this machine.
    pub source: PathBuf,
    /// Path there, without the leading slash.
    pub target: String,
}

impl Staged {
    /// A file to copy to `target`.
    pub fn new(source: impl Into<PathBuf>, target: &str) -> Staged {
        Staged { source: source.into(), target: target.trim_start_matches('/').to_string() }
    }
}

/// A program and the shared libraries it needs.
///
/// # Errors
///
/// Fails when `ldd` cannot be run or names a library as missing.
pub fn program(source: &Path, target: &str) -> Result<Vec<Staged>> {
    let mut staged = vec![Staged::new(source, target)];
    // ldd exits with 1 for a static program; that is an answer, not a failure.
    let output = Command::new("ldd")
        .arg(source)
        .output()
        .with_context(|| format!("cannot run ldd on {}", source.display()))?;
    for library in libraries(&String::from_utf8_lossy(&output.stdout))? {
        staged.push(Staged::new(&library, &library));
    }
    Ok(staged)
}

/// Copies a program without its symbols, which are most of a debug build, to `directory`.
///
/// # Errors
///
/// Fails when the copy fails. Without the `strip` tool the copy keeps its symbols.
pub fn stripped(source: &Path, directory: &Path) -> Result<PathBuf> {
    let name = source.file_name().with_context(|| format!("{} is not a file", source.display()))?;
    let copy = directory.join(name);
    let strip = Command::new("strip").arg("-o").arg(&copy).arg(source).output();
    if !strip.is_ok_and(|output| output.status.success()) {
        copied(source, &copy)?;
    }
    Ok(copy)
}

/// Copies a program that is run from there. Another process copies it: a descriptor that is open for writing here would be
/// held for an instant by whatever other threads start meanwhile, and what is open for writing cannot be run (`ETXTBSY`).
///
/// # Errors
///
/// Fails when it cannot be copied.
pub fn copied(source: &Path, target: &Path) -> Result<()> {
    machine::run(Command::new("cp").arg(source).arg(target)).map(drop)
}

/// Paths in the output of ldd: `name => /path (address)` and `/path (address)`.
fn libraries(ldd: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for line in ldd.lines() {
        let line = line.trim();
        if line.ends_with("not found") {
            anyhow::bail!("a shared library is missing: {line}");
        }
        let path = line.split_once("=> ").map_or(line, |(_, path)| path);
        if let Some((path, _)) = path.split_once(" (0x")
            && path.starts_with('/')
        {
            found.push(path.to_string());
        }
    }
    Ok(found)
}

/// Path of the static busybox of this machine.
///
/// # Errors
///
/// Fails when there is none.
pub fn busybox() -> Result<PathBuf> {
    ["/bin/busybox", "/usr/bin/busybox"]
        .iter()
        .map(PathBuf::from)
        .find(|path| path.is_file())
        .context("busybox is not installed: apt-get install busybox-static")
}

/// Names of the applets of busybox.
///
/// # Errors
///
/// Fails when busybox is missing or cannot be run.
pub fn applets() -> Result<Vec<String>> {
    let listed = machine::run(Command::new(busybox()?).arg("--list"))?;
    Ok(listed.lines().map(str::to_string).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ldd_output_is_read() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        assert_eq!(
            libraries(text).unwrap(),
            ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]
        );
        assert!(libraries("\tstatically linked\n").unwrap().is_empty());
        assert!(libraries("\tlibx.so => not found\n").is_err());
    }
}
