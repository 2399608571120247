//! Figures a test measured, shown whether it passes or not. Owns their way past the harness' capture and out of guests.

use std::io::Write;

const MARK: &str = "figure: ";

/// Shows a line of figures.
pub fn show(text: &str) {
    // The harness captures what print macros write, not what is written to the stream itself.
    if writeln!(std::io::stderr(), "{MARK}{text}").is_err() {
        println!("{MARK}{text}");
    }
}

/// Shows the figures and the duration of each case in a guest's output, with the test's name before them.
pub fn forward(test: &str, output: &str) {
    for line in output.lines() {
        // The harness may be in the middle of a line of its own.
        let figure = line.split_once(MARK).map(|(_, figure)| figure);
        if let Some(figure) = figure.or_else(|| line.strip_prefix("case ")) {
            show(&format!("{test}: {figure}"));
        }
    }
}
