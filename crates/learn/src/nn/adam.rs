//! The Adam optimiser (Kingma and Ba, 2015).

use super::parameters::Parameters;

#[derive(Debug, Clone, PartialEq)]
pub struct Adam {
    pub rate: f32,
    pub decays: [f32; 2],
    pub epsilon: f32,
    n_steps: i32,
    means: Vec<f32>,
    squares: Vec<f32>,
}

impl Adam {
    /// With the constants of the paper, which are also PyTorch's.
    pub fn new(rate: f32, n_parameters: usize) -> Self {
        Self {
            rate,
            decays: [0.9, 0.999],
            epsilon: 1e-8,
            n_steps: 0,
            means: vec![0.0; n_parameters],
            squares: vec![0.0; n_parameters],
        }
    }

    /// The optimiser as it was after `n_steps`.
    pub fn resumed(rate: f32, n_steps: i32, means: Vec<f32>, squares: Vec<f32>) -> Self {
        Self { n_steps, means, squares, ..Self::new(rate, 0) }
    }

    /// The steps so far, and the moving means of the gradients and of their squares.
    pub fn moments(&self) -> (i32, &[f32], &[f32]) {
        (self.n_steps, &self.means, &self.squares)
    }

    /// One step against the gradient.
    pub fn step(&mut self, parameters: &mut Parameters, gradients: &[f32]) {
        self.n_steps = self.n_steps.saturating_add(1);
        let [first, second] = self.decays;
        let length = self.rate / (1.0 - first.powi(self.n_steps));
        let unbias = 1.0 / (1.0 - second.powi(self.n_steps)).sqrt();
        let moments = self.means.iter_mut().zip(&mut self.squares);
        for ((value, gradient), (mean, square)) in
            parameters.values_mut().iter_mut().zip(gradients).zip(moments)
        {
            *mean = first * *mean + (1.0 - first) * gradient;
            *square = second * *square + (1.0 - second) * gradient * gradient;
            *value -= length * *mean / (square.sqrt() * unbias + self.epsilon);
        }
    }
}
