//! The calls against a bus of the test's own: one that answers, one that refuses, lies, falls silent or is none.

use std::os::unix::net::UnixListener;
use std::thread::{JoinHandle, spawn};

use super::wire::tests::message;
use super::*;

/// What a bus does with a connection after the greeting.
type Script = Box<dyn FnOnce(&mut UnixStream) -> io::Result<()> + Send>;

struct Fake {
    dir: tempfile::TempDir,
    serving: JoinHandle<()>,
}

impl Fake {
    fn new(greeting: &'static [u8], script: Script) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("bus")).unwrap();
        let serving = spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let said = line(&mut stream);
            assert!(said.starts_with("\0AUTH EXTERNAL 3"), "{said}");
            stream.write_all(greeting).unwrap();
            // The test may have had enough of it.
            let _ = script(&mut stream);
        });
        Self { dir, serving }
    }

    fn connect(&self, patience: Duration) -> Result<Manager, BusError> {
        Manager::connect_to(&self.dir.path().join("bus"), patience)
    }
}

fn line(stream: &mut UnixStream) -> String {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while !line.ends_with(b"\r\n") && stream.read(&mut byte).unwrap() == 1 {
        line.extend(byte);
    }
    String::from_utf8(line).unwrap()
}

/// Says nothing until the other end has had enough of it.
fn silence(stream: &mut UnixStream) -> io::Result<()> {
    io::copy(stream, &mut io::sink()).map(drop)
}

/// The next call's bytes.
fn called(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut fixed = [0; wire::FIXED];
    stream.read_exact(&mut fixed)?;
    let mut bytes = fixed.to_vec();
    bytes.resize(wire::size(&fixed).unwrap(), 0);
    stream.read_exact(&mut bytes[wire::FIXED..])?;
    Ok(bytes)
}

fn holds(call: &[u8], text: &str) -> bool {
    call.windows(text.len()).any(|window| window == text.as_bytes())
}

fn serial(call: &[u8]) -> u32 {
    u32::from_le_bytes(*call[8..].first_chunk().unwrap())
}

fn text(text: &str) -> Vec<u8> {
    [&u32::try_from(text.len()).unwrap().to_le_bytes()[..], text.as_bytes(), b"\0"].concat()
}

fn variant(of: &str) -> Vec<u8> {
    [&b"\x01s\0\0"[..], &text(of)].concat()
}

/// Answers the greeting and the question for the version.
fn begun(stream: &mut UnixStream) -> io::Result<()> {
    assert_eq!(line(stream), "BEGIN\r\n");
    let hello = called(stream)?;
    assert!(holds(&hello, "Hello"));
    // As a bus does: the answer, and that we have a name now.
    stream.write_all(&message(2, &[(8, "g", "s")], Some(serial(&hello)), &text(":1.7")))?;
    stream.write_all(&message(
        4,
        &[(1, "o", "/"), (3, "s", "NameAcquired"), (8, "g", "s")],
        None,
        &text(":1.7"),
    ))?;
    let version = called(stream)?;
    assert!(holds(&version, "Version"));
    stream.write_all(&message(2, &[(8, "g", "v")], Some(serial(&version)), &variant("252.39-1~deb12u1")))
}

#[test]
fn a_unit_is_asked_about_set_and_stopped() {
    let fake = Fake::new(
        b"OK 0123\r\n",
        Box::new(|stream| {
            begun(stream)?;
            let set = called(stream)?;
            assert!(holds(&set, "SetUnitProperties") && holds(&set, "db.service") && holds(&set, "sba(sv)"));
            stream.write_all(&message(2, &[], Some(serial(&set)), b""))?;
            let load = called(stream)?;
            assert!(holds(&load, "LoadUnit"));
            let object = "/org/freedesktop/systemd1/unit/db_2eservice";
            stream.write_all(&message(2, &[(8, "g", "o")], Some(serial(&load)), &text(object)))?;
            let state = called(stream)?;
            assert!(holds(&state, object) && holds(&state, "ActiveState"));
            // An answer to something else goes before.
            stream.write_all(&message(2, &[(8, "g", "v")], Some(99), &variant("failed")))?;
            stream.write_all(&message(2, &[(8, "g", "v")], Some(serial(&state)), &variant("active")))?;
            let stop = called(stream)?;
            assert!(holds(&stop, "StopUnit") && holds(&stop, "replace"));
            let refused = [(4, "s", "org.freedesktop.systemd1.NoSuchUnit"), (8, "g", "s")];
            stream.write_all(&message(3, &refused, Some(serial(&stop)), &text("Unit db.service not loaded.")))
        }),
    );
    let mut manager = fake.connect(Duration::from_secs(20)).unwrap();
    assert_eq!(manager.version, Some(252));
    let weight = Property {
        name: "CPUWeight",
        directive: "CPUWeight",
        value: crate::systemd::property::PropertyValue::Number(100),
    };
    assert_eq!(manager.set("db.service", &[weight]), Ok(()));
    assert_eq!(manager.active_state("db.service").as_deref(), Ok("active"));
    assert_eq!(manager.stop("db.service"), Err(BusError::NoUnit("Unit db.service not loaded.".into())));
    fake.serving.join().unwrap();
}

#[test]
fn a_bus_that_lies_floods_or_falls_silent_is_waited_for_no_longer_than_it_may() {
    let (short, long) = (Duration::from_millis(300), Duration::from_secs(20));
    let endless: Script = Box::new(|stream| {
        let _ = line(stream);
        loop {
            stream.write_all(&message(4, &[(1, "o", "/")], None, b""))?;
        }
    });
    let large: Script = Box::new(|stream| {
        let _ = line(stream);
        stream.write_all(&[b'l', 2, 0, 1, 255, 255, 255, 0, 1, 0, 0, 0, 0, 0, 0, 0])?;
        silence(stream)
    });
    let silent: Script = Box::new(silence);
    let drips: Script = Box::new(|stream| {
        let _ = line(stream);
        loop {
            stream.write_all(b"l")?;
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    for (greeting, script, patience, want) in [
        (&b"OK 1\r\n"[..], endless, long, "nobody asked for"),
        (b"OK 1\r\n", large, long, "larger than"),
        (b"OK 1\r\n", silent, short, "in time"),
        (b"OK 1\r\n", drips, short, "in time"),
        (b"REJECTED EXTERNAL\r\n", Box::new(|_| Ok(())), long, "does not know us"),
        (b"220 mail.example.com\r\n", Box::new(|_| Ok(())), long, "does not know us"),
        (&[b'x'; MOST_LINE + 10], Box::new(|_| Ok(())), long, "is no bus"),
        (b"", Box::new(|_| Ok(())), long, "ended"),
    ] {
        let fake = Fake::new(greeting, script);
        let began = Instant::now();
        let said = fake.connect(patience).unwrap_err();
        assert!(said.is_outage() || matches!(said, BusError::Denied(_)), "{said}");
        assert!(said.to_string().contains(want), "{want}: {said}");
        assert!(began.elapsed() < Duration::from_secs(10));
        fake.serving.join().unwrap();
    }
    let none = Manager::connect_to(Path::new("/nonexistent/bus"), short).unwrap_err();
    assert!(matches!(none, BusError::Away(_)));
}

#[test]
fn the_release_is_the_number_in_front() {
    assert_eq!(release("252.39-1~deb12u1"), Some(252));
    assert_eq!(release("v1"), None);
}
