//! `np`: a partial-wave analysis in cycles of three phases: read events from a file, fit partial-wave models to
//! them by maximum likelihood, write the fitted events. The model and the lengths of the phases are those of the job,
//! the number of events and the minimiser differ from fit to fit.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use argmin::core::{CostFunction, Error, Executor, Gradient};
use argmin::solver::linesearch::MoreThuenteLineSearch;
use argmin::solver::neldermead::NelderMead;
use argmin::solver::quasinewton::LBFGS;
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::waves::{Complex, Likelihood, Wave, generate, phase_space};
use super::{JobError, JobSpec, Until, confine};

const EVENTS: std::ops::Range<usize> = 20_000..120_000;
/// The lengths of the phases in seconds; each job has its own.
const READ_SECONDS: std::ops::Range<f64> = 6.0..14.0;
const FIT_SECONDS: std::ops::Range<f64> = 35.0..70.0;
const WRITE_SECONDS: std::ops::Range<f64> = 4.0..9.0;
/// How much the length of a phase differs from cycle to cycle, at most.
const LENGTH_SPREAD: f64 = 0.15;
/// Lines of the file of events.
const FILE_EVENTS: usize = 50_000;
/// Lines between two checks of the deadline.
const LINES_PER_CHECK: usize = 1_000;
const PHASE_SPACE_EVENTS: usize = 100_000;
const MAX_ITERATIONS: u64 = 400;

const fn wave(l: u32, m: u32, mass: f64, width: f64) -> Wave {
    Wave { l, m, mass, width }
}

/// Sets of waves of increasing size.
const MODELS: [&[Wave]; 3] = [
    &[wave(0, 0, 0.98, 0.10), wave(1, 0, 0.77, 0.15), wave(1, 1, 0.77, 0.15), wave(2, 0, 1.27, 0.19)],
    &[
        wave(0, 0, 0.98, 0.07),
        wave(0, 0, 1.45, 0.27),
        wave(2, 0, 1.32, 0.11),
        wave(2, 1, 1.32, 0.11),
        wave(2, 2, 1.32, 0.11),
    ],
    &[
        wave(0, 0, 1.35, 0.35),
        wave(1, 0, 0.77, 0.15),
        wave(1, 1, 1.45, 0.40),
        wave(2, 0, 1.27, 0.19),
        wave(2, 1, 1.27, 0.19),
        wave(3, 0, 1.69, 0.16),
        wave(3, 1, 1.69, 0.16),
        wave(4, 0, 1.98, 0.26),
    ],
];

#[derive(Debug, Clone, Copy)]
enum Minimiser {
    Lbfgs,
    NelderMead,
}

pub fn run(spec: &JobSpec, until: &Until) -> Result<(), JobError> {
    let cpus = spec.cpus.clone();
    let pool = ThreadPoolBuilder::new()
        .num_threads(cpus.len())
        // A worker that cannot be bound to one CPU stays on the CPUs of the job.
        .start_handler(move |worker| drop(confine(&cpus[worker..=worker])))
        .build()
        .map_err(|error| JobError::Fit(error.to_string()))?;
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(spec.seed);
    let waves = MODELS[rng.random_range(0..MODELS.len())];
    let [read, fit, write] = [READ_SECONDS, FIT_SECONDS, WRITE_SECONDS].map(|range| rng.random_range(range));
    let name = |what: &str| spec.scratch.join(format!("np-{}-{what}", std::process::id()));
    let (events, fitted) = (name("events"), name("fitted"));
    write_events(&events, FILE_EVENTS, &mut rng).map_err(JobError::io(events.display().to_string()))?;
    while !until.is_over() {
        let mut end = Instant::now();
        let phases = [read, fit, write].map(|seconds| {
            let factor = 1.0 + rng.random_range(-LENGTH_SPREAD..LENGTH_SPREAD);
            end += Duration::from_secs_f64(seconds * factor);
            Phase { until, end }
        });
        pool.install(|| read_events(&events, &phases[0])).map_err(JobError::io("events"))?;
        while !phases[1].is_over() {
            fit_once(waves, &mut rng, &pool, &phases[1])?;
        }
        pool.install(|| write_fitted(&fitted, spec.quota, &phases[2]))
            .map_err(JobError::io("fitted events"))?;
    }
    for path in [events, fitted].iter().filter(|path| path.exists()) {
        fs::remove_file(path).map_err(JobError::io(path.display().to_string()))?;
    }
    Ok(())
}

/// One phase of a cycle, which ends at its own time or with the job.
struct Phase<'a> {
    until: &'a Until,
    end: Instant,
}

impl Phase<'_> {
    fn is_over(&self) -> bool {
        self.until.is_over() || Instant::now() >= self.end
    }
}

/// Writes events as text: four momenta per line.
fn write_events(path: &Path, n_events: usize, rng: &mut Xoshiro256PlusPlus) -> std::io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for _ in 0..n_events {
        let [energy, x, y, z]: [f64; 4] = rng.random();
        writeln!(file, "{energy:.9} {x:.9} {y:.9} {z:.9}")?;
    }
    file.flush()
}

/// Reads the file again and again and selects events, as an analysis does with many files.
fn read_events(path: &Path, phase: &Phase<'_>) -> std::io::Result<usize> {
    let mut n_selected = 0;
    while !phase.is_over() {
        for (number, line) in BufReader::new(File::open(path)?).lines().enumerate() {
            let line = line?;
            let momentum = line.split(' ').filter_map(|value| value.parse::<f64>().ok());
            let mass_squared =
                momentum.enumerate().map(|(axis, value)| if axis == 0 { value } else { -value } * value);
            n_selected += usize::from(mass_squared.sum::<f64>() > 0.0);
            if number.is_multiple_of(LINES_PER_CHECK) && phase.is_over() {
                break;
            }
        }
    }
    Ok(n_selected)
}

/// Writes fitted events as text through a buffer; starts the file again before it exceeds `max_bytes`.
fn write_fitted(path: &Path, max_bytes: u64, phase: &Phase<'_>) -> std::io::Result<()> {
    while !phase.is_over() {
        let mut file = BufWriter::new(File::create(path)?);
        let mut written = 0;
        while written < max_bytes / 4 && !phase.is_over() {
            for event in 0..LINES_PER_CHECK {
                let weight = (event as f64).sqrt();
                let line = format!("{event} {weight:.9} {:.9} {:.9}\n", weight.sin(), weight.cos());
                file.write_all(line.as_bytes())?;
                written += line.len() as u64;
            }
        }
        file.flush()?;
    }
    Ok(())
}

fn fit_once(
    waves: &[Wave],
    rng: &mut Xoshiro256PlusPlus,
    pool: &ThreadPool,
    phase: &Phase<'_>,
) -> Result<(), JobError> {
    let waves = waves.to_vec();
    let n_events = rng.random_range(EVENTS);
    let minimiser = if rng.random_bool(0.7) { Minimiser::Lbfgs } else { Minimiser::NelderMead };
    let mut normal = || rng.sample::<f64, _>(StandardNormal);
    let truth: Vec<Complex> = waves.iter().map(|_| Complex::new(normal(), normal())).collect();
    // About the magnitude of the couplings that fit.
    let start: Vec<f64> = (1..2 * waves.len()).map(|_| 3.0 * normal()).collect();
    // One worker prepares the data while the others wait.
    let (data, reference) = pool.install(|| {
        let data = generate(&waves, &truth, n_events, rng, || phase.is_over());
        (data, phase_space(PHASE_SPACE_EVENTS, rng))
    });
    let likelihood = Likelihood { waves, data, phase_space: reference };
    if phase.is_over() {
        return Ok(());
    }
    match pool.install(|| minimise(&likelihood, start, minimiser, phase)) {
        Ok(_) => Ok(()),
        // The line search found no better point, or the deadline has passed.
        Err(error) => {
            tracing::debug!("{minimiser:?}: {error}");
            Ok(())
        }
    }
}

/// The parameters that fit best, and minus the logarithm of their likelihood.
fn minimise(
    likelihood: &Likelihood,
    start: Vec<f64>,
    minimiser: Minimiser,
    phase: &Phase<'_>,
) -> Result<(Vec<f64>, f64), Error> {
    let problem = Problem { likelihood, phase };
    let (best, cost) = match minimiser {
        Minimiser::Lbfgs => {
            let solver = LBFGS::new(MoreThuenteLineSearch::new(), 7);
            let done = Executor::new(problem, solver)
                .configure(|state| state.param(start).max_iters(MAX_ITERATIONS))
                .run()?;
            (done.state.best_param, done.state.best_cost)
        }
        Minimiser::NelderMead => {
            let corner = |moved: usize| {
                let mut corner = start.clone();
                if let Some(parameter) = moved.checked_sub(1).and_then(|index| corner.get_mut(index)) {
                    *parameter += 1.0;
                }
                corner
            };
            let corners = (0..=likelihood.n_parameters()).map(corner).collect();
            let solver = NelderMead::new(corners).with_sd_tolerance(1e-7)?;
            let done = Executor::new(Corners(problem), solver)
                .configure(|state| state.max_iters(MAX_ITERATIONS))
                .run()?;
            (done.state.best_param, done.state.best_cost)
        }
    };
    Ok((best.unwrap_or_default(), cost))
}

struct Problem<'a> {
    likelihood: &'a Likelihood,
    phase: &'a Phase<'a>,
}

impl Problem<'_> {
    fn evaluate(&self, parameters: &[f64]) -> Result<(f64, Vec<f64>), Error> {
        if self.phase.is_over() {
            return Err(Error::msg("the time of the fit has passed"));
        }
        Ok(self.likelihood.evaluate(parameters))
    }
}

impl CostFunction for Problem<'_> {
    type Param = Vec<f64>;
    type Output = f64;

    fn cost(&self, parameters: &Vec<f64>) -> Result<f64, Error> {
        Ok(self.evaluate(parameters)?.0)
    }
}

impl Gradient for Problem<'_> {
    type Param = Vec<f64>;
    type Gradient = Vec<f64>;

    fn gradient(&self, parameters: &Vec<f64>) -> Result<Vec<f64>, Error> {
        Ok(self.evaluate(parameters)?.1)
    }
}

/// The same problem for Nelder-Mead, which does not accept a failure at its start: after the deadline, every
/// point has the largest cost and is not evaluated.
struct Corners<'a>(Problem<'a>);

impl CostFunction for Corners<'_> {
    type Param = Vec<f64>;
    type Output = f64;

    fn cost(&self, parameters: &Vec<f64>) -> Result<f64, Error> {
        Ok(self.0.evaluate(parameters).map_or(f64::MAX, |(cost, _)| cost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fraction of the intensity of each wave; scale and signs of phases do not matter for it.
    fn fractions(couplings: &[Complex]) -> Vec<f64> {
        let total: f64 = couplings.iter().map(|coupling| coupling.norm_squared()).sum();
        couplings.iter().map(|coupling| coupling.norm_squared() / total).collect()
    }

    #[test]
    fn a_fit_finds_the_amplitudes_that_made_the_events() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let truth = [(1.5, 0.0), (0.6, 0.4), (-0.3, 0.8), (0.9, -0.5)].map(|(re, im)| Complex::new(re, im));
        let data = generate(MODELS[0], &truth, 8_000, &mut rng, || false);
        let reference = phase_space(20_000, &mut rng);
        let likelihood = Likelihood { waves: MODELS[0].to_vec(), data, phase_space: reference };
        let until = Until::after(Duration::from_secs(120));
        let phase = Phase { until: &until, end: Instant::now() + Duration::from_secs(120) };
        let start = vec![2.0, 0.5, 0.5, 0.1, 0.5, 0.5, -0.5];
        let (found, cost) = minimise(&likelihood, start, Minimiser::Lbfgs, &phase).unwrap();
        let found = fractions(&Likelihood::couplings(&found));
        for (found, truth) in found.iter().zip(fractions(&truth)) {
            assert!((found - truth).abs() < 0.06, "{found} {truth} {cost}");
        }
    }

    #[test]
    fn a_fit_past_its_deadline_ends_with_either_minimiser() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        let waves = MODELS[0].to_vec();
        let truth: Vec<Complex> = waves.iter().map(|_| Complex::new(1.0, 0.5)).collect();
        let data = generate(&waves, &truth, 50, &mut rng, || false);
        let likelihood = Likelihood { waves, data, phase_space: phase_space(50, &mut rng) };
        let start = vec![0.5; likelihood.n_parameters()];
        let until = Until::after(Duration::ZERO);
        let phase = Phase { until: &until, end: Instant::now() };
        for minimiser in [Minimiser::Lbfgs, Minimiser::NelderMead] {
            let begun = Instant::now();
            let _ = minimise(&likelihood, start.clone(), minimiser, &phase);
            assert!(begun.elapsed() < Duration::from_secs(5), "{minimiser:?}");
        }
    }
}
