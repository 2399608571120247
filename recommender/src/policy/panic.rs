//! Owns the one switch that stops every change, as far as it is set elsewhere than by a call: the flag (`panic`), the
//! file (`panic_file`) and a ConfigMap (`panic_map`). They set the switch of the state, which is what everything looks at.
//!
//! A switch set by flag or file freezes, and goes off with it: its reason says which of them holds it. One set by a call
//! stays until a call takes it back. While flag or file hold it, a call can have requests given back, and cannot switch it off.

use std::path::Path;

use evenkeel_model::panic::{Panic, reason};
use evenkeel_store::state::PanicSwitch;
use serde_json::json;

use crate::audit::{AuditedChange, Object};

const BY_FLAG: &str = "the configuration says panic = true";
const BY_FILE: &str = "there is a file ";
/// A ConfigMap says it (`panic_map`).
pub(super) const BY_MAP: &str = "a ConfigMap says so: ";

/// Who holds the switch against calls: the reason to set, while somebody does.
pub fn held(flag: bool, file: &Path) -> Option<String> {
    if flag {
        return Some(BY_FLAG.to_owned());
    }
    // Only a file that is surely not there lets go: one that cannot be looked at may have been put there to stop us.
    match file.symlink_metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => None,
        _ if file.as_os_str().is_empty() => None,
        _ => Some(reason(format!("{BY_FILE}{}", file.display()))),
    }
}

/// What the switch has to become: on with a reason, or off; nothing where it is right.
pub fn wanted(now: &PanicSwitch, held: Option<String>) -> Option<(bool, String)> {
    let ours = now.reason == BY_FLAG || [BY_FILE, BY_MAP].iter().any(|by| now.reason.starts_with(by));
    match held {
        Some(reason) if !now.on || (ours && now.reason != reason) => Some((true, reason)),
        None if now.on && ours => Some((false, "flag, file or ConfigMap are gone".to_owned())),
        _ => None,
    }
}

/// The switch, as the audit record names it.
pub(crate) fn object() -> Object {
    Object::of_all("PanicSwitch", "panic")
}

/// Setting the switch, as the audit record has it: before and after.
pub(crate) fn change(before: &PanicSwitch, switch: Panic, reason: &str) -> AuditedChange {
    let shown =
        |on: bool, revert: bool, reason: &str| json!({ "on": on, "revert": revert, "reason": reason });
    let after = shown(switch.is_on(), switch == Panic::Revert, reason);
    let before = shown(before.on, before.on && before.revert, &before.reason);
    AuditedChange { object: object(), before, after }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch(on: bool, reason: &str) -> PanicSwitch {
        PanicSwitch { on, revert: false, reason: reason.to_owned(), since_usec: 0 }
    }

    #[test]
    fn flag_and_file_set_the_switch_and_take_back_only_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("panic");
        assert_eq!(held(false, &file), None);
        assert_eq!(held(false, Path::new("")), None);
        assert_eq!(held(true, &file).as_deref(), Some(BY_FLAG));
        std::fs::write(&file, "").unwrap();
        let by_file = held(false, &file).unwrap();
        assert!(by_file.ends_with("/panic"), "{by_file}");
        let table = [
            (switch(false, ""), None, None),
            (switch(false, ""), Some(by_file.clone()), Some(true)),
            (switch(true, &by_file), Some(by_file.clone()), None),
            (switch(true, &by_file), None, Some(false)),
            (switch(true, BY_FLAG), None, Some(false)),
            (switch(true, &format!("{BY_MAP}evenkeel/panic: true")), None, Some(false)),
            (switch(true, BY_FLAG), Some(by_file.clone()), Some(true)),
            (switch(true, "drill"), None, None),
            (switch(true, "drill"), Some(by_file), None),
        ];
        for (now, held, want) in table {
            let got = wanted(&now, held.clone()).map(|(on, _)| on);
            assert_eq!(got, want, "{now:?} {held:?}");
        }
    }
}
