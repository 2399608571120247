//! Owns the interfaces: gRPC, HTTP, metrics, and the forms of their answers. What is answered is made in `recommend`.

pub(crate) mod capacity;
pub(crate) mod convert;
pub(crate) mod grpc;
pub mod http;
pub(crate) mod metrics;
pub(crate) mod ready;

use std::sync::Arc;

use evenkeel_rightsizing::initial::Params;

use crate::config::Config;
use crate::ingest::engine::Engine;

/// What every interface needs.
#[derive(Debug, Clone)]
pub struct Context {
    /// The ingest threads and the state.
    pub engine: Engine,
    /// The configuration.
    pub config: Arc<Config>,
    /// Parameters of the rule in force.
    pub params: Arc<Params>,
}

impl Context {
    /// Of a started engine.
    pub fn new(engine: Engine, config: &Config) -> Self {
        let params = Arc::new(config.recommend.initial());
        Self { engine, config: Arc::new(config.clone()), params }
    }
}
