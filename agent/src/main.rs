//! `evenkeel-agent`: see the library.

fn main() -> std::process::ExitCode {
    evenkeel_agent::main()
}
