//! Scheduler extenders over HTTP: one question, one bounded answer.

use std::time::Duration;

use evenkeel_capacity::extender::Transport;
use ureq::Agent;
use ureq::http::{StatusCode, header};

/// Largest answer taken: 5,000 nodes as objects are below it.
const MOST_BYTES: u64 = 64 << 20;

/// An HTTP client without redirects.
#[derive(Debug)]
pub(super) struct Http(Agent);

impl Http {
    pub(super) fn new() -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("evenkeel/", env!("CARGO_PKG_VERSION")));
        Self(config.build().new_agent())
    }
}

impl Transport for Http {
    fn post(&self, url: &str, body: &[u8], timeout: Duration) -> Result<Vec<u8>, String> {
        let request = self.0.post(url).header(header::CONTENT_TYPE, "application/json");
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
