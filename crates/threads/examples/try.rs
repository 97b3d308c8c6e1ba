use std::collections::BTreeMap;
use archive::{Archive, Settings};
use learn::nn::ops::loss::squared_error;
use learn::nn::parameters::Parameters;
use learn::nn::tape::{Tape, Var};
use learn::nn::train::*;
use learn::{Matrix, Pca, silhouette, metrics::roc_auc};
use threads::detect::net::*;
use threads::detect::window::*;
use workload::Set;
use rand::seq::SliceRandom; use rand::SeedableRng;

struct W<'a> { net: &'a Net, x: &'a [Vec<f32>], val: &'a [Vec<f32>] }
impl W<'_> {
    fn run(&self, tape: &mut Tape<'_>, ws: &[&Vec<f32>], scale: f32) -> (Var, Var, Var) {
        let inputs: Vec<f32> = ws.iter().flat_map(|w| without_other(w)).collect();
        let targets: Vec<f32> = ws.iter().flat_map(|w| w.iter().copied()).collect();
        let e = self.net.encode(tape, self.net.input(&inputs));
        let out = self.net.decode(tape, e.latent);
        (squared_error(tape, out, self.net.target(&targets), scale), e.latent, out)
    }
}
impl Objective for W<'_> {
    fn n_items(&self) -> usize { self.x.len() }
    fn loss(&self, tape: &mut Tape<'_>, items: &[usize], n: usize, _: u64) -> Var {
        let ws: Vec<&Vec<f32>> = items.iter().map(|i| &self.x[*i]).collect();
        self.run(tape, &ws, 1.0 / (n * 400) as f32).0
    }
    fn validation(&self, p: &Parameters) -> f64 {
        let mut s = 0.0;
        for c in self.val.chunks(256) {
            let mut tape = Tape::new(p);
            let l = self.run(&mut tape, &c.iter().collect::<Vec<_>>(), 1.0 / 400.0).0;
            s += tape.scalar(l) as f64;
        }
        s / self.val.len() as f64
    }
}
fn take(a: &Archive, set: Set, stride: usize, most: usize) -> (Vec<Vec<f32>>, Vec<String>) {
    let labels = a.labels().unwrap();
    let kinds: BTreeMap<_, _> = labels.iter().map(|l| (l.job.clone(), l.kind.clone())).collect();
    let mut all = vec![];
    for_each_moment(a, &Jobs::of_set(&labels, set), Cut { n_steps: 100, stride }, |m| {
        for t in m.threads { all.push((t.rates, kinds[&t.job].clone())); }
    }).unwrap();
    all.shuffle(&mut rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(1));
    all.truncate(most);
    all.into_iter().unzip()
}
fn main() {
    let dir = std::env::args().nth(1).unwrap();
    let stride: usize = std::env::args().nth(2).unwrap().parse().unwrap();
    let epochs: usize = std::env::args().nth(3).unwrap().parse().unwrap();
    let a = Archive::open(&dir, &Settings::default()).unwrap();
    let (x, _) = take(&a, Set::Train, stride, 12000);
    let (v, _) = take(&a, Set::Validation, stride, 2000);
    let (t, k) = take(&a, Set::Test, stride, 8000);
    eprintln!("{} {} {}", x.len(), v.len(), t.len());
    let net = Net::new(&NetConfig::default(), 1);
    let s = TrainSettings { n_epochs: epochs, batch: 128, ..Default::default() };
    let mut st = TrainState::new(net.parameters.clone(), &s);
    let w = W { net: &net, x: &x, val: &v };
    st.train(&w, &s, |e, _| { eprintln!("{} {:.5} {:.5} {:.1?}", e.epoch, e.loss, e.validation, e.took); Then::GoOn });
    let p = st.best.unwrap().parameters;
    let mut re = vec![]; let mut zs = vec![];
    for c in t.chunks(256) {
        let mut tape = Tape::new(&p);
        let ws: Vec<&Vec<f32>> = c.iter().collect();
        let (_, z, out) = w.run(&mut tape, &ws, 1.0);
        zs.extend_from_slice(&tape.value(z).data);
        let o = tape.value(out);
        for (i, c) in c.iter().enumerate() {
            let f = o.layout.row(i) * 4;
            re.push(c.iter().zip(&o.data[f..f + 400]).map(|(a, b)| ((a - b) as f64).powi(2)).sum::<f64>() / 400.0);
        }
    }
    // PCA
    let m = |ws: &[Vec<f32>]| Matrix::new(ws.concat(), 400);
    let pca = Pca::fit(&m(&x[..x.len().min(4000)]), 16).unwrap();
    let (mean, comps) = pca.parts();
    let pre: Vec<f64> = t.iter().map(|w| {
        let d: Vec<f64> = w.iter().zip(mean).map(|(a, b)| *a as f64 - b).collect();
        let mut r = d.clone();
        for c in comps { let s: f64 = c.iter().zip(&d).map(|(a, b)| a * b).sum(); for (r, c) in r.iter_mut().zip(c) { *r -= s * c; } }
        r.iter().map(|x| x * x).sum::<f64>() / 400.0
    }).collect();
    let normal = |k: &str| ["np", "good-io", "idle"].contains(&k) || k.starts_with("mpi-");
    let mut kinds: Vec<&String> = k.iter().collect(); kinds.sort(); kinds.dedup();
    for kind in &kinds {
        let avg = |r: &[f64]| { let v: Vec<f64> = r.iter().zip(&k).filter(|(_, q)| q == kind).map(|(r, _)| *r).collect(); v.iter().sum::<f64>() / v.len() as f64 };
        let auc = |r: &[f64]| { let idx: Vec<usize> = (0..k.len()).filter(|i| normal(&k[*i]) || k[*i] == **kind).collect();
            roc_auc(&idx.iter().map(|i| r[*i]).collect::<Vec<_>>(), &idx.iter().map(|i| k[*i] == **kind).collect::<Vec<_>>()).unwrap_or(0.5) };
        println!("{kind:18} n {:5} AE {:.5} PCA {:.5}   auc {:.3} {:.3}", k.iter().filter(|q| q == kind).count(), avg(&re), avg(&pre), auc(&re), auc(&pre));
    }
    let nn: Vec<usize> = (0..k.len()).filter(|i| normal(&k[*i])).collect();
    let mean_re = |r: &[f64]| nn.iter().map(|i| r[*i]).sum::<f64>() / nn.len() as f64;
    let g: Vec<usize> = nn.iter().map(|i| kinds.iter().position(|q| **q == k[*i]).unwrap()).collect();
    let fam: Vec<usize> = nn.iter().map(|i| if k[*i].starts_with("mpi") { 99 } else { kinds.iter().position(|q| **q == k[*i]).unwrap() }).collect();
    let zm = Matrix::new(nn.iter().flat_map(|i| zs[i * 16..(i + 1) * 16].to_vec()).collect(), 16);
    println!("normal RE {:.5} pca {:.5} silhouette {:.3} by family {:.3}", mean_re(&re), mean_re(&pre), silhouette(&zm, &g).unwrap(), silhouette(&zm, &fam).unwrap());
}
