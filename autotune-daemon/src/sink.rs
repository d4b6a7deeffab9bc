//! Where findings go.

pub mod growth_log;
pub mod metrics;
