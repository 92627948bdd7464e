//! Code for x86-64: hooks, thunks, displaced prologues, and the files they come in.

pub mod cfi;
pub mod count;
pub mod described;
pub mod displace;
pub mod flow;
pub mod frame_pointer;
pub mod framed;
pub mod glance;
pub mod hot;
pub mod image;
pub mod imports;
pub mod judge;
pub mod loads;
pub mod marks;
pub mod observed;
pub mod pool;
pub mod scan;
pub mod sections;
pub mod special;
pub mod thunk;
pub mod work;
