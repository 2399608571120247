//! Owns the reading of an image reference, so that `nginx:1.27` and `docker.io/library/nginx:1.27` are one image.
//!
//! The rules are those of the reference grammar of distribution (`reference/normalize.go`): a first component without
//! dot or colon that is not `localhost` belongs to Docker Hub, a single component there to `library/`, and the tag is
//! `latest` where neither tag nor digest is given.

use std::fmt;

/// An image by name and tag. A digest stands for the tag only where there is no tag.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Image {
    /// Registry and repository.
    pub name: String,
    /// Tag, or digest.
    pub tag: String,
}

impl Image {
    /// Reads a reference; nothing for an empty one and for a bare image id (`sha256:...`), which names no image.
    pub fn parse(reference: &str) -> Option<Self> {
        let reference = reference.trim();
        if reference.is_empty() || reference.starts_with("sha256:") {
            return None;
        }
        let (rest, digest) = match reference.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (reference, None),
        };
        let (path, tag) = match rest.rsplit_once(':') {
            // A colon before the last slash is the registry's port.
            Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
            _ => (rest, None),
        };
        if path.is_empty() {
            return None;
        }
        Some(Self { name: normalized(path), tag: tag.or(digest).unwrap_or("latest").to_owned() })
    }
}

fn normalized(path: &str) -> String {
    match path.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => path.to_owned(),
        Some(_) => format!("docker.io/{path}"),
        None => format!("docker.io/library/{path}"),
    }
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.tag.contains(':') { '@' } else { ':' };
        write!(f, "{}{sign}{}", self.name, self.tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_normalised() {
        let table = [
            ("nginx", "docker.io/library/nginx:latest"),
            ("nginx:1.27", "docker.io/library/nginx:1.27"),
            ("docker.io/library/nginx:1.27", "docker.io/library/nginx:1.27"),
            ("team/web:2", "docker.io/team/web:2"),
            ("localhost/web", "localhost/web:latest"),
            ("registry:5000/web", "registry:5000/web:latest"),
            ("registry:5000/web:3", "registry:5000/web:3"),
            ("ghcr.io/a/b@sha256:00ff", "ghcr.io/a/b@sha256:00ff"),
            ("ghcr.io/a/b:7@sha256:00ff", "ghcr.io/a/b:7"),
        ];
        for (given, want) in table {
            assert_eq!(Image::parse(given).map(|i| i.to_string()).as_deref(), Some(want), "{given}");
        }
        for nothing in ["", " ", "sha256:00ff", ":tag", "@sha256:1"] {
            assert_eq!(Image::parse(nothing), None, "{nothing:?}");
        }
    }
}
