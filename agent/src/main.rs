//! `evenkeel-agent`: see the library.

// Casts that may lose something; workspace lints cannot leave out tests.
#![cfg_attr(
    not(test),
    warn(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)
)]

fn main() -> std::process::ExitCode {
    evenkeel_agent::main()
}
