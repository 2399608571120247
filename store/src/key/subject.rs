//! Owns the names under which history is kept, from the specific to the general.
//!
//! None of them holds the name of a pod: they survive renames, restarts and re-creations.

use serde::{Deserialize, Serialize};

use evenkeel_model::key::ContainerKey;
use evenkeel_rightsizing::history::Scope;

use super::{Image, SeriesKey};

/// Whose history it is: the containers of one [`Scope`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "scope", rename_all = "kebab-case")]
pub enum Subject {
    /// One container of a workload.
    Own(ContainerKey),
    /// Containers of the same name and image that run the same command with the same arguments.
    Command {
        /// Container name.
        container: String,
        /// Image without tag, spelt in full.
        image: String,
        /// Tag, or digest where there is no tag.
        tag: String,
        /// First 8 bytes of the SHA-256 of command and arguments, as agents report it.
        hash: u64,
    },
    /// Containers of the same image and tag in one namespace.
    NamespaceImageTag {
        /// Cluster.
        cluster: String,
        /// Namespace of the pods.
        namespace: String,
        /// Image without tag, spelt in full.
        image: String,
        /// Tag, or digest where there is no tag.
        tag: String,
    },
    /// Containers of the same image and tag, anywhere.
    ImageTag {
        /// Image without tag, spelt in full.
        image: String,
        /// Tag, or digest where there is no tag.
        tag: String,
    },
    /// Containers of the same image, any tag, anywhere.
    Image {
        /// Image without tag, spelt in full.
        image: String,
    },
}

impl Subject {
    /// Its scope.
    pub const fn scope(&self) -> Scope {
        match self {
            Self::Own(_) => Scope::Own,
            Self::Command { .. } => Scope::Command,
            Self::NamespaceImageTag { .. } => Scope::NamespaceImageTag,
            Self::ImageTag { .. } => Scope::ImageTag,
            Self::Image { .. } => Scope::Image,
        }
    }

    /// The subjects a container belongs to, its own first; without an image only that, without a hash none of its command.
    pub(crate) fn all(names: &SeriesKey, command: Option<u64>) -> [Option<Self>; 5] {
        let SeriesKey { of, image } = names.clone();
        let own = Self::Own(of.clone());
        let Some(Image { name: image, tag }) = image else { return [Some(own), None, None, None, None] };
        let ContainerKey { cluster, namespace, container, .. } = of;
        let command =
            command.map(|hash| Self::Command { container, image: image.clone(), tag: tag.clone(), hash });
        let spaced = Self::NamespaceImageTag { cluster, namespace, image: image.clone(), tag: tag.clone() };
        let tagged = Self::ImageTag { image: image.clone(), tag };
        [Some(own), command, Some(spaced), Some(tagged), Some(Self::Image { image })]
    }
}
