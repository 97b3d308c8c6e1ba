//! What a node says of itself: collectors, the clock they are read by, and the ways in which others
//! get to know.
//!
//! A collector is one file: it reads one source below a root that is a setting, and says what its
//! metrics are. [`node`] reads them all, [`service`] does so on the clock, `web` answers those who ask,
//! `remote_write` tells those who do not.

pub mod cgroup;
pub mod cpu;
pub mod cpuset;
pub mod doctor;
pub mod exposition;
pub mod kernel;
pub mod load;
pub mod memory;
pub mod node;
pub mod own;
pub mod owner;
pub mod pressure;
#[cfg(feature = "serve")]
pub mod remote_write;
pub mod ring;
pub mod sampler;
pub mod service;
#[cfg(feature = "serve")]
pub mod web;

/// The node's own name.
pub fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
