//! What the next job depends on: the jobs before it.

use std::collections::VecDeque;
use std::f64::consts::TAU;

/// Jobs before the next one that are seen one by one.
const N_RECENT: usize = 6;
/// Users who submitted last, from whom the next user may be chosen; one more choice is any other user.
pub const N_RECENT_USERS: usize = 4;
/// The weights of the last job in running means.
const MEAN_RATES: [f32; 2] = [0.1, 0.02];
/// Users that are remembered in the order of their last jobs.
const MAX_USERS: usize = 8;
const DAY: f64 = 86_400.0;

/// Normal scores of the marks of a job: interval, size, run time.
pub type Scores = Vec<f32>;

/// The last job of a user.
#[derive(Debug, Clone)]
struct LastJob {
    time: f64,
    scores: Scores,
}

/// The jobs so far.
#[derive(Debug, Clone)]
pub struct History {
    n_marks: usize,
    n_segments: usize,
    recent: VecDeque<(usize, Scores)>,
    means: [f32; MEAN_RATES.len()],
    time: f64,
    /// The users of the last jobs, the last one first.
    users: Vec<usize>,
    last_jobs: Vec<Option<LastJob>>,
}

impl History {
    pub fn new(n_marks: usize, n_segments: usize, n_users: usize) -> Self {
        Self {
            n_marks,
            n_segments,
            recent: VecDeque::new(),
            means: [0.0; MEAN_RATES.len()],
            time: 0.0,
            users: Vec::new(),
            last_jobs: vec![None; n_users],
        }
    }

    /// Inputs about the history: recent jobs, running means of the interval, the time of day, and the part of the trace.
    pub fn n_inputs(n_marks: usize, n_segments: usize) -> usize {
        N_RECENT * (n_marks + 1) + MEAN_RATES.len() + 2 + n_segments
    }

    /// Inputs about recent users: how much each of them submits in this part of the trace.
    pub const N_USER_INPUTS: usize = N_RECENT_USERS + 1;

    /// Inputs about the chosen user: which choice, and the user's last job.
    pub fn n_choice_inputs(n_marks: usize) -> usize {
        N_RECENT_USERS + 2 + 1 + n_marks
    }

    /// `position` is the part of the trace, between 0 and 1.
    pub fn push_inputs(&self, position: f64, inputs: &mut Vec<f32>) {
        for at in 0..N_RECENT {
            match self.recent.get(at) {
                Some((choice, scores)) => {
                    inputs.push(*choice as f32 / N_RECENT_USERS as f32);
                    inputs.extend(scores);
                }
                None => inputs.extend(std::iter::repeat_n(0.0, self.n_marks + 1)),
            }
        }
        inputs.extend(self.means);
        let angle = TAU * (self.time % DAY) / DAY;
        inputs.extend([angle.sin() as f32, angle.cos() as f32]);
        // Between the middles of two segments, both count.
        let first = inputs.len();
        inputs.resize(first + self.n_segments, 0.0);
        let place = (position * self.n_segments as f64 - 0.5).clamp(0.0, (self.n_segments - 1) as f64);
        let (low, part) = (place as usize, (place.fract()) as f32);
        inputs[first + low] += 1.0 - part;
        inputs[first + (low + 1).min(self.n_segments - 1)] += part;
    }

    pub fn push_user_inputs(&self, share: impl Fn(usize) -> f64, inputs: &mut Vec<f32>) {
        for at in 0..N_RECENT_USERS {
            inputs.push(self.users.get(at).map_or(0.0, |user| share(*user).sqrt() as f32));
        }
        inputs.push(self.users.len() as f32 / MAX_USERS as f32);
    }

    pub fn push_choice_inputs(&self, choice: usize, user: Option<usize>, inputs: &mut Vec<f32>) {
        inputs.extend((0..N_RECENT_USERS).map(|at| f32::from(u8::from(at == choice))));
        match user.and_then(|user| self.last_jobs[user].as_ref()) {
            Some(last) => {
                inputs.push(1.0);
                inputs.push(((self.time - last.time).max(0.0).ln_1p() / 8.0 - 1.0) as f32);
                inputs.extend(&last.scores);
            }
            None => inputs.extend(std::iter::repeat_n(0.0, 2 + self.n_marks)),
        }
        inputs.push(choice as f32 / N_RECENT_USERS as f32);
    }

    /// The choice that leads to a user.
    pub fn choice(&self, user: usize) -> usize {
        let known = self.users.iter().take(N_RECENT_USERS).position(|recent| *recent == user);
        known.unwrap_or(N_RECENT_USERS)
    }

    /// The user of a choice; none if it is any other user.
    pub fn user(&self, choice: usize) -> Option<usize> {
        self.users.get(choice).copied().filter(|_| choice < N_RECENT_USERS)
    }

    pub fn push(&mut self, user: Option<usize>, choice: usize, interval: f64, scores: Scores) {
        self.time += interval.max(0.0);
        for (mean, rate) in self.means.iter_mut().zip(MEAN_RATES) {
            *mean += rate * (scores[0] - *mean);
        }
        if let Some(user) = user {
            self.push_user(user);
            self.last_jobs[user] = Some(LastJob { time: self.time, scores: scores.clone() });
        }
        self.recent.push_front((choice, scores));
        self.recent.truncate(N_RECENT);
    }

    /// Makes a user the one who submitted last.
    pub fn push_user(&mut self, user: usize) {
        self.users.retain(|recent| *recent != user);
        self.users.insert(0, user);
        self.users.truncate(MAX_USERS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_have_the_announced_sizes_and_users_are_ordered_by_their_last_job() {
        let mut history = History::new(3, 5, 10);
        for (user, choice) in [(2, 4), (3, 4), (2, 1)] {
            assert_eq!(history.choice(user), choice);
            history.push(Some(user), choice, 10.0, vec![0.1, 0.2, 0.3]);
        }
        assert_eq!((history.user(0), history.user(1), history.user(2)), (Some(2), Some(3), None));
        assert_eq!(history.user(N_RECENT_USERS), None);
        for position in [0.0, 0.5, 1.0] {
            let mut inputs = Vec::new();
            history.push_inputs(position, &mut inputs);
            assert_eq!(inputs.len(), History::n_inputs(3, 5));
            assert!((inputs[inputs.len() - 5..].iter().sum::<f32>() - 1.0).abs() < 1e-6);
        }
        let mut inputs = Vec::new();
        history.push_user_inputs(|_| 0.25, &mut inputs);
        assert_eq!(inputs, [0.5, 0.5, 0.0, 0.0, 0.25]);
        inputs.clear();
        history.push_choice_inputs(1, Some(3), &mut inputs);
        assert_eq!(inputs.len(), History::n_choice_inputs(3));
        assert_eq!(inputs[..5], [0.0, 1.0, 0.0, 0.0, 1.0]);
    }
}
