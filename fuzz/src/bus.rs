//! What the system bus answers.

use evenkeel_enforce::systemd::bus::wire::{Argument, Call, MOST_BYTES, read, size};

/// What is read is whole, and no larger than it may be.
pub(crate) fn answer(bytes: &[u8]) {
    if let Ok(message) = read(bytes) {
        assert!(
            bytes.len() <= MOST_BYTES
                && bytes.first_chunk().is_some_and(|head| size(head) == Ok(bytes.len()))
        );
        assert!(message.text.is_none_or(|text| text.len() < bytes.len()));
    }
}

pub(crate) fn some() -> Vec<Vec<u8>> {
    let call = Call {
        destination: "org.freedesktop.systemd1",
        path: "/org/freedesktop/systemd1",
        interface: "org.freedesktop.systemd1.Manager",
        member: "LoadUnit",
        body: &[Argument::Text("db.service")],
    };
    let mut answer = call.bytes(3);
    // As an answer begins, which says what it answers.
    if let Some(kind) = answer.get_mut(1) {
        *kind = 2;
    }
    let head = [b'l', 2, 1, 1, 13, 0, 0, 0, 1, 0, 0, 0, 15, 0, 0, 0];
    let fields = [&b"\x05\x01u\0\x07\0\0\0\x08\x01g\0\x01s\0"[..], &[0]].concat();
    let text = [&8_u32.to_le_bytes()[..], b"inactive\0"].concat();
    vec![call.bytes(7), answer, [&head[..], &fields, &text].concat()]
}
