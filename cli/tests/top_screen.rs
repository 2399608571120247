//! `top` on a terminal: real keys through a pty, and what is on its screen then.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::pty::{Winsize, openpty};

/// Longer than anything here takes on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a terminal of this size shows, as far as `top` uses it: text at places, lines and the screen cleared.
struct Shown {
    cells: Vec<Vec<char>>,
    at: (usize, usize),
    /// A sequence that has begun.
    sequence: Option<String>,
    /// Everything that came, for what is no screen.
    raw: Vec<u8>,
}

impl Shown {
    fn new(rows: u16, columns: u16) -> Self {
        let cells = vec![vec![' '; usize::from(columns)]; usize::from(rows)];
        Self { cells, at: (0, 0), sequence: None, raw: Vec::new() }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.raw.extend_from_slice(bytes);
        for c in String::from_utf8_lossy(bytes).chars() {
            match (&mut self.sequence, c) {
                (None, '\u{1b}') => self.sequence = Some(String::new()),
                (None, '\r') => self.at.1 = 0,
                (None, '\n') => self.at.0 += 1,
                (None, c) if !c.is_control() => self.put(c),
                (None, _) => {}
                (Some(sequence), c) => {
                    sequence.push(c);
                    if c.is_ascii_alphabetic() {
                        let sequence = self.sequence.take().unwrap();
                        self.act(&sequence);
                    }
                }
            }
        }
    }

    fn put(&mut self, c: char) {
        let (row, column) = self.at;
        if let Some(cell) = self.cells.get_mut(row).and_then(|row| row.get_mut(column)) {
            *cell = c;
        }
        self.at.1 += 1;
    }

    fn act(&mut self, sequence: &str) {
        let Some(body) = sequence.strip_prefix('[') else { return };
        let (numbers, kind) = body.split_at(body.len() - 1);
        let number =
            |at: usize| numbers.split(';').nth(at).and_then(|n| n.parse::<usize>().ok()).unwrap_or(1);
        match kind {
            "H" => self.at = (number(0) - 1, number(1) - 1),
            "J" => self.cells.iter_mut().flatten().for_each(|cell| *cell = ' '),
            _ => {}
        }
    }

    fn text(&self) -> String {
        self.cells.iter().map(|row| row.iter().collect::<String>() + "\n").collect()
    }
}

struct Terminal {
    child: Child,
    keys: File,
    shown: Arc<Mutex<Shown>>,
    _servers: crate::answers::Servers,
}

impl Terminal {
    fn start(rows: u16, columns: u16, term: &str, more: &[&str]) -> Self {
        let servers = crate::answers::Servers::start_following();
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).unwrap();
        let end = |fd: &OwnedFd| Stdio::from(fd.try_clone().unwrap());
        // The terminal is its own: what a program asks of /dev/tty is not that of whoever runs the tests.
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(env!("CARGO_BIN_EXE_evenkeel")).arg("top").args(more).args([
            "--agent",
            &servers.agent,
            "--recommender",
            &servers.recommender,
        ]);
        command.env_clear().env("TERM", term).env("PATH", "/usr/bin:/bin");
        let child =
            command.stdin(end(&pty.slave)).stdout(end(&pty.slave)).stderr(end(&pty.slave)).spawn().unwrap();
        drop(pty.slave);
        let keys = File::from(pty.master.try_clone().unwrap());
        let shown = Arc::new(Mutex::new(Shown::new(rows, columns)));
        let (mut from, to) = (File::from(pty.master), Arc::clone(&shown));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // The end of the program is an error of its terminal.
            while let Ok(n @ 1..) = from.read(&mut bytes) {
                to.lock().unwrap().take(&bytes[..n]);
            }
        });
        Self { child, keys, shown, _servers: servers }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    fn text(&self) -> String {
        self.shown.lock().unwrap().text()
    }

    fn raw(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap().raw).into_owned()
    }

    fn until(&self, what: &str, is: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let text = self.text();
            if is(&text) {
                return text;
            }
            assert!(begun.elapsed() < PATIENCE, "never {what}:\n{text}\n{}", self.raw());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn has(&self, part: &str) -> String {
        self.until(part, |text| text.contains(part))
    }

    fn ended(mut self) -> (Option<i32>, String) {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                std::thread::sleep(Duration::from_millis(50));
                return (status.code(), self.raw());
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

#[test]
fn keys_lead_through_views_a_container_and_the_past() {
    let mut top = Terminal::start(24, 120, "xterm", &[]);
    top.has("shop/web");
    top.press("?");
    top.has("ten seconds back");
    top.press("x");
    top.until("without help", |text| !text.contains("ten seconds back"));
    top.press("3");
    top.has("pressure by cpu");
    top.press("s");
    top.has("pressure by memory");
    top.press("2");
    top.has("WORST");
    top.press("1/nobody\r");
    let text = top.has("/nobody");
    assert!(!text.contains("shop/web"), "{text}");
    top.press("\u{1b}");
    top.has("shop/web");
    top.press("/web\r\r");
    top.has("Esc back");
    top.has("oom_score_adj");
    top.press("\u{1b}");
    top.has("s sort");
    // What is kept of the past is one second here.
    top.press("[");
    top.has("it is outside of what is kept");
    top.press("q");
    let (status, raw) = top.ended();
    assert_eq!(status, Some(0));
    assert!(
        raw.contains("\u{1b}[?1049h") && raw.contains("\u{1b}[?1049l") && raw.contains("\u{1b}[?25h"),
        "put back"
    );
}

#[test]
fn a_moment_of_the_past_is_where_it_begins() {
    let mut top = Terminal::start(20, 80, "xterm", &["--at", "1970-01-01T00:01:00Z"]);
    let text = top.has("PAST");
    assert!(text.contains("shop/web"), "{text}");
    top.press("l");
    top.until("the present", |text| !text.contains("PAST"));
    // Ctrl-C is a key here.
    top.press("\u{3}");
    assert_eq!(top.ended().0, Some(0));
}

#[test]
fn forty_columns_and_a_dumb_terminal_have_what_matters() {
    let mut narrow = Terminal::start(10, 40, "xterm", &[]);
    let text = narrow.has("shop/web");
    assert!(text.contains("CPU") && text.contains("MEM%"), "{text}");
    narrow.press("?");
    narrow.has("Enter   look into it");
    narrow.press("xq");
    assert_eq!(narrow.ended().0, Some(0));
    let dumb = Terminal::start(10, 200, "dumb", &["--filter", "web"]);
    dumb.until("two seconds", |_| dumb.raw().matches("shop/web").count() >= 2);
    let raw = dumb.raw();
    assert!(!raw.contains("\u{1b}["), "no sequences: {raw:?}");
}
