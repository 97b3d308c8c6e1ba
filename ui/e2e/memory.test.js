// A tab that stays open for an hour of live updates does not grow.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { api, launch } from './browser.js';
import { anHour } from './memory.js';

const MIN_ANSWERS = 300;
const MAX_GROWTH_BYTES = 1_500_000;
const MAX_GROWTH_NODES = 300;

let browser;

before(async () => {
  browser = await launch();
});
after(() => browser.close());

async function check(t, hash, selector) {
  const { first, last, answers, faults } = await anHour(browser, hash, selector);
  t.diagnostic(
    `${(first.bytes / 1e6).toFixed(1)} MB after ten minutes, ${(last.bytes / 1e6).toFixed(1)} MB after an hour; ` +
      `${first.nodes} and ${last.nodes} nodes; ${answers} answers`,
  );
  assert.ok(answers > MIN_ANSWERS, `only ${answers} answers: nothing was updated`);
  const growth = last.bytes - first.bytes;
  assert.ok(growth < MAX_GROWTH_BYTES, `it grows by ${growth} bytes`);
  assert.ok(last.nodes - first.nodes < MAX_GROWTH_NODES, `${last.nodes - first.nodes} more nodes`);
  assert.deepEqual(faults, []);
}

test('an hour of live updates of the map leaves nothing behind', (t) => check(t, '#/', '.map canvas'));

test('an hour of following a node leaves nothing behind', async (t) => {
  const { items } = await api('nodes');
  await check(t, `#/nodes/${encodeURIComponent(items[0].node)}?last=300`, '.spark');
});
