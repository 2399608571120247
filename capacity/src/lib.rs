//! How many more pods fit: cluster snapshot and pod in; count, places and reasons out. Pure.
//!
//! So far this crate holds the answer's types and the one filter every pod meets, `NodeResourcesFit` of the
//! kube-scheduler, in closed form. Other filters and scores are not applied and the answer says so in
//! [`fit::Answer::filters`].

pub mod fit;
