//! systemd's manager over the system bus, for those who set, stop and start: a few calls, each waited for by a plain thread.
//!
//! Owned here: the connection, the calls, their time limit and how they fail. Not owned: the form of messages ([`wire`]), when to call
//! (`writer`, eviction), listing units.
//!
//! The process that calls has root's rights over systemd by its user, so that what comes back is read by as little as can be: one
//! message at a time, which is small, and of its body one text.

mod keep;
pub mod wire;

use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

pub use keep::open;
use nix::sys::socket::sockopt::SendTimeout;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket};
use nix::sys::time::{TimeVal, TimeValLike as _};

use super::property::Property;
use wire::{Argument, Call, MOST_BYTES, Message, MessageKind};

/// The system bus (D-Bus Specification, "System message bus").
pub const SOCKET: &str = "/run/dbus/system_bus_socket";
const BUS: &str = "org.freedesktop.DBus";
const SYSTEMD: &str = "org.freedesktop.systemd1";
const PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
const UNIT: &str = "org.freedesktop.systemd1.Unit";
const SERVICE: &str = "org.freedesktop.systemd1.Service";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
/// Longest line of the bus while it asks who we are.
const MOST_LINE: usize = 512;
/// Messages for listeners that may come before an answer: of those the bus sends one, when we are named.
const MOST_OTHERS: usize = 64;

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BusError {
    /// Nobody answers: no bus, no manager on it, or the connection broke.
    #[error("cannot reach systemd over the system bus: {0}")]
    Away(String),
    /// No answer in time.
    #[error("systemd did not answer in time")]
    Late,
    /// The manager knows no such unit.
    #[error("systemd knows no such unit: {0}")]
    NoUnit(String),
    /// The manager may not do it for us.
    #[error("systemd refused: {0}")]
    Denied(String),
    /// The manager does not know the property or the value.
    #[error("systemd does not take it: {0}")]
    Unknown(String),
}

impl BusError {
    /// True when the next call would fare no better.
    pub const fn is_outage(&self) -> bool {
        matches!(self, Self::Away(_) | Self::Late)
    }

    /// A refusal by its name on the bus.
    #[must_use]
    pub fn refused(name: &str, text: String) -> Self {
        match name {
            "org.freedesktop.systemd1.NoSuchUnit" | "org.freedesktop.systemd1.LoadFailed" => {
                Self::NoUnit(text)
            }
            "org.freedesktop.DBus.Error.AccessDenied"
            | "org.freedesktop.DBus.Error.AuthFailed"
            | "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired" => Self::Denied(text),
            "org.freedesktop.DBus.Error.ServiceUnknown"
            | "org.freedesktop.DBus.Error.NameHasNoOwner"
            | "org.freedesktop.DBus.Error.NoReply"
            | "org.freedesktop.DBus.Error.Disconnected"
            | "org.freedesktop.DBus.Error.TimedOut" => Self::Away(text),
            _ => Self::Unknown(text),
        }
    }
}

impl From<io::Error> for BusError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Self::Late,
            _ => Self::Away(error.to_string()),
        }
    }
}

impl From<wire::Malformed> for BusError {
    fn from(error: wire::Malformed) -> Self {
        Self::Away(error.to_string())
    }
}

/// A connection to the manager. One on which a call had no answer is not to be used again.
#[derive(Debug)]
pub struct Manager {
    stream: UnixStream,
    patience: Duration,
    serial: u32,
    /// Release of systemd, such as 252.
    pub version: Option<u32>,
}

impl Manager {
    /// Connects to the system bus and asks the manager for its version. Every call takes `patience` at most.
    ///
    /// # Errors
    /// When there is no bus, or systemd is not on it.
    pub fn connect(patience: Duration) -> Result<Self, BusError> {
        Self::connect_to(Path::new(SOCKET), patience)
    }

    fn connect_to(socket: &Path, patience: Duration) -> Result<Self, BusError> {
        let stream = connected(socket, patience)?;
        stream.set_write_timeout(Some(patience))?;
        let mut manager = Self { stream, patience, serial: 0, version: None };
        manager.authenticate()?;
        let hello = Call {
            destination: BUS,
            path: "/org/freedesktop/DBus",
            interface: BUS,
            member: "Hello",
            body: &[],
        };
        manager.call(&hello)?;
        manager.version = release(&manager.property(PATH, MANAGER, "Version")?);
        Ok(manager)
    }

    /// Says who we are, which the kernel tells the bus anyway ("EXTERNAL").
    fn authenticate(&mut self) -> Result<(), BusError> {
        let uid = nix::unistd::geteuid().to_string();
        let hex: String = uid.bytes().map(|digit| format!("{digit:02x}")).collect();
        self.stream.write_all(format!("\0AUTH EXTERNAL {hex}\r\n").as_bytes())?;
        let until = Instant::now() + self.patience;
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            self.read(&mut byte, until)?;
            line.extend(byte);
            if line.len() > MOST_LINE {
                return Err(BusError::Away("what answers is no bus".to_owned()));
            }
        }
        if !line.starts_with(b"OK ") {
            return Err(BusError::Denied("the bus does not know us".to_owned()));
        }
        Ok(self.stream.write_all(b"BEGIN\r\n")?)
    }

    /// Sets properties of a unit until the machine reboots; all or none.
    ///
    /// # Errors
    /// When the manager refuses or does not answer.
    pub fn set(&mut self, unit: &str, properties: &[Property]) -> Result<(), BusError> {
        let body = [Argument::Text(unit), Argument::Bool(true), Argument::Properties(properties)];
        self.ask("SetUnitProperties", &body).map(drop)
    }

    /// Stops a unit, in the place of whatever else is to happen to it.
    ///
    /// # Errors
    /// When the manager refuses or does not answer.
    pub fn stop(&mut self, unit: &str) -> Result<(), BusError> {
        self.ask("StopUnit", &[Argument::Text(unit), Argument::Text("replace")]).map(drop)
    }

    /// Stops a unit and starts it again.
    ///
    /// # Errors
    /// When the manager refuses or does not answer.
    pub fn restart(&mut self, unit: &str) -> Result<(), BusError> {
        self.ask("RestartUnit", &[Argument::Text(unit), Argument::Text("replace")]).map(drop)
    }

    /// Whether a service is started again by systemd itself, as its `Restart=` says.
    ///
    /// # Errors
    /// When the manager does not know the unit or does not answer.
    pub fn restart_policy(&mut self, service: &str) -> Result<String, BusError> {
        let object = self.object(service)?;
        self.property(&object, SERVICE, "Restart")
    }

    /// State of a unit: `active`, `inactive`, `failed`, and those in between.
    ///
    /// # Errors
    /// When the manager does not know the unit or does not answer.
    pub fn active_state(&mut self, unit: &str) -> Result<String, BusError> {
        let object = self.object(unit)?;
        self.property(&object, UNIT, "ActiveState")
    }

    fn object(&mut self, unit: &str) -> Result<String, BusError> {
        let object = self.ask("LoadUnit", &[Argument::Text(unit)])?;
        object.ok_or_else(|| BusError::Unknown(format!("{unit} has no object")))
    }

    fn property(&mut self, path: &str, interface: &str, name: &str) -> Result<String, BusError> {
        let body = [Argument::Text(interface), Argument::Text(name)];
        let call = Call { destination: SYSTEMD, path, interface: PROPERTIES, member: "Get", body: &body };
        self.call(&call)?.ok_or_else(|| BusError::Unknown(format!("{name} of {path} is no text")))
    }

    fn ask(&mut self, member: &str, body: &[Argument<'_>]) -> Result<Option<String>, BusError> {
        self.call(&Call { destination: SYSTEMD, path: PATH, interface: MANAGER, member, body })
    }

    /// Calls, and waits for the answer; the text that it begins with.
    fn call(&mut self, call: &Call<'_>) -> Result<Option<String>, BusError> {
        // Never 0, which is no serial.
        self.serial = self.serial.checked_add(1).unwrap_or(1);
        let until = Instant::now() + self.patience;
        self.stream.write_all(&call.bytes(self.serial))?;
        for _ in 0..MOST_OTHERS {
            let Message { kind, text } = self.next(until)?;
            match kind {
                MessageKind::Answer(serial) if serial == self.serial => return Ok(text),
                MessageKind::Refusal(serial, name) if serial == self.serial => {
                    let text = text.unwrap_or_else(|| name.clone());
                    return Err(BusError::refused(&name, text));
                }
                _ => {}
            }
        }
        Err(BusError::Away("the bus sends what nobody asked for".to_owned()))
    }

    fn next(&mut self, until: Instant) -> Result<Message, BusError> {
        let mut fixed = [0; wire::FIXED];
        self.read(&mut fixed, until)?;
        let size = wire::size(&fixed)?;
        let mut bytes = fixed.to_vec();
        bytes.resize(size.min(MOST_BYTES), 0);
        if let Some(rest) = bytes.get_mut(wire::FIXED..) {
            self.read(rest, until)?;
        }
        Ok(wire::read(&bytes)?)
    }

    /// Fills the buffer until a time.
    fn read(&mut self, mut into: &mut [u8], until: Instant) -> Result<(), BusError> {
        while !into.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(BusError::Late);
            }
            self.stream.set_read_timeout(Some(left))?;
            match self.stream.read(into) {
                Ok(0) => return Err(BusError::Away("the connection ended".to_owned())),
                Ok(read) => into = into.get_mut(read..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// A connection to a socket; one whose backlog is full is waited for no longer than an answer.
fn connected(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let stream = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    let patience = TimeVal::microseconds(i64::try_from(patience.as_micros()).unwrap_or(i64::MAX));
    setsockopt(&stream, SendTimeout, &patience)?;
    connect(stream.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(stream.into())
}

/// The number a version begins with: `252.39-1~deb12u1` is 252.
pub fn release(version: &str) -> Option<u32> {
    let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
