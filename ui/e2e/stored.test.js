// Job traces and workflow runs: from a file of the visitor to a synthetic trace, and from a run to a label.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { api, FRAME_MS, launch, medianFrame, open, URL_OF_SERVER } from './browser.js';

const TRACE = 'e2e-trace.csv';
const RUN = 'e2e-run.txt';
const GANTT = '[aria-roledescription="Gantt chart"]';

let browser;

const put = (path, body) => fetch(`${URL_OF_SERVER}/api/v1/${path}`, { method: 'PUT', body });
const remove = (path) => fetch(`${URL_OF_SERVER}/api/v1/${path}`, { method: 'DELETE' });

/** What an earlier run may have left behind. */
async function clean() {
  for (const { name } of (await api('job-traces')).items) if (name.startsWith('e2e-')) await remove(`job-traces/${name}`);
  for (const { name } of (await api('workflows')).items) if (name.startsWith('e2e-')) await remove(`workflows/${name}`);
}

before(async () => {
  browser = await launch();
  await clean();
});
after(async () => {
  await clean();
  await browser.close();
});

function trace(jobs) {
  const rows = Array.from({ length: jobs }, (_, job) => {
    const submit = 1_700_000_000 + job * 60 + (job % 7) * 5;
    return `${submit},${60 + ((job * 37) % 900)},${2 ** (job % 5)},u${Math.floor(job / 10) % 3}`;
  });
  return ['submit,run_time,cores,user', ...rows, ''].join('\n');
}

function run(seconds) {
  const header = 'task_id\thash\tnative_id\tname\tstatus\texit\tsubmit\tduration\trealtime';
  const rows = Array.from({ length: 12 }, (_, task) => {
    const own = seconds + (task % 3);
    const kind = ['ALIGN', 'SORT', 'CALL'][Math.floor(task / 4)];
    const minute = String(Math.floor(task / 4) * 2).padStart(2, '0');
    return `${task}\t0a/${task}\t${task}\t${kind} (s${task})\tCOMPLETED\t0\t2026-11-01 10:${minute}:00.000\t${own + 2}s\t${own}s`;
  });
  return [header, ...rows, ''].join('\n');
}

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

/** The chart of a run with many tasks. */
function manyTasks(n) {
  const all = Array.from({ length: n }, (_, index) => index);
  const start = all.map((index) => index * 0.5);
  return {
    start: 1_795_000_000,
    seconds: n * 0.5 + 100,
    parts: ['ready', 'wms', 'pre', 'queue', 'in', 'run', 'out', 'post'],
    kinds: Array.from({ length: 20 }, (_, index) => `kind${index}`),
    workflows: [''],
    task: all.map((index) => `task_${index}`),
    kind: all.map((index) => index % 20),
    workflow: all.map(() => 0),
    role: all.map(() => 0),
    attempt: all.map(() => 1),
    failed: all.map((index) => (index % 5000 === 0 ? 1 : 0)),
    critical: all.map((index) => (index % 1000 === 0 ? 1 : 0)),
    ends: Array.from({ length: 8 }, (_, part) => start.map((time, index) => time + part * (5 + (index % 7)))),
  };
}

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
