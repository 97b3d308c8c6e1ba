import { describe, expect, it } from 'vitest';

import type { WorkflowItem } from '../../api/workflows';
import { labelName, labelProblem } from './labels';
import { listed, listingOf, neighbour } from './runs';

const run = (name: string, changes: Partial<WorkflowItem> = {}): WorkflowItem => ({
  ...{ name, bytes: 1, uploaded: 0, seconds: 10, attempts: 5, failed: 0, class: null, label: null },
  ...changes,
});

describe('labels', () => {
  it('are shown in words', () => {
    expect(labelName('normal')).toBe('Healthy');
    expect(labelName('hdd_50')).toBe('Disk fault (50)');
    expect(labelName('other_thing')).toBe('other_thing');
  });

  it('have letters that file names may have', () => {
    expect(labelProblem('slow-nfs.v2_5')).toBeNull();
    for (const label of ['', 'two words', '<b>', 'x'.repeat(101), '😀']) expect(labelProblem(label)).not.toBeNull();
  });
});

describe('the list of runs', () => {
  const runs = [
    run('run10', { uploaded: 1, class: 'cpu', label: 'normal' }),
    run('run9', { uploaded: 3, class: 'hdd', label: 'hdd_50' }),
    run('run2', { uploaded: 2, class: 'normal' }),
  ];
  const names = (query: Record<string, string>) => listed(runs, listingOf(query)).map((item) => item.name);

  it('has the newest first, and can be sorted by numbers in names', () => {
    expect(names({})).toEqual(['run9', 'run2', 'run10']);
    expect(names({ sort: 'name' })).toEqual(['run2', 'run9', 'run10']);
    expect(names({ sort: 'name', order: 'down' })).toEqual(['run10', 'run9', 'run2']);
    expect(names({ sort: 'no such column' })).toEqual(['run9', 'run2', 'run10']);
  });

  it('can be those without a label, or with another label than the classifier says', () => {
    expect(names({ show: 'unlabelled' })).toEqual(['run2']);
    expect(names({ show: 'differing' })).toEqual(['run10']);
  });

  it('knows the neighbours of a run, even of one that has just left it', () => {
    const all = listed(runs, listingOf({}));
    expect(neighbour(all, all, 'run9', 1)).toBe('run2');
    expect(neighbour(all, all, 'run9', -1)).toBeNull();
    expect(neighbour([all[0], all[2]], all, 'run2', 1)).toBe('run10');
    expect(neighbour(all, all, 'deleted', 1)).toBe('run9');
  });
});
