//! The central service: answers what containers use and should request, from what its store keeps of what agents measure.
//!
//! Owned here: the gRPC side of ingest (`ingest`), how much work goes on at once (`turns`), the policies ([`policy`]), what is
//! allocated (`allocated`), the answers made of the state ([`recommend`] and `capacity`), what nodes are told (`acting`), the
//! interfaces ([`api`]), the pages (`dashboard`), the configuration ([`config`]), who asks and what they may ([`identity`]), the certificate authority of
//! those without another ([`authority`]), the record of changes (`audit`), where it listens (`listen`), a Kubernetes cluster
//! that is followed (`followed`), objects of it that ask for recommendations (`objects`), Events of its pods (`events`), pods of it that are changed (`updater`), whether this one leads (`leading`), reading the configuration again (`reload`). Not owned: what is kept and how it becomes durable (`evenkeel_store`), the rules (`evenkeel_rightsizing`,
//! `evenkeel_capacity`), the wire format and its codec (`evenkeel_proto`).

// Casts that may lose something; workspace lints cannot leave out tests.
#![cfg_attr(
    not(test),
    warn(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)
)]

pub(crate) mod acting;
mod allocated;
pub mod api;
mod audit;
pub mod authority;
pub(crate) mod capacity;
pub mod cli;
pub mod config;
mod dashboard;
pub(crate) mod events;
pub(crate) mod followed;
pub(crate) mod gates;
pub mod identity;
mod ingest;
mod leading;
mod listen;
pub(crate) mod objects;
pub mod policy;
pub mod recommend;
pub(crate) mod registration;
mod reload;
pub mod serve;
pub(crate) mod starts;
mod turns;
pub(crate) mod updater;
pub mod webhook;
