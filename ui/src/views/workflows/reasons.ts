// Reasons and overdue tasks that can be shown in a chart. Their keys are in the address.

import type { RunVerdict } from '../../api/workflows';

export interface Choosable {
  /** `r0` is the first reason, `o0` the first kind of overdue tasks. */
  key: string;
  tasks: string[];
}

/** What a key stands for; null if there is no such reason. */
export function choosable(verdict: RunVerdict | null, key: string | undefined): Choosable | null {
  const [, sort, place] = /^([ro])(\d{1,4})$/.exec(key ?? '') ?? [];
  const one = (sort === 'r' ? verdict?.reasons : sort === 'o' ? verdict?.overdue : undefined)?.[Number(place)];
  return one && key !== undefined ? { key, tasks: one.tasks } : null;
}
