//! The border between the processes of the agent: what may be said there, in which form, and how much of it.
//!
//! Owned here: the format ([`coded`]), its messages ([`ask`], [`order`], [`told`]), packets and channels over one inherited socket
//! ([`packet`], [`link`], [`socket`]). Not owned: who the processes are, and what they make of a message.
//!
//! Whoever is on the other side of a border may have been taken over. A side takes a packet, a message, a text and a list up to a bound
//! that stands beside it, keeps no more of all that waits than [`link::Bounds`] says, and ends the link at the first thing that the other
//! side cannot have meant: nothing is guessed. Protobuf, HTTP and TLS end before the border; a message of a recommender crosses it as
//! the fields of this format.

// Casts that may lose something; workspace lints cannot leave out tests.
#![cfg_attr(
    not(test),
    warn(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)
)]

pub mod ask;
pub mod coded;
pub mod found;
pub mod link;
pub mod order;
pub mod packet;
pub mod socket;
pub mod told;
