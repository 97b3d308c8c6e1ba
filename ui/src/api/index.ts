export * as api from './calls';
export { ApiError, isUncertain, messageOf, Unreachable } from './client';
export { serverClock } from './clock';
export type * from './types';
export type * from './operations';
