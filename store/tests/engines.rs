//! Engines that are down, slow, full or lie: what is counted, what is tried again, what is given up.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use evenkeel_model::key::ContainerKey;
use evenkeel_model::rollup::Aggregate;
use evenkeel_store::config::{EngineKind, EngineSection, HeaderValue, SecretFrom, Size, Span};
use evenkeel_store::engines::worker::{self, Queue};
use evenkeel_store::engines::{EngineCounters, open};
use evenkeel_store::history::exchange::{Batch, Coverage, EngineError, MinuteOf};
use evenkeel_store::key::Subject;

/// Longer than anything here takes on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a false engine answers a request with: path and body in, bytes of the answer out.
type Script = Box<dyn FnMut(&str, &[u8]) -> Reply + Send>;

enum Reply {
    /// A whole answer.
    Says(u16, &'static str, String),
    /// An answer without end.
    Endless,
    /// Nothing at all, until the client goes.
    Silence,
    /// A length that is never reached.
    Breaks,
}

/// A false engine; what it was asked, heads and all, for tests to look at.
struct Fake {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    fn start(mut script: impl FnMut(&str, &[u8]) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        // It ends with the process.
        thread::spawn(move || {
            let mut script: Script = Box::new(move |path, body| script(path, body));
            for stream in listener.incoming() {
                // A client that goes is part of the game.
                let _gone = serve(stream.unwrap(), &mut script, &seen);
            }
        });
        Self { url, asked }
    }

    fn section(&self, kind: EngineKind) -> EngineSection {
        EngineSection::new(kind, self.url.clone())
    }
}

/// One request on one connection.
fn serve(stream: TcpStream, script: &mut Script, seen: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    seen.lock().unwrap().push(head);
    let mut out = stream;
    match script(&path, &body) {
        Reply::Says(status, headers, text) => {
            let length = text.len();
            let end = if headers.is_empty() { "" } else { "\r\n" };
            write!(
                out,
                "HTTP/1.1 {status} X\r\nConnection: close\r\n{headers}{end}Content-Length: {length}\r\n\r\n{text}"
            )
        }
        Reply::Endless => {
            write!(out, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{{\"status\":\"success\",\"x\":\"")?;
            loop {
                out.write_all(&[b'x'; 4096])?;
            }
        }
        Reply::Silence => {
            let mut rest = Vec::new();
            reader.read_to_end(&mut rest).map(drop)
        }
        Reply::Breaks => write!(out, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 500\r\n\r\n{{"),
    }
}

fn says(status: u16, text: &str) -> Reply {
    Reply::Says(status, "", text.to_owned())
}

fn minutes(count: u32) -> Batch {
    let one = Aggregate { count: 1, sum: 5, min: 5, max: 5 };
    let minute = |minute| MinuteOf {
        subject: Subject::Own(ContainerKey::new("c", "n", "w", "main")),
        replica: "w-1".into(),
        image: None,
        tag: None,
        minute,
        weight_ms: 60_000,
        cpu_micro: one,
        memory_bytes: one,
        starved_ms: 0,
        oom_kills: 0,
    };
    Batch { minutes: (1000..1000 + count).map(minute).collect(), ..Batch::default() }
}

fn write(section: &EngineSection, batch: &Batch) -> (Result<(), EngineError>, Arc<EngineCounters>) {
    let counters = Arc::new(EngineCounters::default());
    let done = open(section, &counters).unwrap().write(batch);
    (done, counters)
}

fn read(section: &EngineSection) -> (Result<Coverage, EngineError>, Arc<EngineCounters>) {
    let counters = Arc::new(EngineCounters::default());
    let done = open(section, &counters).unwrap().read(0, 1440, &mut |_| {});
    (done, counters)
}

fn count(counter: &std::sync::atomic::AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

const KINDS: [EngineKind; 2] = [EngineKind::Prometheus, EngineKind::Influxdb];

#[test]
fn an_engine_that_is_down_or_breaks_off_is_tried_again() {
    for kind in KINDS {
        let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let section = EngineSection::new(kind, format!("http://{nobody}"));
        let (done, counters) = write(&section, &minutes(3));
        assert!(done.unwrap_err().is_transient());
        assert_eq!((count(&counters.unavailable), count(&counters.written)), (1, 0));
        let fake = Fake::start(|_, _| Reply::Breaks);
        assert!(read(&fake.section(kind)).0.unwrap_err().is_transient());
    }
}

#[test]
fn an_engine_that_never_answers_is_left_after_the_time_out() {
    for kind in KINDS {
        let fake = Fake::start(|_, _| Reply::Silence);
        let section = EngineSection { timeout: Span::from_millis(200), ..fake.section(kind) };
        let (done, counters) = write(&section, &minutes(3));
        let error = done.unwrap_err();
        assert!(error.is_transient() && error.to_string().contains("slow"), "{error}");
        assert_eq!(count(&counters.unavailable), 1);
    }
}

#[test]
fn statuses_say_whether_to_try_again() {
    let table = [
        (429, true),
        (503, true),
        (500, true),
        (502, true),
        (408, true),
        (400, false),
        (422, false),
        (413, false),
        (401, true),
        (404, true),
        (302, true),
    ];
    for kind in KINDS {
        for (status, transient) in table {
            let fake = Fake::start(move |_, _| says(status, "because"));
            let (done, _) = write(&fake.section(kind), &minutes(1));
            let error = done.unwrap_err();
            assert_eq!(error.is_transient(), transient, "{kind:?} {status}: {error}");
            assert!(error.to_string().contains("because"), "{error}");
        }
    }
    // Prometheus says this with a status that means something else.
    let fake = Fake::start(|_, _| says(500, "too old sample"));
    assert!(!write(&fake.section(EngineKind::Prometheus), &minutes(4)).0.unwrap_err().is_transient());
}

#[test]
fn an_engine_that_asks_for_peace_is_not_asked_again_before() {
    let fake = Fake::start(|_, _| Reply::Says(429, "Retry-After: 3600", String::new()));
    let mut engine = open(&fake.section(EngineKind::Prometheus), &Arc::default()).unwrap();
    for _ in 0..3 {
        assert!(engine.write(&minutes(1)).unwrap_err().is_transient());
    }
    assert_eq!(fake.asked.lock().unwrap().len(), 1);
}

#[test]
fn one_bad_value_costs_itself_alone() {
    for kind in KINDS {
        let bad = 1000u64 * 60;
        let fake = Fake::start(move |_, body| {
            let text = match kind {
                EngineKind::Influxdb => String::from_utf8(body.to_vec()).unwrap(),
                EngineKind::Prometheus => {
                    let plain = snap::raw::Decoder::new().decompress_vec(body).unwrap();
                    // Times are variable-length numbers: the bad one's bytes are looked for.
                    let whole = (0..1000).any(|slot| {
                        let mut time = Vec::new();
                        prost::encoding::encode_varint((bad * 1000) + slot, &mut time);
                        plain.windows(time.len() + 1).any(|w| w[0] == 0x10 && w[1..] == time)
                    });
                    if whole { format!(" {bad}000") } else { String::new() }
                }
            };
            // Of all minutes the first has a time that begins like this.
            if text.contains(&format!(" {bad}")) { says(400, "bad one") } else { says(204, "") }
        });
        let (done, counters) = write(&fake.section(kind), &minutes(50));
        assert!(!done.unwrap_err().is_transient());
        assert_eq!((count(&counters.written), count(&counters.refused)), (49, 1), "{kind:?}");
    }
}

#[test]
fn a_request_that_is_too_large_is_cut() {
    for kind in KINDS {
        let fake = Fake::start(|_, body| if body.len() > 700 { says(413, "") } else { says(204, "") });
        let (done, counters) = write(&fake.section(kind), &minutes(20));
        done.unwrap();
        assert_eq!((count(&counters.written), count(&counters.refused)), (20, 0));
        assert!(count(&counters.refusals) > 0);
    }
}

#[test]
fn everything_refused_ends_after_a_bounded_number_of_requests() {
    for kind in KINDS {
        let fake = Fake::start(|_, _| says(400, "no"));
        let (done, counters) = write(&fake.section(kind), &minutes(1500));
        assert!(!done.unwrap_err().is_transient());
        assert_eq!((count(&counters.written), count(&counters.refused)), (0, 1500));
        assert!(fake.asked.lock().unwrap().len() < 150);
    }
}

#[test]
fn what_influxdb_dropped_of_a_request_is_counted_and_not_sent_again() {
    let fake = Fake::start(|_, _| {
        says(400, r#"{"error":"partial write: points beyond retention policy dropped=7"}"#)
    });
    let (done, counters) = write(&fake.section(EngineKind::Influxdb), &minutes(50));
    assert!(!done.unwrap_err().is_transient());
    assert_eq!((count(&counters.written), count(&counters.refused)), (43, 7));
    assert_eq!(fake.asked.lock().unwrap().len(), 1);
}

#[test]
fn an_answer_without_end_is_cut_off() {
    for kind in KINDS {
        let fake = Fake::start(|_, _| Reply::Endless);
        let section = EngineSection { max_answer: Size::from_bytes(64 << 10), ..fake.section(kind) };
        let (done, counters) = read(&section);
        assert!(!done.unwrap_err().is_transient());
        assert_eq!(count(&counters.malformed), 1);
        assert!(fake.asked.lock().unwrap().len() < 50);
    }
}

#[test]
fn nonsense_is_tried_again_and_is_not_an_empty_history() {
    for kind in KINDS {
        for text in ["", "<html>busy</html>", "[]", "{\"status\":\"success\"", "null"] {
            let fake = Fake::start(move |_, _| says(200, text));
            let (done, _) = read(&fake.section(kind));
            assert!(done.unwrap_err().is_transient(), "{kind:?} {text}");
        }
    }
}

#[test]
fn base_path_headers_and_logins_are_sent_and_redirects_are_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, "sesame\n").unwrap();
    let fake = Fake::start(|_, _| says(204, ""));
    let mut section = fake.section(EngineKind::Prometheus);
    section.url.push_str("/tenant/7/");
    section.headers.insert("X-Scope-OrgID".into(), HeaderValue::Text("north".into()));
    section.token = Some(SecretFrom::File(file.clone()));
    write(&section, &minutes(1)).0.unwrap();
    section.token = None;
    (section.user, section.password) = (Some("keel".into()), Some(SecretFrom::File(file.clone())));
    section.write_url = Some(format!("{}/api/v1/push", fake.url));
    write(&section, &minutes(1)).0.unwrap();
    let asked = fake.asked.lock().unwrap().clone();
    let first = asked[0].to_lowercase();
    assert!(first.starts_with("post /tenant/7/api/v1/write http/1.1"), "{first}");
    for wanted in ["x-scope-orgid: north", "authorization: bearer sesame", "content-encoding: snappy"] {
        assert!(first.contains(wanted), "{first}");
    }
    assert!(asked[1].starts_with("POST /api/v1/push "), "{}", asked[1]);
    assert!(asked[1].contains("Basic a2VlbDpzZXNhbWU="), "{}", asked[1]);

    let other = Fake::start(|_, _| says(204, ""));
    let to: &'static str = Box::leak(format!("Location: {}/api/v1/write", other.url).into_boxed_str());
    let fake = Fake::start(move |_, _| Reply::Says(307, to, String::new()));
    let section =
        EngineSection { token: Some(SecretFrom::File(file)), ..fake.section(EngineKind::Prometheus) };
    let error = write(&section, &minutes(1)).0.unwrap_err().to_string();
    assert!(error.contains("307") && !error.contains("sesame"), "{error}");
    assert!(other.asked.lock().unwrap().is_empty(), "nobody else gets the token");
}

#[test]
fn a_queue_that_is_full_drops_the_oldest_and_counts_it() {
    let counters = Arc::new(EngineCounters::default());
    let queue = Queue::new(100, Arc::clone(&counters));
    for _ in 0..15 {
        queue.push(minutes(10));
    }
    queue.push(Batch::default());
    assert_eq!((count(&counters.waiting), count(&counters.dropped)), (100, 50));
    // Larger than a piece, and so not dropped as a whole.
    let queue = Queue::new(5000, Arc::clone(&counters));
    queue.push(minutes(6000));
    assert_eq!((count(&counters.waiting), count(&counters.dropped)), (4000, 2050));
}

#[test]
fn a_writer_tries_again_until_the_engine_takes_it_and_ends_when_told() {
    let mut left = 1;
    let fake = Fake::start(move |_, _| {
        left -= 1;
        if left >= 0 { says(503, "") } else { says(204, "") }
    });
    let counters = Arc::new(EngineCounters::default());
    let queue = Arc::new(Queue::new(1000, Arc::clone(&counters)));
    let engine = open(&fake.section(EngineKind::Prometheus), &counters).unwrap();
    let writer = worker::write(engine, Arc::clone(&queue)).unwrap();
    queue.push(minutes(10));
    let deadline = Instant::now() + PATIENCE;
    while count(&counters.written) < 10 {
        assert!(Instant::now() < deadline);
        thread::sleep(Duration::from_millis(5));
    }
    queue.stop();
    writer.join().unwrap();
    assert_eq!((count(&counters.unavailable), count(&counters.dropped)), (1, 0));
}

#[test]
fn a_reader_goes_on_after_a_failure_and_tells_the_coverage() {
    let mut failed = false;
    let fake = Fake::start(move |_, body| {
        let minutes = String::from_utf8_lossy(body).contains("minute");
        if minutes && !std::mem::replace(&mut failed, true) {
            return says(503, "");
        }
        says(200, r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#)
    });
    let counters = Arc::new(EngineCounters::default());
    let queue = Arc::new(Queue::new(1000, Arc::clone(&counters)));
    let engine = open(&fake.section(EngineKind::Prometheus), &counters).unwrap();
    let told = Arc::new(Mutex::new(None));
    let done = Arc::clone(&told);
    let reader = worker::read(
        engine,
        queue,
        (0, 1440),
        |_| {},
        move |coverage| {
            *done.lock().unwrap() = Some(coverage);
        },
    );
    reader.unwrap().join().unwrap();
    assert_eq!(*told.lock().unwrap(), Some(Coverage::default()));
    assert_eq!(count(&counters.unavailable), 1);
}
