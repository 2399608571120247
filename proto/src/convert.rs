//! Wire <-> model.
