//! Who connects, and where to.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// What limits are counted by: a client cannot have more of these than it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    Address(IpAddr),
    /// The user at the other end of a Unix socket; absent if the kernel does not tell.
    User(Option<u32>),
}

impl Peer {
    /// A host has a whole /64 of IPv6 addresses to itself, so these count as one.
    pub fn at(address: SocketAddr) -> Self {
        Self::Address(match address.ip().to_canonical() {
            IpAddr::V6(ip) if !ip.is_loopback() => {
                let [a, b, c, d, ..] = ip.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
            ip => ip,
        })
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(IpAddr::V6(ip)) if !ip.is_loopback() => write!(f, "{ip}/64"),
            Self::Address(ip) => write!(f, "{ip}"),
            Self::User(Some(uid)) => write!(f, "uid {uid}"),
            Self::User(None) => write!(f, "a local user"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(address: &str) -> Peer {
        Peer::at(address.parse().unwrap())
    }

    #[test]
    fn a_host_is_one_peer_however_it_connects() {
        assert_eq!(peer("[::ffff:10.0.0.1]:5"), peer("10.0.0.1:6"));
        assert_eq!(peer("[2001:db8::1]:5"), peer("[2001:db8::ffff:2]:5"));
        assert_ne!(peer("[2001:db8::1]:5"), peer("[2001:db8:0:1::1]:5"));
        assert_ne!(peer("10.0.0.1:5"), peer("10.0.0.2:5"));
        assert_eq!(peer("[2001:db8::1]:5").to_string(), "2001:db8::/64");
        assert_eq!(peer("[::1]:5").to_string(), "::1");
    }
}
