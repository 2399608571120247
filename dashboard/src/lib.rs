//! The pages of the dashboard: facts in, HTML out.
//!
//! Pure: no file, clock, environment, randomness, thread or log; the present is an argument. Whoever serves the pages gathers the
//! facts ([`facts`]), decides who may see them, and sends [`assets`] and [`HEADERS`] with them. Every text is
//! escaped by the template engine, and [`frame::page`] takes control characters and bidi overrides out of the whole page, so that no
//! name of others does anything in a browser. No page has an inline script or style, and none names another host.

// Casts that may lose something; workspace lints cannot leave out tests.
#![cfg_attr(
    not(test),
    warn(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)
)]

pub mod amount;
pub mod assets;
pub mod chart;
pub mod facts;
pub mod frame;
pub mod page;
mod parts;
pub mod time;
pub mod url;

pub use maud::Markup;

/// What a browser may load for a page: what its own host serves, and nothing inline.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Headers of every page, by name in small letters: what it may load, who may hold it, what is told of it.
pub const HEADERS: [(&str, &str); 6] = [
    ("content-security-policy", CONTENT_SECURITY_POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    // With no-referrer, forms would be sent with the origin "null", which a door refuses.
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
];
