//! A lean client of the Kubernetes API: as much of it as saving a cluster needs.
//!
//! Owned here: finding the server and the right to ask it ([`config`], [`credentials`]), asking page by page
//! ([`client`]). Not owned: which kinds are asked for and what is kept of them (the commands).

pub(crate) mod client;
pub(crate) mod config;
pub(crate) mod credentials;
mod impersonation;
mod server_name;
