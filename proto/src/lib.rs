//! The `evenkeel.v1` wire format: generated code, the columnar frame codec, and the conversion wire <-> model.
//!
//! Owned here: the `.proto` files, [`v1`] (generated from them), [`frame`] (samples to and from bytes),
//! [`convert`], [`bounded`] (what a message may unfold to), [`bearer`] (the token of a caller), [`mod@line`] (what an address needs),
//! [`pods`] (a node's pods as they are told). Not owned: connections, storage, any rule.

// Casts that may lose something; workspace lints cannot leave out tests.
#![cfg_attr(
    not(test),
    warn(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)
)]

pub mod bearer;
pub mod bounded;
pub mod convert;
pub mod frame;
pub mod line;
pub mod pods;

/// Code generated from `proto/evenkeel/v1/*.proto`; the comments there are its documentation.
pub mod v1 {
    #![allow(
        missing_docs,
        unreachable_pub,
        unused_qualifications,
        clippy::all,
        clippy::unwrap_used,
        clippy::wildcard_imports,
        clippy::semicolon_if_nothing_returned
    )]
    tonic::include_proto!("evenkeel.v1");
}

/// The encoded `FileDescriptorSet` of all services, for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/evenkeel.v1.fds"));

pub use tonic;
