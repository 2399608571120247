//! Owns the interfaces: gRPC, HTTP, metrics, and the forms of their answers. What is answered is made in `recommend`.

pub(crate) mod capacity;
pub(crate) mod convert;
pub(crate) mod grpc;
pub mod http;
pub(crate) mod metrics;
pub(crate) mod ready;

use std::sync::Arc;

use evenkeel_rightsizing::initial::Params;

use crate::capacity::pool::Pool;
use crate::capacity::watch::Watched;
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
    /// Threads for questions about capacity.
    pub(crate) capacity: Pool,
    /// Answers to watched questions.
    pub(crate) watched: Watched,
}

impl Context {
    /// Of a started engine.
    ///
    /// # Errors
    /// When the threads for questions cannot be had.
    pub fn new(engine: Engine, config: &Config) -> std::io::Result<Self> {
        let params = Arc::new(config.recommend.initial());
        let capacity = Pool::start(config.capacity.workers, config.capacity.queue)?;
        let watched = Watched::open(config.watched_file());
        Ok(Self { engine, config: Arc::new(config.clone()), params, capacity, watched })
    }
}
