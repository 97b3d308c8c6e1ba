// The memory of a tab that stays open: an hour of live updates in less than a minute, with the clock of the page moved on.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { api, launch, open } from './browser.js';

const STEP_SECONDS = 5;
/** The first minutes fill caches. */
const WARM_UP_STEPS = 120;
const STEPS = 720;
const ANSWER_MS = 15;
const MAX_GROWTH_BYTES = 1_500_000;
const MAX_GROWTH_NODES = 300;

let browser;

before(async () => {
  browser = await launch();
});
after(() => browser.close());

/** What is used after garbage collection. */
async function used(devtools) {
  await devtools.send('HeapProfiler.collectGarbage');
  await devtools.send('HeapProfiler.collectGarbage');
  const { usedSize } = await devtools.send('Runtime.getHeapUsage');
  const { metrics } = await devtools.send('Performance.getMetrics');
  const value = (name) => metrics.find((one) => one.name === name).value;
  return { bytes: usedSize, nodes: value('Nodes'), listeners: value('JSEventListeners') };
}

async function hour(hash, selector) {
  const { page, faults, close } = await open(browser, hash, { before: (one) => one.clock.install() });
  // The timers of the page wait for its clock.
  const until = Date.now() + 20_000;
  while ((await page.locator(selector).count()) === 0) {
    assert.ok(Date.now() < until, `${selector} does not appear`);
    await page.clock.runFor(250);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  const devtools = await page.context().newCDPSession(page);
  await devtools.send('Performance.enable');
  let answers = 0;
  page.on('response', () => (answers += 1));
  let first;
  for (let step = 0; step < STEPS; step += 1) {
    if (step === WARM_UP_STEPS) first = await used(devtools);
    await page.clock.runFor(STEP_SECONDS * 1000);
    // Requests are real: let their answers arrive.
    await new Promise((resolve) => setTimeout(resolve, ANSWER_MS));
  }
  const last = await used(devtools);
  await close();
  assert.deepEqual(faults, []);
  return { first, last, answers };
}

for (const [name, place] of [
  ['the map', async () => ['#/', '.map canvas']],
  [
    'a node that follows the time',
    async () => [`#/nodes/${encodeURIComponent((await api('nodes')).items[0].node)}?last=300`, '.spark'],
  ],
]) {
  test(`an hour of live updates of ${name} leaves nothing behind`, async (t) => {
    const { first, last, answers } = await hour(...(await place()));
    const growth = last.bytes - first.bytes;
    t.diagnostic(
      `${(first.bytes / 1e6).toFixed(1)} MB after ten minutes, ${(last.bytes / 1e6).toFixed(1)} MB after an hour, ` +
        `${first.nodes} and ${last.nodes} nodes, ${first.listeners} and ${last.listeners} listeners, ${answers} answers`,
    );
    assert.ok(answers > STEPS / 4, `only ${answers} answers: nothing was updated`);
    assert.ok(growth < MAX_GROWTH_BYTES, `it grows by ${growth} bytes`);
    assert.ok(last.nodes - first.nodes < MAX_GROWTH_NODES, `${last.nodes - first.nodes} more nodes`);
  });
}
