//! The subscription to process events, made again after an error.
//!
//! Owned here: whether it stands, why it does not, and when it is tried again. One that never stood is not tried again: what is missing then
//! (a capability, a namespace, a kernel's option) does not come while the agent runs. Not owned: what events mean.

use std::time::{Duration, Instant};

use evenkeel_host::error::HostError;
use evenkeel_host::events::ProcConnector;

/// One that broke is subscribed to again after this, twice as long after each try that failed, at most so long.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// A subscription that may be missing.
#[derive(Debug)]
pub(super) enum Stream {
    /// There is none, for this reason.
    Off(String),
    /// It stands.
    Open(ProcConnector),
    /// It broke.
    Lost {
        /// What it was made over.
        broken: ProcConnector,
        /// Why, with the remedy.
        why: String,
        /// When it is tried again, and how long after that.
        again: Instant,
        wait: Duration,
    },
}

impl Stream {
    /// As it was opened; `None` = turned off.
    pub(super) fn of(opened: Option<Result<ProcConnector, HostError>>) -> Self {
        match opened {
            Some(Ok(connector)) => Self::Open(connector),
            Some(Err(error)) => Self::Off(told(&error)),
            None => Self::Off("turned off by features.proc_connector".to_owned()),
        }
    }

    /// While it stands.
    pub(super) const fn open(&self) -> Option<&ProcConnector> {
        match self {
            Self::Open(connector) => Some(connector),
            Self::Off(_) | Self::Lost { .. } => None,
        }
    }

    /// Why it does not stand, with the remedy.
    pub(super) fn why(&self) -> Option<&str> {
        match self {
            Self::Off(why) | Self::Lost { why, .. } => Some(why),
            Self::Open(_) => None,
        }
    }

    /// When it is tried again.
    pub(super) const fn due(&self) -> Option<Instant> {
        match self {
            Self::Lost { again, .. } => Some(*again),
            Self::Off(_) | Self::Open(_) => None,
        }
    }

    /// It broke.
    pub(super) fn broke(&mut self, error: &HostError, now: Instant) {
        let Self::Open(broken) = std::mem::replace(self, Self::Off(told(error))) else { return };
        tracing::warn!(%error, "process events broke off; until they are subscribed to again the audit finds new processes");
        *self = Self::Lost { broken, why: told(error), again: now + AGAIN.0, wait: AGAIN.0 };
    }

    /// Tries again where it is time; true when it stands from now on. What happened in between is lost.
    pub(super) fn renew(&mut self, now: Instant) -> bool {
        let Self::Lost { broken, why, again, wait } = self else { return false };
        if now < *again {
            return false;
        }
        match broken.renewed() {
            Ok(connector) => {
                tracing::info!("process events are told again");
                *self = Self::Open(connector);
                true
            }
            Err(error) => {
                *wait = (*wait * 2).min(AGAIN.1);
                (*why, *again) = (told(&error), now + *wait);
                tracing::debug!(%error, again_in = ?wait, "ignoring: process events are tried again later");
                false
            }
        }
    }
}

/// An error with its remedy.
pub(super) fn told(error: &HostError) -> String {
    error.remedy().map_or_else(|| error.to_string(), |remedy| format!("{error} ({remedy})"))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::{AsFd as _, AsRawFd as _};

    use evenkeel_host::events::ProcessEvent;

    use super::*;

    /// Puts another file in the place of a descriptor, which from then on is no socket.
    #[allow(unsafe_code)]
    fn break_off(connector: &ProcConnector) {
        let other = File::open("/dev/null").unwrap();
        // SAFETY: both numbers are open descriptors of this process, and dup2(2) touches no memory.
        let made = unsafe { nix::libc::dup2(other.as_raw_fd(), connector.as_fd().as_raw_fd()) };
        assert_eq!(made, connector.as_fd().as_raw_fd());
    }

    #[test]
    fn what_never_stood_is_not_tried_again() {
        let mut stream = Stream::of(None);
        assert!(stream.open().is_none() && stream.due().is_none());
        assert!(stream.why().is_some_and(|why| why.contains("features.proc_connector")));
        assert!(!stream.renew(Instant::now() + Duration::from_secs(3600)));
    }

    #[test]
    fn a_subscription_that_breaks_is_made_again_and_told_until_then() {
        let Ok(connector) = ProcConnector::open() else { return };
        let mut stream = Stream::of(Some(Ok(connector)));
        break_off(stream.open().unwrap());
        let error = stream.open().unwrap().read(&mut Vec::new()).unwrap_err();
        let now = Instant::now();
        stream.broke(&error, now);
        assert!(stream.open().is_none() && stream.why().is_some());
        assert_eq!(stream.due(), Some(now + AGAIN.0));
        assert!(!stream.renew(now), "not at once");
        assert!(stream.renew(now + AGAIN.0), "{:?}", stream.why());
        assert!(stream.due().is_none() && stream.why().is_none());
        // Events arrive: a program is run until one of its is read.
        let mut seen = Vec::new();
        while !seen.iter().any(|event| matches!(event, ProcessEvent::Exec { .. })) {
            assert!(std::process::Command::new("true").status().unwrap().success());
            stream.open().unwrap().read(&mut seen).unwrap();
        }
    }
}
