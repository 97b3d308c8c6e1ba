import { describe, expect, it } from 'vitest';

import { MAX_NAME, NAME_PATTERN, nextName, validName } from './upload';

const isValid = (name: string) => new RegExp(`^(?:${NAME_PATTERN})$`, 'v').test(name);

describe('the name of an upload', () => {
  it('is that of the file if the server accepts it', () => {
    expect(validName('CTC-SP2_v1.swf.gz')).toBe('CTC-SP2_v1.swf.gz');
  });

  it('has a dash in place of what is not allowed', () => {
    expect(validName('Jobs of März (1).csv')).toBe('Jobs-of-Marz-1.csv');
    expect(validName('.hidden.csv')).toBe('hidden.csv');
    expect(validName('../a b')).toBe('a-b');
    expect(validName('日本語')).toBe('upload');
  });

  it('keeps the extensions if it is too long', () => {
    const name = validName(`${'x'.repeat(300)}.csv.zst`);
    expect(name).toHaveLength(MAX_NAME);
    expect(name.endsWith('x.csv.zst')).toBe(true);
    expect(validName(`a.${'x'.repeat(300)}`)).toHaveLength(MAX_NAME);
  });

  it('is always valid', () => {
    for (const name of ['', '...', '-', 'a', '日本.csv', '_a.b', 'a/b\\c', `${'é'.repeat(200)}.swf`, 'a.', ' .csv'])
      expect(isValid(validName(name)), name).toBe(true);
  });

  it('gets a number if it is taken', () => {
    expect(nextName('theta.csv.zst')).toBe('theta-2.csv.zst');
    expect(nextName('theta-9.csv')).toBe('theta-10.csv');
    const long = nextName(`${'x'.repeat(96)}.csv`);
    expect(long).toHaveLength(MAX_NAME);
    expect(long.endsWith('x-2.csv')).toBe(true);
    expect(isValid(long)).toBe(true);
  });
});
