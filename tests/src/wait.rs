//! Waiting for a state, with a deadline that is an error. Owns the only pauses of the fixtures.
//!
//! The pause between two looks is short and its length means nothing to any test: a slow machine looks more often.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How long a fixture waits for something that takes well under a second on an idle machine.
///
/// Generous on purpose: it is only ever used up by a failure.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// First and longest pause between two looks: what takes long is not made longer by being asked about all the time.
const PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(50));

/// Looks until `look` returns a value or `within` has passed.
///
/// # Errors
///
/// Fails when the time is up, naming `what`; and at once when `look` fails.
pub fn until<T>(what: &str, within: Duration, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + within;
    let mut pause = PAUSE.0;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if Instant::now() >= deadline {
            bail!("waited {within:?} for {what} in vain");
        }
        thread::sleep(pause);
        pause = (pause * 2).min(PAUSE.1);
    }
}

/// Looks until `look` is true or [`PATIENCE`] has passed.
///
/// # Errors
///
/// Fails when the time is up, naming `what`.
pub fn until_true(what: &str, mut look: impl FnMut() -> bool) -> Result<()> {
    until(what, PATIENCE, || Ok(look().then_some(())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_what_was_awaited() {
        let error = until::<()>("the tide", Duration::ZERO, || Ok(None)).unwrap_err();
        assert!(error.to_string().contains("the tide"), "{error}");
    }

    #[test]
    fn a_value_ends_the_wait() {
        let mut looks = 0;
        let found = until("three looks", PATIENCE, || {
            looks += 1;
            Ok((looks == 3).then_some(looks))
        });
        assert_eq!(found.unwrap(), 3);
    }
}
