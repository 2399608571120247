//! Calls as a bus takes them, answers as it sends them, and bytes that are neither.

use proptest::prelude::*;

use super::*;
use crate::systemd::property::PropertyValue;

#[test]
fn a_call_is_written_as_the_bus_reads_it() {
    let call = Call {
        destination: "org.freedesktop.systemd1",
        path: "/org/freedesktop/systemd1",
        interface: "org.freedesktop.systemd1.Manager",
        member: "StopUnit",
        body: &[Argument::Text("a.service"), Argument::Text("replace")],
    };
    let bytes = call.bytes(7);
    assert_eq!(bytes[..4], *b"l\x01\x00\x01");
    assert_eq!(size(bytes.first_chunk().unwrap()), Ok(bytes.len()));
    // The body: both texts after their lengths, the second one aligned.
    let body = [&9_u32.to_le_bytes()[..], b"a.service\0\0\0", &7_u32.to_le_bytes(), b"replace\0"].concat();
    assert_eq!(bytes[4..8], u32::try_from(body.len()).unwrap().to_le_bytes());
    assert_eq!(bytes[8..12], 7_u32.to_le_bytes());
    assert!(bytes.ends_with(&body));
    assert_eq!(read(&bytes), Ok(Message { kind: MessageKind::Other, text: Some("a.service".into()) }));
}

#[test]
fn properties_are_written_with_their_types() {
    let property = |name, value| Property { name, directive: name, value };
    let properties = [
        property("CPUWeight", PropertyValue::Number(100)),
        property("AllowedCPUs", PropertyValue::Bits(vec![3])),
    ];
    let mut body = BusWriter::default();
    body.argument(&Argument::Text("db.service"));
    body.argument(&Argument::Bool(true));
    body.argument(&Argument::Properties(&properties));
    let want = [
        &10_u32.to_le_bytes()[..],
        b"db.service\0\0",
        &1_u32.to_le_bytes(),
        // Bytes of the array from its first struct on.
        &57_u32.to_le_bytes(),
        &9_u32.to_le_bytes(),
        b"CPUWeight\0",
        b"\x01t\0",
        &[0; 7],
        &100_u64.to_le_bytes(),
        &11_u32.to_le_bytes(),
        b"AllowedCPUs\0",
        b"\x02ay\0",
        &1_u32.to_le_bytes(),
        &[3],
    ]
    .concat();
    assert_eq!(body.0, want, "{:?}", body.0);
}

/// A message with these fields, of whatever kind.
pub(in crate::systemd::bus) fn message(
    kind: u8,
    fields: &[(u8, &str, &str)],
    reply_to: Option<u32>,
    body: &[u8],
) -> Vec<u8> {
    let mut writer = BusWriter::default();
    writer.0.extend_from_slice(&[b'l', kind, 1, 1]);
    writer.number(u32::try_from(body.len()).unwrap());
    writer.number(9);
    writer.array(|entries| {
        for (code, signature, text) in fields {
            match *signature {
                "g" => {
                    entries.align(8);
                    entries.0.push(*code);
                    entries.signature("g");
                    entries.signature(text);
                }
                other => entries.field(*code, other, text),
            }
        }
        if let Some(serial) = reply_to {
            entries.align(8);
            entries.0.push(5);
            entries.signature("u");
            entries.number(serial);
        }
    });
    writer.align(8);
    writer.0.extend_from_slice(body);
    writer.0
}

#[test]
fn answers_refusals_and_signals_are_told_apart() {
    let text = [&8_u32.to_le_bytes()[..], b"inactive\0"].concat();
    let variant = [&b"\x01s\0\0"[..], &text].concat();
    let number = [&b"\x01t\0\0\0\0\0"[..], &7_u64.to_le_bytes()].concat();
    let from = (7, "s", ":1.3");
    for (bytes, kind, said) in [
        (message(2, &[from], Some(7), b""), MessageKind::Answer(7), None),
        (message(2, &[from, (8, "g", "o")], Some(7), &text), MessageKind::Answer(7), Some("inactive")),
        (message(2, &[(8, "g", "v")], Some(7), &variant), MessageKind::Answer(7), Some("inactive")),
        (message(2, &[(8, "g", "v")], Some(7), &number), MessageKind::Answer(7), None),
        (
            message(3, &[(4, "s", "org.x.NoSuchUnit"), (8, "g", "s")], Some(8), &text),
            MessageKind::Refusal(8, "org.x.NoSuchUnit".into()),
            Some("inactive"),
        ),
        (message(4, &[(1, "o", "/"), (8, "g", "s")], None, &text), MessageKind::Other, Some("inactive")),
    ] {
        assert_eq!(read(&bytes), Ok(Message { kind, text: said.map(str::to_owned) }));
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length]).is_err(), "cut at {length}");
        }
    }
}

#[test]
fn what_is_no_answer_is_refused() {
    for (bytes, want) in [
        (message(2, &[], None, b""), Malformed::Other),
        (message(3, &[], Some(1), b""), Malformed::Other),
        (message(9, &[], Some(1), b""), Malformed::Other),
        (message(2, &[(9, "x", "")], Some(1), b""), Malformed::Other),
        (message(2, &[(8, "g", "s")], Some(1), b""), Malformed::Short),
        (message(2, &[(8, "g", "s")], Some(1), b"\x02\0\0\0\xff\xff\0"), Malformed::Other),
        (message(2, &[(8, "g", "s")], Some(1), b"\xff\xff\xff\xff"), Malformed::Short),
        (message(2, &[], Some(1), &vec![0; MOST_BYTES]), Malformed::Long),
        ([&b"x"[..], &[0; 15]].concat(), Malformed::Other),
    ] {
        assert_eq!(read(&bytes), Err(want));
    }
    let mut claims = message(2, &[], Some(1), b"");
    claims[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(read(&claims), Err(Malformed::Long));
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), likely: bool) {
        if likely {
            for (at, byte) in (0..).zip([b'l', 2, 0, 1, 0, 0, 0, 0]) {
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
        }
        let _ = read(&bytes);
    }
}
