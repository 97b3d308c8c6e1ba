// Every view by its address: quickly there, without errors, accessible, and without horizontal scrolling.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { after, before, test } from 'node:test';
import { gzipSync } from 'node:zlib';

import { anEvent, anOperation, api, launch, open } from './browser.js';
import { aClassifier, clean, put, run, trace } from './samples.js';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** Buttons that change only what is shown. */
const HARMLESS = new Set([
  ...['Pause', 'Continue', 'Table', 'Chart', 'CSV', 'PNG', 'JSON', 'Save CSV', 'Save PNG', 'Save JSON', 'Close', 'Clear'],
  ...['Earlier', 'Later', 'Show twice as much time', 'Show half as much time', 'Follow live', 'Following live'],
  ...['To vet', 'Open', 'All', 'Hidden', 'Got it', 'PCA', 'UMAP', 'Compare', 'Critical path', 'Zoom in', 'Zoom out'],
  ...['all', 'without a label', 'label ≠ classifier', 'both', 'new', 'missed', 'hidden', 'Copy', 'Show all alike'],
  ...['node', 'largest score', '99th percentile', 'threads above 1', 'threads', 'jobs', 'last window'],
  ...['run', 'duration', 'task attempts', 'failed', 'classifier', 'label', 'added'],
]);
/** Buttons with names from the data: sorted columns, threads, entries of legends with a count, tasks, reasons. */
const OF_DATA = [/^Show all \d+ [a-z]+$/, / [↓↑]$/, /^thread \d+ /, / \d+$/, /^[A-Z]+ \(s\d+\)$/, /^[\d.]+× /];
/** What viewers may start. */
const STARTED_BY_VIEWERS = ['embeddings', 'score', 'similar', 'comparison'];

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
  const similar = await anOperation('similar-jobs', `jobs/${encodeURIComponent((await api('jobs')).items[0].job)}/similar`, {});
  const compared = (await api(`operations/${similar}`)).result.job.job;
  await clean();
  await aClassifier();
  await put('workflows/e2e-view.txt', run(20));
  await put('workflows/e2e-view-other.txt', run(90));
  await put('job-traces/e2e-view.csv', trace(600));
  await put('job-traces/e2e-view-other.csv', trace(400));
  const comparison = await anOperation('comparison', 'job-traces/e2e-view.csv/comparison', { with: 'e2e-view-other.csv' });
  views = {
    cluster: ['#/', 'h1'],
    table: ['#/?show=table', 'tbody tr'],
    node: [`#/nodes/${encodeURIComponent(node)}`, '.spark'],
    thread: [`#/nodes/${encodeURIComponent(node)}?cpu=0&last=300`, '.uplot'],
    job: [`#/jobs/${encodeURIComponent(job)}`, 'h1'],
    similar: [`#/jobs/${encodeURIComponent(compared)}?operation=${similar}`, '#similar-title ~ * tbody tr, .own'],
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
    trace: ['#/job-traces/e2e-view.csv', 'canvas'],
    comparison: [`#/job-traces/e2e-view.csv/compare/e2e-view-other.csv?operation=${comparison}`, '#comparison-title'],
    workflows: ['#/workflows', 'section[aria-labelledby=classifier-title] p time'],
    workflow: ['#/workflows/e2e-view.txt', '[aria-roledescription="Gantt chart"]'],
    changes: ['#/workflows/e2e-view.txt/compare/e2e-view-other.txt', 'tbody tr'],
    login: ['#/login', '#token'],
    unknown: ['#/nonsense', 'h1'],
  };
});
after(async () => {
  await clean();
  await browser.close();
});

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

test('every drawing has a table, and can be saved as CSV, PNG and JSON', async () => {
  const { page, close } = await open(browser);
  for (const [name, [hash, selector]] of Object.entries(views)) {
    await page.evaluate((to) => (location.hash = to), hash);
    await page.waitForSelector(selector);
    await page.waitForTimeout(300);
    const missing = await page.evaluate(() => {
      const offers = (part) => [...part.querySelectorAll('button')].map((button) => button.textContent.trim());
      const found = [];
      for (const canvas of document.querySelectorAll('canvas')) {
        let part = canvas.parentElement;
        while (part && !offers(part).some((text) => text.endsWith('CSV'))) part = part.parentElement;
        const all = part ? offers(part) : [];
        for (const what of ['CSV', 'PNG', 'JSON', 'able'])
          if (!all.some((text) => text.endsWith(what) || (what === 'able' && /table/i.test(text))))
            found.push(`${what} of ${canvas.closest('[aria-label]')?.getAttribute('aria-label')?.slice(0, 80)}`);
      }
      return [...new Set(found)];
    });
    assert.deepEqual(missing, [], name);
  }
  await close();
});

test('viewers are offered nothing that they may not do', async () => {
  const before = (page) =>
    page.route('**/api/v1/session', (route) =>
      route.fulfill({ json: { user: { actor: 'eve', role: 'viewer', is_local: false }, logins: ['token'] } }),
    );
  const { page, close } = await open(browser, '#/', { before });
  for (const [name, [hash, selector]] of Object.entries(views)) {
    if (['login', 'backtests', 'samplings'].includes(name)) continue;
    await page.evaluate((to) => (location.hash = to), hash);
    await page.waitForSelector(selector);
    await page.waitForTimeout(300);
    const offered = await page.locator('main button:visible, main input[type=file]').evaluateAll((all) =>
      all.map((one) =>
        one.tagName === 'INPUT' ? 'Upload' : (one.ariaLabel ?? one.textContent).trim().replace(/\s+/g, ' '),
      ),
    );
    const isAllowed = (text) =>
      HARMLESS.has(text) || OF_DATA.some((one) => one.test(text)) || (STARTED_BY_VIEWERS.includes(name) && text === 'Start again');
    assert.deepEqual(
      offered.filter((text) => !isAllowed(text)),
      [],
      name,
    );
  }
  // The same list must not allow what a vetter is offered.
  const asVetter = await open(browser, views.workflow[0]);
  await asVetter.page.waitForSelector('button:has-text("Healthy")');
  const labels = await asVetter.page.locator('[aria-labelledby=label-title] button').allTextContents();
  assert.ok(labels.length >= 5 && !labels.some((text) => HARMLESS.has(text) || OF_DATA.some((one) => one.test(text))), `${labels}`);
  await asVetter.close();
  await close();
});

test('all scripts together have less than 250 kB', async () => {
  const { page, close } = await open(browser);
  const scripts = new Map();
  page.on('response', async (response) => {
    if (response.url().endsWith('.js')) scripts.set(response.url(), gzipSync(await response.body()).length);
  });
  await page.reload();
  for (const [hash, selector] of Object.values(views)) {
    await page.evaluate((to) => (location.hash = to), hash);
    await page.waitForSelector(selector);
  }
  await page.waitForTimeout(200);
  const bytes = [...scripts.values()].reduce((sum, one) => sum + one, 0);
  assert.ok(scripts.size > 1 && bytes > 10_000 && bytes < 250_000, `${scripts.size} scripts with ${bytes} bytes`);
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
