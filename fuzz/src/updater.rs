//! What is noted on pods, where whoever may write to the pod may have written it.

use evenkeel_updater::{Note, Stage};

/// A note that is read is written as one that is read as the same.
pub(crate) fn note(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Some(note) = Note::read(text) else { return };
    assert_eq!(Note::read(&note.text()).as_ref(), Some(&note));
    let failed = note.at_stage(Stage::GivenUp, u64::MAX, "no room");
    assert!(failed.tries >= note.tries);
    let _ = (note.holds(), failed.holds());
}

pub(crate) fn notes() -> Vec<Vec<u8>> {
    crate::owned(&[
        r#"{"stage":"Asked","canary":true,"at":1700000000,"tries":4294967295,"original":{"main":{"cpu":"100m/1","memory":"64Mi/-"}},
        "before":{"main":{"cpu":"100m/1","memory":"64Mi/-"}},"target":{"main":{"cpu":"250m/2500m","memory":"-/-"}},"why":"more"}"#,
    ])
}
