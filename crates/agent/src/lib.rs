//! The node agent: collectors, the sampling clock, and exporters (HTTP and remote write).
//!
//! A collector is one file: it reads one source below a configurable root and exposes its metrics.
//! [`node`] runs all collectors, [`service`] does so on the clock, `web` serves the results, and
//! `remote_write` pushes them.

pub mod cgroup;
pub mod counts;
pub mod cpu;
pub mod cpuset;
pub mod doctor;
pub mod exposition;
#[cfg(feature = "serve")]
pub mod health;
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

/// The name of this node.
pub fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
