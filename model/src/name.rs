//! Owns the names of resource types: `subdomain/name`, with `kubernetes.io/` as the default and reserved namespace.
//!
//! A name without a subdomain belongs to `kubernetes.io`. That domain and every domain below it are *native*:
//! reserved for Kubernetes itself, so a type defined by a user must be fully qualified and lie outside. (Kubernetes'
//! own check looks for the text `kubernetes.io/` anywhere, which also catches foreign domains such as
//! `notkubernetes.io`; here only the domain and its subdomains count.)

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize, Serializer};

use crate::quantity::Quantity;

/// The namespace of names written without one.
pub const NATIVE_DOMAIN: &str = "kubernetes.io";
const NATIVE_PREFIX: &str = "kubernetes.io/";
const HUGEPAGES_PREFIX: &str = "hugepages-";
const MAX_NAME: usize = 63;
const MAX_LABEL: usize = 63;
const MAX_SUBDOMAIN: usize = 253;
/// Characters of a wrong name that an error repeats.
const SHOWN_CHARS: usize = 80;

/// A fully qualified name of a resource type, such as `kubernetes.io/cpu` or `nvidia.com/gpu`.
///
/// Written in short form: `cpu` for `kubernetes.io/cpu`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceName(Cow<'static, str>);

impl ResourceName {
    /// CPU time, in cores.
    pub const CPU: Self = Self(Cow::Borrowed("kubernetes.io/cpu"));
    /// Memory, in bytes.
    pub const MEMORY: Self = Self(Cow::Borrowed("kubernetes.io/memory"));
    /// Local disk space, in bytes.
    pub const EPHEMERAL_STORAGE: Self = Self(Cow::Borrowed("kubernetes.io/ephemeral-storage"));
    /// Pods a node takes.
    pub const PODS: Self = Self(Cow::Borrowed("kubernetes.io/pods"));
    /// Network bandwidth, in bytes per second.
    pub const NETWORK_BANDWIDTH: Self = Self(Cow::Borrowed("kubernetes.io/network-bandwidth"));
    /// Network messages per second.
    pub const NETWORK_IOPS: Self = Self(Cow::Borrowed("kubernetes.io/network-iops"));
    /// Secondary storage, in bytes.
    pub const STORAGE_SPACE: Self = Self(Cow::Borrowed("kubernetes.io/storage-space"));
    /// Disk time, in seconds per second.
    pub const STORAGE_TIME: Self = Self(Cow::Borrowed("kubernetes.io/storage-time"));
    /// Storage operations per second.
    pub const STORAGE_IOPS: Self = Self(Cow::Borrowed("kubernetes.io/storage-iops"));

    /// Bytes read from and written to storage per second; the resource model has no name for them.
    pub const STORAGE_BANDWIDTH: Self = Self(Cow::Borrowed("evenkeel.dev/storage-bandwidth"));

    /// Reads a name; one without a subdomain belongs to `kubernetes.io`.
    ///
    /// # Errors
    /// [`NameError`] when the subdomain is not of RFC 1123's form or the name breaks the rules for names.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let fail = |reason| NameError::new(text, reason);
        match text.split_once('/') {
            None => {
                check_name(text).map_err(fail)?;
                Ok(Self(Cow::Owned(format!("{NATIVE_PREFIX}{text}"))))
            }
            Some((domain, name)) => {
                check_subdomain(domain).map_err(fail)?;
                check_name(name).map_err(fail)?;
                Ok(Self(Cow::Owned(text.to_owned())))
            }
        }
    }

    /// Reads the name of a type that a user defines: fully qualified and outside `kubernetes.io`.
    ///
    /// # Errors
    /// As [`ResourceName::parse`], and when the name is not qualified or is native.
    pub fn parse_user(text: &str) -> Result<Self, NameError> {
        if !text.contains('/') {
            return Err(NameError::new(text, NameErrorReason::Unqualified));
        }
        let name = Self::parse(text)?;
        if name.is_native() {
            return Err(NameError::new(text, NameErrorReason::Reserved));
        }
        Ok(name)
    }

    /// The fully qualified form, `kubernetes.io/cpu`.
    #[must_use]
    pub fn qualified(&self) -> &str {
        &self.0
    }

    /// The short form: without `kubernetes.io/`.
    #[must_use]
    pub fn short(&self) -> &str {
        self.0.strip_prefix(NATIVE_PREFIX).unwrap_or(&self.0)
    }

    /// The subdomain, `kubernetes.io`.
    #[must_use]
    pub fn domain(&self) -> &str {
        self.0.split_once('/').map_or(NATIVE_DOMAIN, |(domain, _)| domain)
    }

    /// The name after the slash, `cpu`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(&*self.0, |(_, name)| name)
    }

    /// Whether the name lies in `kubernetes.io` or a domain below it.
    #[must_use]
    pub fn is_native(&self) -> bool {
        self.domain().strip_suffix(NATIVE_DOMAIN).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    }

    /// Whether it is `hugepages-<size>`.
    #[must_use]
    pub fn is_hugepages(&self) -> bool {
        self.short().starts_with(HUGEPAGES_PREFIX)
    }

    /// The page size of `hugepages-<size>`, in bytes; `None` for other names and for sizes that are no quantity.
    #[must_use]
    pub fn hugepage_size(&self) -> Option<Quantity> {
        let size = Quantity::parse(self.short().strip_prefix(HUGEPAGES_PREFIX)?).ok()?;
        (size > Quantity::ZERO).then_some(size)
    }

    /// Whether a pod as a whole may set it (`spec.resources`): cpu, memory and huge pages, as in Kubernetes.
    #[must_use]
    pub fn is_pod_level(&self) -> bool {
        *self == Self::CPU || *self == Self::MEMORY || self.is_hugepages()
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.short())
    }
}

impl FromStr for ResourceName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::parse(text)
    }
}

impl Serialize for ResourceName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.short())
    }
}

impl<'de> Deserialize<'de> for ResourceName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(D::Error::custom)
    }
}

/// The text is not the name of a resource type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("resource name {input:?}: {reason}; {}", .reason.remedy())]
pub struct NameError {
    input: String,
    reason: NameErrorReason,
}

impl NameError {
    fn new(input: &str, reason: NameErrorReason) -> Self {
        Self { input: input.chars().take(SHOWN_CHARS).collect(), reason }
    }

    /// The text as given, cut after 80 characters.
    #[must_use]
    pub fn input(&self) -> &str {
        &self.input
    }

    /// What is wrong.
    #[must_use]
    pub fn reason(&self) -> NameErrorReason {
        self.reason
    }
}

/// What is wrong with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameErrorReason {
    /// Nothing where the name should be.
    #[error("the name is empty")]
    EmptyName,
    /// More than 63 characters.
    #[error("the name has more than {MAX_NAME} characters")]
    LongName,
    /// A character that is not allowed, or one of `-_.` at an end.
    #[error("the name has a character that is not allowed, or begins or ends with '-', '_' or '.'")]
    NameCharacter,
    /// Nothing before the slash.
    #[error("the subdomain before the slash is empty")]
    EmptySubdomain,
    /// More than 253 characters, or a label of more than 63.
    #[error("the subdomain has more than {MAX_SUBDOMAIN} characters, or a label of more than {MAX_LABEL}")]
    LongSubdomain,
    /// Not lower-case letters, digits, `-` and `.` in RFC 1123's order.
    #[error("the part before the slash is not an RFC 1123 subdomain")]
    SubdomainCharacter,
    /// A user's type without a subdomain.
    #[error("a user-defined type has no subdomain")]
    Unqualified,
    /// A user's type in the reserved namespace.
    #[error("the namespace {NATIVE_DOMAIN} is reserved")]
    Reserved,
}

impl NameErrorReason {
    /// What to write instead.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        match self {
            Self::EmptyName | Self::LongName | Self::NameCharacter => {
                "use 1 to 63 letters, digits, '-', '_' or '.', with a letter or digit at both ends"
            }
            Self::EmptySubdomain | Self::LongSubdomain | Self::SubdomainCharacter => {
                "use lower-case letters, digits and '-' in labels joined by '.', such as example.com"
            }
            Self::Unqualified | Self::Reserved => "put it under a domain of your own, such as example.com/",
        }
    }
}

fn check_name(name: &str) -> Result<(), NameErrorReason> {
    if name.is_empty() {
        return Err(NameErrorReason::EmptyName);
    }
    if name.len() > MAX_NAME {
        return Err(NameErrorReason::LongName);
    }
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if name.bytes().all(inner) && alphanumeric_ends(name) {
        Ok(())
    } else {
        Err(NameErrorReason::NameCharacter)
    }
}

fn check_subdomain(domain: &str) -> Result<(), NameErrorReason> {
    if domain.is_empty() {
        return Err(NameErrorReason::EmptySubdomain);
    }
    if domain.len() > MAX_SUBDOMAIN || domain.split('.').any(|label| label.len() > MAX_LABEL) {
        return Err(NameErrorReason::LongSubdomain);
    }
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if domain.split('.').all(|label| label.bytes().all(inner) && alphanumeric_ends(label)) {
        Ok(())
    } else {
        Err(NameErrorReason::SubdomainCharacter)
    }
}

/// Whether the first and last byte are letters or digits; false when empty.
fn alphanumeric_ends(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
}
