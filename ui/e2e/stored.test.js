// Job traces and workflow runs: from a file of the visitor to a synthetic trace, and from a run to a label.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { api, FRAME_MS, launch, medianFrame, open, URL_OF_SERVER } from './browser.js';
import { clean, manyTasks, put, run, trace } from './samples.js';

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

test('a chart of 100,000 tasks zooms smoothly', async () => {
  assert.equal((await put('workflows/e2e-large.txt', run(20))).status, 201);
  const before = (page) => page.route('**/e2e-large.txt/chart', (route) => route.fulfill({ json: manyTasks(100_000) }));
  const { page, faults, close } = await open(browser, '#/workflows/e2e-large.txt', { before });
  await page.waitForSelector(GANTT);
  const box = await page.locator(GANTT).boundingBox();
  await page.mouse.move(box.x + box.width / 2, box.y + Math.min(box.height / 2, 200));
  const frame = await medianFrame(page, async () => {
    for (let step = 0; step < 30; step++) await page.mouse.wheel(0, step < 15 ? -200 : 200);
  });
  assert.ok(frame <= FRAME_MS, `a frame takes ${frame} ms`);
  assert.deepEqual(faults, []);
  await close();
});
