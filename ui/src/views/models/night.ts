// Figures of competitions in words.

import type { Figures, Night } from '../../api/types';

export function falsePerDay(figures: Figures): number {
  return figures.hours > 0 ? (figures.n_false_events * 24) / figures.hours : 0;
}

/** The fraction of anomalies that is found; of injected faults as long as no anomaly is confirmed. */
export function found(figures: Figures): number {
  return figures.n_anomalies === 0 ? figures.injected_found : figures.n_found / figures.n_anomalies;
}

export function totalSeconds({ timings }: Night): number {
  return timings.preparation + timings.training + timings.competition + timings.deployment;
}

export function outcome(night: Night): string {
  if (night.winner === null) return 'The champion stayed';
  const name = night.winning_candidate ?? night.winner;
  return night.needs_approval ? `${name} won and waits for approval` : `${name} won`;
}

/** Losses of all candidates side by side; shorter trainings end in null. */
export function curves(night: Night): {
  epochs: number[];
  lines: { name: string; training: (number | null)[]; validation: (number | null)[] }[];
} {
  const trained = night.candidates.filter((candidate) => candidate.epochs.length > 0);
  const longest = Math.max(0, ...trained.map((candidate) => candidate.epochs.length));
  const epochs = Array.from({ length: longest }, (_, index) => index + 1);
  const lines = trained.map((candidate) => ({
    name: candidate.name,
    training: epochs.map((_, index) => candidate.epochs[index]?.training ?? null),
    validation: epochs.map((_, index) => candidate.epochs[index]?.validation ?? null),
  }));
  return { epochs, lines };
}
