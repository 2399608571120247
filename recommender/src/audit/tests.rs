//! Tests of the record: what is kept, what is bounded, and what happens where it cannot be kept.

use std::path::Path;
use std::sync::Arc;

use axum::http::Extensions;
use evenkeel_store::clock::WallClock;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use serde_json::json;

use super::entry::{AuditEntry, AuditOutcome, End, Object};
use super::read::{AuditFilter, Page};
use super::record::{Audit, AuditError, AuditLogKind};
use super::{AuditedChange, Ticket, inbox};
use crate::identity::table::{METHODS, ROUTES};

const MAX: u64 = 8 << 20;

fn audit(dir: &Path) -> Arc<Audit> {
    Audit::open(dir, MAX, WallClock::system())
}

fn entry(who: &str, namespace: &str, name: &str) -> AuditEntry {
    AuditEntry::new(who, "here", "test", Object::new("Policy", namespace, name))
}

fn all(audit: &Audit) -> Vec<AuditEntry> {
    page(audit, &AuditFilter { limit: 1000, ..AuditFilter::default() }).entries
}

fn page(audit: &Audit, filter: &AuditFilter) -> Page {
    audit.list(filter, || true).unwrap()
}

#[test]
fn a_change_is_kept_with_its_end_over_restarts_and_its_number_is_never_given_again() {
    let dir = tempfile::tempdir().unwrap();
    let record = audit(dir.path());
    let ticket = Ticket::own(&record, "here", "test");
    let object = || Object::new("Policy", "shop", "web");
    let (before, after) = (json!({ "a": 1 }), json!({ "a": 2 }));
    ticket.begin(object(), Some(&before), Some(&after)).unwrap().done(None);
    ticket.begin(object(), Some(&after), None).unwrap().failed("the disk is full");
    let _never_ended = ticket.begin(object(), Some(&after), None).unwrap();
    let check = |record: &Audit| {
        let found = all(record);
        let told: Vec<_> = found
            .iter()
            .map(|e| (e.number, e.outcome, e.reason.as_str(), e.before.is_some(), e.after.is_some()))
            .collect();
        let want = [
            (3, AuditOutcome::Unknown, "", true, false),
            (2, AuditOutcome::Failed, "the disk is full", true, false),
            (1, AuditOutcome::Done, "", true, true),
        ];
        assert_eq!(told, want);
        assert_eq!(found[2].before.as_ref().unwrap().text, r#"{"a":1}"#);
        assert_eq!((found[2].who.as_str(), found[2].from.as_str()), ("recommender", "here"));
    };
    check(&record);
    drop((record, ticket, _never_ended));
    let record = audit(dir.path());
    check(&record);
    record.whole(AuditLogKind::Attempts, entry("x", "", "").ended(AuditOutcome::Refused, "no role")).unwrap();
    assert_eq!(all(&record)[0].number, 4);
}

#[test]
fn entries_are_bounded_and_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let record = audit(dir.path());
    let long = "\u{1}".repeat(100_000);
    let object = json!({ "text": &long });
    let ticket = Ticket::own(&record, &long, &long);
    let about = Object::new(&long, &long, &long);
    ticket.begin(about, Some(&object), Some(&object)).unwrap().failed(&long);
    let found = &all(&record)[0];
    let before = found.before.as_ref().unwrap();
    assert_eq!((before.text.len(), before.bytes), (16 << 10, 600_011));
    assert!(found.bytes() < 40_000 && found.from.len() == 512 && found.reason.len() == 1024);
}

#[test]
fn filters_and_pages_give_each_entry_once() {
    let dir = tempfile::tempdir().unwrap();
    let record = audit(dir.path());
    for n in 0..25 {
        let (who, namespace) = match n % 2 {
            0 => ("user anna (1000)", "shop"),
            _ => ("token anna-2", "other"),
        };
        let of = if n % 5 == 0 { AuditLogKind::Attempts } else { AuditLogKind::Changes };
        let outcome = if n % 5 == 0 { AuditOutcome::Refused } else { AuditOutcome::Done };
        record.whole(of, entry(who, namespace, &n.to_string()).ended(outcome, "")).unwrap();
    }
    let usual = || AuditFilter { limit: 1000, ..AuditFilter::default() };
    let count = |filter: AuditFilter| page(&record, &filter).entries.len();
    let time = all(&record)[10].time_usec;
    for (filter, want) in [
        (usual(), 25),
        (AuditFilter { who: "anna".into(), ..usual() }, 13),
        (AuditFilter { who: "1000".into(), ..usual() }, 13),
        (AuditFilter { who: "token anna-2".into(), ..usual() }, 12),
        (AuditFilter { who: "ann".into(), ..usual() }, 0),
        (AuditFilter { namespace: "shop".into(), ..usual() }, 13),
        (AuditFilter { namespace: "shop".into(), outcome: Some(AuditOutcome::Refused), ..usual() }, 3),
        (AuditFilter { kind: "Policy".into(), name: "7".into(), ..usual() }, 1),
        (AuditFilter { kind: "Node".into(), ..usual() }, 0),
        (AuditFilter { until_usec: 1, ..usual() }, 0),
        (AuditFilter { since_usec: time, ..usual() }, 11),
        (AuditFilter { until_usec: time, ..usual() }, 14),
    ] {
        assert_eq!(count(filter.clone()), want, "{filter:?}");
    }
    let (mut found, mut before) = (Vec::new(), None);
    loop {
        let Page { entries, next, .. } =
            page(&record, &AuditFilter { limit: 7, before, ..AuditFilter::default() });
        assert!(entries.len() <= 7);
        found.extend(entries.into_iter().map(|e| e.number));
        match next {
            Some(next) => before = Some(next),
            None => break,
        }
    }
    assert_eq!(found, (1..=25).rev().collect::<Vec<_>>());
}

#[test]
fn attempts_drop_no_change_and_both_stay_in_their_room() {
    let dir = tempfile::tempdir().unwrap();
    /// Three megabytes.
    const ATTEMPTS: u64 = 700;
    let record = audit(dir.path());
    record.whole(AuditLogKind::Changes, entry("x", "shop", "first").ended(AuditOutcome::Done, "")).unwrap();
    let long = "y".repeat(1024);
    for _ in 0..ATTEMPTS {
        record
            .whole(
                AuditLogKind::Attempts,
                AuditEntry::new(&long, &long, &long, Object::new(&long, &long, &long))
                    .ended(AuditOutcome::Refused, &long),
            )
            .unwrap();
    }
    let first = page(&record, &AuditFilter { name: "first".into(), limit: 1, ..AuditFilter::default() });
    assert_eq!(first.entries.len(), 1);
    let size = |folder: &str| -> u64 {
        let files = std::fs::read_dir(dir.path().join(folder)).unwrap();
        files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
    };
    assert!(size("attempts") <= MAX / 4 + 4096 && size("attempts") > MAX / 8, "{}", size("attempts"));
    drop(record);
    assert_eq!(all(&audit(dir.path()))[0].number, ATTEMPTS + 1);
}

#[test]
fn what_cannot_be_recorded_is_told_and_refused_until_it_can() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("audit");
    // In its way: nobody can make a directory here.
    std::fs::write(&dir, "").unwrap();
    let record = audit(&dir);
    let ticket = Ticket::own(&record, "here", "test");
    let begin = || ticket.begin(Object::of_all("Node", "c/n"), None, None);
    let error = begin().unwrap_err();
    assert!(error.told().contains("not made without"), "{}", error.told());
    assert!(record.failing().is_some_and(|why| why.contains("changes cannot be recorded")));
    assert!(record.list(&AuditFilter::default(), || true).is_err());
    std::fs::remove_file(&dir).unwrap();
    begin().unwrap().done(None);
    record.look();
    assert_eq!((record.trouble(), all(&record).len()), (None, 1));
    // Deleted while it is in use.
    std::fs::remove_dir_all(&dir).unwrap();
    assert!(begin().is_err());
    begin().unwrap().done(None);
    assert_eq!(all(&record)[0].outcome, AuditOutcome::Done);
}

#[tokio::test]
async fn a_change_that_must_be_is_made_without_an_entry_and_another_is_not() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("audit");
    std::fs::write(&dir, "").unwrap();
    let record = audit(&dir);
    let ticket = Ticket::own(&record, "here", "test");
    let change = || AuditedChange {
        object: Object::of_all("PanicSwitch", "panic"),
        before: json!(false),
        after: json!(true),
    };
    let made = async { Ok::<_, (String, AuditOutcome)>(7) };
    assert_eq!(ticket.around_async(change(), true, made).await.unwrap(), Ok(7));
    let made = async { panic!("it may not be made") };
    let refused = ticket.around_async::<(), String>(change(), false, made).await;
    assert!(matches!(refused, Err(AuditError::Directory(_))));
    assert_eq!(record.counts().words()[4], ("lost", 1));
}

#[tokio::test]
async fn a_request_has_one_entry_and_none_where_nothing_changes() {
    let dir = tempfile::tempdir().unwrap();
    let record = audit(dir.path());
    let ticket = || Ticket::new(&record, None, "Method".to_owned());
    let refused = || Some((AuditOutcome::Refused, "no role".to_owned()));
    let object = || Object::of_all("Node", "c/n");
    let begun = ticket();
    begun.begin(object(), None, None).unwrap().done(None);
    begun.answered(None).await;
    begun.answered(refused()).await;
    let quiet = ticket();
    quiet.quiet();
    quiet.answered(None).await;
    let attempt = ticket();
    attempt.about(object());
    attempt.named("token anna".to_owned());
    attempt.answered(refused()).await;
    assert!(matches!(attempt.begin(object(), None, None), Err(AuditError::Late)));
    let forgotten = ticket();
    forgotten.answered(None).await;
    assert!(matches!(Ticket::of(&Extensions::new()).begin(object(), None, None), Err(AuditError::NoTicket)));
    let told: Vec<_> =
        all(&record).into_iter().map(|e| (e.who, e.object.name, e.outcome, e.reason)).collect();
    let want = |who: &str, name: &str, outcome, why: &str| {
        (who.to_owned(), name.to_owned(), outcome, why.to_owned())
    };
    assert_eq!(
        told,
        [
            want("nobody", "", AuditOutcome::Done, "what was changed is not known"),
            want("token anna", "c/n", AuditOutcome::Refused, "no role"),
            want("nobody", "c/n", AuditOutcome::Done, ""),
        ]
    );
    for _ in 0..1000 {
        ticket().answered(refused()).await;
    }
    let found = all(&record);
    assert_eq!(found.len(), 13, "ten attempts of one caller in a minute");
    assert_eq!(record.counts().words()[3], ("left_out", 990));
}

#[test]
fn what_commands_leave_is_taken_once() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let leave = |name: &str, fails: bool| {
        let object = Object::of_all("Token", name);
        let change = || if fails { anyhow::bail!("the disk is full") } else { Ok(()) };
        inbox::offline(&state, "token add", object, None, change, |()| Some(json!({ "roles": ["view"] })))
    };
    leave("early", false).unwrap();
    assert!(!state.exists(), "where no recommender has run nothing is made");
    std::fs::create_dir(&state).unwrap();
    leave("anna", false).unwrap();
    assert!(leave("bert", true).is_err());
    let folder = state.join("audit");
    let files = || std::fs::read_dir(folder.join("inbox")).unwrap().map(|f| f.unwrap().path());
    let kept: Vec<_> = files().map(|file| (file.clone(), std::fs::read(file).unwrap())).collect();
    assert_eq!(kept.len(), 2);
    let record = audit(&folder);
    let told = |record: &Audit| -> Vec<_> {
        all(record).into_iter().map(|e| (e.object.name, e.outcome, e.after.is_some())).collect()
    };
    let want =
        [("bert".to_owned(), AuditOutcome::Failed, false), ("anna".to_owned(), AuditOutcome::Done, true)];
    assert_eq!((told(&record), files().count()), (want.to_vec(), 0));
    // As a recommender that was killed before it could delete them leaves them.
    kept.iter().for_each(|(file, bytes)| std::fs::write(file, bytes).unwrap());
    drop(record);
    let record = audit(&folder);
    assert_eq!((told(&record), files().count()), (want.to_vec(), 0));
    std::fs::write(folder.join("inbox/x.json"), "no entry").unwrap();
    record.look();
    assert_eq!((told(&record).len(), files().count()), (2, 1));
    // What cannot be read now is told, stays, and keeps nothing behind it.
    std::fs::create_dir(folder.join("inbox/0.json")).unwrap();
    leave("carl", false).unwrap();
    record.look();
    assert_eq!((told(&record).len(), files().count()), (3, 2));
    let trouble = record.trouble().unwrap();
    assert!(trouble.contains("0.json") && trouble.contains("directory"), "{trouble}");
    std::fs::remove_dir(folder.join("inbox/0.json")).unwrap();
    record.look();
    assert_eq!(record.trouble(), None);
    // Nobody can leave anything here: the command does nothing.
    std::fs::remove_dir_all(folder.join("inbox")).unwrap();
    std::fs::write(folder.join("inbox"), "").unwrap();
    let refused = inbox::offline(
        &state,
        "token add",
        Object::of_all("Token", "c"),
        None,
        || -> anyhow::Result<()> { panic!("it may not be made") },
        |()| None,
    );
    assert!(refused.unwrap_err().to_string().contains("nothing was changed"));
}

#[test]
fn a_part_that_is_damaged_is_said_and_the_rest_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let record = audit(dir.path());
    for name in ["a", "b", "c"] {
        record.whole(AuditLogKind::Changes, entry("x", "shop", name).ended(AuditOutcome::Done, "")).unwrap();
    }
    record.end(End::new(77, AuditOutcome::Done, "", None));
    drop(record);
    let segment = dir.path().join("changes/00000000000000000001.seg");
    let mut bytes = std::fs::read(&segment).unwrap();
    let at = bytes.windows(10).position(|w| w == b"\"name\":\"c\"").unwrap();
    bytes[at] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let record = audit(dir.path());
    assert!(record.trouble().is_some_and(|why| why.contains("not recovered")), "{:?}", record.trouble());
    assert_eq!((record.failing(), all(&record).len()), (None, 2));
}

/// Methods and routes that change something: `recommender/tests/audit.rs` calls each and looks for its entry. One that is
/// added belongs there, too.
#[test]
fn every_method_that_changes_something_is_recorded() {
    let methods: Vec<&str> =
        METHODS.iter().map(|(path, _)| *path).filter(|path| super::layer::is_recorded(path)).collect();
    assert_eq!(
        methods,
        [
            "/evenkeel.v1.RecommenderService/SetPanic",
            "/evenkeel.v1.PolicyService/Apply",
            "/evenkeel.v1.PolicyService/Delete",
            "/evenkeel.v1.EnrollService/Sign",
            "/evenkeel.v1.EnrollService/Renew",
            "/evenkeel.v1.EnrollService/CreateToken",
            "/evenkeel.v1.EnrollService/Revoke",
        ]
    );
    let routes: Vec<_> = ROUTES
        .iter()
        .filter(|(.., need)| need.changes())
        .map(|(method, route, _)| (*method, *route))
        .collect();
    assert_eq!(
        routes,
        [
            ("POST", "/api/v1/policies"),
            ("PUT", "/api/v1/policies/{namespace}/{name}"),
            ("DELETE", "/api/v1/policies/{namespace}/{name}"),
        ]
    );
}

/// A small tmpfs at a directory, seen by this thread alone and gone when it ends.
fn mount_small(at: &Path, bytes: usize) -> nix::Result<()> {
    let (none, flags) = (None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE);
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(none, "/", none, flags, none)?;
    let size = format!("size={bytes},mode=700");
    mount(Some("tmpfs"), at, Some("tmpfs"), MsFlags::empty(), Some(size.as_str()))
}

#[test]
fn a_full_disk_refuses_changes_until_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    if let Err(error) = mount_small(dir.path(), 1 << 20) {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "cannot mount: {error}");
        eprintln!("skipped: cannot mount a small tmpfs: {error}");
        return;
    }
    let record = audit(&dir.path().join("audit"));
    std::fs::write(dir.path().join("ballast"), vec![0; 512 << 10]).unwrap();
    let ticket = Ticket::own(&record, "here", "test");
    let object = json!({ "text": "x".repeat(10_000) });
    let begin = || ticket.begin(Object::new("Policy", "shop", "web"), Some(&object), Some(&object));
    let mut made = 0;
    let error = loop {
        match begin() {
            Ok(begun) => begun.done(None),
            Err(error) => break error,
        }
        made += 1;
    };
    assert!(made > 5 && error.told().contains("no space left"), "{made}: {}", error.told());
    assert!(record.failing().is_some() && begin().is_err());
    std::fs::remove_file(dir.path().join("ballast")).unwrap();
    record.look();
    assert_eq!(record.failing(), None);
    begin().unwrap().done(None);
    let found = all(&record);
    let done = found.iter().filter(|e| e.outcome == AuditOutcome::Done).count();
    let failed: Vec<_> = found.iter().filter(|e| e.outcome == AuditOutcome::Failed).collect();
    // One whose end had no room is not known to have been made until there was room.
    assert_eq!(done, made + 1, "{failed:?}");
    // Of those refused, as many as had come as far as the log's memory when the last page was full.
    assert!(failed.len() <= 2, "{failed:?}");
    assert!(failed.iter().all(|e| e.reason.contains("cannot be recorded")));
}
