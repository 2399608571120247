//! Suite `packages`: what scripts/image makes of the Dockerfiles, without a registry or a daemon. That containerd runs it is
//! suite `images`, which needs static programs.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use evenkeel_tests::{machine, places, require};
use serde_json::Value;

/// The recommender's image as a tar; whether its programs are static is nothing to scripts/image.
fn image(scratch: &Path) -> Result<PathBuf> {
    let (programs, out) = (scratch.join("programs"), scratch.join("image.tar"));
    std::fs::create_dir_all(&programs)?;
    for name in ["evenkeel", "evenkeel-recommender"] {
        std::fs::copy(places::program_for_guest(name)?, programs.join(name))?;
        std::fs::write(programs.join(format!("{name}.cdx.json")), "{}")?;
    }
    std::fs::copy(places::repository().join("packaging/predefined.toml"), programs.join("predefined.toml"))?;
    let mut make = Command::new(places::repository().join("scripts/image"));
    make.args(["recommender", "--programs"]).arg(&programs).arg("--out").arg(&out);
    machine::run(&mut make)?;
    Ok(out)
}

/// The blob of a layout that a descriptor names.
fn blob(layout: &Path, descriptor: &Value) -> Result<Value> {
    let digest = descriptor["digest"].as_str().context("no digest")?.replace(':', "/");
    Ok(serde_json::from_slice(&std::fs::read(layout.join("blobs").join(digest))?)?)
}

#[test]
fn an_image_says_what_it_is_and_what_is_in_it_and_is_made_the_same_again() -> Result<()> {
    let missing = machine::missing(&["python3", "dpkg"]);
    require!(missing.is_none(), "python3 or dpkg is not installed: scripts/test packages installs them");
    let scratch = tempfile::tempdir()?;
    let tar = image(scratch.path())?;
    let first = std::fs::read(&tar)?;
    image(scratch.path())?;
    assert!(std::fs::read(&tar)? == first, "the same programs gave another image");

    let layout = scratch.path().join("layout");
    std::fs::create_dir(&layout)?;
    machine::run(Command::new("tar").arg("-xf").arg(&tar).arg("-C").arg(&layout))?;
    let index: Value = serde_json::from_slice(&std::fs::read(layout.join("index.json"))?)?;
    let manifest = blob(&layout, &index["manifests"][0])?;
    let config = blob(&layout, &manifest["config"])?;
    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(config["config"]["Labels"]["org.opencontainers.image.licenses"], "Apache-2.0");
    assert_eq!(config["config"]["Labels"]["org.opencontainers.image.version"], env!("CARGO_PKG_VERSION"));
    let digest = manifest["layers"][0]["digest"].as_str().context("no layer")?.replace(':', "/");
    let mut list = Command::new("tar");
    let files = machine::run(list.arg("-tzf").arg(layout.join("blobs").join(digest)))?;
    for file in ["usr/bin/evenkeel-recommender", "usr/share/evenkeel/sbom/evenkeel-recommender.cdx.json"] {
        assert!(files.lines().any(|line| line == file), "{file} is not in\n{files}");
    }
    assert!(!files.lines().any(|line| line.contains("/lib")), "there is no C library:\n{files}");
    Ok(())
}
