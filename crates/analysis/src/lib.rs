//! Will it meet its deadlines, and is its data flow sound? Pure: integers, checked arithmetic, no I/O, no other
//! crate of this house.

pub mod graph;
