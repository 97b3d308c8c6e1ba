// Verdicts: from the start page to the server and back, by mouse and by keyboard, and when the server disappears.

import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, test } from 'node:test';

import { anEvent, api, launch, open, standingOf, undoAll } from './browser.js';

let browser;
let event;

before(async () => {
  browser = await launch();
});
after(() => browser.close());
beforeEach(async () => {
  event = await anEvent();
});
afterEach(() => undoAll(event.id));

test('the reason of a problem is at most three clicks away', async () => {
  const { page, faults, close } = await open(browser);
  const isOpen = !event.end;
  await page.click(isOpen ? 'section[aria-labelledby=problems-title] li a' : 'nav a[href="#/events"]');
  await page.waitForSelector('article .why');
  assert.ok((await page.textContent('article .why')).length > 10);
  assert.deepEqual(faults, []);
  await close();
});

test('a verdict changes the server, and undoing it restores the state before', async () => {
  const { page, faults, close } = await open(browser, `#/events/${event.id}`);
  await page.waitForSelector('article');
  await page.keyboard.press('a');
  await page.fill('#kind', 'bad-io');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.done');
  assert.equal(await standingOf(event.id), 'anomaly');
  await page.keyboard.press('z');
  await page.waitForFunction(() => document.querySelector('.done')?.textContent.includes('Undone'));
  assert.equal(await standingOf(event.id), 'unvetted');
  assert.deepEqual(faults, []);
  await close();
});

test('normal shows what it would hide before it is saved', async () => {
  const { page, close } = await open(browser, `#/events/${event.id}`);
  await page.waitForSelector('article');
  await page.keyboard.press('n');
  await page.waitForSelector('.preview p, .preview [role=alert]');
  assert.equal(await standingOf(event.id), 'unvetted');
  await page.keyboard.press('Escape');
  await page.waitForSelector('.preview', { state: 'detached' });
  assert.equal(await standingOf(event.id), 'unvetted');
  await close();
});

test('the keyboard alone leads from the start page to a verdict', async () => {
  const { page, close } = await open(browser);
  await page.waitForSelector('h1');
  let reached = false;
  for (let tab = 0; tab < 40 && !reached; tab += 1) {
    await page.keyboard.press('Tab');
    reached = await page.evaluate(() => document.activeElement?.getAttribute('href')?.startsWith('#/events') ?? false);
  }
  assert.ok(reached, 'no link to events can be reached with Tab');
  await page.keyboard.press('Enter');
  await page.waitForSelector('article');
  const id = decodeURIComponent(/events\/([^?]+)/.exec(page.url())[1]);
  await page.keyboard.press('u');
  await page.waitForSelector('.done');
  const { verdicts } = await api(`events/${id}/verdicts`);
  assert.equal(verdicts.at(-1).answer, 'unsure');
  await page.keyboard.press('z');
  await page.waitForFunction(() => document.querySelector('.done')?.textContent.includes('Undone'));
  await close();
});

test('a verdict is not lost and not given twice if the server disappears after it was saved', async () => {
  const { page, close } = await open(browser, `#/events/${event.id}`);
  await page.waitForSelector('article');
  let isDown = true;
  await page.route('**/verdicts', async (route) => {
    if (route.request().method() !== 'POST' || !isDown) return route.continue();
    await route.fetch();
    return route.abort();
  });
  await page.keyboard.press('a');
  await page.fill('#kind', 'lost');
  await page.keyboard.press('Enter');
  await page.waitForSelector('text=It is not known whether the verdict was saved');
  assert.equal(await page.inputValue('#kind'), 'lost');
  isDown = false;
  await page.click('text=Look again and save');
  await page.waitForSelector('.done');
  assert.match(await page.textContent('.done'), /had been saved/);
  const { verdicts } = await api(`events/${event.id}/verdicts`);
  assert.equal(verdicts.filter((one) => one.kind === 'lost' && !one.is_undone).length, 1);
  await close();
});

test('a verdict that never reached the server is given once when the server is back', async () => {
  const { page, close } = await open(browser, `#/events/${event.id}`);
  await page.waitForSelector('article');
  let isDown = true;
  await page.route('**/verdicts', (route) =>
    isDown && route.request().method() === 'POST' ? route.abort() : route.continue(),
  );
  await page.keyboard.press('a');
  await page.fill('#kind', 'never-sent');
  await page.keyboard.press('Enter');
  await page.waitForSelector('text=It is not known whether the verdict was saved');
  assert.equal(await page.inputValue('#kind'), 'never-sent', 'what was typed is still there');
  assert.equal(await standingOf(event.id), 'unvetted');
  isDown = false;
  await page.click('text=Look again and save');
  await page.waitForSelector('.done');
  const { verdicts } = await api(`events/${event.id}/verdicts`);
  assert.equal(verdicts.filter((one) => one.kind === 'never-sent').length, 1);
  await close();
});

test('a viewer is offered no verdicts', async () => {
  const before = (page) =>
    page.route('**/api/v1/session', (route) =>
      route.fulfill({ json: { user: { actor: 'eve', role: 'viewer', is_local: false }, logins: ['token'] } }),
    );
  const { page, close } = await open(browser, `#/events/${event.id}`, { before });
  await page.waitForSelector('article');
  await page.keyboard.press('u');
  await page.waitForTimeout(300);
  assert.equal(await page.locator('[aria-label=Verdict]').count(), 0);
  assert.equal(await standingOf(event.id), 'unvetted');
  await close();
});
