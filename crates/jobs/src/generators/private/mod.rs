//! Private histograms: a model that may be shared. It stores only counts with noise, and is ε-differentially private.
//!
//! The unit of privacy is one job: of two traces that differ in one job (another job, submitted at another time), none
//! makes any model more than e^ε times as likely as the other. The number of jobs and the schema (names, types and formats
//! of columns, constant cells, constraints, notes, the first submission, names of statuses, and which columns have unknown
//! or negative values) are public. Bins do not depend on data
//! ([`grid`]); names of other categories, such as users, are replaced by one of 64 groups.
//!
//! Tables: the fine distribution of every feature; coarse pairs of each feature and its parent, chosen by role; pairs of
//! consecutive intervals. Every table gets a part of ε (sequential composition), and discrete Laplace noise.

mod grid;
mod noise;

use learn::artifact::restore::{RestoreError, ensure, expect_tensor};
use learn::artifact::{Tensor, Tensors};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sha2::{Digest, Sha256};
use workload::{Stop, Stopped};

use self::noise::{SecretNumbers, projected};
use super::Generator;
use crate::assemble::ValueRange;
use crate::error::{Error, Result};
use crate::features::{FeatureKind, FeatureSpec, FeatureTable};
use crate::schema::{ColumnKind, Role, Schema};

/// The privacy budget of a model.
pub const EPSILON: f64 = 4.0;
/// Groups that users, projects and other names are mapped to, by a hash.
const N_GROUPS: usize = 64;
/// How much one job can change a table, as a sum of absolute differences of counts. Its row is taken away and another is
/// added.
const ROW_CHANGE: f64 = 2.0;
/// The same for a table of intervals: the interval of the next job changes as well, at the old and at the new place.
const INTERVAL_CHANGE: f64 = 6.0;
/// The same for pairs of consecutive intervals: at each place, three pairs become two, or two become three.
const PAIR_OF_INTERVALS_CHANGE: f64 = 10.0;
/// Jobs between two checks of whether to stop.
const JOBS_PER_CHECK: usize = 1_024;

/// Replaces names that are not public. Constraints stay: they are a part of the schema.
pub fn anonymised(mut schema: Schema, jobs: FeatureTable) -> Result<(Schema, FeatureTable)> {
    let mut specs = jobs.specs().to_vec();
    let mut columns = jobs.columns().to_vec();
    for (spec, column) in specs.iter_mut().zip(&mut columns) {
        let FeatureKind::Category { names } = &mut spec.kind else { continue };
        if spec.role == Some(Role::Status) {
            continue;
        }
        let groups: Vec<f64> = names.iter().map(|name| group(name) as f64).collect();
        column.iter_mut().for_each(|code| *code = groups[*code as usize]);
        *names = (0..N_GROUPS).map(|group| format!("group-{group:02}")).collect();
        for column in schema.columns.iter_mut().filter(|column| column.name == spec.name) {
            (column.kind, column.format) = (ColumnKind::Category, None);
        }
    }
    Ok((schema, FeatureTable::new(specs, columns)?))
}

/// The group of a name.
fn group(name: &str) -> usize {
    usize::from(Sha256::digest(name.as_bytes())[0]) % N_GROUPS
}

/// The range of a number: that of the bins.
pub fn range(spec: &FeatureSpec) -> ValueRange {
    let (least, most) = grid::range();
    ValueRange::from((if is_positive(spec) { 1.0 } else { least }, most))
}

/// Every job has a node and a core, whatever the trace says.
fn is_positive(spec: &FeatureSpec) -> bool {
    matches!(spec.role, Some(Role::Nodes | Role::Cores)) && !spec.is_category()
}

/// What the value of a feature is drawn from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parent {
    None,
    /// The interval of the previous job.
    PreviousInterval,
    Feature(usize),
}

/// The parent of every feature, by role: users decide on sizes, sizes on limits, limits on run times, and these on outcomes.
fn parents(specs: &[FeatureSpec]) -> Vec<Parent> {
    let with = |role: Role| specs.iter().position(|spec| spec.role == Some(role));
    let size = with(Role::Nodes).or(with(Role::Cores)).or(with(Role::Gpus));
    let user = with(Role::User);
    let parent = |(at, spec): (usize, &FeatureSpec)| {
        let candidates = match spec.role {
            Some(Role::Interval) => return Parent::PreviousInterval,
            Some(Role::User) => [None; 3],
            Some(Role::Nodes | Role::Cores | Role::Gpus) if size == Some(at) => [user, None, None],
            Some(Role::Nodes | Role::Cores | Role::Gpus) => [size, user, None],
            Some(Role::RequestedTime) => [size, user, None],
            Some(Role::RunTime) => [with(Role::RequestedTime), size, user],
            Some(Role::Status) => [with(Role::RunTime), user, None],
            _ => [user, size, None],
        };
        candidates.into_iter().flatten().find(|found| *found != at).map_or(Parent::None, Parent::Feature)
    };
    specs.iter().enumerate().map(parent).collect()
}

/// Features in an order in which parents come first.
fn order(parents: &[Parent]) -> Vec<usize> {
    let mut order: Vec<usize> = Vec::new();
    while order.len() < parents.len() {
        let before = order.len();
        for (at, parent) in parents.iter().enumerate() {
            let is_ready = !matches!(parent, Parent::Feature(parent) if !order.contains(parent));
            if is_ready && !order.contains(&at) {
                order.push(at);
            }
        }
        debug_assert!(order.len() > before, "parents have no cycles");
    }
    order
}

fn n_fine(spec: &FeatureSpec) -> usize {
    match &spec.kind {
        FeatureKind::Category { names } => names.len(),
        FeatureKind::Number { .. } => grid::n_fine(),
    }
}

fn n_coarse(spec: &FeatureSpec) -> usize {
    match &spec.kind {
        FeatureKind::Category { names } => names.len(),
        FeatureKind::Number { .. } => grid::N_COARSE,
    }
}

fn fine(spec: &FeatureSpec, value: f64) -> usize {
    if spec.is_category() { value as usize } else { grid::fine(value) }
}

fn coarse(spec: &FeatureSpec, fine: usize) -> usize {
    if spec.is_category() { fine } else { grid::coarse(fine) }
}

/// Cells of the pair table of a feature: by the cell of its parent. None without a parent.
fn pair_shape(specs: &[FeatureSpec], feature: usize, parent: Parent) -> Option<[usize; 2]> {
    match parent {
        Parent::None => None,
        Parent::PreviousInterval => Some([grid::N_COARSEST; 2]),
        Parent::Feature(parent) => Some([n_coarse(&specs[parent]), n_coarse(&specs[feature])]),
    }
}

/// The pair cell of a fine bin.
fn pair_cell(spec: &FeatureSpec, parent: Parent, fine: usize) -> usize {
    let coarse = coarse(spec, fine);
    if parent == Parent::PreviousInterval { grid::coarsest(coarse) } else { coarse }
}

/// Counts from which a cell can be drawn.
#[derive(Debug, Clone, PartialEq)]
struct Weights {
    ends: Vec<f64>,
}

impl Weights {
    fn new(counts: impl Iterator<Item = f64>) -> Self {
        let ends = counts.scan(0.0, |end, count| {
            *end += count;
            Some(*end)
        });
        Self { ends: ends.collect() }
    }

    /// None if all counts are zero.
    fn draw(&self, rng: &mut Xoshiro256PlusPlus) -> Option<usize> {
        let total = *self.ends.last()?;
        let place = rng.random::<f64>() * total;
        (total > 0.0).then(|| self.ends.partition_point(|end| *end <= place).min(self.ends.len() - 1))
    }
}

/// The tables of one feature.
#[derive(Debug, Clone, PartialEq)]
struct FeatureTables {
    fine: Vec<f64>,
    /// Row by row; empty without a parent.
    pair: Vec<f64>,
}

/// The tables of one feature, prepared for drawing.
struct Draws {
    all: Weights,
    /// By cell of the parent: the cells of the feature.
    by_parent: Vec<Weights>,
    /// By cell of the feature: its fine bins.
    by_cell: Vec<(Vec<usize>, Weights)>,
}

pub struct Private {
    specs: Vec<FeatureSpec>,
    tables: Vec<FeatureTables>,
}

impl Private {
    /// `jobs` have to be [`anonymised`].
    pub fn fit(jobs: &FeatureTable, stop: &Stop) -> Result<Self> {
        let specs = jobs.specs().to_vec();
        let parents = parents(&specs);
        let fine_change = |at: usize| if at == 0 { INTERVAL_CHANGE } else { ROW_CHANGE };
        let pair_change = |parent: Parent| match parent {
            Parent::None => None,
            Parent::PreviousInterval => Some(PAIR_OF_INTERVALS_CHANGE),
            Parent::Feature(_) => Some(ROW_CHANGE),
        };
        let changes =
            (0..specs.len()).map(fine_change).chain(parents.iter().filter_map(|one| pair_change(*one)));
        // A table that one job changes more gets a larger part of the budget.
        let total: f64 = changes.map(f64::sqrt).sum();
        let scale = |change: f64| change / (EPSILON * change.sqrt() / total);
        let mut numbers = SecretNumbers::new().map_err(Error::io(std::path::Path::new("/dev/urandom")))?;
        let mut noisy = |counts: Vec<f64>, change: f64, impossible: &[usize]| {
            let mut noisy: Vec<f64> =
                counts.iter().map(|count| count + numbers.laplace(scale(change))).collect();
            impossible.iter().for_each(|bin| noisy[*bin] = f64::MIN);
            projected(&noisy, jobs.n_jobs() as f64)
        };
        let mut tables = Vec::new();
        for (at, spec) in specs.iter().enumerate() {
            stop.check()?;
            let bins: Vec<usize> = jobs.column(at).iter().map(|value| fine(spec, *value)).collect();
            let mut counts = vec![0.0; n_fine(spec)];
            bins.iter().for_each(|bin| counts[*bin] += 1.0);
            let mut pair = Vec::new();
            if let Some([n_rows, n_columns]) = pair_shape(&specs, at, parents[at]) {
                pair = vec![0.0; n_rows * n_columns];
                let cells: Vec<usize> = bins.iter().map(|bin| pair_cell(spec, parents[at], *bin)).collect();
                let rows: Vec<usize> = match parents[at] {
                    Parent::Feature(parent) => {
                        let spec = &specs[parent];
                        jobs.column(parent).iter().map(|value| coarse(spec, fine(spec, *value))).collect()
                    }
                    // The first job has no previous one, and counts as its own.
                    _ => cells.iter().take(1).chain(&cells).copied().collect(),
                };
                rows.iter().zip(&cells).for_each(|(row, cell)| pair[row * n_columns + cell] += 1.0);
                pair = noisy(pair, pair_change(parents[at]).unwrap_or(ROW_CHANGE), &[]);
            }
            let is_impossible = |bin: &usize| !spec.is_category() && counts[*bin] == 0.0;
            let mut impossible: Vec<usize> =
                [grid::UNKNOWN, grid::NEGATIVE].into_iter().filter(is_impossible).collect();
            if is_positive(spec) {
                impossible.extend(grid::below_one());
            }
            tables.push(FeatureTables { fine: noisy(counts, fine_change(at), &impossible), pair });
        }
        Ok(Self { specs, tables })
    }

    pub fn restore(specs: &[FeatureSpec], tensors: &Tensors) -> Result<Self, RestoreError> {
        let parents = parents(specs);
        let table = |name: String, shape: &[usize]| {
            let tensor = expect_tensor(tensors, &name)?;
            ensure(tensor.shape() == shape, "a table is that of other features")?;
            let counts = tensor.as_f64().map(<[f64]>::to_vec);
            let counts = counts.ok_or(RestoreError::Type { name, expected: "f64" })?;
            let is_valid = counts.iter().all(|count| *count >= 0.0) && counts.iter().sum::<f64>() > 0.0;
            ensure(is_valid, "a table has no counts")?;
            Ok::<_, RestoreError>(counts)
        };
        let feature = |(at, spec): (usize, &FeatureSpec)| {
            let fine = table(format!("fine.{at}"), &[n_fine(spec)])?;
            let pair = match pair_shape(specs, at, parents[at]) {
                Some(shape) => table(format!("pair.{at}"), &shape)?,
                None => Vec::new(),
            };
            Ok(FeatureTables { fine, pair })
        };
        let tables = specs.iter().enumerate().map(feature).collect::<Result<_, RestoreError>>()?;
        Ok(Self { specs: specs.to_vec(), tables })
    }

    /// The mean interval of sampled jobs.
    pub fn mean_interval(&self) -> f64 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(0);
        let counts = self.tables[0].fine.iter().enumerate();
        let weighted = counts.map(|(bin, count)| (grid::value(bin, &mut rng).max(0.0), *count));
        let (sum, n_jobs) =
            weighted.fold((0.0, 0.0), |(sum, n), (value, count)| (sum + value * count, n + count));
        sum / n_jobs
    }

    fn draws(&self, at: usize, parent: Parent) -> Draws {
        let (spec, tables) = (&self.specs[at], &self.tables[at]);
        let mut cells: Vec<Vec<usize>> = Vec::new();
        for bin in 0..tables.fine.len() {
            let cell = pair_cell(spec, parent, bin);
            cells.resize(cells.len().max(cell + 1), Vec::new());
            cells[cell].push(bin);
        }
        let n_columns = pair_shape(&self.specs, at, parent).map_or(1, |[_, n_columns]| n_columns);
        let by_parent = tables.pair.chunks_exact(n_columns).map(|row| Weights::new(row.iter().copied()));
        let within = |bins: Vec<usize>| {
            let weights = Weights::new(bins.iter().map(|bin| tables.fine[*bin]));
            (bins, weights)
        };
        Draws {
            all: Weights::new(tables.fine.iter().copied()),
            by_parent: by_parent.collect(),
            by_cell: cells.into_iter().map(within).collect(),
        }
    }
}

impl Draws {
    /// A fine bin: a cell that goes with the cell of the parent, then a bin in it. Where noise left no counts, the parent is
    /// ignored.
    fn bin(&self, parent: Option<usize>, rng: &mut Xoshiro256PlusPlus) -> usize {
        let cell = parent.and_then(|parent| self.by_parent.get(parent)?.draw(rng));
        let bin = cell.and_then(|cell| {
            let (bins, weights) = self.by_cell.get(cell)?;
            bins.get(weights.draw(rng)?).copied()
        });
        bin.or_else(|| self.all.draw(rng)).unwrap_or(0)
    }
}

impl Generator for Private {
    fn sample(&self, n_jobs: usize, seed: u64, stop: &Stop) -> Result<Vec<Vec<f64>>, Stopped> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let parents = parents(&self.specs);
        let draws: Vec<Draws> = (0..self.specs.len()).map(|at| self.draws(at, parents[at])).collect();
        let order = order(&parents);
        let mut columns = vec![Vec::with_capacity(n_jobs); self.specs.len()];
        let mut bins = vec![0; self.specs.len()];
        for job in 0..n_jobs {
            if job % JOBS_PER_CHECK == 0 {
                stop.check()?;
            }
            for at in &order {
                let given = match parents[*at] {
                    Parent::None => None,
                    // Still that of the previous job.
                    Parent::PreviousInterval => {
                        (job > 0).then(|| pair_cell(&self.specs[0], parents[0], bins[0]))
                    }
                    Parent::Feature(parent) => Some(coarse(&self.specs[parent], bins[parent])),
                };
                bins[*at] = draws[*at].bin(given, &mut rng);
                let is_category = self.specs[*at].is_category();
                let value = if is_category { bins[*at] as f64 } else { grid::value(bins[*at], &mut rng) };
                columns[*at].push(value);
            }
        }
        Ok(columns)
    }

    fn tensors(&self) -> Tensors {
        let parents = parents(&self.specs);
        let mut tensors = Tensors::new();
        for (at, tables) in self.tables.iter().enumerate() {
            let fine = Tensor::new(vec![tables.fine.len()], tables.fine.clone());
            tensors.insert(format!("fine.{at}"), fine);
            if let Some(shape) = pair_shape(&self.specs, at, parents[at]) {
                tensors.insert(format!("pair.{at}"), Tensor::new(shape.to_vec(), tables.pair.clone()));
            }
        }
        tensors
    }

    fn settings(&self) -> serde_json::Value {
        serde_json::json!({ "epsilon": EPSILON, "unit": "one job" })
    }
}
