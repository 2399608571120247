//! Keys out of messages that name what they are about.

use evenkeel_model::key::ContainerKey;

use crate::v1;

impl From<&v1::Recommendation> for ContainerKey {
    fn from(r: &v1::Recommendation) -> Self {
        Self::new(&*r.cluster, &*r.namespace, &*r.workload, &*r.container)
    }
}
