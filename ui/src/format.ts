// Numbers, times and names as people read them.

import type { Event } from './api/types';

const MINUTE = 60;
const HOUR = 3600;
const DAY = 86400;

/** A number with about three significant digits. */
export function number(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–';
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.001 || size >= 1e7)) return value.toExponential(1);
  if (size >= 1000) return count(Math.round(value));
  if (size >= 100) return value.toFixed(0);
  if (size >= 10) return trim(value.toFixed(1));
  if (size >= 1 || size === 0) return trim(value.toFixed(2));
  return trim(value.toPrecision(2));
}

function trim(text: string): string {
  return text.includes('.') ? text.replace(/\.?0+$/, '') : text;
}

/** A whole number with thin spaces between groups of three, as `12 800`. */
export function count(value: number): string {
  const digits = String(Math.round(value));
  return digits.length < 5 ? digits : digits.replace(/\B(?=(\d{3})+$)/g, '\u202f');
}

/** A fraction as a percentage. */
export function percent(fraction: number | null | undefined): string {
  if (fraction === null || fraction === undefined || !Number.isFinite(fraction)) return '–';
  const value = fraction * 100;
  return `${value !== 0 && Math.abs(value) < 10 ? trim(value.toFixed(1)) : value.toFixed(0)}\u202f%`;
}

/** A score or strength: how many times the threshold. */
export function times(value: number): string {
  return `${number(value)}×`;
}

/** A noun after its number, as `1 problem` and `2 problems`. */
export function counted(n: number, one: string, many = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}

/** A length of time in its largest two units. */
export function duration(seconds: number): string {
  const rest = Math.max(0, Math.round(seconds));
  if (rest < MINUTE) return `${rest} s`;
  if (rest < HOUR)
    return rest < 10 * MINUTE && rest % MINUTE
      ? `${Math.floor(rest / MINUTE)} min ${rest % MINUTE} s`
      : `${Math.round(rest / MINUTE)} min`;
  if (rest < DAY) return joined(Math.floor(rest / HOUR), 'h', Math.round((rest % HOUR) / MINUTE), 'min');
  return joined(Math.floor(rest / DAY), 'd', Math.round((rest % DAY) / HOUR), 'h');
}

function joined(large: number, unit: string, small: number, unitOfSmall: string): string {
  return small === 0 ? `${large} ${unit}` : `${large} ${unit} ${small} ${unitOfSmall}`;
}

/** How long ago a time is. */
export function ago(time: number, now: number): string {
  const seconds = now - time;
  if (seconds < -MINUTE) return `in ${rounded(-seconds)}`;
  if (seconds < 10) return 'just now';
  return `${rounded(seconds)} ago`;
}

function rounded(seconds: number): string {
  if (seconds < MINUTE) return `${Math.round(seconds)} s`;
  if (seconds < HOUR) return `${Math.round(seconds / MINUTE)} min`;
  if (seconds < DAY) return `${Math.round(seconds / HOUR)} h`;
  return `${Math.round(seconds / DAY)} d`;
}

const two = (value: number) => String(value).padStart(2, '0');

/** A date and time in the browser's time zone, as `2026-11-18 14:03:22`. */
export function dateTime(time: number): string {
  return `${date(time)} ${clock(time)}`;
}

export function date(time: number): string {
  const at = new Date(time * 1000);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}

export function clock(time: number): string {
  const at = new Date(time * 1000);
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/** A text that may be long, for attributes such as `title`. */
export function cut(text: string, length = 300): string {
  const letters = Array.from(text.slice(0, length * 2));
  return letters.length <= length && text.length <= length * 2 ? text : `${letters.slice(0, length).join('')}…`;
}

/** What an event is about, as `Job 4711 on n03`. */
export function titleOf(event: Pick<Event, 'subject' | 'node' | 'nodes' | 'jobs'>): string {
  const place = event.node ? ` on ${event.node}` : '';
  if (event.subject === 'job' && event.jobs.length > 0) return `Job ${event.jobs[0]}${place}`;
  if (event.subject === 'node') return `Node ${event.node ?? '?'}`;
  if (event.subject === 'cluster') return `Whole cluster, ${counted(event.nodes.length, 'node')}`;
  return `${event.subject}${place}`;
}

/** Lists of thread numbers, as `0–15, 20`. */
export function threadRanges(threads: number[]): string {
  const sorted = [...threads].sort((a, b) => a - b);
  const parts: string[] = [];
  for (let at = 0; at < sorted.length;) {
    let end = at;
    while (end + 1 < sorted.length && sorted[end + 1] === sorted[end] + 1) end += 1;
    parts.push(end === at ? `${sorted[at]}` : `${sorted[at]}–${sorted[end]}`);
    at = end + 1;
  }
  return parts.join(', ');
}

const LEVELS: Record<string, string> = {
  error: 'reconstruction error',
  excess: 'error higher than that of similar windows',
  thread: 'threads unlike any normal group',
  peers: 'threads unlike the others of the job',
  job: 'whole job unlike normal jobs',
  node: 'all jobs of the node together',
  cluster: 'jobs of the whole cluster together',
  combined: 'several levels together',
  memory: 'growth of memory',
  'foreign-cpu': 'CPU time of other processes',
  unowned: 'processes without a job',
  region: 'like a confirmed anomaly',
};

/** The source of evidence in words. */
export function levelName(level: string): string {
  const base = level.replace(/^lasting-/, '');
  const name = LEVELS[base] ?? base;
  return base === level ? name : `${name}, lasting`;
}
