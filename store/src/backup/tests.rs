//! What a check says of each kind of damage, and that a backup refuses and restores what it should.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::{BackupError, Level, back_up, check, is_half_restored, restore};
use crate::config::{Settings, Size};
use crate::ingest::store::{Store, StoreError};

const NOW: u64 = 1_700_000_000_000_000;

/// A store with a checkpoint and records behind it, and files of a recommender beside it.
fn store(dir: &Path) -> Settings {
    let mut config = Settings::at(dir);
    config.log.segment_bytes = Size::from_bytes(1 << 16);
    let (mut store, _) = Store::open(&config).unwrap();
    let hello = |node: &str| evenkeel_proto::v1::Hello {
        cluster: "c".into(),
        node: node.into(),
        epoch: 1,
        version: "x".repeat(3000),
        ..Default::default()
    };
    for number in 0..10 {
        store.hello(NOW, &hello(&format!("n{number}"))).unwrap();
    }
    store.sync().unwrap();
    store.checkpoint().unwrap();
    for number in 10..100 {
        store.hello(NOW, &hello(&format!("n{number}"))).unwrap();
    }
    store.sync().unwrap();
    drop(store);
    fs::create_dir(dir.join("authority")).unwrap();
    fs::write(dir.join("authority/ca.key"), "secret").unwrap();
    let mut log =
        evenkeel_log::Log::open(dir.join("audit/changes"), evenkeel_log::Options::default()).unwrap().0;
    log.append(b"who").unwrap();
    log.sync().unwrap();
    config
}

fn nodes(config: &Settings) -> usize {
    let (store, report) = Store::open(config).unwrap();
    assert_eq!((report.log_damage.len(), report.checkpoint_damage), (0, None));
    store.state().read().nodes.len()
}

fn flip(path: &Path, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(dir.join("log")).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<PathBuf> = names.filter(|path| path.extension().is_some_and(|e| e == "seg")).collect();
    all.sort();
    all
}

#[test]
fn a_backup_restores_to_the_same_store() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to, again) = (dir.path().join("a"), dir.path().join("b"), dir.path().join("c"));
    let config = store(&from);
    assert_eq!(check(&from).unwrap().findings, []);
    let report = back_up(&from, &to, NOW).unwrap();
    assert_eq!((report.findings, report.last_record), (vec![], Some(100)));
    let report = restore(&to, &again, false).unwrap();
    assert_eq!((report.findings, report.checkpoint_record), (vec![], 10));
    assert!(!again.join("backup").exists() && !is_half_restored(&again).unwrap());
    assert_eq!(fs::read(again.join("authority/ca.key")).unwrap(), b"secret");
    assert_eq!(nodes(&Settings { state_dir: again.clone(), ..config }), 100);
    let (log, _) =
        evenkeel_log::Log::open(again.join("audit/changes"), evenkeel_log::Options::default()).unwrap();
    assert_eq!(log.last().map(evenkeel_log::Seq::get), Some(1));
    drop(log);
    for taken in [restore(&to, &again, false), back_up(&from, &to, NOW)] {
        assert!(matches!(taken, Err(BackupError::NotEmpty { .. })), "{taken:?}");
    }
    let no_backup = restore(&from, &dir.path().join("d"), false);
    assert!(matches!(no_backup, Err(BackupError::NotABackup { .. })), "{no_backup:?}");
    let nothing = check(&dir.path().join("d"));
    assert!(nothing.is_err());
    fs::create_dir(dir.path().join("d")).unwrap();
    assert!(matches!(check(&dir.path().join("d")), Err(BackupError::NoStore { .. })));
}

#[test]
fn a_damaged_backup_is_refused_and_half_of_one_is_not_opened() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to, again) = (dir.path().join("a"), dir.path().join("b"), dir.path().join("c"));
    let config = store(&from);
    back_up(&from, &to, NOW).unwrap();
    flip(&to.join("authority/ca.key"), 0);
    let refused = restore(&to, &again, false).unwrap_err();
    assert!(refused.to_string().contains("ca.key") && refused.to_string().contains("--damaged"), "{refused}");
    assert!(!again.exists());
    let report = restore(&to, &again, true).unwrap();
    assert!(!report.is_whole());
    // As if it had been cut off.
    fs::write(again.join("restoring"), "0 0\n").unwrap();
    let half = Store::open(&Settings { state_dir: again.clone(), ..config.clone() });
    assert!(matches!(half, Err(StoreError::HalfRestored(_))), "{half:?}");
    restore(&to, &again, true).unwrap();
    assert_eq!(nodes(&Settings { state_dir: again, ..config }), 100);
    fs::remove_file(to.join("backup")).unwrap();
    assert!(matches!(restore(&to, &dir.path().join("d"), true), Err(BackupError::NotABackup { .. })));
}

#[test]
fn a_list_that_names_files_elsewhere_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let backup = dir.path().join("b");
    fs::create_dir(&backup).unwrap();
    for path in ["../x", "/etc/x", "log/../../x", ""] {
        let text = format!(
            r#"{{"version":1,"takenUsec":1,"release":"x","files":[{{"path":"{path}","bytes":1,"crc32c":1}}]}}"#
        );
        fs::write(backup.join("backup"), evenkeel_log::sealed::file(text.as_bytes())).unwrap();
        let refused = restore(&backup, &dir.path().join("c"), true);
        assert!(matches!(refused, Err(BackupError::NotABackup { .. })), "{path}: {refused:?}");
    }
}

/// Each damage, and where it is found.
#[test]
fn a_check_says_what_is_damaged_and_where() {
    type Harm = fn(&Path) -> PathBuf;
    let cases: [(&str, Level, Harm, Option<u64>); 6] = [
        (
            "does not match its checksum",
            Level::Damage,
            |dir| {
                flip(&dir.join("checkpoint"), 40);
                dir.join("checkpoint")
            },
            None,
        ),
        (
            "does not match its checksum",
            Level::Damage,
            |dir| {
                flip(&segments(dir)[1], 100);
                segments(dir)[1].clone()
            },
            Some(32),
        ),
        (
            "are missing before it",
            Level::Damage,
            |dir| {
                fs::remove_file(&segments(dir)[1]).unwrap();
                segments(dir)[1].clone()
            },
            Some(0),
        ),
        (
            "the file ends inside a record",
            Level::Note,
            |dir| {
                let last = segments(dir).pop().unwrap();
                let file = OpenOptions::new().write(true).open(&last).unwrap();
                file.set_len(file.metadata().unwrap().len() - 1).unwrap();
                last
            },
            None,
        ),
        (
            "does not match its checksum",
            Level::Damage,
            |dir| {
                let log = dir.join("audit/changes/00000000000000000001.seg");
                flip(&log, 50);
                log
            },
            Some(32),
        ),
        (
            "neither in the checkpoint nor in the log",
            Level::Damage,
            |dir| {
                fs::remove_file(dir.join("checkpoint")).unwrap();
                fs::remove_file(&segments(dir)[0]).unwrap();
                fs::remove_file(dir.join("log/head")).unwrap();
                dir.join("log")
            },
            None,
        ),
    ];
    for (what, level, harm, offset) in cases {
        let dir = tempfile::tempdir().unwrap();
        store(dir.path());
        let path = harm(dir.path());
        let report = check(dir.path()).unwrap();
        let found = report.findings.iter().find(|f| f.path == path && f.what.contains(what));
        let found = found.unwrap_or_else(|| panic!("{what}: {report:?}"));
        assert_eq!(found.level, level, "{what}");
        assert!(offset.is_none() || found.offset == offset, "{found:?}");
        // What is damaged is told of the backup, too, and what is whole is in it.
        let inside = back_up(dir.path(), &dir.path().join("copy"), NOW);
        assert!(matches!(inside, Err(BackupError::Inside { .. })), "{inside:?}");
        let to = tempfile::tempdir().unwrap();
        let taken = back_up(dir.path(), to.path(), NOW).unwrap();
        assert_eq!(taken.is_whole(), level == Level::Note, "{what}: {taken:?}");
    }
}
