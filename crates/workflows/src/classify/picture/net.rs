//! The networks: sequences of layers, with residual connections. Batch normalisation of pre-trained weights is folded into
//! the convolution before it.

use learn::nn::ops::arithmetic::add;
use learn::nn::ops::conv2d::{Border, Conv2d, Rectifier, Windows};
use learn::nn::ops::depthwise::Depthwise;
use learn::nn::ops::elementwise::scaled;
use learn::nn::ops::linear::{Activation, Linear};
use learn::nn::ops::pool2d::{as_rows, compute_max, compute_mean, max_pool, mean_pool};
use learn::nn::parameters::Parameters;
use learn::nn::tape::{Tape, Value, Var};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// Four convolutions and two linear layers, trained from scratch.
    Small,
    /// Krizhevsky (2014), as in torchvision.
    Alexnet,
    /// Simonyan and Zisserman (2014), configuration D.
    Vgg16,
    /// He et al. (2015).
    Resnet18,
    /// Tan and Le (2019), without squeeze-and-excitation and with ReLU6.
    EfficientnetLite0,
}

impl Network {
    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "cnn",
            Self::Alexnet => "AlexNet",
            Self::Vgg16 => "VGG-16",
            Self::Resnet18 => "ResNet-18",
            Self::EfficientnetLite0 => "EfficientNet-Lite0",
        }
    }

    /// The side of its input, in pixels.
    pub fn side(self) -> usize {
        if self == Self::Small { 128 } else { 224 }
    }
}

/// The name of a layer in pre-trained weights.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub name: String,
    /// The batch normalisation after it, and the epsilon that is added to its variance.
    pub norm: Option<(String, f32)>,
    /// Pixels of the input of the first linear layer, whose pre-trained rows have channels first.
    pub pixels: Option<usize>,
}

#[derive(Debug, Clone)]
pub(super) enum Layer {
    Conv(Conv2d, Source),
    Depthwise(Depthwise, Source),
    MaxPool(Windows),
    MeanPool,
    AsRows,
    Linear(Linear, Source),
    Dropout(f32),
    /// A body and a shortcut past it, which may have a convolution.
    Residual {
        body: Vec<Layer>,
        past: Option<Box<Layer>>,
        is_rectified: bool,
    },
}

pub struct Net {
    pub(super) layers: Vec<Layer>,
    /// Inputs of the last layer.
    pub n_features: usize,
}

const fn windows(width: usize, stride: usize, pad: usize) -> Windows {
    Windows { width, stride, border: Border::Even(pad) }
}

struct Builder<'a> {
    parameters: &'a mut Parameters,
    rng: Xoshiro256PlusPlus,
    layers: Vec<Layer>,
}

impl Builder<'_> {
    fn conv(
        &mut self,
        name: &str,
        norm: Option<(&str, f32)>,
        windows: Windows,
        sizes: [usize; 2],
        rectifier: Rectifier,
    ) -> Layer {
        let conv = Conv2d::new(self.parameters, name, windows, sizes, rectifier, &mut self.rng);
        Layer::Conv(conv, source(name, norm))
    }

    fn depthwise(
        &mut self,
        name: &str,
        norm: Option<(&str, f32)>,
        windows: Windows,
        n_channels: usize,
    ) -> Layer {
        let conv =
            Depthwise::new(self.parameters, name, windows, n_channels, Rectifier::Relu6, &mut self.rng);
        Layer::Depthwise(conv, source(name, norm))
    }

    fn linear(
        &mut self,
        name: &str,
        sizes: [usize; 2],
        activation: Activation,
        pixels: Option<usize>,
    ) -> Layer {
        let layer = Linear::new(self.parameters, name, sizes, activation, &mut self.rng);
        Layer::Linear(layer, Source { name: name.into(), norm: None, pixels })
    }

    fn push(&mut self, layer: Layer) {
        self.layers.push(layer);
    }
}

fn source(name: &str, norm: Option<(&str, f32)>) -> Source {
    Source { name: name.into(), norm: norm.map(|(name, epsilon)| (name.to_owned(), epsilon)), pixels: None }
}

impl Net {
    pub fn new(network: Network, n_classes: usize, parameters: &mut Parameters, seed: u64) -> Self {
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut builder = Builder { parameters, rng, layers: Vec::new() };
        let n_features = match network {
            Network::Small => small(&mut builder, n_classes),
            Network::Alexnet => alexnet(&mut builder, n_classes),
            Network::Vgg16 => vgg16(&mut builder, n_classes),
            Network::Resnet18 => resnet18(&mut builder, n_classes),
            Network::EfficientnetLite0 => efficientnet_lite0(&mut builder, n_classes),
        };
        Self { layers: builder.layers, n_features }
    }

    /// Logits of images, on a tape; with a seed for dropout during training.
    pub fn forward(&self, tape: &mut Tape<'_>, x: Var, dropout: Option<u64>) -> Var {
        let mut rng = dropout.map(Xoshiro256PlusPlus::seed_from_u64);
        self.layers.iter().fold(x, |x, layer| layer.forward(tape, x, rng.as_mut()))
    }

    /// The feature maps of the last convolution, and the logits.
    pub fn forward_with_maps(&self, tape: &mut Tape<'_>, x: Var) -> (Var, Var) {
        let is_map =
            |layer: &Layer| matches!(layer, Layer::Conv(..) | Layer::Depthwise(..) | Layer::Residual { .. });
        let last = self.layers.iter().rposition(is_map).unwrap_or(0);
        let (mut at, mut maps) = (x, x);
        for (index, layer) in self.layers.iter().enumerate() {
            at = layer.forward(tape, at, None);
            if index == last {
                maps = at;
            }
        }
        (maps, at)
    }

    /// The inputs of the last layer, without a tape.
    pub fn features(&self, parameters: &Parameters, x: Value) -> Value {
        let n_layers = self.layers.len() - 1;
        self.layers[..n_layers].iter().fold(x, |x, layer| layer.compute(parameters, x))
    }

    /// Logits, without a tape.
    pub fn logits(&self, parameters: &Parameters, x: Value) -> Value {
        self.layers.iter().fold(x, |x, layer| layer.compute(parameters, x))
    }

    pub(super) fn head(&self) -> Option<&Linear> {
        match self.layers.last() {
            Some(Layer::Linear(head, _)) => Some(head),
            _ => None,
        }
    }
}

impl Layer {
    fn forward(&self, tape: &mut Tape<'_>, x: Var, rng: Option<&mut Xoshiro256PlusPlus>) -> Var {
        match self {
            Self::Conv(conv, _) => conv.forward(tape, x),
            Self::Depthwise(conv, _) => conv.forward(tape, x),
            Self::MaxPool(windows) => max_pool(tape, *windows, x),
            Self::MeanPool => mean_pool(tape, x),
            Self::AsRows => as_rows(tape, x),
            Self::Linear(layer, _) => layer.forward(tape, x),
            Self::Dropout(share) => match rng {
                None => x,
                Some(rng) => {
                    let keep = 1.0 / (1.0 - share);
                    let n_values = tape.value(x).data.len();
                    let factors =
                        (0..n_values).map(|_| if rng.random::<f32>() < *share { 0.0 } else { keep });
                    scaled(tape, x, factors.collect())
                }
            },
            Self::Residual { body, past, is_rectified } => {
                let through = body.iter().fold(x, |x, layer| layer.forward(tape, x, None));
                let shortcut = past.as_ref().map_or(x, |past| past.forward(tape, x, None));
                let sum = add(tape, through, shortcut);
                if !is_rectified {
                    return sum;
                }
                let factors = tape.value(sum).data.iter().map(|value| if *value > 0.0 { 1.0 } else { 0.0 });
                let factors = factors.collect();
                scaled(tape, sum, factors)
            }
        }
    }

    fn compute(&self, parameters: &Parameters, x: Value) -> Value {
        match self {
            Self::Conv(conv, _) => conv.compute(parameters, &x),
            Self::Depthwise(conv, _) => conv.compute(parameters, &x),
            Self::MaxPool(windows) => compute_max(*windows, &x),
            Self::MeanPool => compute_mean(&x),
            Self::AsRows => {
                let n_columns = x.data.len() / x.n_samples.max(1);
                Value::plain(x.data, n_columns.max(1))
            }
            Self::Linear(layer, _) => {
                let n_outputs = parameters.shape(layer.weight)[1];
                let mut out = vec![0.0; x.n_samples * n_outputs];
                layer.compute(parameters, &x.data, &mut out);
                Value::plain(out, n_outputs)
            }
            Self::Dropout(_) => x,
            Self::Residual { body, past, is_rectified } => {
                let mut sum = body.iter().fold(x.clone(), |x, layer| layer.compute(parameters, x));
                let shortcut =
                    past.as_ref().map_or_else(|| x.clone(), |past| past.compute(parameters, x.clone()));
                learn::nn::tape::add(&mut sum.data, &shortcut.data);
                if *is_rectified {
                    sum.data.iter_mut().for_each(|value| *value = value.max(0.0));
                }
                sum
            }
        }
    }
}

fn small(net: &mut Builder<'_>, n_classes: usize) -> usize {
    let pool = windows(2, 2, 0);
    for (at, sizes) in [[3, 16], [16, 32], [32, 64], [64, 64]].into_iter().enumerate() {
        let conv = net.conv(&format!("conv{at}"), None, windows(3, 1, 1), sizes, Rectifier::Relu);
        net.push(conv);
        net.push(Layer::MaxPool(pool));
    }
    net.push(Layer::AsRows); // 8 × 8 × 64
    net.push(Layer::Dropout(0.3));
    let hidden = net.linear("hidden", [8 * 8 * 64, 64], Activation::Relu, None);
    net.push(hidden);
    let head = net.linear("head", [64, n_classes], Activation::None, None);
    net.push(head);
    64
}

fn alexnet(net: &mut Builder<'_>, n_classes: usize) -> usize {
    let convs: [(usize, [usize; 2], Windows, bool); 5] = [
        (0, [3, 64], windows(11, 4, 2), true),
        (3, [64, 192], windows(5, 1, 2), true),
        (6, [192, 384], windows(3, 1, 1), false),
        (8, [384, 256], windows(3, 1, 1), false),
        (10, [256, 256], windows(3, 1, 1), true),
    ];
    for (at, sizes, windows_of, is_pooled) in convs {
        let conv = net.conv(&format!("features.{at}"), None, windows_of, sizes, Rectifier::Relu);
        net.push(conv);
        if is_pooled {
            net.push(Layer::MaxPool(windows(3, 2, 0)));
        }
    }
    classifier(net, 36, 256, n_classes, ["classifier.1", "classifier.4", "classifier.6"], true)
}

fn vgg16(net: &mut Builder<'_>, n_classes: usize) -> usize {
    let (mut at, mut channels) = (0, 3);
    for (n_convs, outputs) in [(2, 64), (2, 128), (3, 256), (3, 512), (3, 512)] {
        for _ in 0..n_convs {
            let conv = net.conv(
                &format!("features.{at}"),
                None,
                windows(3, 1, 1),
                [channels, outputs],
                Rectifier::Relu,
            );
            net.push(conv);
            channels = outputs;
            at += 2;
        }
        net.push(Layer::MaxPool(windows(2, 2, 0)));
        at += 1;
    }
    classifier(net, 49, 512, n_classes, ["classifier.0", "classifier.3", "classifier.6"], false)
}

/// The three layers that AlexNet and VGG end in; AlexNet drops out before the first.
fn classifier(
    net: &mut Builder<'_>,
    n_pixels: usize,
    n_channels: usize,
    n_classes: usize,
    names: [&str; 3],
    drops_first: bool,
) -> usize {
    const WIDE: usize = 4_096;
    net.push(Layer::AsRows);
    if drops_first {
        net.push(Layer::Dropout(0.5));
    }
    let first = net.linear(names[0], [n_pixels * n_channels, WIDE], Activation::Relu, Some(n_pixels));
    net.push(first);
    net.push(Layer::Dropout(0.5));
    let second = net.linear(names[1], [WIDE, WIDE], Activation::Relu, None);
    net.push(second);
    if !drops_first {
        net.push(Layer::Dropout(0.5));
    }
    let head = net.linear(names[2], [WIDE, n_classes], Activation::None, None);
    net.push(head);
    WIDE
}

fn resnet18(net: &mut Builder<'_>, n_classes: usize) -> usize {
    const EPSILON: f32 = 1e-5;
    let stem = net.conv("conv1", Some(("bn1", EPSILON)), windows(7, 2, 3), [3, 64], Rectifier::Relu);
    net.push(stem);
    net.push(Layer::MaxPool(windows(3, 2, 1)));
    let mut inputs = 64;
    for (stage, outputs) in [64, 128, 256, 512].into_iter().enumerate() {
        for block in 0..2 {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            let name = |part: &str| format!("layer{}.{block}.{part}", stage + 1);
            let (first, second) = (name("bn1"), name("bn2"));
            let body = vec![
                net.conv(
                    &name("conv1"),
                    Some((&first, EPSILON)),
                    windows(3, stride, 1),
                    [inputs, outputs],
                    Rectifier::Relu,
                ),
                net.conv(
                    &name("conv2"),
                    Some((&second, EPSILON)),
                    windows(3, 1, 1),
                    [outputs, outputs],
                    Rectifier::None,
                ),
            ];
            let past = (inputs != outputs).then(|| {
                let norm = name("downsample.1");
                let sizes = [inputs, outputs];
                Box::new(net.conv(
                    &name("downsample.0"),
                    Some((&norm, EPSILON)),
                    windows(1, stride, 0),
                    sizes,
                    Rectifier::None,
                ))
            });
            net.push(Layer::Residual { body, past, is_rectified: true });
            inputs = outputs;
        }
    }
    net.push(Layer::MeanPool);
    let head = net.linear("fc", [512, n_classes], Activation::None, None);
    net.push(head);
    512
}

fn efficientnet_lite0(net: &mut Builder<'_>, n_classes: usize) -> usize {
    const EPSILON: f32 = 1e-3;
    let same = |width: usize, stride: usize| Windows { width, stride, border: Border::Same };
    let stem = net.conv("_conv_stem", Some(("_bn0", EPSILON)), same(3, 2), [3, 32], Rectifier::Relu6);
    net.push(stem);
    // Repeats, width of windows, stride of the first, times that a block is wider inside, channels that come out.
    let stages = [
        (1, 3, 1, 1, 16),
        (2, 3, 2, 6, 24),
        (2, 5, 2, 6, 40),
        (3, 3, 2, 6, 80),
        (3, 5, 1, 6, 112),
        (4, 5, 2, 6, 192),
        (1, 3, 1, 6, 320),
    ];
    let (mut inputs, mut at) = (32, 0);
    for (repeats, width, first_stride, wider, outputs) in stages {
        for repeat in 0..repeats {
            let stride = if repeat == 0 { first_stride } else { 1 };
            let name = |part: &str| format!("_blocks.{at}.{part}");
            let inside = inputs * wider;
            let mut body = Vec::new();
            if wider > 1 {
                let norm = name("_bn0");
                body.push(net.conv(
                    &name("_expand_conv"),
                    Some((&norm, EPSILON)),
                    same(1, 1),
                    [inputs, inside],
                    Rectifier::Relu6,
                ));
            }
            let norm = name("_bn1");
            body.push(net.depthwise(
                &name("_depthwise_conv"),
                Some((&norm, EPSILON)),
                same(width, stride),
                inside,
            ));
            let norm = name("_bn2");
            body.push(net.conv(
                &name("_project_conv"),
                Some((&norm, EPSILON)),
                same(1, 1),
                [inside, outputs],
                Rectifier::None,
            ));
            if stride == 1 && inputs == outputs {
                net.push(Layer::Residual { body, past: None, is_rectified: false });
            } else {
                net.layers.extend(body);
            }
            inputs = outputs;
            at += 1;
        }
    }
    let head = net.conv("_conv_head", Some(("_bn1", EPSILON)), same(1, 1), [inputs, 1280], Rectifier::Relu6);
    net.push(head);
    net.push(Layer::MeanPool);
    net.push(Layer::Dropout(0.2));
    let last = net.linear("_fc", [1280, n_classes], Activation::None, None);
    net.push(last);
    1280
}
