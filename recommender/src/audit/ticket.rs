//! A request that may change something: who asks, from where, by what, and whether an entry was made of it.

use std::error::Error;
use std::future::Future;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use evenkeel_model::causes::chain;
use evenkeel_net::Peer;
use nix::unistd::{Uid, User};
use serde_json::Value;
use tonic::Extensions;

use super::entry::{AuditEntry, AuditOutcome, End, Object};
use super::record::{Audit, AuditError, AuditLogKind};
use crate::identity::Identity;

/// How long a change that is made in any case waits for its entry.
const PATIENCE: Duration = Duration::from_secs(2);
const NOBODY: &str = "nobody";

/// A change that is awaited, for its entry.
#[derive(Debug)]
pub(crate) struct AuditedChange {
    /// What is changed.
    pub(crate) object: Object,
    /// As it is.
    pub(crate) before: Value,
    /// As it shall be.
    pub(crate) after: Value,
}

/// What a request carries with it.
#[derive(Debug, Clone)]
pub(crate) struct Ticket(Option<Arc<TicketState>>);

#[derive(Debug)]
struct TicketState {
    audit: Arc<Audit>,
    from: String,
    /// Attempts of nobody are counted by it.
    host: String,
    method: String,
    said: Mutex<TicketProgress>,
}

#[derive(Debug, Default)]
struct TicketProgress {
    /// `user 1000` and others as identities are told.
    who: Option<String>,
    object: Object,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    /// Nothing was said yet.
    #[default]
    Open,
    /// Nothing is changed.
    Quiet,
    /// There is an entry.
    Begun,
    /// The request was answered.
    Answered,
}

/// The caller of a request was found.
pub(crate) fn called(extensions: &Extensions, identity: &Identity) {
    if let Some(Ticket(Some(inner))) = extensions.get::<Ticket>() {
        inner.said().who = identity.name();
    }
}

/// A user of this machine, for people.
pub(super) fn user(uid: u32) -> String {
    match User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(user)) => format!("user {} ({uid})", user.name),
        _ => format!("user {uid}"),
    }
}

impl TicketState {
    fn said(&self) -> MutexGuard<'_, TicketProgress> {
        // Every change of it is one assignment.
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who it is; may ask the user database.
    fn who(&self) -> String {
        let who = self.said().who.clone().unwrap_or_else(|| NOBODY.to_owned());
        match who.strip_prefix("user ").and_then(|uid| uid.parse().ok()) {
            Some(uid) => user(uid),
            None => who.strip_prefix("the holder of ").unwrap_or(&who).to_owned(),
        }
    }

    fn entry(&self, object: Object) -> AuditEntry {
        AuditEntry::new(&self.who(), &self.from, &self.method, object)
    }
}

impl Ticket {
    /// Of a request that came from there.
    pub(super) fn new(audit: &Arc<Audit>, peer: Option<&Peer>, method: String) -> Self {
        let (from, host) = match peer {
            Some(Peer::Local { uid, pid, .. }) => {
                let pid = pid.map_or_else(String::new, |pid| format!(", pid {pid}"));
                (format!("unix socket{pid}, uid {uid}"), format!("user {uid}"))
            }
            Some(Peer::Remote { address, .. }) => (address.to_string(), host(address.ip())),
            None => ("unknown".to_owned(), String::new()),
        };
        let said = Mutex::default();
        Self(Some(Arc::new(TicketState { audit: Arc::clone(audit), from, host, method, said })))
    }

    /// Of a change that the recommender makes by itself, and by what it was brought to it.
    pub(crate) fn own(audit: &Arc<Audit>, from: &str, method: &str) -> Self {
        let said = TicketProgress { who: Some("recommender".to_owned()), ..TicketProgress::default() };
        let (from, host, method) = (from.to_owned(), String::new(), method.to_owned());
        let said = Mutex::new(said);
        Self(Some(Arc::new(TicketState { audit: Arc::clone(audit), from, host, method, said })))
    }

    /// The one of a request.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        extensions.get::<Self>().cloned().unwrap_or(Self(None))
    }

    /// What it is about, where that is known before anything is changed.
    pub(crate) fn about(&self, object: Object) {
        if let Some(inner) = &self.0 {
            inner.said().object = object;
        }
    }

    /// The caller is known by what the request holds.
    pub(crate) fn named(&self, who: String) {
        if let Some(inner) = &self.0 {
            inner.said().who = Some(who);
        }
    }

    /// Nothing is changed: it is asked what would come of it, or it is so already.
    pub(crate) fn quiet(&self) {
        if let Some(inner) = &self.0 {
            inner.said().stage = Stage::Quiet;
        }
    }

    /// Begins a change: there is a durable entry of it when this returns. Waits for the disk.
    ///
    /// # Errors
    /// When it cannot be kept. The change may not be made then.
    pub(crate) fn begin(
        &self,
        object: Object,
        before: Option<&Value>,
        after: Option<&Value>,
    ) -> Result<Begun, AuditError> {
        let inner = self.0.as_ref().ok_or(AuditError::NoTicket)?;
        {
            let mut said = inner.said();
            if said.stage == Stage::Answered {
                return Err(AuditError::Late);
            }
            (said.object, said.stage) = (object.clone(), Stage::Begun);
        }
        let number = inner.audit.begin(inner.entry(object).with(before, after))?;
        Ok(Begun { inner: Arc::clone(inner), number })
    }

    /// Makes a change between its entry's beginning and end. Waits for the disk.
    ///
    /// # Errors
    /// When there can be no entry: nothing was changed then; or the change's own.
    pub(crate) fn around<T, E: Error + From<AuditError> + 'static>(
        &self,
        object: Object,
        before: Option<&Value>,
        after: Option<&Value>,
        change: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let begun = self.begin(object, before, after)?;
        let done = change();
        match &done {
            Ok(_) => begun.done(None),
            Err(error) => begun.failed(&chain(error)),
        }
        done
    }

    /// The same of a change that is awaited; one that `must` be made is made without an entry where there can be none in time.
    /// `unsure` says of an error whether the change may have been made.
    ///
    /// # Errors
    /// When there can be no entry; within, the change's own.
    pub(crate) async fn around_async<T, E: ToString>(
        &self,
        change: AuditedChange,
        must: bool,
        make: impl Future<Output = Result<T, (E, AuditOutcome)>>,
    ) -> Result<Result<T, E>, AuditError> {
        let AuditedChange { object, before, after } = change;
        let ticket = self.clone();
        let told = (object.clone(), after.to_string());
        let begin = move || ticket.begin(object, Some(&before), Some(&after));
        let mut begin = tokio::task::spawn_blocking(begin);
        let mut is_late = false;
        let begun = match must {
            false => Some((&mut begin).await.map_err(|_| AuditError::NoTicket)??),
            true => match tokio::time::timeout(PATIENCE, &mut begin).await {
                Ok(Ok(Ok(begun))) => Some(begun),
                Ok(Ok(Err(error))) => self.lost(&told.0, &told.1, &chain(&error)),
                Ok(Err(_)) => self.lost(&told.0, &told.1, "a fault in the program"),
                Err(_) => {
                    is_late = true;
                    self.lost(&told.0, &told.1, "the disk does not answer")
                }
            },
        };
        let done = make.await;
        let (outcome, why) = match &done {
            Ok(_) => (AuditOutcome::Done, String::new()),
            Err((error, outcome)) => (*outcome, error.to_string()),
        };
        match begun {
            Some(begun) => {
                let end = tokio::task::spawn_blocking(move || begun.end(outcome, &why, None));
                // The beginning is durable; a disk that does not answer any more holds up nobody.
                let _ended = tokio::time::timeout(PATIENCE, end).await;
            }
            None if is_late => {
                tokio::spawn(async move {
                    if let Ok(Ok(begun)) = begin.await {
                        let end = move || begun.end(outcome, &why, None);
                        let _ended = tokio::task::spawn_blocking(end).await;
                    }
                });
            }
            None => {}
        }
        Ok(done.map_err(|(error, _)| error))
    }

    /// Keeps a renewal, which changes nothing before whoever asked for it has it: it is durable when this returns. Waits for the
    /// disk.
    ///
    /// # Errors
    /// When it cannot be kept. What was made may not be given to anybody then.
    pub(crate) fn renewed(
        &self,
        object: Object,
        before: Option<&Value>,
        after: &Value,
    ) -> Result<(), AuditError> {
        let inner = self.0.as_ref().ok_or(AuditError::NoTicket)?;
        {
            let mut said = inner.said();
            if said.stage == Stage::Answered {
                return Err(AuditError::Late);
            }
            (said.object, said.stage) = (object.clone(), Stage::Begun);
        }
        let name = object.name.clone();
        let entry = inner.entry(object).with(before, Some(after)).ended(AuditOutcome::Done, "");
        inner.audit.whole(AuditLogKind::Renewals, entry)?;
        let (who, from, method) = (inner.who(), &inner.from, &inner.method);
        tracing::info!(who, from, method, name, %after, "a renewal");
        Ok(())
    }

    /// Something was made already, by the recommender itself.
    pub(crate) async fn made(&self, object: Object, after: Value) {
        let told = (object.clone(), after.to_string());
        let ticket = self.clone();
        let begun = tokio::task::spawn_blocking(move || {
            ticket.begin(object, None, Some(&after)).map(|begun| begun.done(None))
        });
        match begun.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => drop(self.lost::<()>(&told.0, &told.1, &chain(&error))),
            Err(_) => drop(self.lost::<()>(&told.0, &told.1, "a fault in the program")),
        }
    }

    /// The recommender itself does not make a change, and why: kept among attempts, and left out where there are too many.
    pub(crate) async fn refused(&self, object: Object, after: Value, why: &str) {
        let Some(inner) = self.0.clone() else { return };
        let Some(left_out) = inner.audit.admits(&inner.who()) else { return };
        let why = why.to_owned();
        let written = tokio::task::spawn_blocking(move || {
            let entry = inner.entry(object).with(None, Some(&after)).ended(AuditOutcome::Refused, &why);
            // That it cannot be written is told by the record itself.
            let _told = inner.audit.whole(AuditLogKind::Attempts, AuditEntry { left_out, ..entry });
        });
        let _written = tokio::time::timeout(PATIENCE, written).await;
    }

    /// A change is made without an entry.
    fn lost<T>(&self, object: &Object, after: &str, why: &str) -> Option<T> {
        if let Some(inner) = &self.0 {
            inner.audit.lost();
            let (who, from, method) = (inner.said().who.clone(), &inner.from, &inner.method);
            let (kind, name) = (&object.kind, &object.name);
            tracing::error!(
                who,
                from,
                method,
                kind,
                name,
                after,
                why,
                "a change is made that is not in the audit record"
            );
        }
        None
    }

    /// The request was answered: with what error, where it was one.
    pub(super) async fn answered(&self, error: Option<(AuditOutcome, String)>) {
        let Some(inner) = &self.0 else { return };
        let stage = std::mem::replace(&mut inner.said().stage, Stage::Answered);
        if stage != Stage::Open {
            return;
        }
        let (of, outcome, why) = match error {
            Some((outcome, why)) => (AuditLogKind::Attempts, outcome, why),
            None => {
                tracing::error!(method = inner.method, "a method that changes something made no entry of it");
                (AuditLogKind::Changes, AuditOutcome::Done, "what was changed is not known".to_owned())
            }
        };
        let left_out = match of {
            AuditLogKind::Changes | AuditLogKind::Renewals => Some(0),
            AuditLogKind::Attempts => inner.audit.admits(inner.said().who.as_deref().unwrap_or(&inner.host)),
        };
        let (Some(left_out), inner) = (left_out, Arc::clone(inner)) else { return };
        let written = tokio::task::spawn_blocking(move || {
            let object = inner.said().object.clone();
            let entry = AuditEntry { left_out, ..inner.entry(object).ended(outcome, &why) };
            // That it cannot be written is told by the record itself.
            let _told = inner.audit.whole(of, entry);
        });
        let _written = tokio::time::timeout(PATIENCE, written).await;
    }
}

/// One machine is one caller, also one with many addresses of IPv6.
fn host(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(four) => four.to_string(),
        IpAddr::V6(six) => {
            let [a, b, c, d, ..] = six.segments();
            format!("{a:x}:{b:x}:{c:x}:{d:x}")
        }
    }
}

/// A change that may be made now.
#[derive(Debug)]
#[must_use = "its end is told"]
pub(crate) struct Begun {
    inner: Arc<TicketState>,
    number: u64,
}

impl Begun {
    /// It was made; `after` where that was not known before.
    pub(crate) fn done(self, after: Option<&Value>) {
        self.end(AuditOutcome::Done, "", after);
    }

    /// It was not made.
    pub(crate) fn failed(self, why: &str) {
        self.end(AuditOutcome::Failed, why, None);
    }

    fn end(self, outcome: AuditOutcome, why: &str, after: Option<&Value>) {
        let Self { inner, number } = self;
        let (who, from, method) = (inner.who(), &inner.from, &inner.method);
        let Object { kind, namespace, name } = inner.said().object.clone();
        tracing::info!(
            number,
            who,
            from,
            method,
            kind,
            namespace,
            name,
            outcome = outcome.as_str(),
            why,
            "a change"
        );
        inner.audit.end(End::new(number, outcome, why, after));
    }
}
