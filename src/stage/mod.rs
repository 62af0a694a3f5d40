//! The stages, one file each, in flow order.

pub mod transform;
