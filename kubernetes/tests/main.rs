//! Integration tests of `evenkeel-kubernetes` against a server of its API: one program, so that one is linked.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

mod apiserver;

mod lease;
mod objects;
mod replays;
mod updates;
mod watch;
