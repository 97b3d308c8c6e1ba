//! UMAP (McInnes, Healy and Melville, 2018): a layout of points in a plane that preserves neighbourhoods.
//!
//! This implementation is for thousands of points. Neighbours are exact, the layout starts from principal
//! components instead of eigenvectors of the graph, and the optimisation runs on one thread, so that a
//! random seed always gives the same layout. New points are placed between their neighbours and not
//! optimised further, unlike in umap-learn.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;

use crate::Matrix;
use crate::pca::{Pca, PcaError};
use crate::stats::squared_distance;

/// The curve `1 / (1 + a·d^(2b))` fitted to a minimum distance of 0.1.
const A: f64 = 1.577;
const B: f64 = 0.8951;
/// Random points that each end of an edge is pushed away from.
const N_NEGATIVES: usize = 5;
/// The greatest movement along an axis.
const MAX_STEP: f64 = 4.0;

#[derive(Debug, Clone, PartialEq)]
pub struct UmapSettings {
    pub n_neighbours: usize,
    pub n_epochs: usize,
    pub seed: u64,
}

impl Default for UmapSettings {
    fn default() -> Self {
        Self { n_neighbours: 15, n_epochs: 300, seed: 0 }
    }
}

/// Points and their layout.
#[derive(Debug, Clone, PartialEq)]
pub struct Umap {
    points: Matrix,
    n_neighbours: usize,
    /// Two coordinates per point.
    pub layout: Matrix,
}

/// A neighbour and its distance.
type Neighbour = (usize, f32);

impl Umap {
    pub fn fit(points: &Matrix, settings: &UmapSettings) -> Result<Self, PcaError> {
        let n_neighbours = settings.n_neighbours.min(points.n_rows().saturating_sub(1)).max(1);
        let neighbours = neighbours(points, points, n_neighbours, true);
        let edges = edges(&neighbours);
        let mut layout = start(points, settings.seed)?;
        optimise(&mut layout, &edges, settings);
        let values = layout.iter().flatten().map(|value| *value as f32).collect();
        Ok(Self { points: points.clone(), n_neighbours, layout: Matrix::new(values, 2) })
    }

    /// Places other points at the weighted mean of their neighbours among the fitted ones.
    ///
    /// # Panics
    /// If they do not have as many columns as the fitted points.
    pub fn transform(&self, points: &Matrix) -> Matrix {
        assert_eq!(points.n_columns(), self.points.n_columns(), "the points have another number of columns");
        let place = |near: &Vec<Neighbour>| {
            let weights = memberships(near);
            let total: f64 = weights.iter().sum();
            let along = |axis: usize| {
                let terms = near.iter().zip(&weights);
                terms
                    .map(|((index, _), weight)| weight * f64::from(self.layout.row(*index)[axis]))
                    .sum::<f64>()
            };
            [(along(0) / total) as f32, (along(1) / total) as f32]
        };
        let neighbours = neighbours(points, &self.points, self.n_neighbours, false);
        Matrix::new(neighbours.iter().flat_map(place).collect(), 2)
    }
}

/// The nearest of `among` to each point, nearest first; a point is not its own neighbour.
fn neighbours(points: &Matrix, among: &Matrix, count: usize, are_same: bool) -> Vec<Vec<Neighbour>> {
    (0..points.n_rows())
        .into_par_iter()
        .map(|index| {
            let point = points.row(index);
            let mut all: Vec<Neighbour> = among
                .rows()
                .enumerate()
                .map(|(other, row)| (other, squared_distance(point, row) as f32))
                .collect();
            if are_same {
                all.swap_remove(index);
            }
            let nearer = |a: &Neighbour, b: &Neighbour| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0));
            if count < all.len() {
                all.select_nth_unstable_by(count, nearer);
                all.truncate(count);
            }
            all.sort_by(nearer);
            all.iter_mut().for_each(|(_, squared)| *squared = squared.sqrt());
            all
        })
        .collect()
}

/// The membership strengths of neighbours: one for the nearest, in total log₂ of their number.
fn memberships(near: &[Neighbour]) -> Vec<f64> {
    let nearest = near.iter().map(|(_, distance)| f64::from(*distance)).find(|distance| *distance > 0.0);
    let nearest = nearest.unwrap_or(0.0);
    let wanted = (near.len() as f64).log2().max(1e-3);
    let weight = |distance: f32, width: f64| {
        let past = f64::from(distance) - nearest;
        if past <= 0.0 { 1.0 } else { (-past / width).exp() }
    };
    let (mut low, mut high) = (0.0, f64::INFINITY);
    let mut width = 1.0;
    for _ in 0..64 {
        let total: f64 = near.iter().map(|(_, distance)| weight(*distance, width)).sum();
        if (total - wanted).abs() < 1e-5 {
            break;
        }
        if total > wanted {
            high = width;
            width = (low + high) / 2.0;
        } else {
            low = width;
            width = if high.is_finite() { (low + high) / 2.0 } else { width * 2.0 };
        }
    }
    let mean = near.iter().map(|(_, distance)| f64::from(*distance)).sum::<f64>() / near.len().max(1) as f64;
    let width = width.max(1e-3 * mean).max(1e-12);
    near.iter().map(|(_, distance)| weight(*distance, width)).collect()
}

/// Undirected edges with their strengths: the probabilistic union of both directions.
fn edges(neighbours: &[Vec<Neighbour>]) -> Vec<(usize, usize, f64)> {
    let mut directed: Vec<(usize, usize, f64)> = Vec::new();
    for (index, near) in neighbours.iter().enumerate() {
        for ((other, _), weight) in near.iter().zip(memberships(near)) {
            directed.push((index.min(*other), index.max(*other), weight));
        }
    }
    directed.sort_by_key(|edge| (edge.0, edge.1));
    directed
        .chunk_by(|a, b| (a.0, a.1) == (b.0, b.1))
        .map(|pair| {
            let not: f64 = pair.iter().map(|(_, _, weight)| 1.0 - weight).product();
            (pair[0].0, pair[0].1, 1.0 - not)
        })
        .collect()
}

/// The first two principal components, scaled to ten, with a little noise that separates equal points.
fn start(points: &Matrix, seed: u64) -> Result<Vec<[f64; 2]>, PcaError> {
    let n_components = points.n_columns().min(2);
    let along = Pca::fit(points, n_components)?.transform(points);
    let most = along.as_slice().iter().fold(0f32, |most, value| most.max(value.abs())).max(1e-9);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut place = |row: &[f32]| {
        std::array::from_fn(|axis| {
            let value = row.get(axis).copied().unwrap_or(0.0);
            f64::from(value / most) * 10.0 + rng.random_range(-1e-3..1e-3)
        })
    };
    Ok(along.rows().map(&mut place).collect())
}

fn optimise(layout: &mut [[f64; 2]], edges: &[(usize, usize, f64)], settings: &UmapSettings) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(settings.seed.wrapping_add(1));
    let strongest = edges.iter().map(|(_, _, weight)| *weight).fold(0.0, f64::max);
    // The strongest edges move in every epoch, others in proportion to their strength.
    let every: Vec<f64> = edges.iter().map(|(_, _, weight)| strongest / weight).collect();
    let mut due = every.clone();
    for epoch in 0..settings.n_epochs {
        let rate = 1.0 - epoch as f64 / settings.n_epochs as f64;
        for (index, (one, other, _)) in edges.iter().enumerate() {
            if due[index] > epoch as f64 + 1.0 {
                continue;
            }
            due[index] += every[index];
            let squared = squared_distance(&layout[*one], &layout[*other]);
            if squared > 0.0 {
                let pull = -2.0 * A * B * squared.powf(B - 1.0) / (1.0 + A * squared.powf(B));
                push(layout, *one, *other, pull * rate);
            }
            for end in [*one, *other] {
                for _ in 0..N_NEGATIVES {
                    let stranger = rng.random_range(0..layout.len());
                    let squared = squared_distance(&layout[end], &layout[stranger]);
                    if stranger != end && squared > 0.0 {
                        let away = 2.0 * B / ((0.001 + squared) * (1.0 + A * squared.powf(B)));
                        let here = layout[stranger];
                        push(layout, end, stranger, away * rate);
                        layout[stranger] = here;
                    }
                }
            }
        }
    }
}

/// Moves two points along the line between them.
fn push(layout: &mut [[f64; 2]], one: usize, other: usize, force: f64) {
    let (here, there) = (layout[one], layout[other]);
    let step: [f64; 2] =
        std::array::from_fn(|axis| (force * (here[axis] - there[axis])).clamp(-MAX_STEP, MAX_STEP));
    layout[one] = [here[0] + step[0], here[1] + step[1]];
    layout[other] = [there[0] - step[0], there[1] - step[1]];
}

/// How far neighbours in the layout are neighbours in the data, from zero to one (Venna and Kaski, 2001).
/// One if there are too few points to compare.
pub fn trustworthiness(points: &Matrix, layout: &Matrix, n_neighbours: usize) -> f64 {
    let n = points.n_rows();
    let k = n_neighbours.min((n / 2).saturating_sub(1));
    if k == 0 {
        return 1.0;
    }
    let all = n - 1;
    let in_truth = neighbours(points, points, all, true);
    let in_plane = neighbours(layout, layout, k, true);
    let penalty: f64 = in_truth
        .par_iter()
        .zip(&in_plane)
        .map(|(truth, plane)| {
            let mut rank = vec![0; n];
            truth.iter().enumerate().for_each(|(at, (other, _))| rank[*other] = at + 1);
            plane.iter().map(|(other, _)| rank[*other].saturating_sub(k) as f64).sum::<f64>()
        })
        .sum();
    1.0 - 2.0 / (n * k) as f64 / (2 * n - 3 * k - 1) as f64 * penalty
}

#[cfg(test)]
mod tests {
    use rand_distr::StandardNormal;

    use super::*;

    /// Three clouds in ten dimensions.
    fn clouds(n_points: usize) -> (Matrix, Vec<usize>) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(4);
        let groups: Vec<usize> = (0..n_points).map(|index| index % 3).collect();
        let values = groups.iter().flat_map(|group| {
            let noise: Vec<f32> = (0..10).map(|_| rng.sample::<f32, _>(StandardNormal)).collect();
            noise
                .into_iter()
                .enumerate()
                .map(move |(axis, noise)| noise + if axis == *group { 8.0 } else { 0.0 })
        });
        (Matrix::new(values.collect(), 10), groups)
    }

    #[test]
    fn clusters_stay_separate_and_neighbours_stay_neighbours() {
        let (points, groups) = clouds(240);
        let umap = Umap::fit(&points, &UmapSettings::default()).unwrap();
        let apart = crate::silhouette::silhouette(&umap.layout, &groups).unwrap();
        assert!(apart > 0.6, "{apart}");
        let trust = trustworthiness(&points, &umap.layout, 10);
        assert!(trust > 0.85, "{trust}");
        assert_eq!(
            umap,
            Umap::fit(&points, &UmapSettings::default()).unwrap(),
            "a random seed gives one layout"
        );
        let placed = umap.transform(&points.select(&[0, 1, 2]));
        for (row, place) in placed.rows().enumerate() {
            let own = umap.layout.row(row);
            assert!((place[0] - own[0]).hypot(place[1] - own[1]) < 4.0, "{place:?} {own:?}");
        }
    }

    #[test]
    fn equal_points_have_a_finite_layout() {
        let umap = Umap::fit(&Matrix::new(vec![0.5; 60], 3), &UmapSettings::default()).unwrap();
        assert!(umap.layout.as_slice().iter().all(|value| value.is_finite()));
    }
}
