//! Extenders of a scheduler's configuration, asked over HTTP.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use evenkeel_capacity::extender::{Pem, Server, Tls, Transport};
use ureq::http::{StatusCode, header};

use crate::failure::Failure;
use crate::kube::client::Connection;
use crate::kube::config::{Target, User};
use crate::kube::credentials::Credentials;

/// Largest answer taken: 5,000 nodes as objects are below it.
const MOST_BYTES: u64 = 64 << 20;

/// HTTP clients without redirects, one for each server.
#[derive(Debug, Default)]
pub(super) struct Http(Mutex<HashMap<Server, Arc<Connection>>>);

impl Http {
    fn connection(&self, server: &Server) -> Result<Arc<Connection>, String> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connection) = known.get(server) {
            return Ok(Arc::clone(connection));
        }
        let connection = connect(server).map_err(|failure| failure.cause())?;
        Ok(Arc::clone(known.entry(server.clone()).or_insert(Arc::new(connection))))
    }
}

/// What is known of a server here as a kubeconfig says it.
fn connect(server: &Server) -> Result<Connection, Failure> {
    let Tls { insecure, server_name, ca, cert, key } = server.tls.clone();
    let parts = |pem: Pem| {
        let given = |text: String| (!text.is_empty()).then_some(text);
        (given(pem.file).map(Into::into), given(pem.data))
    };
    let mut target = Target { server: server.url.clone(), ..Target::default() };
    target.cluster.insecure_skip_tls_verify = insecure;
    target.cluster.tls_server_name = Some(server_name);
    (target.cluster.certificate_authority, target.cluster.certificate_authority_data) = parts(ca);
    let User { client_certificate, client_certificate_data, client_key, client_key_data, .. } =
        &mut target.user;
    (*client_certificate, *client_certificate_data) = parts(cert);
    (*client_key, *client_key_data) = parts(key);
    let credentials = Credentials::of(&target.user)?;
    Connection::new(&target, &credentials)
}

impl Transport for Http {
    fn prepare(&self, server: &Server) -> Result<(), String> {
        self.connection(server).map(drop)
    }

    fn post(&self, server: &Server, verb: &str, body: &[u8], timeout: Duration) -> Result<Vec<u8>, String> {
        let connection = self.connection(server)?;
        let url = format!("{}/{verb}", connection.base(&server.url).trim_end_matches('/'));
        let mut request = connection.agent.post(&url).header(header::CONTENT_TYPE, "application/json");
        if let Some(host) = connection.host() {
            request = request.header(header::HOST, host);
        }
        let request = request.config().timeout_global(Some(timeout)).build();
        let told = |error: ureq::Error| match error {
            ureq::Error::Timeout(_) => {
                format!("it took longer than its httpTimeout, {} ms", timeout.as_millis())
            }
            error => error.to_string(),
        };
        let response = request.send(body).map_err(told)?;
        if response.status() != StatusCode::OK {
            return Err(format!("it answered {}", response.status()));
        }
        response.into_body().into_with_config().limit(MOST_BYTES).read_to_vec().map_err(told)
    }
}
