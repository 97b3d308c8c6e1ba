// Job traces and workflow runs: from a file of the visitor to a synthetic trace, and from a run to a label.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { api, launch, open, URL_OF_SERVER } from './browser.js';
import { FRAME_MS, framesOf } from './frames.js';
import { clean, labelled, largeRun, put, run, trace } from './samples.js';

const TRACE = 'e2e-trace.csv';
const RUN = 'e2e-run.txt';
const GANTT = '[aria-roledescription="Gantt chart"]';

let browser;

before(async () => {
  browser = await launch();
  await clean();
});
after(async () => {
  await clean();
  await browser.close();
});

test('a visitor sends a trace, generates a synthetic one, compares both and deletes it', async () => {
  const { page, faults, close } = await open(browser, '#/job-traces');
  await page.setInputFiles('input[type=file]', { name: TRACE, mimeType: 'text/csv', buffer: Buffer.from(trace(600)) });
  await page.waitForFunction((name) => location.hash.includes(name), TRACE);
  await page.waitForSelector(`h1:has-text("${TRACE}")`);
  assert.ok(await page.locator('text=run_time').first().isVisible());
  await page.click('button:has-text("Generate")');
  await page.waitForSelector('#comparison-title', { timeout: 120_000 });
  await page.reload();
  await page.waitForSelector('#comparison-title');
  const { items } = await api('job-traces');
  const made = items.find((one) => one.synthetic?.of === TRACE);
  assert.equal(made?.synthetic.generator, 'sessions');
  assert.ok((await page.locator('canvas').count()) > 3);
  assert.deepEqual(faults, []);
  await page.goto(`${URL_OF_SERVER}/#/job-traces/${made.name}`);
  await page.waitForSelector(`h1:has-text("${made.name}")`);
  await page.click('button:has-text("Delete…")');
  await page.click('dialog button.primary');
  await page.waitForFunction(() => location.hash === '#/job-traces');
  assert.ok(!(await api('job-traces')).items.some((one) => one.name === made.name));
  await close();
});

test('a file that is no trace is refused with a reason, and nothing is kept', async () => {
  const { page, close } = await open(browser, '#/job-traces');
  await page.setInputFiles('input[type=file]', { name: 'e2e-odd.csv', mimeType: 'text/csv', buffer: Buffer.from('hello') });
  await page.waitForSelector('.upload [role=alert], .upload .notice');
  assert.ok(!(await api('job-traces')).items.some((one) => one.name === 'e2e-odd.csv'));
  await close();
});

test('a run is labelled with one key, and the label is taken back with another', async () => {
  assert.equal((await put(`workflows/${RUN}`, run(20))).status, 201);
  const { page, faults, close } = await open(browser, `#/workflows/${RUN}`);
  await page.waitForSelector(GANTT);
  const label = async () => (await api(`workflows/${RUN}`)).label;
  const becomes = async (wanted) => {
    for (let time = 0; time < 50 && (await label()) !== wanted; time++) await page.waitForTimeout(100);
    assert.equal(await label(), wanted);
  };
  await page.locator('h1').first().click();
  await page.keyboard.press('d');
  await becomes('hdd');
  // Keys wait for the answer.
  await page.waitForSelector('text=Saved: ');
  await page.keyboard.press('z');
  await becomes(null);
  assert.deepEqual(faults, []);
  await close();
});

test('two runs are compared', async () => {
  assert.equal((await put('workflows/e2e-before.txt', run(20))).status, 201);
  assert.equal((await put('workflows/e2e-after.txt', run(90))).status, 201);
  const { page, faults, close } = await open(browser, '#/workflows/e2e-before.txt/compare/e2e-after.txt');
  await page.waitForSelector(GANTT);
  await page.waitForSelector('tbody tr');
  assert.equal(await page.locator(GANTT).count(), 2);
  assert.deepEqual(faults, []);
  await close();
});

test('a run of 100,000 tasks is sent, and its chart zooms smoothly', async () => {
  const file = { name: 'e2e-large.txt', mimeType: 'text/plain', buffer: Buffer.from(largeRun(100_000)) };
  const { page, faults, close } = await open(browser, '#/workflows');
  await page.setInputFiles('input[type=file]', file);
  await page.waitForFunction(() => location.hash.includes('e2e-large.txt'), null, { timeout: 120_000 });
  await page.waitForSelector(GANTT, { timeout: 120_000 });
  assert.match(await page.textContent('figure'), /100.000 attempts/);
  const { cpuMs, nDrawn } = await framesOf(page, GANTT, 'wheel', 120);
  assert.ok(nDrawn > 100, `${nDrawn} of 120 inputs were drawn`);
  assert.ok(cpuMs < FRAME_MS, `a frame takes ${cpuMs} ms of CPU time`);
  assert.deepEqual(faults, []);
  await close();
});

test('labels train a classifier, which tells its age and can be taken back', async () => {
  await labelled();
  const { page, faults, close } = await open(browser, '#/workflows');
  await page.getByRole('button', { name: 'Train with the labelled runs' }).click();
  await page.waitForSelector('[role=status]:has-text("Trained")', { timeout: 120_000 });
  const section = page.locator('section[aria-labelledby=classifier-title]');
  const { classifier } = await api('workflow-classifier');
  assert.ok(Math.abs(classifier.trained - Date.now() / 1000) < 600, `trained ${classifier.trained}`);
  assert.match(await section.locator('p').first().textContent(), /trained with 12 runs that have labels here, .*(now|ago)/);
  assert.equal(await section.locator('p time').first().getAttribute('datetime'), new Date(classifier.trained * 1000).toISOString());
  await page.waitForSelector('td:has-text("CPU fault")');
  await page.reload();
  await section.locator('p time').first().waitFor();
  await page.getByRole('button', { name: /Stop using this classifier/ }).click();
  await page.waitForSelector('[role=status]:has-text("No classifier is in use")', { timeout: 60_000 });
  assert.equal((await api('workflow-classifier')).classifier, null);
  assert.deepEqual(faults, []);
  await close();
});

test('one part that fails leaves the rest of the page', async () => {
  const odd = { classifier: { kind: 'trees', classes: null, n_runs: 3, trained: null, from: 'labels' }, is_configured: false, labels: {} };
  const before = (page) => page.route('**/api/v1/workflow-classifier', (route) => route.fulfill({ json: odd }));
  const { page, faults, close } = await open(browser, '#/workflows', { before });
  await page.waitForSelector('text=This part of the page cannot be shown');
  assert.ok(await page.locator('#upload-title').isVisible());
  assert.ok(faults.length > 0, 'the reason is on the console');
  await page.evaluate(() => (location.hash = '#/models'));
  await page.waitForSelector('h2#versions-title');
  await close();
});

test('a running operation is cancelled', async () => {
  assert.equal((await put('job-traces/e2e-long.csv', trace(5_000))).status, 201);
  const generator = { generator: 'sequence-copulagan' };
  const { number } = await api('job-traces/e2e-long.csv/synthesis', { method: 'POST', body: JSON.stringify(generator) });
  const { page, faults, close } = await open(browser, `#/job-traces/e2e-long.csv?operation=${number}`);
  await page.waitForSelector('.operation[data-state=running] progress');
  await page.getByRole('button', { name: 'Cancel' }).click();
  await page.waitForSelector('.operation[data-state=cancelled]', { timeout: 30_000 });
  assert.equal((await api(`operations/${number}`)).state, 'cancelled');
  assert.ok(!(await api('job-traces')).items.some((one) => one.synthetic?.of === 'e2e-long.csv'));
  assert.deepEqual(faults, []);
  await close();
});
