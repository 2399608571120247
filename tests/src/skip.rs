//! Skipping: what a test does on a machine that cannot run it. Owns the macro [`require!`](crate::require).
//!
//! A silent skip is a test nobody runs, so a skip is written past the harness' capture, and where `CI` is set it is a
//! failure: the machine that guards the branch must be able to run everything.

use std::io::Write;

/// What a test returns when it is skipped: nothing, or success.
pub trait Skipped {
    /// The value that ends the test.
    fn skipped() -> Self;
}

impl Skipped for () {
    fn skipped() -> Self {}
}

impl<E> Skipped for Result<(), E> {
    fn skipped() -> Self {
        Ok(())
    }
}

/// Reports that `test` is skipped because `why`.
///
/// # Panics
///
/// Panics where `CI` is set to anything but `0` or `false`.
#[allow(clippy::panic, reason = "failing the test is the purpose")]
pub fn report(test: &str, why: &str) {
    let ci = std::env::var("CI").is_ok_and(|value| !matches!(value.as_str(), "" | "0" | "false"));
    if ci {
        panic!("{test} cannot run on this machine and must in CI: {why}");
    }
    // The harness captures what print macros write, not what is written to the stream itself.
    if writeln!(std::io::stderr(), "SKIPPED {test}: {why}").is_err() {
        println!("SKIPPED {test}: {why}");
    }
}

/// Ends the test unless the condition holds: loudly, and as a failure where `CI` is set.
#[macro_export]
macro_rules! require {
    ($condition:expr, $why:expr) => {
        if !$condition {
            $crate::skip::report(&format!("{} ({}:{})", module_path!(), file!(), line!()), &$why.to_string());
            return $crate::skip::Skipped::skipped();
        }
    };
}
