// Updates without a reload, reconnecting, the login page, and input that nobody expects.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { anEvent, api, launch, open, undoAll, URL_OF_SERVER } from './browser.js';
import { FRAME_MS, framesOf } from './frames.js';
import { manyThreads } from './samples.js';

const HOSTILE = `<img src=x onerror="window.broken = true">🙂${'x'.repeat(10_000)}`;

let browser;

before(async () => {
  browser = await launch();
});
after(() => browser.close());

const pictureOf = (page) => page.evaluate(() => document.querySelector('.map canvas')?.toDataURL().length ?? 0);

test('the map follows the cluster without a reload', async () => {
  const { page, close } = await open(browser);
  await page.waitForSelector('.map canvas');
  await page.evaluate(() => (window.isSame = true));
  await page.waitForTimeout(500);
  const before = await pictureOf(page);
  const until = Date.now() + 20_000;
  let current = before;
  while (current === before && Date.now() < until) {
    await page.waitForTimeout(1000);
    current = await pictureOf(page);
  }
  assert.notEqual(current, before);
  assert.equal(await page.evaluate(() => window.isSame), true);
  await close();
});

test('what somebody else says about an event arrives without a reload', async (t) => {
  const event = await anEvent();
  if (event.end) return t.skip('there is no open event');
  const { page, close } = await open(browser);
  const link = page.locator(`section[aria-labelledby=problems-title] a[href*="${event.id}"]`);
  await link.waitFor();
  try {
    await api(`events/${event.id}/verdicts`, { method: 'POST', body: JSON.stringify({ answer: 'normal', days: 1 }) });
  } catch (error) {
    await close();
    // The event is over, or its windows are gone.
    if (error.status !== 409) throw error;
    return t.skip(error.message);
  }
  await link.waitFor({ state: 'detached' });
  await undoAll(event.id);
  await link.waitFor();
  await close();
});

test('a verdict that hides nothing arrives in other tabs as well', async () => {
  const event = await anEvent();
  const { page, close } = await open(browser, `#/events/${event.id}`);
  await page.waitForSelector('article');
  assert.equal(await page.locator('article .badge', { hasText: 'unsure' }).count(), 0);
  await api(`events/${event.id}/verdicts`, { method: 'POST', body: JSON.stringify({ answer: 'unsure' }) });
  const said = page.locator('article', { hasText: 'unsure' }).locator('.badge', { hasText: 'unsure' }).first();
  try {
    await said.waitFor();
  } finally {
    await undoAll(event.id);
  }
  await said.waitFor({ state: 'detached' });
  await close();
});

test('a thousand simultaneous events are listed, and cost few requests', async () => {
  const event = await anEvent();
  const now = Date.now() / 1000;
  const many = Array.from({ length: 1000 }, (_, index) => ({
    ...event,
    id: `many-${index}`,
    jobs: [`${700_000 + index}`],
    end: null,
    opened: now - index / 100,
    start: now - 300,
    strength: 1 + index / 100,
    standing: 'unvetted',
  }));
  const changes = many.map((one, index) => `id: ${10_000 + index}\nevent: opened\ndata: ${JSON.stringify(one)}\n\n`);
  let nRequests = 0;
  let hasStreamed = false;
  const before = async (page) => {
    await page.route('**/api/v1/events?*', (route) => {
      nRequests += 1;
      return route.fulfill({ json: { items: hasStreamed ? many : [], next: null } });
    });
    await page.route('**/api/v1/events/many-*', (route) =>
      route.fulfill({ json: { event: many[0], similar: [], standing: 'unvetted', verdicts: [], changes: [], told: [] } }),
    );
    await page.route('**/api/v1/stream', (route) => {
      // The browser connects again after a while; by then everything has been said.
      const body = hasStreamed ? 'retry: 600000\n\n' : `retry: 600000\n\n${changes.join('')}`;
      hasStreamed = true;
      return route.fulfill({ body, contentType: 'text/event-stream' });
    });
  };
  const { page, faults, close } = await open(browser, '#/', { before });
  await page.waitForSelector('.count:has-text("1000")');
  assert.match(await page.textContent('h1'), /1000|1\u202f000/);
  await page.waitForTimeout(2000);
  assert.ok(nRequests < 20, `${nRequests} requests for events`);
  const items = await page.locator('section[aria-labelledby=problems-title] li').count();
  assert.ok(items > 0 && items <= 1000, `${items} problems`);
  await page.evaluate(() => (location.hash = '#/events'));
  await page.waitForSelector('a[href*="many-"]');
  const { cpuMs } = await framesOf(page, 'main', 'scroll', 120);
  assert.ok(cpuMs < FRAME_MS, `a frame takes ${cpuMs} ms of CPU time`);
  assert.deepEqual(faults, []);
  await close();
});

test('a browser whose clock is a day ahead shows the times of the server', async () => {
  const before = (page) =>
    page.addInitScript(() => {
      const now = Date.now;
      Date.now = () => now() + 86_400_000;
    });
  const { items } = await api('nodes');
  const { page, faults, close } = await open(browser, `#/nodes/${encodeURIComponent(items[0].node)}`, { before });
  await page.waitForSelector('.spark');
  const text = await page.textContent('main');
  assert.match(text, /last window (just now|\d+ s ago|[1-9] min ago)/);
  await close();
  const second = await open(browser, '#/', { before });
  await second.page.waitForSelector('.health.good h1, .health.problem h1, .health.unknown h1');
  const recent = await second.page.textContent('section[aria-labelledby=recent-title]');
  assert.doesNotMatch(recent, /\b1 d ago|in 2[34] h/);
  assert.deepEqual(faults, []);
  await second.close();
});

test('the page says that the server is away, and recovers by itself', async () => {
  const { page, close } = await open(browser);
  await page.waitForSelector('.connection.live');
  await page.route('**/api/**', (route) => route.abort());
  await page.waitForSelector('text=No answer since');
  await page.unroute('**/api/**');
  await page.waitForSelector('.connection.live', { timeout: 30_000 });
  await close();
});

test('without a session the login page is shown, and leads back', async () => {
  let isIn = false;
  const before = (page) =>
    page.route('**/api/v1/session', (route) => {
      if (route.request().method() === 'POST') isIn = true;
      const user = isIn ? { actor: 'ada', role: 'vetter', is_local: false } : null;
      return route.fulfill({ json: { user, logins: ['token', 'provider'] } });
    });
  const { page, close } = await open(browser, '#/models?night=1', { before });
  await page.fill('#token', 'tw_x');
  assert.match(page.url(), /#\/login\?back=/);
  await page.keyboard.press('Enter');
  await page.waitForSelector('h2#versions-title');
  assert.ok(page.url().endsWith('#/models?night=1'));
  assert.equal(await page.getByRole('button', { name: 'Promote…' }).count(), 0);
  await close();
});

test('a server without data explains the next steps', async () => {
  const state = 'collecting data: 42 of 180 min for the first model';
  const cluster = { cluster: 'new', time: null, model: null, state, nodes: 0, threads: 0, open_events: 0, missing: [] };
  const before = (page) => page.route('**/api/v1/cluster', (route) => route.fulfill({ json: cluster }));
  const { page, close } = await open(browser, '#/', { before });
  await page.waitForSelector('text=Next steps');
  assert.equal(await page.getAttribute('progress', 'value'), '42');
  assert.ok(await page.locator('pre', { hasText: 'tracewise demo' }).count());
  await close();
});

test('names with markup, emoji and 10,000 characters break nothing', async () => {
  const event = {
    ...(await anEvent()),
    id: 'hostile',
    jobs: [HOSTILE],
    node: HOSTILE.slice(0, 200),
    nodes: [HOSTILE.slice(0, 200)],
    why: HOSTILE,
    kinds: [{ kind: HOSTILE, confidence: 0.5, distance: 1, is_inside: true }],
  };
  const detail = {
    event,
    similar: [{ event, distance: 1 }],
    standing: 'unvetted',
    verdicts: [],
    changes: [],
    told: [{ receiver: HOSTILE, is_told: false }],
  };
  const before = async (page) => {
    await page.route('**/api/v1/events?*', (route) => route.fulfill({ json: { items: [event], next: null } }));
    await page.route('**/api/v1/events/hostile', (route) => route.fulfill({ json: detail }));
    await page.route('**/api/v1/jobs/*', (route) =>
      route.fulfill({
        json: { nodes: [{ job: HOSTILE, node: 'n1', score: 2, error: 1, threads: 1 }], events: [event] },
      }),
    );
  };
  for (const viewport of [
    { width: 1440, height: 900 },
    { width: 360, height: 740 },
  ]) {
    for (const hash of ['#/', '#/events/hostile', `#/jobs/${encodeURIComponent(HOSTILE)}`]) {
      const { page, close } = await open(browser, hash, { before, viewport });
      await page.waitForSelector('h1', { state: 'attached' });
      await page.waitForTimeout(500);
      const [width, room] = await page.evaluate(() => [
        document.documentElement.scrollWidth,
        document.documentElement.clientWidth,
      ]);
      assert.ok(width <= room, `${hash.slice(0, 20)} needs ${width} of ${room} pixels`);
      assert.equal(await page.evaluate(() => window.broken), undefined);
      assert.equal(await page.locator('img').count(), 0);
      await close();
    }
  }
});

test('128,000 threads are drawn in few milliseconds', async () => {
  const { page, faults, close } = await open(browser, '#/', { before: manyThreads });
  await page.waitForSelector('.map canvas');
  // While the pointer moves, the overlay is drawn for every frame.
  const { cpuMs, nDrawn } = await framesOf(page, '[aria-roledescription="heat map"]', 'move', 120);
  assert.ok(nDrawn > 100, `${nDrawn} of 120 inputs were drawn`);
  assert.ok(cpuMs < FRAME_MS, `a frame takes ${cpuMs} ms of CPU time`);
  assert.deepEqual(faults, []);
  await close();
});

test('a page that draws too slowly is noticed', async () => {
  const { page, close } = await open(browser, '#/', { before: manyThreads });
  await page.waitForSelector('.map canvas');
  await page.evaluate(() =>
    addEventListener('pointermove', () => {
      let sum = 0;
      for (let step = 0; step < 100_000_000; step += 1) sum = (sum * 31 + step) | 0;
      document.body.dataset.sum = String(sum);
    }),
  );
  const { cpuMs } = await framesOf(page, '[aria-roledescription="heat map"]', 'move', 20);
  assert.ok(cpuMs > FRAME_MS, `100 million steps for each input take ${cpuMs} ms of CPU time`);
  await close();
});

test('the server sends a strict content security policy with the page', async () => {
  const policy = (await fetch(`${URL_OF_SERVER}/`)).headers.get('content-security-policy') ?? '';
  assert.match(policy, /default-src 'none'/);
  assert.match(policy, /script-src 'self'/);
});
