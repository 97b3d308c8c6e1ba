// Requests to the server: one place for errors, the session and the server's clock.

import { serverClock } from './clock';

/** The server answered with an error. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

/** There was no answer. Whether the request had an effect is not known. */
export class Unreachable extends Error {
  constructor() {
    super('The server does not respond.');
  }
}

/** Whether a request may have had an effect although it failed. */
export function isUncertain(error: unknown): boolean {
  return error instanceof Unreachable || (error instanceof ApiError && error.code === 'timeout');
}

interface Listeners {
  unauthorized: () => void;
  answered: () => void;
  unreachable: () => void;
}

/** The session and the connection display set these. */
export const listeners: Listeners = { unauthorized() {}, answered() {}, unreachable() {} };

export interface Options {
  method?: 'GET' | 'POST' | 'PUT' | 'DELETE';
  body?: unknown;
  signal?: AbortSignal;
  headers?: Record<string, string>;
  seconds?: number;
}

/** Sends a request; answers other than 2xx and 304 are errors. */
export async function send(path: string, options: Options = {}): Promise<Response> {
  const { method = 'GET', body, signal, headers = {}, seconds = 30 } = options;
  const limit = AbortSignal.timeout(seconds * 1000);
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      headers: body === undefined ? headers : { ...headers, 'content-type': 'application/json' },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
      credentials: 'same-origin',
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    listeners.unreachable();
    throw new Unreachable();
  }
  return checked(response);
}

/** Notes what every answer tells, and makes an error of those that are one. */
export async function checked(response: Response): Promise<Response> {
  serverClock.note(response.headers.get('date'));
  if (isGateway(response)) {
    listeners.unreachable();
    throw new Unreachable();
  }
  listeners.answered();
  if (response.ok || response.status === 304) return response;
  const error = await errorOf(response);
  if (error.status === 401) listeners.unauthorized();
  throw error;
}

/** A proxy answers in place of a server that is down. */
function isGateway(response: Response): boolean {
  const isJson = response.headers.get('content-type')?.includes('json') ?? false;
  return (response.status === 502 || response.status === 504) && !isJson;
}

async function errorOf(response: Response): Promise<ApiError> {
  try {
    const { error } = await response.json();
    return new ApiError(response.status, String(error.code), sentence(String(error.message)));
  } catch {
    return new ApiError(response.status, 'unknown', `The server answered with status ${response.status}.`);
  }
}

/** Messages of the server begin in lower case and have no full stop. */
export function sentence(text: string): string {
  if (text === '') return text;
  const first = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?…]$/.test(first) ? first : `${first}.`;
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await send(path, { signal })).json() as Promise<T>;
}

/** What to show of an error; null for a request that was given up on purpose. */
export function messageOf(error: unknown): string | null {
  if (error instanceof DOMException && error.name === 'AbortError') return null;
  return error instanceof Error ? error.message : String(error);
}

/** A path with parameters; those that are null, undefined or empty are left out. */
export function withQuery(path: string, query: Record<string, string | number | boolean | null | undefined>): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== '') params.set(name, String(value));
  }
  const text = params.toString();
  return text === '' ? path : `${path}?${text}`;
}
