//! The HTTP listener under everything a stranger may send it, over real sockets.
//!
//! What only concerns the grammar of a request is tested beside `framing`.

mod answering;
mod naming;
mod overload;
mod refusing;
mod rig;
mod shares;
mod slowness;
