//! Container images made here, out of busybox and given programs, without a registry.
//!
//! Owns the OCI image layout (opencontainers/image-spec, "Image Layout") of one layer and one platform, as a tar file
//! that `ctr images import` reads. The same content gives the same digests.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::machine;
use crate::stage::{self, Staged};

/// What goes into an image.
#[derive(Debug, Clone)]
pub struct Image {
    reference: String,
    command: Vec<String>,
    programs: Vec<(PathBuf, String)>,
}

impl Image {
    /// An image with busybox and its applets. The reference needs a host part, such as `localhost/busybox:1`:
    /// containerd completes others with the name of a public registry.
    pub fn new(reference: &str) -> Image {
        Image { reference: reference.to_string(), command: vec!["/bin/sh".to_string()], programs: Vec::new() }
    }

    /// Its name.
    pub fn reference(&self) -> &str {
        &self.reference
    }

    /// Sets what a container runs unless told otherwise.
    #[must_use]
    pub fn command(mut self, words: &[&str]) -> Image {
        self.command = words.iter().map(|word| (*word).to_string()).collect();
        self
    }

    /// Adds a program, with the shared libraries it needs, at an absolute path.
    #[must_use]
    pub fn program(mut self, source: &Path, target: &str) -> Image {
        self.programs.push((source.to_path_buf(), target.to_string()));
        self
    }

    /// Writes the image to a tar file.
    ///
    /// # Errors
    ///
    /// Fails when busybox is missing or a file cannot be copied.
    pub fn write(&self, out: &Path) -> Result<()> {
        let scratch = TempDir::new().context("cannot make a scratch directory")?;
        let layer = scratch.path().join("layer.tar");
        self.root(&scratch.path().join("root"), scratch.path())?;
        pack(&scratch.path().join("root"), &layer)?;
        let layout = scratch.path().join("layout");
        self.layout(&layout, &std::fs::read(&layer).context("cannot read the layer")?)?;
        pack(&layout, out)
    }

    /// Lays out the root file system.
    fn root(&self, root: &Path, scratch: &Path) -> Result<()> {
        for directory in ["bin", "dev", "etc", "proc", "sys", "tmp"] {
            create(&root.join(directory))?;
        }
        for applet in stage::applets()?.iter().filter(|applet| *applet != "busybox") {
            symlink("busybox", root.join("bin").join(applet)).context("cannot link an applet")?;
        }
        let mut files = stage::program(&stage::busybox()?, "bin/busybox")?;
        for (source, target) in &self.programs {
            let staged = stage::program(&stage::stripped(source, scratch)?, target)?;
            files.extend(staged);
        }
        for Staged { source, target } in files {
            let to = root.join(target);
            create(to.parent().unwrap_or(root))?;
            std::fs::copy(&source, &to).with_context(|| format!("cannot copy {}", source.display()))?;
        }
        Ok(())
    }

    /// Writes the blobs and the index that names them.
    fn layout(&self, layout: &Path, layer: &[u8]) -> Result<()> {
        let blobs = layout.join("blobs/sha256");
        create(&blobs)?;
        let layer = blob(&blobs, "application/vnd.oci.image.layer.v1.tar", layer)?;
        let config = json!({
            "architecture": architecture(), "os": "linux",
            "config": { "Cmd": self.command, "Env": ["PATH=/bin"] },
            "rootfs": { "type": "layers", "diff_ids": [layer["digest"]] },
            "history": [{ "created": "1970-01-01T00:00:00Z" }],
        });
        let config = blob(&blobs, "application/vnd.oci.image.config.v1+json", config.to_string().as_bytes())?;
        let kind = "application/vnd.oci.image.manifest.v1+json";
        let manifest =
            json!({ "schemaVersion": 2, "mediaType": kind, "config": config, "layers": [layer] }).to_string();
        let mut manifest = blob(&blobs, kind, manifest.as_bytes())?;
        manifest["platform"] = json!({ "architecture": architecture(), "os": "linux" });
        manifest["annotations"] = json!({ "io.containerd.image.name": self.reference });
        let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
        write(&layout.join("index.json"), index.to_string().as_bytes())?;
        write(&layout.join("oci-layout"), br#"{"imageLayoutVersion":"1.0.0"}"#)
    }
}

/// The architecture's name in Go, which image platforms use.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Stores a blob under its digest and returns its descriptor.
fn blob(blobs: &Path, kind: &str, content: &[u8]) -> Result<Value> {
    let digest: String = Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
    write(&blobs.join(&digest), content)?;
    Ok(json!({ "mediaType": kind, "digest": format!("sha256:{digest}"), "size": content.len() }))
}

/// Packs a directory so that the same files give the same bytes.
fn pack(directory: &Path, out: &Path) -> Result<()> {
    let stable = ["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"];
    machine::run(Command::new("tar").arg("-C").arg(directory).args(stable).arg("-cf").arg(out).arg("."))?;
    Ok(())
}

fn create(directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))
}

fn write(path: &Path, content: &[u8]) -> Result<()> {
    std::fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}
