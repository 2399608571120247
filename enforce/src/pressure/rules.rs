//! What is chosen of the loop against pressure and starvation.

use evenkeel_qos::{pressure, starvation};

/// What is done about memory that runs short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PressureRules {
    /// Whether anything is done.
    pub enabled: bool,
    /// Thresholds and steps; what the machine cannot do is still in it.
    pub rules: pressure::PressureConfig,
    /// Window of triggers, microseconds.
    pub window_usec: u64,
}

/// What is done when a container starves of CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StarvationRules {
    /// Whether anybody looks.
    pub enabled: bool,
    /// The rules.
    pub rules: starvation::StarvationConfig,
}
