// What the page has to know about verdicts to give each exactly once.

import type { Event, SimilarEvent, Verdict, VerdictRequest } from '../../api/types';

/** The number of the newest verdict; verdicts that come later have larger ones. */
export function newest(verdicts: Verdict[]): number {
  return verdicts.reduce((largest, verdict) => Math.max(largest, verdict.number), 0);
}

/**
 * The verdict that a request without an answer left behind; null if it had no effect. `after` is the newest number
 * before the request.
 */
export function leftBehind(verdicts: Verdict[], after: number, request: VerdictRequest, actor: string): Verdict | null {
  const isIt = (verdict: Verdict) =>
    verdict.number > after &&
    verdict.actor === actor &&
    verdict.answer === request.answer &&
    !verdict.is_undone &&
    (verdict.kind ?? '') === (request.kind ?? '').trim();
  return verdicts.find(isIt) ?? null;
}

/** What `z` undoes: the last verdict of this person that is in force. */
export function lastOwn(verdicts: Verdict[], actor: string): Verdict | null {
  const own = verdicts.filter((verdict) => verdict.actor === actor && !verdict.is_undone);
  return own.sort((a, b) => b.number - a.number)[0] ?? null;
}

/** Similar events that are open and wait for a verdict. */
export function openSimilar(similar: SimilarEvent[], id: string): Event[] {
  return similar
    .filter(
      ({ event, standing }) =>
        event.id !== id && !event.end && !event.hidden_by && (standing ?? event.standing ?? 'unvetted') === 'unvetted',
    )
    .map(({ event }) => event);
}

/** Kinds to suggest: what the event resembles first, then what was said before. */
export function suggestions(event: Event, remembered: string[]): string[] {
  const similar = [...event.kinds].sort((a, b) => b.confidence - a.confidence).map((one) => one.kind);
  return [...new Set([...similar, ...remembered])].slice(0, 12);
}
