//! Autoencoders: each window is squeezed into an embedding and restored from it, and what normal windows
//! taught cannot restore is strange. With or without messages between threads.
//!
//! "Advancing anomaly detection in computational workflows": the vanilla autoencoder, and the two that let
//! all threads of a node, or those of a job on a node, exchange one message.

pub mod net;
#[cfg(test)]
mod parity;
pub mod train;

use std::ops::Range;

use learn::artifact::Tensors;

use self::net::Net;
use super::{Detector, Finding, Moment};

/// Which windows of a moment exchange messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// None: each thread is on its own.
    Thread,
    /// Those of one job on one node.
    Job,
    /// All of a node.
    Node,
}

impl Reach {
    /// The graphs of a moment, as ranges of its windows.
    pub fn graphs(self, moment: &Moment) -> Vec<Range<usize>> {
        match self {
            Self::Thread => (0..moment.threads.len()).map(|thread| thread..thread + 1).collect(),
            Self::Job => moment.jobs(),
            Self::Node => moment.nodes(),
        }
    }
}

#[derive(Debug, Clone)]
pub struct Autoencoder {
    pub net: Net,
    pub reach: Reach,
}

impl Detector for Autoencoder {
    fn examine(&self, moment: &Moment) -> Vec<Finding> {
        let windows = values_of(moment);
        let (latents, _) = self.net.embed(&windows);
        let latents = self.net.exchanged(latents, &self.reach.graphs(moment));
        let expected = self.net.restore(&latents);
        let rows = windows.chunks_exact(self.net.size()).zip(expected.chunks_exact(self.net.size()));
        rows.zip(latents.chunks_exact(self.net.n_latent()))
            .map(|((window, expected), latent)| {
                Finding::of_expected(window, expected.to_vec(), latent.to_vec(), moment.n_channels)
            })
            .collect()
    }

    fn tensors(&self) -> Tensors {
        self.net.parameters.to_tensors()
    }
}

/// The windows of a moment one after the other.
pub fn values_of(moment: &Moment) -> Vec<f32> {
    moment.threads.iter().flat_map(|thread| thread.values.iter().copied()).collect()
}
