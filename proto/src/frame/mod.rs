//! Columnar samples; written next.
