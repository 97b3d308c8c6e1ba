//! Which candidate becomes champion: one table of rules.
//!
//! | rule | reason |
//! |---|---|
//! | a candidate that could not be trained or judged is out | its figures mean nothing |
//! | one with more false events than the champion, by more than the margin, is out | people stop reading events |
//! | one that finds fewer confirmed anomalies than the champion, by more than the margin, is out | a low error is worth nothing if anomalies are reconstructed too |
//! | one that finds fewer injected faults than the best candidate, or than a third of what the champion finds, by more than the margin, is out | it would miss what nobody has confirmed yet |
//! | of the others, the one with the lowest reconstruction error on normal jobs wins | as in the paper |
//! | the champion stays unless it finds fewer injected faults than the best by more than twice the margin, or the winner's error is lower by more than a tie | every change has a cost, and faults are injected into few jobs |
//!
//! Injected faults count beside confirmed anomalies, because only what a champion found can be confirmed: a champion that is
//! blind to a kind of anomaly would never be replaced. Faults are injected into the jobs that a detector was trained with,
//! and how many are found depends much on the day. So candidates are compared with each other, and the champion, whose
//! figure is of another day, only sets a low bar: a champion of a lucky day must not keep its place for ever.
//!
//! A challenger in shadow mode follows the same rules with live windows: it has to report the confirmed anomalies that the
//! champion reported, and not more events than the champion.

use serde::{Deserialize, Serialize};

use crate::shadow::ShadowFigures;

/// A champion has to find so many margins less than the best before it loses its place: the figures are of few jobs.
const CHAMPION_MARGINS: f64 = 2.0;
/// A candidate has to find this fraction of the injected faults that the champion found on its own day.
const OF_ANOTHER_DAY: f64 = 1.0 / 3.0;

/// What a detector did on the held-out data of a night.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The mean reconstruction error on held-out normal jobs.
    pub reconstruction_error: f64,
    /// False events on held-out normal jobs, and the hours in which they were counted.
    pub n_false_events: usize,
    pub hours: f64,
    /// Confirmed anomalies that raise an event, and all of them.
    pub n_found: usize,
    pub n_anomalies: usize,
    /// The fraction of injected faults that is found at the budget.
    pub injected_found: f64,
}

impl Figures {
    /// The figures by the names that registries show.
    pub fn metrics(&self) -> [(&'static str, f64); 4] {
        [
            ("reconstruction_error", self.reconstruction_error),
            ("false_events_per_day", self.false_events_per_day()),
            ("found", self.found()),
            ("injected_found", self.injected_found),
        ]
    }

    pub fn false_events_per_day(&self) -> f64 {
        if self.hours > 0.0 { self.n_false_events as f64 * 24.0 / self.hours } else { 0.0 }
    }

    /// The fraction of confirmed anomalies that is found; that of injected faults if there are none.
    pub fn found(&self) -> f64 {
        if self.n_anomalies == 0 {
            return self.injected_found;
        }
        self.n_found as f64 / self.n_anomalies as f64
    }
}

/// The margins of the rules.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policy {
    /// How much smaller the found fraction may be.
    pub found_margin: f64,
    /// How many more false events there may be in the held-out time.
    pub false_events_margin: usize,
    /// How much lower, as a fraction, an error has to be.
    pub tie: f64,
}

impl Default for Policy {
    fn default() -> Self {
        Self { found_margin: 0.05, false_events_margin: 1, tie: 0.01 }
    }
}

/// The outcome of a night.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The winner among the candidates; `None` if the champion stays.
    pub winner: Option<usize>,
    /// Why each candidate is out, if it is.
    pub objections: Vec<Option<String>>,
    pub reason: String,
}

impl Policy {
    /// Decides. A candidate without figures could not be trained.
    pub fn decide(&self, champion: Option<&Figures>, candidates: &[Option<Figures>]) -> Decision {
        // One that has diverged raises no events at all, and is not a reference.
        let usable = candidates.iter().flatten().filter(|figures| figures.reconstruction_error.is_finite());
        let fewest = usable.map(|figures| figures.n_false_events).min();
        let allowed = champion.map(|champion| champion.n_false_events).or(fewest);
        let Some(allowed) = allowed else {
            let objections = vec![Some("it could not be trained".to_owned()); candidates.len()];
            return Decision { winner: None, objections, reason: "no candidate could be trained".into() };
        };
        let mut objections: Vec<Option<String>> = candidates
            .iter()
            .map(|figures| match figures {
                Some(figures) => self.disqualification(figures, allowed),
                None => Some("it could not be trained".into()),
            })
            .collect();
        let sound = candidates.iter().flatten().zip(&objections).filter(|(_, objection)| objection.is_none());
        let sound: Vec<&Figures> = sound.map(|(figures, _)| figures).collect();
        let best = |of: fn(&Figures) -> f64| sound.iter().map(|figures| of(figures)).fold(0.0, f64::max);
        let of_champion = champion.map_or(0.0, |champion| champion.injected_found * OF_ANOTHER_DAY);
        let injected = best(|figures| figures.injected_found).max(of_champion);
        let confirmed = match champion {
            Some(champion) if champion.n_anomalies > 0 => champion.found(),
            Some(_) => injected,
            None => best(Figures::found),
        };
        let reference = [confirmed, injected];
        for (figures, objection) in candidates.iter().zip(&mut objections) {
            if let (Some(figures), None) = (figures, &objection) {
                *objection = blindness(figures, reference, self.found_margin);
            }
        }
        let allowed = candidates.iter().zip(&objections).enumerate();
        let allowed = allowed.filter_map(|(index, (figures, objection))| {
            figures.filter(|_| objection.is_none()).map(|figures| (index, figures.reconstruction_error))
        });
        let lowest = allowed.min_by(|a, b| a.1.total_cmp(&b.1));
        let blindness = champion
            .and_then(|champion| blindness(champion, reference, CHAMPION_MARGINS * self.found_margin));
        let before = champion.map(|champion| champion.reconstruction_error);
        let (winner, reason) = match (lowest, before, blindness) {
            (None, Some(_), _) => (None, "no candidate is as good as the champion".to_owned()),
            (None, None, _) => (None, "no candidate is good enough".to_owned()),
            (Some((index, error)), None, _) => {
                (Some(index), format!("the lowest reconstruction error, {error:.5}"))
            }
            (Some((index, _)), Some(_), Some(blindness)) => {
                (Some(index), format!("the champion is out: {blindness}"))
            }
            (Some((_, error)), Some(before), None) if error >= before * (1.0 - self.tie) => {
                let reason = format!(
                    "the champion's reconstruction error, {before:.5}, is not beaten by more than a tie ({error:.5})"
                );
                (None, reason)
            }
            (Some((index, error)), Some(before), None) => {
                let reason =
                    format!("a reconstruction error of {error:.5}, where the champion has {before:.5}");
                (Some(index), reason)
            }
        };
        Decision { winner, objections, reason }
    }

    /// Why a detector is not compared at all.
    fn disqualification(&self, figures: &Figures, allowed: usize) -> Option<String> {
        if !figures.reconstruction_error.is_finite() {
            return Some("its reconstruction error is not a number".into());
        }
        let n_false = figures.n_false_events;
        (n_false > allowed + self.false_events_margin)
            .then(|| format!("it raises {n_false} false events, and not {allowed}"))
    }

    /// Why a challenger is not promoted after its time in shadow mode.
    pub fn shadow_objection(&self, figures: &ShadowFigures) -> Option<String> {
        let ShadowFigures { n_events, n_champion_events, n_confirmed, n_confirmed_found, .. } = *figures;
        let needed = n_confirmed as f64 * (1.0 - self.found_margin);
        if (n_confirmed_found as f64) < needed {
            return Some(format!("it reports {n_confirmed_found} of {n_confirmed} confirmed anomalies"));
        }
        if n_events > n_champion_events + self.false_events_margin {
            return Some(format!(
                "it reports {n_events} events where the champion reports {n_champion_events}"
            ));
        }
        None
    }
}

/// What a detector does not find, by more than a margin, where the best find `reference`: of confirmed anomalies, and of
/// injected faults.
fn blindness(figures: &Figures, reference: [f64; 2], margin: f64) -> Option<String> {
    let found = [figures.found(), figures.injected_found];
    let names = [if figures.n_anomalies > 0 { "anomalies" } else { "injected faults" }, "injected faults"];
    let mut all = names.into_iter().zip(found.into_iter().zip(reference));
    let (name, (found, reference)) = all.find(|(_, (found, reference))| *found < reference - margin)?;
    Some(format!("it finds {:.0} % of the {name}, and not {:.0} %", 100.0 * found, 100.0 * reference))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(reconstruction_error: f64, n_found: usize, n_false_events: usize) -> Figures {
        Figures {
            reconstruction_error,
            n_false_events,
            hours: 5.0,
            n_found,
            n_anomalies: 10,
            injected_found: 0.5,
        }
    }

    #[test]
    fn the_lowest_error_wins_unless_it_finds_less_or_raises_more_false_events() {
        let policy = Policy::default();
        let champion = figures(0.010, 9, 1);
        let candidates = [
            Some(figures(0.005, 8, 1)),
            Some(figures(0.006, 10, 3)),
            None,
            Some(figures(0.008, 9, 2)),
            Some(figures(0.009, 10, 0)),
            Some(figures(f64::NAN, 10, 0)),
        ];
        let decision = policy.decide(Some(&champion), &candidates);
        assert_eq!(decision.winner, Some(3));
        let objects = |index: usize, text: &str| {
            decision.objections[index].as_ref().is_some_and(|objection| objection.contains(text))
        };
        assert!(objects(0, "80 % of the anomalies, and not 90 %"), "{:?}", decision.objections);
        assert!(objects(1, "3 false events") && objects(2, "trained") && objects(5, "not a number"));
        assert_eq!(decision.objections[3], None);
    }

    #[test]
    fn a_candidate_that_has_diverged_is_not_a_reference() {
        let candidates = [Some(figures(f64::NAN, 0, 0)), Some(figures(0.005, 9, 4))];
        assert_eq!(Policy::default().decide(None, &candidates).winner, Some(1));
        assert_eq!(Policy::default().decide(None, &candidates[..1]).winner, None);
    }

    #[test]
    fn a_tie_keeps_the_champion() {
        let champion = figures(0.010, 9, 1);
        let decide =
            |error: f64| Policy::default().decide(Some(&champion), &[Some(figures(error, 9, 1))]).winner;
        assert_eq!((decide(0.0100), decide(0.00995), decide(0.0098)), (None, None, Some(0)));
    }

    #[test]
    fn a_champion_that_is_blind_to_injected_faults_is_replaced() {
        let blind = Figures { injected_found: 0.0, ..figures(0.004, 10, 0) };
        let seeing = Figures { injected_found: 0.25, ..figures(0.005, 10, 0) };
        let noisy = Figures { injected_found: 0.9, ..figures(0.005, 10, 7) };
        let decision = Policy::default().decide(Some(&blind), &[Some(blind), Some(seeing), Some(noisy)]);
        assert_eq!(decision.winner, Some(1));
        assert!(decision.reason.contains("0 % of the injected faults, and not 25 %"), "{}", decision.reason);
        // The other way round, a lower error does not help.
        assert_eq!(Policy::default().decide(Some(&seeing), &[Some(blind)]).winner, None);
    }

    #[test]
    fn a_champion_of_a_lucky_day_is_replaced() {
        let lucky = Figures { injected_found: 0.46, ..figures(0.0025, 10, 1) };
        let tonight = [0.153, 0.03].map(|injected_found| {
            Some(Figures {
                injected_found,
                ..figures(if injected_found > 0.1 { 0.0021 } else { 0.0017 }, 10, 0)
            })
        });
        let decision = Policy::default().decide(Some(&lucky), &tonight);
        assert_eq!(decision.winner, Some(0), "{decision:?}");
    }

    #[test]
    fn on_the_first_night_the_reference_is_the_one_that_finds_most() {
        let candidates = [Some(figures(0.001, 2, 0)), Some(figures(0.010, 9, 0))];
        let decision = Policy::default().decide(None, &candidates);
        assert_eq!(decision.winner, Some(1));
        let none = Policy::default().decide(None, &[None, None]);
        assert_eq!((none.winner, none.reason.as_str()), (None, "no candidate could be trained"));
    }
}
