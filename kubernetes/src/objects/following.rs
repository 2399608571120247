//! The kinds of objects that ask for recommendations, followed as they change, and the API server that is asked about them.

use std::sync::Arc;

use super::kept::ObjectCache;
use crate::connect::{ApiServer, ApiSource, ConnectError};
use crate::kinds::ApiKind;
use crate::watch::{Followed, KindStatus, Pace, Takes};

/// Objects of the Vertical Pod Autoscaler.
pub static AUTOSCALERS: &ApiKind = &KINDS[0];

/// Evenkeel's own objects, each of which is a policy.
pub static OWN: &ApiKind = &KINDS[1];

/// All kinds that are followed here. A cluster may have none of them: then each is asked for again about twice a minute.
pub static KINDS: [ApiKind; 2] = [
    ApiKind {
        name: "VerticalPodAutoscaler",
        path: "/apis/autoscaling.k8s.io/v1/verticalpodautoscalers",
        metadata_only: false,
    },
    ApiKind {
        name: "VerticalPodAutoscaler.evenkeel.dev",
        path: "/apis/evenkeel.dev/v1/verticalpodautoscalers",
        metadata_only: false,
    },
];

/// Objects that are followed, and who is asked about what they name.
#[derive(Debug)]
pub struct Asking {
    kept: Arc<ObjectCache>,
    followed: Followed,
    api: ApiServer,
}

impl Asking {
    /// Begins to follow objects of these of [`KINDS`].
    ///
    /// # Errors
    /// When it is not told where the API server is, or credentials cannot be used.
    pub async fn start(
        source: &ApiSource,
        pace: Pace,
        kinds: &'static [ApiKind],
    ) -> Result<Self, ConnectError> {
        let kept = Arc::new(ObjectCache::default());
        let takes: Arc<dyn Takes> = Arc::<ObjectCache>::clone(&kept);
        let followed = Followed::start(source, pace, kinds, takes).await?;
        Ok(Self { kept, followed, api: ApiServer::at(source).await? })
    }

    /// The objects.
    #[must_use]
    pub fn kept(&self) -> &ObjectCache {
        &self.kept
    }

    /// Who is asked.
    #[must_use]
    pub fn api(&self) -> &ApiServer {
        &self.api
    }

    /// How it stands with each kind.
    #[must_use]
    pub fn status(&self) -> Vec<KindStatus> {
        self.followed.status()
    }
}
