//! Networks compared with torchvision, and the weight formats of PyTorch.

use std::collections::BTreeMap;
use std::path::PathBuf;

use learn::artifact::{Tensor, Tensors};
use learn::nn::parameters::Parameters;
use learn::nn::tape::Value;
use workflows::classify::picture::{Net, Network, weights};

fn fixture(name: &str) -> PathBuf {
    testbed::workspace().join("fixtures/torch").join(name)
}

/// The numbers of networks.py: evenly spread over [0, 1).
fn unit(name: &str, count: usize) -> Vec<f32> {
    let seed = u64::from(crc32fast::hash(name.as_bytes()));
    let number = |at: usize| {
        let mut mixed = (at as u64 * 2_654_435_761 + seed) & 0xffff_ffff;
        mixed ^= mixed >> 15;
        mixed = (mixed * 2_246_822_519) & 0xffff_ffff;
        ((mixed >> 8) as f64 / f64::from(1 << 24)) as f32
    };
    (0..count).map(number).collect()
}

fn tensor(name: &str, shape: &[usize]) -> Tensor {
    let u = unit(name, shape.iter().product());
    let fan_in: usize = shape[1..].iter().product();
    let scale = (6.0 / fan_in as f64).sqrt() as f32;
    let value = |u: f32| {
        if name.ends_with("running_var") || shape.len() == 1 && name.ends_with("weight") {
            0.5 + u
        } else if shape.len() == 1 {
            (u - 0.5) * 0.2
        } else {
            (u - 0.5) * 2.0 * scale
        }
    };
    Tensor::new(shape.to_vec(), u.into_iter().map(value).collect::<Vec<f32>>())
}

#[derive(serde::Deserialize)]
struct Recorded {
    logits: BTreeMap<String, Vec<f32>>,
}

#[test]
fn logits_are_those_of_torchvision() {
    let recorded: Recorded =
        serde_json::from_slice(&std::fs::read(fixture("networks.json")).unwrap()).unwrap();
    let networks = [
        (Network::Alexnet, "alexnet"),
        (Network::Vgg16, "vgg16"),
        (Network::Resnet18, "resnet18"),
        (Network::EfficientnetLite0, "efficientnet-lite0"),
    ];
    for (network, name) in networks {
        let mut parameters = Parameters::default();
        let net = Net::new(network, 1_000, &mut parameters, 0);
        let tensors: Tensors = weights::expected(&net, &parameters)
            .into_iter()
            .map(|(name, shape)| {
                let tensor = tensor(&name, &shape);
                (name, tensor)
            })
            .collect();
        weights::copy(&net, &tensors, &mut parameters, true).unwrap();
        drop(tensors);
        let picture = unit("picture", 224 * 224 * 3).into_iter().map(|u| u * 2.0 - 1.0).collect();
        let found = net.logits(&parameters, Value::pictures(picture, 224, 224, 3)).data;
        for (found, expected) in found.iter().zip(&recorded.logits[name]) {
            let most = 1e-4 * expected.abs().max(1.0);
            assert!((found - expected).abs() < most, "{name}: {found} is not {expected}");
        }
    }
}

#[test]
fn weights_are_read_from_every_format_that_torch_writes() {
    let expected: Vec<f32> = (0..24).map(|at| at as f32 / 8.0).collect();
    for name in ["new.pth", "old.pth", "small.safetensors"] {
        let found = learn::weights::read(&fixture(name)).unwrap();
        assert_eq!(found["layer.weight"], Tensor::new(vec![2, 3, 4], expected.clone()), "{name}");
        assert_eq!(found["half"].as_f32().unwrap(), [1.5, -0.25]);
        assert_eq!(found["double"], Tensor::new(vec![1, 2], vec![3.0f32, 4.0]));
        if name.ends_with("pth") {
            let turned = &found["layer.turned"];
            let values = turned.as_f32().unwrap();
            assert_eq!((turned.shape(), values[1], values[6]), (&[4, 6][..], 0.5, 0.125));
            assert!(!found.contains_key("count"));
        }
    }
}

#[test]
fn damaged_weights_and_those_of_another_network_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let whole = std::fs::read(fixture("new.pth")).unwrap();
    let old = std::fs::read(fixture("old.pth")).unwrap();
    let cases = [
        file("empty.pth", b""),
        file("text.pth", b"these are no weights"),
        file("short.pth", &whole[..whole.len() / 2]),
        file("old-short.pth", &old[..old.len() - 40]),
        // A pickle that would run a program in Python.
        file("evil.pth", b"\x80\x02cos\nsystem\nU\x04true\x85R."),
    ];
    for path in cases {
        let error = learn::weights::read(&path).unwrap_err().to_string();
        assert!(error.contains("no weights that can be read") && error.lines().count() == 1, "{error}");
    }
    let mut parameters = Parameters::default();
    let net = Net::new(Network::Resnet18, 4, &mut parameters, 0);
    let error =
        weights::load(&net, Network::Resnet18, &mut parameters, &fixture("new.pth"), false).unwrap_err();
    assert!(error.to_string().contains("ResNet-18 is expected"), "{error}");
}
