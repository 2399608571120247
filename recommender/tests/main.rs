//! Integration tests of `evenkeel-recommender`: one program, so that one is linked.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

mod common;

mod allocated;
mod audit;
mod backup;
mod bad_input;
mod capacity;
mod dashboard;
mod definition;
mod events;
mod frozen;
mod gates;
mod kills;
mod kubelet_kills;
mod kubernetes_view;
mod kubernetes_workloads;
mod node_pods;
mod objects;
mod openapi;
mod own_objects;
mod pair;
mod policies;
mod rights;
mod same_pods;
mod series;
mod serve;
mod starting;
mod updater;
mod updater_bad_input;
mod webhook;
mod webhook_objects;
mod webhook_pods;
mod wrong_clock;
