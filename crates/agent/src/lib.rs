//! What a node says of itself: collectors, and the clock they are read by.

pub mod cgroup;
pub mod cpu;
pub mod cpuset;
pub mod owner;
pub mod sampler;

/// The node's own name.
pub fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
