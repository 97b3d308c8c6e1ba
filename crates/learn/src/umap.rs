//! UMAP (McInnes, Healy and Melville, 2018): a layout of points in a plane that preserves neighbourhoods.
//!
//! This implementation is for thousands of points. Neighbours are exact, the layout starts from principal
//! components instead of eigenvectors of the graph, and the optimisation runs on one thread, so that a
//! random seed always gives the same layout.
//!
//! New points are placed as in umap-learn: they start between their neighbours and are then optimised while
//! the fitted points stay where they are. The main difference: umap-learn attracts every new point with
//! the same total strength, however far it is from the fitted points, so that it ends among them. Here the
//! attraction of a new point decreases with its distance.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;

use crate::Matrix;
use crate::pca::{Pca, PcaError};
use crate::stats::{mean, squared_distance};

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
    /// With as many neighbours as there are.
    settings: UmapSettings,
    /// The bandwidth of each point, if it were a new one.
    bandwidths: Vec<f64>,
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
        Ok(Self {
            points: points.clone(),
            settings: UmapSettings { n_neighbours, ..settings.clone() },
            bandwidths: neighbours.iter().map(|near| bandwidth(near, 0.0)).collect(),
            layout: to_matrix(&layout),
        })
    }

    /// Places other points among the fitted ones. The place of a point does not depend on the other points.
    ///
    /// # Panics
    /// If they do not have as many columns as the fitted points.
    pub fn transform(&self, points: &Matrix) -> Matrix {
        assert_eq!(points.n_columns(), self.points.n_columns(), "the points have another number of columns");
        let fitted: Vec<[f64; 2]> =
            self.layout.rows().map(|row| [f64::from(row[0]), f64::from(row[1])]).collect();
        // Equal fitted points have no bandwidth; without a lower bound they would attract only their equals.
        let typical = mean(&self.bandwidths);
        let neighbours = neighbours(points, &self.points, self.settings.n_neighbours, false);
        let places: Vec<[f64; 2]> = neighbours
            .par_iter()
            .map(|near| {
                let widest = near.iter().map(|(index, _)| self.bandwidths[*index]).fold(typical, f64::max);
                place(near, widest, &fitted, &self.settings)
            })
            .collect();
        to_matrix(&places)
    }
}

fn to_matrix(layout: &[[f64; 2]]) -> Matrix {
    Matrix::new(layout.iter().flatten().map(|value| *value as f32).collect(), 2)
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

/// The membership strengths of the neighbours of a fitted point: one for the nearest, in total log₂ of their
/// number.
fn memberships(near: &[Neighbour]) -> Vec<f64> {
    let nearest = near.iter().map(|(_, distance)| f64::from(*distance)).find(|distance| *distance > 0.0);
    let nearest = nearest.unwrap_or(0.0);
    let bandwidth = bandwidth(near, nearest);
    near.iter().map(|(_, distance)| membership(*distance, nearest, bandwidth)).collect()
}

/// One up to the distance `nearest`, and decreasing beyond it.
fn membership(distance: f32, nearest: f64, bandwidth: f64) -> f64 {
    let past = f64::from(distance) - nearest;
    if past <= 0.0 { 1.0 } else { (-past / bandwidth).exp() }
}

/// The bandwidth at which the memberships sum to log₂ of the number of neighbours.
fn bandwidth(near: &[Neighbour], nearest: f64) -> f64 {
    let wanted = (near.len() as f64).log2().max(1e-3);
    let (mut low, mut high) = (0.0, f64::INFINITY);
    let mut width = 1.0;
    for _ in 0..64 {
        let total: f64 = near.iter().map(|(_, distance)| membership(*distance, nearest, width)).sum();
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
    width.max(1e-3 * mean).max(1e-12)
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

/// When something of a given strength is applied: in every epoch, or once in several.
struct Schedule {
    every: f64,
    due: f64,
}

impl Schedule {
    /// Never, if the number of epochs is infinite.
    fn every(n_epochs: f64) -> Self {
        Self { every: n_epochs, due: n_epochs }
    }

    /// Whether it is applied in this epoch. Has to be asked once in each epoch.
    fn is_due(&mut self, epoch: usize) -> bool {
        let is_due = self.due <= epoch as f64 + 1.0;
        if is_due {
            self.due += self.every;
        }
        is_due
    }
}

fn optimise(layout: &mut [[f64; 2]], edges: &[(usize, usize, f64)], settings: &UmapSettings) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(settings.seed.wrapping_add(1));
    let strongest = edges.iter().map(|(_, _, weight)| *weight).fold(0.0, f64::max);
    // The strongest edges move in every epoch, others in proportion to their strength.
    let mut schedules: Vec<Schedule> =
        edges.iter().map(|(_, _, weight)| Schedule::every(strongest / weight)).collect();
    for epoch in 0..settings.n_epochs {
        let rate = 1.0 - epoch as f64 / settings.n_epochs as f64;
        for ((one, other, _), schedule) in edges.iter().zip(&mut schedules) {
            if !schedule.is_due(epoch) {
                continue;
            }
            let squared = squared_distance(&layout[*one], &layout[*other]);
            if squared > 0.0 {
                push(layout, *one, *other, attraction(squared) * rate);
            }
            for end in [*one, *other] {
                for _ in 0..N_NEGATIVES {
                    let stranger = rng.random_range(0..layout.len());
                    let squared = squared_distance(&layout[end], &layout[stranger]);
                    if stranger != end && squared > 0.0 {
                        let here = layout[stranger];
                        push(layout, end, stranger, repulsion(squared) * rate);
                        layout[stranger] = here;
                    }
                }
            }
        }
    }
}

/// The force between neighbours at a squared distance; negative, because it pulls.
fn attraction(squared: f64) -> f64 {
    -2.0 * A * B * squared.powf(B - 1.0) / (1.0 + A * squared.powf(B))
}

/// The force between a point and a negative sample.
fn repulsion(squared: f64) -> f64 {
    2.0 * B / ((0.001 + squared) * (1.0 + A * squared.powf(B)))
}

/// Moves two points along the line between them.
fn push(layout: &mut [[f64; 2]], one: usize, other: usize, force: f64) {
    let (here, there) = (layout[one], layout[other]);
    let step = step(here, there, force);
    layout[one] = [here[0] + step[0], here[1] + step[1]];
    layout[other] = [there[0] - step[0], there[1] - step[1]];
}

fn step(here: [f64; 2], there: [f64; 2], force: f64) -> [f64; 2] {
    std::array::from_fn(|axis| (force * (here[axis] - there[axis])).clamp(-MAX_STEP, MAX_STEP))
}

/// A neighbour of a new point.
struct Link {
    there: [f64; 2],
    attracts: Schedule,
    repels: Schedule,
}

/// Places a new point: it starts at the weighted mean of its neighbours, which then attract it, while random
/// fitted points repel it.
fn place(near: &[Neighbour], widest: f64, fitted: &[[f64; 2]], settings: &UmapSettings) -> [f64; 2] {
    // The nearest distance is not subtracted: a new point need not be connected to any fitted one.
    let bandwidth = bandwidth(near, 0.0);
    let weights: Vec<f64> = near.iter().map(|(_, distance)| membership(*distance, 0.0, bandwidth)).collect();
    // The bandwidth grows with the distance of the point, so the memberships always have the same sum. They
    // determine how often the point is repelled. Its attraction uses a bandwidth that occurs among fitted
    // points; otherwise a point far from all of them would be held as firmly as one of their own.
    let link = |((index, distance), weight): (&Neighbour, &f64)| Link {
        there: fitted[*index],
        attracts: Schedule::every(1.0 / membership(*distance, 0.0, bandwidth.min(widest))),
        repels: Schedule::every(1.0 / weight),
    };
    let mut links: Vec<Link> = near.iter().zip(&weights).map(link).collect();
    let mut here = weighted_mean(&links, &weights);
    // Every point has the same random numbers, so that its place does not depend on the other points.
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(settings.seed.wrapping_add(2));
    let n_epochs = settings.n_epochs / 3;
    for epoch in 0..n_epochs {
        let rate = 1.0 - epoch as f64 / n_epochs as f64;
        for link in &mut links {
            if link.attracts.is_due(epoch) {
                here = moved(here, link.there, attraction, rate);
            }
            if link.repels.is_due(epoch) {
                for _ in 0..N_NEGATIVES {
                    here = moved(here, fitted[rng.random_range(0..fitted.len())], repulsion, rate);
                }
            }
        }
    }
    here
}

/// The mean place of neighbours; unweighted if they are too far away to have weights.
fn weighted_mean(links: &[Link], weights: &[f64]) -> [f64; 2] {
    let total: f64 = weights.iter().sum();
    let weight = |index: usize| if total > 0.0 { weights[index] / total } else { 1.0 / links.len() as f64 };
    std::array::from_fn(|axis| {
        links.iter().enumerate().map(|(index, link)| weight(index) * link.there[axis]).sum()
    })
}

/// Where a point is after a force from another place.
fn moved(here: [f64; 2], there: [f64; 2], force: fn(f64) -> f64, rate: f64) -> [f64; 2] {
    let squared = squared_distance(&here, &there);
    // Between equal places there is no direction.
    if squared <= 0.0 {
        return here;
    }
    let step = step(here, there, force(squared));
    [here[0] + rate * step[0], here[1] + rate * step[1]]
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
    use crate::stats::median;

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

    /// Points in five dimensions around a centre.
    fn cloud(centre: [f32; 5], n_points: usize, rng: &mut Xoshiro256PlusPlus) -> Vec<f32> {
        (0..n_points).flat_map(|_| centre.map(|at| at + rng.sample::<f32, _>(StandardNormal))).collect()
    }

    #[test]
    fn new_points_far_from_all_fitted_ones_are_not_placed_on_them() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
        let centres: [[f32; 5]; 3] =
            [[20.0, 0.0, 0.0, 0.0, 0.0], [0.0, 20.0, 0.0, 0.0, 0.0], [0.0, 0.0, 20.0, 0.0, 0.0]];
        let fitted: Vec<f32> = centres.iter().flat_map(|centre| cloud(*centre, 60, &mut rng)).collect();
        let umap = Umap::fit(&Matrix::new(fitted, 5), &UmapSettings::default()).unwrap();
        let mut nearest_in_layout = |centre: [f32; 5]| -> Vec<Neighbour> {
            let placed = umap.transform(&Matrix::new(cloud(centre, 40, &mut rng), 5));
            neighbours(&placed, &umap.layout, 1, false).concat()
        };
        let distance = |near: &[Neighbour]| median(near.iter().map(|(_, far)| f64::from(*far)).collect());
        let normal = nearest_in_layout(centres[0]);
        assert!(normal.iter().all(|(index, _)| *index < 60), "in their own cloud: {normal:?}");
        // The first cloud is the nearest, so all neighbours are in it and the mean of their places is too.
        let far = nearest_in_layout([20.0, 0.0, 0.0, 30.0, 0.0]);
        let (normal, far) = (distance(&normal), distance(&far));
        assert!(normal < 1.0 && far > 3.0 * normal, "{normal} {far}");
    }

    #[test]
    fn a_random_seed_gives_a_new_point_one_place_whatever_the_other_points_are() {
        let (points, _) = clouds(120);
        let new = points.select(&(90..120).collect::<Vec<usize>>());
        let points = points.select(&(0..90).collect::<Vec<usize>>());
        let umap = Umap::fit(&points, &UmapSettings::default()).unwrap();
        let placed = umap.transform(&new);
        assert_eq!(placed, umap.transform(&new));
        assert_eq!(placed.row(7), umap.transform(&new.select(&[7])).row(0));
        let settings = UmapSettings { seed: 1, ..umap.settings.clone() };
        let other = Umap { settings, ..umap.clone() };
        assert_ne!(placed, other.transform(&new));
    }

    #[test]
    fn equal_points_have_a_finite_layout() {
        let umap = Umap::fit(&Matrix::new(vec![0.5; 60], 3), &UmapSettings::default()).unwrap();
        assert!(umap.layout.as_slice().iter().all(|value| value.is_finite()));
        let new = umap.transform(&Matrix::new(vec![0.5, 0.5, 0.5, 1.0, 1.0, 1.0, 1e30, 0.0, 0.0], 3));
        assert!(new.as_slice().iter().all(|value| value.is_finite()), "{new:?}");
    }
}
