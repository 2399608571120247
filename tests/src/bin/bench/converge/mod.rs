//! How soon a wrong score is right, and whether it stays so.

pub(crate) mod apart;
pub(crate) mod churn;
pub(crate) mod new_process;
mod verify;
