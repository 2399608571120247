//! Owns what `--log-level` means: a level, or levels by target.

use tracing_subscriber::filter::{LevelFilter, Targets};

/// The filter that `text` asks for: a level such as `info`, levels of single targets, or both, as in
/// `info,evenkeel_enforce=debug`. No expressions over spans and fields, which would cost each program a regular expression
/// engine.
///
/// # Errors
/// Says which word is no level and what one is.
pub fn targets(text: &str) -> Result<Targets, String> {
    // A word alone would be a target of which everything is logged, and nothing else: a misspelt level, to people.
    let is_level = |word: &&str| word.contains('=') || word.parse::<LevelFilter>().is_ok();
    if let Some(word) = text.split(',').map(str::trim).find(|word| !is_level(word)) {
        return Err(format!(
            "{word:?} is no level; give off, error, warn, info, debug or trace, or levels by target such as \
             info,evenkeel_enforce=debug"
        ));
    }
    text.parse().map_err(|error| format!("{error}; a target's level is written as evenkeel_enforce=debug"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn levels_and_targets_are_read_and_misspelt_ones_are_named() {
        let of =
            |text: &str| targets(text).map(|targets| targets.default_level().unwrap_or(LevelFilter::OFF));
        assert_eq!(of("info"), Ok(LevelFilter::INFO));
        assert_eq!(of("WARN"), Ok(LevelFilter::WARN));
        assert_eq!(of("warn, evenkeel_enforce=debug"), Ok(LevelFilter::WARN));
        let both = targets("warn,evenkeel_enforce=debug").expect("both are given");
        assert!(both.would_enable("evenkeel_enforce::oom", &Level::DEBUG));
        assert!(!both.would_enable("evenkeel_agent", &Level::INFO));
        for (wrong, told) in [("infoo", "\"infoo\" is no level"), ("a=loud", "a target's level")] {
            let error = targets(wrong).expect_err(wrong);
            assert!(error.contains(told), "{error}");
        }
    }
}
