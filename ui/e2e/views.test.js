// Every view by its address: quickly there, without errors, accessible, and without horizontal scrolling.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { after, before, test } from 'node:test';

import { anEvent, anOperation, api, launch, open } from './browser.js';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

let browser;
let views;

before(async () => {
  browser = await launch();
  const event = await anEvent();
  const { items } = await api('nodes');
  const node = items[0].node;
  const job = event.jobs[0] ?? (await api('jobs')).items[0].job;
  const embeddings = await anOperation('embeddings', 'embeddings', {});
  const backtest = await anOperation('backtest', 'backtests', {});
  const sampling = await anOperation('sampling', 'sampling', {});
  views = {
    cluster: ['#/', 'h1'],
    table: ['#/?show=table', 'tbody tr'],
    node: [`#/nodes/${encodeURIComponent(node)}`, '.spark'],
    thread: [`#/nodes/${encodeURIComponent(node)}?cpu=0&last=300`, '.uplot'],
    job: [`#/jobs/${encodeURIComponent(job)}`, 'h1'],
    events: ['#/events?standing=any&hidden=any', 'li a'],
    event: [`#/events/${event.id}`, 'article h2'],
    models: ['#/models', 'h2'],
    embeddings: [`#/embeddings?operation=${embeddings}`, '[aria-roledescription="scatter plot"]'],
    score: [`#/embeddings?colour=score&operation=${embeddings}`, '[aria-roledescription="scatter plot"]'],
    backtests: ['#/backtest', 'form'],
    backtest: [`#/backtest?operation=${backtest}`, '#result-title'],
    samplings: ['#/sampling', 'h1'],
    sampling: [`#/sampling?operation=${sampling}`, '#intervals-title'],
    traces: ['#/job-traces', 'h1'],
    workflows: ['#/workflows', 'h1'],
    login: ['#/login', '#token'],
    unknown: ['#/nonsense', 'h1'],
  };
});
after(() => browser.close());

test('an administrator sees within five seconds whether the cluster is healthy', async () => {
  const began = Date.now();
  const { page, faults, close } = await open(browser);
  await page.waitForSelector('.health.good h1, .health.problem h1, .health.unknown h1');
  assert.ok(Date.now() - began < 5000);
  assert.match(await page.textContent('h1'), /problem|normal|scores|watching/);
  const paint = await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime);
  assert.ok(paint < 1000, `first contentful paint after ${paint} ms`);
  assert.deepEqual(faults, []);
  await close();
});

test('every view opens by its address without errors', async () => {
  for (const [name, [hash, selector]] of Object.entries(views)) {
    const { page, faults, close } = await open(browser, hash);
    await page.waitForSelector(selector);
    await page.waitForTimeout(400);
    assert.deepEqual(faults, [], name);
    await close();
  }
});

test('axe finds nothing serious, in both themes', async () => {
  const { page, close } = await open(browser, '#/', { bypassCSP: true });
  await page.evaluate(AXE);
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme });
    for (const [name, [hash, selector]] of Object.entries(views)) {
      await page.evaluate((to) => (location.hash = to), hash);
      await page.waitForSelector(selector);
      await page.waitForTimeout(200);
      const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ['violations'] }));
      const serious = violations.filter((one) => ['serious', 'critical'].includes(one.impact));
      const found = serious.map(
        (one) => `${one.id}: ${one.nodes.map((node) => `${node.target} ${node.failureSummary}`).join(' | ')}`,
      );
      assert.deepEqual(found, [], `${name}, ${colorScheme}`);
    }
  }
  await close();
});

test('nothing scrolls sideways on a phone or at 200 % zoom', async () => {
  // A zoom of 200 % halves the size of the view in CSS pixels.
  for (const viewport of [
    { width: 360, height: 740 },
    { width: 640, height: 400 },
    { width: 720, height: 450 },
  ]) {
    const { page, close } = await open(browser, '#/', { viewport, deviceScaleFactor: 2 });
    for (const [name, [hash, selector]] of Object.entries(views)) {
      await page.evaluate((to) => (location.hash = to), hash);
      await page.waitForSelector(selector, { state: 'attached' });
      await page.waitForTimeout(300);
      const [width, room] = await page.evaluate(() => [
        document.documentElement.scrollWidth,
        document.documentElement.clientWidth,
      ]);
      assert.ok(width <= room, `${name} needs ${width} of ${room} pixels`);
    }
    await close();
  }
});

test('a view can be linked with its filters, time and thread', async () => {
  const [hash] = views.thread;
  const { page, close } = await open(browser, hash);
  await page.waitForSelector('.uplot');
  await page.selectOption('select[aria-label=Length]', '900');
  const link = page.url();
  assert.match(link, /cpu=0/);
  assert.match(link, /last=900/);
  await page.goto('about:blank');
  await page.goto(link);
  await page.waitForSelector('.uplot');
  assert.equal(await page.inputValue('select[aria-label=Length]'), '900');
  await close();
});

test('charts can be saved as CSV, PNG and JSON', async () => {
  const [hash] = views.thread;
  const { page, close } = await open(browser, hash);
  await page.waitForSelector('.uplot');
  for (const [button, pattern] of [
    ['Save CSV', /\.csv$/],
    ['Save PNG', /\.png$/],
    ['Save JSON', /\.json$/],
  ]) {
    await page.locator('figure details.menu summary').first().click();
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('button', { name: button }).first().click(),
    ]);
    assert.match(download.suggestedFilename(), pattern);
  }
  await close();
});
