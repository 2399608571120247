//! Placeholder, replaced within the first commit.
