// Embeddings, backtests and sampling: operations that take longer than a request, and what their results show.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { api, launch, open } from './browser.js';
import { FRAME_MS, framesOf } from './frames.js';
import { manyWindows } from './samples.js';

const PLOT = '[aria-roledescription="scatter plot"]';
const OPERATION_SECONDS = 180;

let browser;

before(async () => {
  browser = await launch();
});
after(() => browser.close());

const ended = (page, state = 'done') =>
  page.waitForSelector(`.operation[data-state=${state}]`, { timeout: OPERATION_SECONDS * 1000 });

const operation = (kind, result, changes = {}) => ({
  number: 77,
  kind,
  actor: 'ada',
  started: Date.now() / 1000 - 60,
  state: 'done',
  progress: 1,
  error: null,
  result,
  ...changes,
});

const withOperation = (item) => (page) =>
  page.route('**/api/v1/operations/77', (route) =>
    route.request().method() === 'DELETE' ? route.fulfill({ status: 204 }) : route.fulfill({ json: item }),
  );

test('opening the embeddings starts a projection that ends, and stays after a reload', async () => {
  const { page, faults, close } = await open(browser, '#/embeddings?minutes=15');
  await ended(page);
  await page.waitForSelector(PLOT);
  const number = new URL(page.url()).hash.match(/operation=(\d+)/)?.[1];
  assert.ok(number);
  const { items } = await api('operations');
  assert.equal(items.find((one) => String(one.number) === number)?.kind, 'embeddings');
  await page.reload();
  await page.waitForSelector(PLOT);
  assert.match(page.url(), new RegExp(`operation=${number}`));
  assert.equal((await api('operations')).items.length, items.length);
  assert.deepEqual(faults, []);
  await close();
});

test('a lasso or a rectangle selects windows, which are listed and can be saved', async () => {
  const before = withOperation(operation('embeddings', manyWindows(2000)));
  const { page, faults, close } = await open(browser, '#/embeddings?operation=77', { before });
  const plot = page.locator(PLOT).first();
  const box = await plot.boundingBox();
  await page.mouse.move(box.x + 100, box.y + 60);
  await page.mouse.down();
  for (const [x, y] of [
    [500, 60],
    [500, 400],
    [100, 400],
  ]) {
    await page.mouse.move(box.x + x, box.y + y, { steps: 8 });
  }
  await page.mouse.up();
  await page.waitForSelector('#selection-title');
  assert.match(await page.textContent('#selection-title'), /selected windows/);
  assert.ok(await page.locator('section[aria-labelledby=selection-title] a[href*="#/jobs/"]').count());
  assert.ok(await page.locator('section[aria-labelledby=selection-title] a[href*="#/nodes/"]').count());
  await page.locator('section[aria-labelledby=selection-title] summary').click();
  const [download] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('button', { name: 'Save CSV' }).last().click(),
  ]);
  assert.equal(download.suggestedFilename(), 'selected-windows.csv');
  await page.getByRole('button', { name: 'Clear' }).click();
  await page.waitForSelector('#selection-title', { state: 'detached' });

  await plot.focus();
  for (let step = 0; step < 6; step += 1) {
    await page.keyboard.press('Shift+ArrowRight');
    await page.keyboard.press('Shift+ArrowDown');
  }
  await page.keyboard.press('Enter');
  await page.waitForSelector('#selection-title');
  await plot.focus();
  await page.keyboard.press('Escape');
  await page.waitForSelector('#selection-title', { state: 'detached' });
  assert.deepEqual(faults, []);
  await close();
});

test('a selection that somebody names becomes a diagnosis, which can be undone', async () => {
  const { page, faults, close } = await open(browser, '#/embeddings?minutes=60');
  await ended(page);
  const plot = page.locator(PLOT).first();
  const box = await plot.boundingBox();
  await page.mouse.move(box.x + 20, box.y + 5);
  await page.mouse.down();
  for (const [x, y] of [
    [box.width - 5, 5],
    [box.width - 5, box.height - 5],
    [20, box.height - 5],
  ]) {
    await page.mouse.move(box.x + x, box.y + y, { steps: 6 });
  }
  await page.mouse.up();
  await page.waitForSelector('#selection-title');
  await page.getByRole('button', { name: 'Name this selection…' }).click();
  await page.fill('#diagnosis-kind', 'e2e-everything');
  await page.fill('#diagnosis-comment', '<b>all</b> windows');
  // Windows like all others must not open events for the tests after this one.
  await page.getByRole('checkbox', { name: /This is a problem/ }).setChecked(false);
  await page.keyboard.press('Enter');
  await page.waitForSelector('[role=status]:has-text("e2e-everything")', { timeout: 60_000 });
  const named = async () => (await api('diagnoses')).items.filter((one) => one.kind === 'e2e-everything');
  const [diagnosis] = await named();
  assert.ok(diagnosis.windows >= 10 && diagnosis.jobs.length > 0);
  assert.deepEqual([diagnosis.is_anomalous, diagnosis.comment], [false, '<b>all</b> windows']);
  assert.ok(await page.locator('section[aria-labelledby=diagnoses-title] td', { hasText: '<b>all</b>' }).count());
  await page.getByRole('button', { name: 'Undo' }).click();
  await page.waitForSelector('[role=status]:has-text("e2e-everything")', { state: 'detached' });
  assert.deepEqual(await named(), []);
  assert.deepEqual(faults, []);
  await close();
});

test('a job is compared with others, and the result has an address', async () => {
  const { items } = await api('jobs');
  const { page, faults, close } = await open(browser, `#/jobs/${encodeURIComponent(items[0].job)}`);
  await page.getByRole('button', { name: 'Compare', exact: true }).click();
  await page.waitForURL(/operation=\d+/);
  await ended(page);
  await page.reload();
  await page.waitForSelector('section[aria-labelledby=similar-title] tbody tr');
  const text = await page.textContent('section[aria-labelledby=similar-title] tbody');
  assert.match(text, /this job/);
  assert.ok(await page.locator('section[aria-labelledby=similar-title] canvas').count());
  assert.deepEqual(faults, []);
  await close();
});

test('10,000 windows stay fluid while the pointer moves', async () => {
  const before = withOperation(operation('embeddings', manyWindows(10_000)));
  const { page, close } = await open(browser, '#/embeddings?operation=77', { before });
  await page.waitForSelector(PLOT);
  await page.waitForTimeout(500);
  const { cpuMs, nDrawn } = await framesOf(page, PLOT, 'move', 120);
  assert.ok(nDrawn > 60, `${nDrawn} of 120 inputs were drawn`);
  assert.ok(cpuMs < FRAME_MS, `a frame takes ${cpuMs} ms of CPU time`);
  await close();
});

test('a backtest ends, and a larger strength leaves fewer events', async () => {
  const { page, faults, close } = await open(browser, '#/backtest?hours=24');
  await page.getByRole('button', { name: 'Start', exact: true }).click();
  await page.waitForURL(/operation=\d+/);
  await ended(page);
  await page.waitForSelector('#result-title');
  const reported = async () => Number((await page.locator('.figures dd').nth(1).textContent()).replace(/\D/g, ''));
  const all = await reported();
  await page.locator('#least').fill('200');
  await page.waitForURL(/least=/);
  assert.ok((await reported()) <= Math.min(all, 1));
  assert.deepEqual(faults, []);
  await close();
});

test('events are weaker at a smaller alarm budget', async () => {
  const strongest = [];
  for (const budget of [0.1, 10]) {
    const { page, faults, close } = await open(browser, `#/backtest?hours=6&budget=${budget}`);
    await page.getByRole('button', { name: 'Start', exact: true }).click();
    await page.waitForURL(/operation=\d+/);
    await ended(page);
    await page.waitForSelector('#result-title');
    assert.match(await page.textContent('section[aria-labelledby=result-title]'), /of another budget/);
    const { result } = await api(`operations/${/operation=(\d+)/.exec(page.url())[1]}`);
    strongest.push(Math.max(...result.events.map((event) => event.strength)));
    assert.deepEqual(faults, []);
    await close();
  }
  // The number of events may be smaller at a larger budget: longer ones are joined.
  assert.ok(strongest[0] < strongest[1], `${strongest[0]} times the threshold at 0.1 per day, ${strongest[1]} at 10`);
});

test('a running operation shows its progress, and can be cancelled', async () => {
  let item = operation('backtest', null, { state: 'running', progress: 0.4 });
  let isCancelled = false;
  const before = (page) =>
    page.route('**/api/v1/operations/77', (route) => {
      if (route.request().method() !== 'DELETE') return route.fulfill({ json: item });
      isCancelled = true;
      item = { ...item, state: 'cancelled' };
      return route.fulfill({ status: 204 });
    });
  const { page, faults, close } = await open(browser, '#/backtest?operation=77', { before });
  assert.equal(await page.getAttribute('progress', 'value'), '0.4');
  await page.getByRole('button', { name: 'Cancel' }).click();
  await ended(page, 'cancelled');
  assert.ok(isCancelled);
  assert.ok(await page.getByRole('button', { name: 'Start it again' }).count());
  assert.deepEqual(faults, []);
  await close();
});

test('failures and impossible parts of an analysis are sentences', async () => {
  const failed = operation('backtest', null, { state: 'failed', error: 'the archive has no windows of this time' });
  const first = await open(browser, '#/backtest?operation=77', { before: withOperation(failed) });
  await first.page.waitForSelector('text=The archive has no windows of this time.');
  assert.ok(await first.page.getByRole('button', { name: 'Try again' }).count());
  await first.close();

  const impossible = { spectra: { error: 'no jobs' }, intervals: { error: 'two kinds are needed' } };
  const before = withOperation(operation('sampling', impossible));
  const second = await open(browser, '#/sampling?operation=77', { before });
  await second.page.waitForSelector('text=There is no advice: Two kinds are needed.');
  await second.page.waitForSelector('text=There is no advice: No jobs.');
  await second.close();
});

test('viewers are not offered what they may not start', async () => {
  const before = async (page) => {
    const user = { actor: 'eve', role: 'viewer', is_local: false };
    await page.route('**/api/v1/session', (route) => route.fulfill({ json: { user, logins: ['token'] } }));
    await withOperation(operation('backtest', null, { state: 'running', progress: 0.5 }))(page);
  };
  const { page, close } = await open(browser, '#/backtest?operation=77', { before });
  await page.waitForSelector('progress');
  assert.equal(await page.getByRole('button', { name: 'Cancel' }).count(), 0);
  assert.equal(await page.getByRole('button', { name: 'Start' }).count(), 0);
  const entries = await page.locator('nav a').allTextContents();
  assert.deepEqual(
    entries.map((one) => one.trim().split(/\s/)[0]),
    ['Cluster', 'Events', 'Models', 'Embeddings', 'Workflows', 'Job'],
  );
  await close();
});

test('models show what they did in shadow mode, and the map has CPU numbers', async () => {
  const { items } = await api('models');
  const shadow = {
    ...{ from: 1_795_000_000, to: 1_795_040_000, hours: 11.1, events: 5 },
    ...{ champion_events: 7, common: 4, confirmed: 3, confirmed_found: 2 },
  };
  const nodes = [{ node: 'n1', threads: 4, cpus: [[64, 4]], runs: [[0, 4, '7']] }];
  const before = async (page) => {
    const models = [...items, { ...items[0], version: 'v-shadow', in_use: false, aliases: ['challenger'], shadow }];
    await page.route('**/api/v1/models', (route) => route.fulfill({ json: { items: models, next: null } }));
    await page.route('**/api/v1/cluster/layout', (route) => route.fulfill({ json: { nodes } }));
    await page.route('**/api/v1/cluster?format=plane', (route) =>
      route.fulfill({ body: Buffer.from([10, 20, 30, 140]), headers: { 'tracewise-rows': 'n1=4' } }),
    );
  };
  const { page, faults, close } = await open(browser, '#/models', { before });
  await page.waitForSelector('#shadow-title');
  assert.match(await page.textContent('section[aria-labelledby=shadow-title] tbody'), /2 of 3/);
  await page.evaluate(() => (location.hash = '#/'));
  await page.waitForSelector('.map canvas');
  await page.locator('[aria-roledescription="heat map"]').focus();
  await page.keyboard.press('ArrowRight');
  await page.waitForSelector('.tip:has-text("CPU 67")');
  assert.deepEqual(faults, []);
  await close();
});
