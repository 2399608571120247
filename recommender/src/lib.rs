//! The central service: keeps what agents measure, and answers what containers use and should request.
//!
//! Owned here: ingest and what makes it durable ([`ingest`]), the state and its history ([`state`]), checkpoints
//! ([`checkpoint`]), the wall clock ([`clock`]), the past as rules see it and its exchange with other engines ([`history`]), such engines
//! ([`engines`]), the pace of work in the background (`pace`), how much of it goes on at once (`turns`), the policies ([`policy`]), what is allocated (`allocated`), the answers made of the state ([`recommend`] and `capacity`), the interfaces
//! ([`api`]), the configuration
//! ([`config`]), who asks and what they may ([`identity`]), the certificate authority of those without another ([`authority`]), the record of changes (`audit`), where it listens (`listen`), reading the
//! configuration again (`reload`). Not owned: the rules (`evenkeel_rightsizing`, `evenkeel_capacity`), the wire format and its codec
//! (`evenkeel_proto`), the log's files (`evenkeel_log`).

pub(crate) mod acting;
mod allocated;
pub mod api;
mod audit;
pub mod authority;
pub(crate) mod capacity;
pub mod checkpoint;
pub mod cli;
pub mod clock;
pub mod config;
pub mod engines;
pub mod history;
pub mod identity;
pub mod ingest;
pub mod key;
mod listen;
mod pace;
pub mod policy;
pub mod recommend;
mod reload;
pub mod serve;
pub mod state;
mod turns;
