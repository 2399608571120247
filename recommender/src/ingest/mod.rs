//! Owns the gRPC side of ingest: one task per connection, and how much of each is read in a minute. What becomes of the
//! frames is the store's.

mod pods;
mod quota;
pub(crate) mod service;
