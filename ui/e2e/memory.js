// Measures the memory of a tab over an hour of live updates, with the clock of the page moved on.

import { open } from './browser.js';

const STEP_SECONDS = 5;
/** The first minutes fill caches. */
const WARM_UP_STEPS = 120;
const STEPS = 720;
const ANSWER_MS = 40;

/** What is used after garbage collection. */
async function used(devtools) {
  // What a collection frees may keep other objects until the next one.
  for (let pass = 0; pass < 4; pass += 1) {
    await devtools.send('HeapProfiler.collectGarbage');
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  const { usedSize } = await devtools.send('Runtime.getHeapUsage');
  const { metrics } = await devtools.send('Performance.getMetrics');
  const value = (name) => metrics.find((one) => one.name === name).value;
  return { bytes: usedSize, nodes: value('Nodes'), listeners: value('JSEventListeners') };
}

/** What a view uses after ten minutes and after an hour of updates, and how many answers it got. */
export async function anHour(browser, hash, selector) {
  const { page, faults, close } = await open(browser, hash, { before: (one) => one.clock.install() });
  const until = Date.now() + 20_000;
  // The timers of the page wait for its clock.
  while ((await page.locator(selector).count()) === 0) {
    if (Date.now() > until) throw new Error(`${selector} does not appear`);
    await page.clock.runFor(250);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  const devtools = await page.context().newCDPSession(page);
  await devtools.send('Performance.enable');
  let answers = 0;
  page.on('response', (response) => (answers += response.ok() ? 1 : 0));
  let first;
  for (let step = 0; step < STEPS; step += 1) {
    if (step === WARM_UP_STEPS) first = await used(devtools);
    await page.clock.runFor(STEP_SECONDS * 1000);
    // Requests are real: let their answers arrive.
    await new Promise((resolve) => setTimeout(resolve, ANSWER_MS));
  }
  const last = await used(devtools);
  await close();
  // A page whose clock runs so fast asks more often than one address may.
  return { first, last, answers, faults: faults.filter((fault) => !fault.includes('status of 429')) };
}
