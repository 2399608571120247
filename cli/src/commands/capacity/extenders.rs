//! Extenders of a scheduler's configuration, asked over HTTP.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use evenkeel_capacity::extender::{Pem, Server, Tls, Transport};
use evenkeel_kubernetes::{Session, TlsFiles};
use tokio::runtime::Runtime;

use crate::client::runtime;
use crate::failure::Failure;

/// HTTP clients without redirects, one for each server.
#[derive(Debug)]
pub(super) struct Http {
    runtime: Runtime,
    known: Mutex<HashMap<Server, Arc<Session>>>,
}

impl Http {
    /// Nothing is asked yet.
    ///
    /// # Errors
    /// When the machine has no resources left for it.
    pub(super) fn new() -> Result<Self, Failure> {
        Ok(Self { runtime: runtime()?, known: Mutex::default() })
    }

    fn session(&self, server: &Server) -> Result<Arc<Session>, String> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = known.get(server) {
            return Ok(Arc::clone(session));
        }
        let Tls { insecure, server_name, ca, cert, key } = server.tls.clone();
        let [ca, cert, key] = [ca, cert, key].map(|Pem { file, data }| (file, data));
        let files = TlsFiles { insecure, server_name, ca, cert, key };
        let opened = self.runtime.block_on(Session::with(&server.url, &files));
        let session = opened.map_err(|error| format!("{}: {}", error.place, error.why))?;
        Ok(Arc::clone(known.entry(server.clone()).or_insert(Arc::new(session))))
    }
}

impl Transport for Http {
    fn prepare(&self, server: &Server) -> Result<(), String> {
        self.session(server).map(drop)
    }

    fn post(&self, server: &Server, verb: &str, body: &[u8], timeout: Duration) -> Result<Vec<u8>, String> {
        let session = self.session(server)?;
        self.runtime.block_on(session.post(&format!("/{verb}"), body, timeout))
    }
}
