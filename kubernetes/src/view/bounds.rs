//! Limit ranges and quotas of the cluster, for who bounds requests by them.

use evenkeel_capacity::object::{LimitRange, Object, ResourceQuota};

use super::{ClusterView, KindObjects, ObjectContent};

/// Limit ranges and quotas of all namespaces.
#[derive(Debug, Clone, Default)]
pub struct NamespaceBounds {
    /// Of which state of the view they are.
    pub changes: u64,
    /// The limit ranges.
    pub ranges: Vec<LimitRange>,
    /// The quotas.
    pub quotas: Vec<ResourceQuota>,
}

impl ClusterView {
    /// The limit ranges and quotas, where they changed since `changes`; nothing where they did not. Zero stands for none seen yet.
    #[must_use]
    pub fn bounds(&self, changes: u64) -> Option<NamespaceBounds> {
        let inner = self.read();
        let kinds = ["LimitRange", "ResourceQuota"].map(|name| inner.kinds.get(name));
        let now = kinds.iter().flatten().map(|kept| kept.changes).sum();
        if now == changes {
            return None;
        }
        let mut bounds = NamespaceBounds { changes: now, ..NamespaceBounds::default() };
        for object in kinds.into_iter().flatten().flat_map(KindObjects::all) {
            match object {
                Object::LimitRange(range) => bounds.ranges.push((**range).clone()),
                Object::ResourceQuota(quota) => bounds.quotas.push((**quota).clone()),
                _ => {}
            }
        }
        Some(bounds)
    }
}

impl KindObjects {
    fn all(&self) -> impl Iterator<Item = &Object> {
        self.objects.values().flat_map(|names| names.values()).filter_map(|entry| match &entry.of {
            ObjectContent::Object(object) => Some(object),
            ObjectContent::Owner(_) => None,
        })
    }
}
