//! The terminal of a live table: redrawing without flicker, and the keys that end it.
//!
//! Whatever is changed is put back when the values are dropped.

use std::io::{IsTerminal, Read, stdin, stdout};

use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use terminal_size::{Height, Width, terminal_size_of};
use tokio::sync::mpsc;

use crate::failure::Failure;
use crate::output::print;

/// Shows the alternate screen, without the cursor.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l";
/// Back to where we were.
const LEAVE: &str = "\u{1b}[?25h\u{1b}[?1049l";
/// To the upper left corner.
const HOME: &str = "\u{1b}[H";
/// Clears the rest of the line, or of the screen.
const CLEAR_LINE: &str = "\u{1b}[K";
const CLEAR_BELOW: &str = "\u{1b}[J";

/// The screen while a live table is on it.
pub(crate) struct Screen;

impl Screen {
    /// Takes the screen.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn enter() -> Result<Self, Failure> {
        print(ENTER)?;
        Ok(Self)
    }

    /// Shows text in place of what was there. Rows below the screen's end are cut.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn show(&self, text: &str) -> Result<(), Failure> {
        let (rows, columns) = size();
        let lines: Vec<String> = text.lines().take(rows).map(|l| cut(l, columns)).collect();
        print(&format!("{HOME}{}{CLEAR_LINE}{CLEAR_BELOW}", lines.join(&format!("{CLEAR_LINE}\n"))))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nobody is left to tell when the terminal is gone.
        let _ = print(LEAVE);
    }
}

/// Rows and columns; 24 and 80 where the terminal does not tell.
fn size() -> (usize, usize) {
    let told = terminal_size_of(stdout());
    told.map_or((24, 80), |(Width(columns), Height(rows))| (usize::from(rows), usize::from(columns)))
}

/// The first `columns` characters that show; colour sequences take no room and are kept whole.
fn cut(line: &str, columns: usize) -> String {
    let mut out = String::new();
    let (mut shown, mut in_sequence) = (0, false);
    for c in line.chars() {
        if c == '\u{1b}' {
            in_sequence = true;
        }
        if in_sequence || shown < columns {
            out.push(c);
        }
        if in_sequence {
            in_sequence = !c.is_ascii_alphabetic();
        } else {
            shown += 1;
        }
    }
    out
}

/// Keys, without waiting for a whole line.
pub(crate) struct Keys {
    quit: mpsc::Receiver<()>,
    /// Keeps the channel open where nobody listens to keys.
    _open: mpsc::Sender<()>,
    before: Option<Termios>,
}

impl Keys {
    /// Listens to the terminal on standard input, if there is one.
    pub(crate) fn listen() -> Self {
        let (open, quit) = mpsc::channel(1);
        let mut before = None;
        if stdin().is_terminal() {
            before = single_keys();
            let tell = open.clone();
            // Ends with the program: a read of a terminal cannot be cut short.
            std::thread::spawn(move || {
                let mut key = [0_u8];
                while matches!(stdin().lock().read(&mut key), Ok(1)) {
                    if matches!(key[0], b'q' | b'Q') {
                        break;
                    }
                }
                // The receiver is gone when the table has ended already.
                let _ = tell.try_send(());
            });
        }
        Self { quit, _open: open, before }
    }

    /// Waits for q or Ctrl-C.
    pub(crate) async fn quit(&mut self) {
        tokio::select! {
            _ = self.quit.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // The terminal may be gone.
            let _ = tcsetattr(stdin(), SetArg::TCSANOW, before);
        }
    }
}

/// Turns line editing and echo off; answers what was set before.
fn single_keys() -> Option<Termios> {
    let before = tcgetattr(stdin()).ok()?;
    let mut single = before.clone();
    single.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO);
    tcsetattr(stdin(), SetArg::TCSANOW, &single).ok()?;
    Some(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_by_what_shows() {
        assert_eq!(cut("abcdef", 3), "abc");
        assert_eq!(cut("\u{1b}[31mabcdef\u{1b}[0m", 3), "\u{1b}[31mabc\u{1b}[0m");
        assert_eq!(cut("ab", 3), "ab");
        assert_eq!(cut("äöü", 2), "äö");
    }
}
