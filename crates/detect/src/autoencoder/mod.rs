//! Autoencoders: each window is compressed to an embedding and reconstructed from it. The reconstruction error is the
//! score: normal windows are reconstructed well, others are not.
//!
//! The plain autoencoder and the two graph-assisted ones (one message pass between the threads of a node, or of a job
//! on a node) follow Mohammed et al., "Decode the Workload: Training Deep Learning Models for Efficient Compute Cluster
//! Representation" (CHEP 2024). Additions: noise and an L2 penalty on embeddings, and a small cross-entropy term.

pub mod net;
#[cfg(test)]
mod parity;
pub mod train;

use std::ops::Range;

use learn::artifact::Tensors;

use self::net::Net;
use crate::detector::{Detector, Finding};
use crate::window::WindowBatch;

/// Which windows of a batch exchange messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GraphScope {
    /// None.
    Thread,
    /// Those of one job on one node.
    Job,
    /// All of a node.
    Node,
}

impl GraphScope {
    /// The graphs of a batch, as ranges of its windows.
    pub fn graphs(self, batch: &WindowBatch) -> Vec<Range<usize>> {
        match self {
            Self::Thread => (0..batch.threads().len()).map(|thread| thread..thread + 1).collect(),
            Self::Job => batch.groups().into_iter().flat_map(|group| job_graphs(batch, group)).collect(),
            Self::Node => batch.nodes(),
        }
    }
}

/// The threads of a job form one graph; each thread without a job is alone.
fn job_graphs(batch: &WindowBatch, group: Range<usize>) -> Vec<Range<usize>> {
    match batch.threads()[group.start].job() {
        Some(_) => vec![group],
        None => group.map(|thread| thread..thread + 1).collect(),
    }
}

#[derive(Debug, Clone)]
pub struct Autoencoder {
    pub net: Net,
    pub scope: GraphScope,
}

impl Detector for Autoencoder {
    fn examine(&self, batch: &WindowBatch) -> Vec<Finding> {
        let windows = batch.values();
        let (latents, _) = self.net.embed(&windows);
        let latents = self.net.exchanged(latents, &self.scope.graphs(batch));
        let expected = self.net.reconstruct(&latents);
        let rows = windows.chunks_exact(self.net.size()).zip(expected.chunks_exact(self.net.size()));
        rows.zip(latents.chunks_exact(self.net.n_latent()))
            .map(|((window, expected), latent)| {
                Finding::from_reconstruction(window, expected.to_vec(), latent.to_vec(), batch.n_channels())
            })
            .collect()
    }

    fn tensors(&self) -> Tensors {
        self.net.parameters.to_tensors()
    }
}
