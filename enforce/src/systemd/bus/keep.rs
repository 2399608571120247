//! The bus as a plain thread uses it: a call blocks for [`PATIENCE`] at most, and while the bus is away nobody waits
//! for it.

use std::time::{Duration, Instant};

use super::{BusError, Manager};
use crate::systemd::property::Property;
use crate::systemd::{NotSet, SetProperties};

/// A healthy manager answers in milliseconds. One that reads its files again may take longer; then the kernel is
/// written directly.
const PATIENCE: Duration = Duration::from_secs(2);
/// First and longest time without another try after an outage.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// A connection that is made when it is first needed and again after it broke.
#[derive(Default)]
struct Bus {
    link: Option<Manager>,
    outage: Option<Outage>,
}

/// Since when, and until when nobody tries again.
struct Outage {
    error: BusError,
    pause: Duration,
    until: Instant,
}

impl Bus {
    fn link(&mut self) -> Result<&mut Manager, BusError> {
        if let Some(outage) = &self.outage
            && Instant::now() < outage.until
        {
            return Err(outage.error.clone());
        }
        if self.link.is_none() {
            self.link = Some(Manager::connect(PATIENCE).inspect_err(|error| self.begin_outage(error))?);
        }
        self.link.as_mut().ok_or_else(|| BusError::Away("the connection was not kept".into()))
    }

    /// Says so once, and remembers not to try again for a while.
    fn begin_outage(&mut self, error: &BusError) {
        let pause = self.outage.as_ref().map_or(PAUSE.0, |outage| (outage.pause * 2).min(PAUSE.1));
        if self.outage.is_none() {
            tracing::warn!(%error, "units' knobs are written directly; a daemon-reload may undo them until systemd answers");
        }
        self.link = None;
        self.outage = Some(Outage { error: error.clone(), pause, until: Instant::now() + pause });
    }

    fn end_outage(&mut self) {
        if self.outage.take().is_some() {
            tracing::info!("systemd answers again; units' knobs are set through it");
        }
    }

    fn call(&mut self, unit: &str, properties: &[Property]) -> Result<(), BusError> {
        let done = self.link()?.set(unit, properties);
        match &done {
            Err(error) if error.is_outage() => self.begin_outage(error),
            _ => self.end_outage(),
        }
        done
    }
}

impl SetProperties for Bus {
    fn version(&mut self) -> Option<u32> {
        self.link().ok()?.version
    }

    fn set(&mut self, unit: &str, properties: &[Property]) -> Result<(), NotSet> {
        self.call(unit, properties).map_err(|error| match error {
            BusError::Denied(_) | BusError::Unknown(_) => NotSet::Refused(error.to_string()),
            // An outage has been told once; a cgroup that looks like a unit's may be anybody's.
            BusError::Away(_) | BusError::Late | BusError::NoUnit(_) => {
                NotSet::Unreachable(error.to_string())
            }
        })
    }
}

/// A way to systemd for one writer.
pub fn open() -> Box<dyn SetProperties + Send> {
    Box::new(Bus::default())
}
