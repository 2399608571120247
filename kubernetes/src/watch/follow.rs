//! One kind followed: listed page by page, then watched from the version of the list; again from where a watch ended; listed anew when
//! that version is gone. What is known stays known while the API server is away.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde::Deserialize;

use super::Takes;
use super::answer::{Trouble, get};
use super::cut::{Items, Lines, member};
use super::pace::{Backoff, Pace};
use super::status::{KindStatus, WatchState};
use crate::connect::{ApiSource, client, told};
use crate::kinds::ApiKind;

/// Longest time beyond the end of a watch that nothing is heard on it.
const OVERDUE: Duration = Duration::from_secs(30);

/// What a list says of itself.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ListHead {
    pub(crate) metadata: ListMeta,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ListMeta {
    resource_version: String,
    pub(crate) r#continue: String,
}

/// What an event of a watch says of itself; the object is read as what it is.
#[derive(Debug, Deserialize)]
struct EventHead {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    object: EventObject,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct EventObject {
    metadata: ListMeta,
    /// Of a `Status`.
    message: String,
    code: u16,
}

/// One kind that is followed.
#[derive(Debug)]
pub(super) struct Follower {
    pub(super) source: ApiSource,
    pub(super) kind: &'static ApiKind,
    pub(super) takes: Arc<dyn Takes>,
    pub(super) pace: Pace,
    pub(super) status: Arc<Mutex<KindStatus>>,
}

impl Follower {
    /// Follows until it is dropped.
    pub(super) async fn run(self, mut connection: Client) {
        let mut backoff = Backoff::new(&self.pace);
        loop {
            let began = Instant::now();
            let ended = match self.list(&connection).await {
                Ok(version) => self.watch_on(&mut connection, version, &mut backoff).await,
                Err(trouble) => trouble,
            };
            let pause = self.after(&ended, &mut backoff);
            let rest = backoff.rest(began.elapsed());
            self.renewed(&ended, &mut connection).await;
            tokio::time::sleep(pause.max(rest)).await;
        }
    }

    fn status(&self) -> MutexGuard<'_, KindStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what went wrong, and says how long to wait.
    fn after(&self, trouble: &Trouble, backoff: &mut Backoff) -> Duration {
        let mut status = self.status();
        status.trouble = Some(trouble.words().to_owned());
        match trouble {
            Trouble::Gone(_) => {
                status.counts.expired += 1;
                status.state = WatchState::Listing;
                backoff.next(None)
            }
            Trouble::Later(_, after) => {
                status.counts.throttled += 1;
                status.state = WatchState::Failing;
                backoff.next(*after)
            }
            Trouble::Forbidden(_) => {
                status.counts.failures += 1;
                status.state = WatchState::Forbidden;
                backoff.longest()
            }
            Trouble::Absent(_) => {
                status.counts.failures += 1;
                status.state = WatchState::Absent;
                backoff.longest()
            }
            Trouble::Unauthorized(_) | Trouble::Wrong(_) | Trouble::Failed(_) => {
                status.counts.failures += 1;
                status.state = WatchState::Failing;
                backoff.next(None)
            }
        }
    }

    /// Reads the credentials anew where they were refused: a file may have changed, a plugin's certificate ended.
    async fn renewed(&self, trouble: &Trouble, connection: &mut Client) {
        if matches!(trouble, Trouble::Unauthorized(_))
            && let Ok(renewed) = client(&self.source, None).await
        {
            *connection = renewed;
        }
    }

    /// Lists all objects; the version that the list is of.
    async fn list(&self, connection: &Client) -> Result<String, Trouble> {
        let mark = self.takes.begin(self.kind);
        let mut next = String::new();
        loop {
            let mut path = format!("{}?limit={}", self.kind.path, self.pace.page);
            if !next.is_empty() {
                path.push_str("&continue=");
                path.push_str(&escaped(&next));
            }
            let ListMeta { resource_version, r#continue } = self.page(connection, &path, mark).await?;
            if r#continue.is_empty() {
                let objects = self.takes.end(self.kind, mark);
                let mut status = self.status();
                status.counts.lists += 1;
                (status.is_known, status.objects) = (true, objects);
                return Ok(resource_version);
            }
            next = r#continue;
        }
    }

    async fn page(&self, connection: &Client, path: &str, mark: u32) -> Result<ListMeta, Trouble> {
        let mut body = get(connection, path, self.kind.accept(true), self.pace.answer).await?;
        let mut items = Items::default();
        while let Some(bytes) = piece(&mut body, self.pace.answer).await? {
            let mut unreadable = None;
            items.push(&bytes, |item| {
                if let Err(why) = self.takes.put(self.kind, item, mark) {
                    unreadable = Some(why);
                }
            })?;
            self.noted(unreadable);
        }
        self.status().heard();
        let head: ListHead = serde_json::from_slice(&items.into_rest())
            .map_err(|error| Trouble::Failed(format!("its answer is no list: {error}")))?;
        Ok(head.metadata)
    }

    fn noted(&self, unreadable: Option<String>) {
        if let Some(why) = unreadable {
            let mut status = self.status();
            status.counts.unreadable += 1;
            status.trouble = Some(why);
        }
    }

    /// Watches from a version on, again and again, until a list is needed.
    async fn watch_on(&self, connection: &mut Client, version: String, backoff: &mut Backoff) -> Trouble {
        let mut version = version;
        loop {
            let began = Instant::now();
            let ended = self.watch(connection, &mut version).await;
            let pause = match ended {
                // It ended as it should: the pace of the least time alone.
                Ok(()) => {
                    if began.elapsed() >= self.pace.least {
                        backoff.reset();
                    }
                    Duration::ZERO
                }
                Err(gone @ Trouble::Gone(_)) => return gone,
                Err(trouble) => {
                    let pause = self.after(&trouble, backoff);
                    self.renewed(&trouble, connection).await;
                    pause
                }
            };
            tokio::time::sleep(pause.max(backoff.rest(began.elapsed()))).await;
        }
    }

    /// One watch, from a version on, which moves with what arrives.
    async fn watch(&self, connection: &Client, version: &mut String) -> Result<(), Trouble> {
        let path = format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={}&resourceVersion={}",
            self.kind.path,
            self.pace.watch.as_secs().max(1),
            escaped(version)
        );
        let mut body = get(connection, &path, self.kind.accept(false), self.pace.answer).await?;
        {
            let mut status = self.status();
            status.counts.watches += 1;
            status.state = WatchState::Watching;
            status.trouble = None;
            status.heard();
        }
        let mut lines = Lines::default();
        while let Some(bytes) = piece(&mut body, self.pace.watch + OVERDUE).await? {
            let mut trouble = None;
            lines.push(&bytes, |line| match self.event(line, version) {
                Ok(()) => true,
                Err(found) => {
                    trouble = Some(found);
                    false
                }
            })?;
            self.status().heard();
            if let Some(trouble) = trouble {
                return Err(trouble);
            }
        }
        Ok(())
    }

    /// One event.
    fn event(&self, line: &[u8], version: &mut String) -> Result<(), Trouble> {
        let head: EventHead = serde_json::from_slice(line)
            .map_err(|error| Trouble::Failed(format!("an event of the watch makes no sense: {error}")))?;
        let object = || member(line, "object").unwrap_or_default();
        let (done, is_change) = match head.kind.as_str() {
            "ADDED" | "MODIFIED" => (self.takes.put_now(self.kind, object()), true),
            "DELETED" => (self.takes.remove(self.kind, object()), true),
            "BOOKMARK" => (Ok(()), false),
            "ERROR" => return Err(Trouble::of(head.object.code, &head.object.message, None)),
            other => (Err(format!("an event of the unknown type {other:?}")), true),
        };
        self.noted(done.err());
        if !head.object.metadata.resource_version.is_empty() {
            *version = head.object.metadata.resource_version;
        }
        let mut status = self.status();
        if is_change {
            status.counts.changes += 1;
            status.objects = self.takes.count(self.kind);
        } else {
            status.counts.bookmarks += 1;
        }
        Ok(())
    }
}

/// The next bytes of an answer; nothing at its end.
pub(crate) async fn piece(body: &mut Body, patience: Duration) -> Result<Option<Bytes>, Trouble> {
    loop {
        let frame = tokio::time::timeout(patience, body.frame()).await;
        let frame = frame
            .map_err(|_| Trouble::Failed(format!("the answer stood still for {} s", patience.as_secs())))?;
        match frame {
            None => return Ok(None),
            Some(Err(error)) => return Err(Trouble::Failed(told(&error))),
            Some(Ok(frame)) => {
                if let Ok(bytes) = frame.into_data() {
                    return Ok(Some(bytes));
                }
            }
        }
    }
}

/// A value of a query: letters, digits and a few more as they are, the rest escaped (RFC 3986, section 2.1).
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
