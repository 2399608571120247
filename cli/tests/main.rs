//! Integration tests of `evenkeel`: one program, so that one is linked.

#![allow(missing_docs, unreachable_pub, dead_code, clippy::unwrap_used, clippy::panic)]

mod answers;
#[path = "common/kube.rs"]
mod api_server;
#[path = "../../kubernetes/tests/apiserver/mod.rs"]
mod apiserver;
mod common;

mod backtest;
mod capacity;
mod extenders;
mod offline;
mod online;
mod replay;
mod snapshot;
mod top_screen;
mod uninstall;
