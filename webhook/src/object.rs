//! The pod of a review, as far as anything depends on it: typed, borrowed from the review's bytes, and everything else of it passed over.
//!
//! API servers ask about each pod that is made; a tree of all its values costs ten times what is read of it.

use std::borrow::{Borrow, Cow};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;

use serde::de::{self, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::pod::MANAGE;

/// Text, borrowed where nothing in it is escaped.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct JsonText<'a>(Cow<'a, str>);

impl Deref for JsonText<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for JsonText<'_> {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for JsonText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

struct TextVisitor {
    /// Numbers are taken as their text.
    numbers: bool,
}

impl TextVisitor {
    fn number<'a, E: de::Error>(self, number: &dyn fmt::Display) -> Result<JsonText<'a>, E> {
        match self.numbers {
            true => Ok(JsonText(Cow::Owned(number.to_string()))),
            false => Err(E::custom(format_args!("{number} is no text"))),
        }
    }
}

impl<'de> Visitor<'de> for TextVisitor {
    type Value = JsonText<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.numbers { "text or a number" } else { "text" })
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<JsonText<'de>, E> {
        Ok(JsonText(Cow::Borrowed(text)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<JsonText<'de>, E> {
        Ok(JsonText(Cow::Owned(text.to_owned())))
    }

    fn visit_string<E: de::Error>(self, text: String) -> Result<JsonText<'de>, E> {
        Ok(JsonText(Cow::Owned(text)))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<JsonText<'de>, E> {
        self.number(&number)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<JsonText<'de>, E> {
        self.number(&number)
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<JsonText<'de>, E> {
        self.number(&number)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for JsonText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor { numbers: false })
    }
}

/// An amount as it is written; a number is taken as its text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Amount<'a>(JsonText<'a>);

impl Deref for Amount<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Amount<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor { numbers: true }).map(Amount)
    }
}

/// Labels, by key.
pub type Labels<'a> = BTreeMap<JsonText<'a>, JsonText<'a>>;
/// Amounts, by the name of the resource.
pub type Amounts<'a> = BTreeMap<JsonText<'a>, Amount<'a>>;

/// A pod.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Pod<'a> {
    /// Its metadata.
    #[serde(borrow)]
    pub metadata: Option<PodMetadata<'a>>,
    /// What it is to be.
    #[serde(borrow)]
    pub spec: Option<Spec<'a>>,
}

/// Metadata of a pod.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodMetadata<'a> {
    /// Name, where it has one already.
    #[serde(borrow)]
    pub name: Option<JsonText<'a>>,
    /// What its name will begin with.
    #[serde(borrow)]
    pub generate_name: Option<JsonText<'a>>,
    /// Labels.
    #[serde(borrow)]
    pub labels: Option<Labels<'a>>,
    /// The annotations that are known here.
    #[serde(borrow)]
    pub annotations: Option<Annotations<'a>>,
    /// What made it.
    #[serde(borrow)]
    pub owner_references: Option<Vec<Owner<'a>>>,
}

/// Annotations that say something to the webhook, and how long all of them are.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Annotations<'a> {
    /// What LimitRanger filled in.
    pub limit_ranger: Option<JsonText<'a>>,
    /// [`crate::pod::MANAGE`].
    pub manage: Option<JsonText<'a>>,
    /// The admission controller of the Vertical Pod Autoscaler names containers that it looked at, or what it set.
    pub is_seen_by_vpa: bool,
    /// Bytes of all keys and values.
    pub bytes: usize,
}

struct AnnotationsVisitor;

impl<'de> Visitor<'de> for AnnotationsVisitor {
    type Value = Annotations<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("annotations")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Annotations<'de>, A::Error> {
        let mut all = Annotations::default();
        while let Some((key, value)) = map.next_entry::<JsonText<'de>, Option<JsonText<'de>>>()? {
            all.bytes += key.len() + value.as_ref().map_or(0, |value| value.len());
            match &*key {
                "kubernetes.io/limit-ranger" => all.limit_ranger = value,
                MANAGE => all.manage = value,
                "vpaObservedContainers" | "vpaUpdates" => all.is_seen_by_vpa |= value.is_some(),
                _ => {}
            }
        }
        Ok(all)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Annotations<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(AnnotationsVisitor)
    }
}

/// What made a pod.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Owner<'a> {
    /// Group and version.
    #[serde(borrow)]
    pub api_version: Option<JsonText<'a>>,
    /// Kind.
    #[serde(borrow)]
    pub kind: Option<JsonText<'a>>,
    /// Name.
    #[serde(borrow)]
    pub name: Option<JsonText<'a>>,
    /// Tells it from a later one of its name.
    #[serde(borrow)]
    pub uid: Option<JsonText<'a>>,
    /// It is the one that makes the pod anew.
    pub controller: Option<bool>,
}

/// What a pod is to be.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec<'a> {
    /// Containers.
    #[serde(borrow)]
    pub containers: Option<Vec<Container<'a>>>,
    /// Those that run before, and sidecars.
    #[serde(borrow)]
    pub init_containers: Option<Vec<Container<'a>>>,
    /// Resources of the pod as a whole.
    #[serde(borrow)]
    pub resources: Option<BTreeMap<JsonText<'a>, IgnoredAny>>,
    /// The node that it is bound to.
    #[serde(borrow)]
    pub node_name: Option<JsonText<'a>>,
    /// What it waits for.
    #[serde(borrow)]
    pub scheduling_gates: Option<Vec<SchedulingGate<'a>>>,
}

/// What a pod waits for before it is scheduled.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct SchedulingGate<'a> {
    /// Its name.
    #[serde(borrow)]
    pub name: Option<JsonText<'a>>,
}

/// A container.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Container<'a> {
    /// Its name.
    #[serde(borrow)]
    pub name: Option<JsonText<'a>>,
    /// Its image.
    #[serde(borrow)]
    pub image: Option<JsonText<'a>>,
    /// Its command.
    #[serde(borrow)]
    pub command: Option<Vec<JsonText<'a>>>,
    /// Its arguments.
    #[serde(borrow)]
    pub args: Option<Vec<JsonText<'a>>>,
    /// `Always` makes a sidecar of an init container.
    #[serde(borrow)]
    pub restart_policy: Option<JsonText<'a>>,
    /// What it asks for.
    #[serde(borrow)]
    pub resources: Option<Resources<'a>>,
}

/// What a container asks for.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Resources<'a> {
    /// Requests.
    #[serde(borrow)]
    pub requests: Option<Amounts<'a>>,
    /// Limits.
    #[serde(borrow)]
    pub limits: Option<Amounts<'a>>,
}

impl<'a> Resources<'a> {
    /// Its requests; nothing where it has none.
    #[must_use]
    pub fn requests(&self) -> Option<&Amounts<'a>> {
        self.requests.as_ref()
    }

    /// Its limits; nothing where it has none.
    #[must_use]
    pub fn limits(&self) -> Option<&Amounts<'a>> {
        self.limits.as_ref()
    }
}

impl<'a> Pod<'a> {
    /// Its labels; nothing where it has none.
    #[must_use]
    pub fn labels(&self) -> Option<&Labels<'a>> {
        self.metadata.as_ref()?.labels.as_ref()
    }

    /// What it is made anew by.
    #[must_use]
    pub fn controller(&self) -> Option<&Owner<'a>> {
        let all = self.metadata.as_ref()?.owner_references.as_ref()?;
        all.iter().find(|owner| owner.controller == Some(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_borrowed_and_nulls_and_what_is_not_known_are_passed_over() {
        let body = r#"{"metadata":{"name":null,"labels":{"app":"web","t\u0065am":"a\"b"},"creationTimestamp":null,"annotations":{"x/y":"z"}},
            "spec":{"containers":[{"name":"main","env":[{"name":"A","value":"secret"}],"resources":{"requests":{"cpu":1,"memory":"64Mi"}}}],
            "initContainers":null,"tolerations":[{"key":"a"}]},"status":{}}"#;
        let pod: Pod<'_> = serde_json::from_str(body).unwrap();
        let labels = pod.labels().unwrap();
        assert_eq!(labels.get("app").map(|value| matches!(value.0, Cow::Borrowed("web"))), Some(true));
        assert_eq!(labels.get("team").map(|value| &**value), Some("a\"b"));
        let spec = pod.spec.as_ref().unwrap();
        let main = &spec.containers.as_ref().unwrap()[0];
        let requests = main.resources.as_ref().unwrap().requests.as_ref().unwrap();
        assert_eq!((&*requests["cpu"], &*requests["memory"]), ("1", "64Mi"));
        assert!(spec.init_containers.is_none() && !format!("{pod:?}").contains("secret"));
        for wrong in [
            r#"{"metadata":7}"#,
            r#"{"metadata":{"labels":{"a":1}}}"#,
            r#"{"spec":{"containers":{}}}"#,
            r#"{"spec":{"containers":[{"resources":{"requests":{"cpu":true}}}]}}"#,
        ] {
            assert!(serde_json::from_str::<Pod<'_>>(wrong).is_err(), "{wrong}");
        }
    }
}
