//! Suite `host`: the agent beside a scripted container runtime that is slow, fails, lies and is hostile.

#[path = "cases/runtime_source.rs"]
mod source;

#[path = "cases/engine_source.rs"]
mod engine;
