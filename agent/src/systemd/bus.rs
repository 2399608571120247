//! systemd's manager on the system bus: listing units, their properties, and signals of change.
//!
//! Owned here: the calls, their time limit and how they fail. Not owned: when to call, and from which thread.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use evenkeel_enforce::systemd::bus::{BusError, SOCKET, release};
use evenkeel_enforce::systemd::names::unit_of_object;
use futures::StreamExt;
use zbus::connection::Builder;
use zbus::message::Type;
use zbus::zvariant::{OwnedObjectPath, OwnedValue};
use zbus::{Connection, MatchRule, Message, MessageStream};

use crate::sources::reach::Reach;

const DESTINATION: &str = "org.freedesktop.systemd1";
const PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
const UNIT: &str = "org.freedesktop.systemd1.Unit";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
/// Signals that may wait for the task that takes them.
const SIGNALS: usize = 256;
/// States in which a unit's processes run.
const RUNNING: [&str; 4] = ["active", "activating", "reloading", "deactivating"];

/// Why a call failed.
fn told(error: zbus::Error) -> BusError {
    match error {
        zbus::Error::MethodError(name, text, _) => {
            let text = text.unwrap_or_else(|| name.to_string());
            BusError::refused(name.as_str(), text)
        }
        zbus::Error::InputOutput(io) if io.kind() == std::io::ErrorKind::TimedOut => BusError::Late,
        error => BusError::Away(error.to_string()),
    }
}

/// A unit that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListedUnit {
    /// Full name.
    pub name: String,
    /// Its object.
    pub object: OwnedObjectPath,
}

/// One row of `ListUnitsByPatterns`: name, description, load state, active state, sub state, followed unit, object,
/// job's number, type and object.
type Row = (String, String, String, String, String, String, OwnedObjectPath, u32, String, OwnedObjectPath);

/// What a signal told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UnitSignal {
    /// A unit was loaded, unloaded, or changed its state.
    Unit(String),
    /// Unit files were read again.
    Reloaded,
}

/// A connection to the manager.
pub(crate) struct Manager {
    connection: Connection,
    /// Release of systemd, such as 252.
    pub(crate) version: Option<u32>,
}

impl Manager {
    /// Connects to the system bus and asks the manager for its version. Every call takes `patience` at most.
    ///
    /// # Errors
    /// When there is no bus, or systemd is not on it.
    pub(crate) async fn connect(reach: &Reach, patience: Duration) -> Result<Self, BusError> {
        let builder = if reach.is_here() {
            Builder::system().map_err(told)?
        } else {
            let stream = reach.connect(Path::new(SOCKET)).await;
            let stream = stream.map_err(|error| BusError::Away(error.to_string()))?;
            // Who connected it.
            Builder::unix_stream(stream).user_id(reach.user())
        };
        let connecting = builder.method_timeout(patience).build();
        let connection =
            tokio::time::timeout(patience, connecting).await.map_err(|_| BusError::Late)?.map_err(told)?;
        let mut manager = Self { connection, version: None };
        let version: String = manager.property(PATH, MANAGER, "Version").await?;
        manager.version = release(&version);
        Ok(manager)
    }

    /// Units whose processes run and whose name matches one of the patterns.
    ///
    /// # Errors
    /// When the manager does not answer.
    pub(crate) async fn running(&self, patterns: &[&str]) -> Result<Vec<ListedUnit>, BusError> {
        let reply = self.call(MANAGER, "ListUnitsByPatterns", &(&RUNNING[..], patterns)).await?;
        let rows: Vec<Row> = reply.body().deserialize().map_err(told)?;
        Ok(rows.into_iter().map(|row| ListedUnit { name: row.0, object: row.6 }).collect())
    }

    /// The files a unit was read from: the fragment, then drop-ins in the order in which they count.
    ///
    /// # Errors
    /// When the unit is gone or the manager does not answer.
    pub(crate) async fn files(&self, object: &OwnedObjectPath) -> Result<Vec<String>, BusError> {
        let fragment: String = self.property(object.as_str(), UNIT, "FragmentPath").await?;
        let drop_ins: Vec<String> = self.property(object.as_str(), UNIT, "DropInPaths").await?;
        Ok([fragment].into_iter().filter(|path| !path.is_empty()).chain(drop_ins).collect())
    }

    /// Path of a service's or slice's cgroup below the root; `None` while it has none.
    ///
    /// # Errors
    /// When the unit is gone or the manager does not answer.
    pub(crate) async fn cgroup(&self, unit: &ListedUnit) -> Result<Option<String>, BusError> {
        let interface = if unit.name.ends_with(".slice") {
            "org.freedesktop.systemd1.Slice"
        } else {
            "org.freedesktop.systemd1.Service"
        };
        let path: String = self.property(unit.object.as_str(), interface, "ControlGroup").await?;
        Ok(Some(path).filter(|path| !path.is_empty()))
    }

    /// Asks for signals and hands each change on until the connection ends.
    ///
    /// # Errors
    /// When the manager does not answer. The returned future ends when the connection does.
    pub(crate) async fn follow<F>(&self, mut hear: F) -> Result<impl Future<Output = ()> + use<F>, BusError>
    where
        F: FnMut(UnitSignal),
    {
        let (manager, units) = self.signals().await.map_err(told)?;
        self.call(MANAGER, "Subscribe", &()).await?;
        Ok(async move {
            // Each ends with the connection; so does the whole as soon as one does.
            let mut all =
                futures::stream::select(manager.map(Some).chain(end()), units.map(Some).chain(end()));
            while let Some(Some(Ok(message))) = all.next().await {
                if let Some(change) = change(&message) {
                    hear(change);
                }
            }
        })
    }

    /// Signals of the manager, and of units that change.
    async fn signals(&self) -> zbus::Result<(MessageStream, MessageStream)> {
        let signal = || MatchRule::builder().msg_type(Type::Signal).sender(DESTINATION);
        let manager = signal()?.path(PATH)?.interface(MANAGER)?.build();
        let units = signal()?
            .path_namespace("/org/freedesktop/systemd1/unit")?
            .interface(PROPERTIES)?
            .member("PropertiesChanged")?
            .arg(0, UNIT)?
            .build();
        let manager = MessageStream::for_match_rule(manager, &self.connection, Some(SIGNALS)).await?;
        let units = MessageStream::for_match_rule(units, &self.connection, Some(SIGNALS)).await?;
        Ok((manager, units))
    }

    async fn call<B>(&self, interface: &str, method: &str, body: &B) -> Result<Message, BusError>
    where
        B: serde::Serialize + zbus::zvariant::DynamicType,
    {
        let call = self.connection.call_method(Some(DESTINATION), PATH, Some(interface), method, body);
        call.await.map_err(told)
    }

    async fn property<T>(&self, path: &str, interface: &str, name: &str) -> Result<T, BusError>
    where
        T: TryFrom<OwnedValue>,
        T::Error: std::fmt::Display,
    {
        let of = (interface, name);
        let get = self.connection.call_method(Some(DESTINATION), path, Some(PROPERTIES), "Get", &of);
        let value: OwnedValue = get.await.map_err(told)?.body().deserialize().map_err(told)?;
        T::try_from(value).map_err(|error| BusError::Unknown(format!("{name} of {path}: {error}")))
    }
}

/// One `None`, which ends the loop that sees it.
fn end<T>() -> impl futures::Stream<Item = Option<T>> {
    futures::stream::iter([None])
}

fn change(message: &Message) -> Option<UnitSignal> {
    let header = message.header();
    match header.member()?.as_str() {
        "UnitNew" | "UnitRemoved" => {
            let (name, _): (String, OwnedObjectPath) = message.body().deserialize().ok()?;
            Some(UnitSignal::Unit(name))
        }
        // Sent before (true) and after (false).
        "Reloading" => (!message.body().deserialize::<bool>().ok()?).then_some(UnitSignal::Reloaded),
        "PropertiesChanged" => {
            let body = message.body();
            let (_, changed, _): (String, HashMap<String, OwnedValue>, Vec<String>) =
                body.deserialize().ok()?;
            changed.contains_key("ActiveState").then_some(())?;
            unit_of_object(header.path()?.as_str()).map(UnitSignal::Unit)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use zbus::zvariant::Value;

    use super::*;

    #[test]
    fn signals_are_understood() {
        let signal = |path: &'static str, interface: &'static str, member: &'static str| {
            Message::signal(path, interface, member).unwrap()
        };
        let object = "/org/freedesktop/systemd1/unit/db_2eservice";
        let new = signal(PATH, MANAGER, "UnitNew")
            .build(&("db.service", OwnedObjectPath::try_from(object).unwrap()))
            .unwrap();
        assert_eq!(change(&new), Some(UnitSignal::Unit("db.service".into())));
        let reloading = |begins: bool| signal(PATH, MANAGER, "Reloading").build(&begins).unwrap();
        assert_eq!((change(&reloading(true)), change(&reloading(false))), (None, Some(UnitSignal::Reloaded)));
        let changed = |name: &str| {
            let values = HashMap::from([(name.to_owned(), Value::from("active"))]);
            signal(object, PROPERTIES, "PropertiesChanged")
                .build(&(UNIT, values, Vec::<String>::new()))
                .unwrap()
        };
        assert_eq!(change(&changed("ActiveState")), Some(UnitSignal::Unit("db.service".into())));
        assert_eq!(change(&changed("Job")), None);
    }
}
