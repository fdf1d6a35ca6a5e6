//! wip
pub struct Caller;
