// The browser and the server of the end-to-end tests. TRACEWISE_URL names a running server with at least one event, such
// as `tracewise demo`; CHROMIUM names the browser.

import { chromium } from 'playwright-core';

export const URL_OF_SERVER = (process.env.TRACEWISE_URL ?? 'http://127.0.0.1:9743').replace(/\/$/, '');
const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
const ARGUMENTS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

export const launch = () => chromium.launch({ executablePath: CHROMIUM, headless: true, args: ARGUMENTS });

/** A page that collects what must not happen: errors on the console, and requests to other servers. */
export async function open(browser, hash = '#/', { url: server = URL_OF_SERVER, before, ...options } = {}) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, ...options });
  const page = await context.newPage();
  const faults = [];
  page.on('console', (message) => {
    // A busy server refuses queries of traces, and the page asks again.
    if (message.type() === 'error' && !message.text().includes('status of 503'))
      faults.push(`console: ${message.text()}`);
  });
  page.on('pageerror', (error) => faults.push(`page: ${error.message}`));
  page.on('request', (request) => {
    const url = request.url();
    if (!url.startsWith(server) && !/^(data|blob):/.test(url)) faults.push(`request to ${url}`);
  });
  page.setDefaultTimeout(10_000);
  if (before) await before(page);
  await page.goto(`${server}/${hash}`);
  return { page, faults, close: () => context.close() };
}

export async function api(path, init) {
  const response = await fetch(`${URL_OF_SERVER}/api/v1/${path}`, {
    ...init,
    headers: init?.body ? { 'content-type': 'application/json' } : {},
  });
  if (!response.ok) {
    const error = new Error(`${path}: ${response.status} ${await response.text()}`);
    throw Object.assign(error, { status: response.status });
  }
  return response.status === 204 ? null : response.json();
}

/** An event without a verdict that is reported, an open one if there is one. A demo may still have to find it. */
export async function anEvent() {
  const until = Date.now() + 60_000;
  for (;;) {
    const { items } = await api('events?standing=unvetted&hidden=false&limit=100');
    const open = items.find((event) => !event.end);
    if (open ?? items[0]) return open ?? items[0];
    if (Date.now() > until) throw new Error('the server has no event without a verdict');
    await new Promise((resolve) => setTimeout(resolve, 2000));
  }
}

export const standingOf = async (id) => (await api(`events/${id}/verdicts`)).standing;

/** Undoes what a test said about an event. */
export async function undoAll(id) {
  const { verdicts } = await api(`events/${id}/verdicts`);
  for (const verdict of verdicts) {
    if (!verdict.is_undone) await api(`verdicts/${verdict.number}`, { method: 'DELETE' });
  }
}

/** The number of a finished operation of a kind; starts one if there is none. */
export async function anOperation(kind, path, body) {
  const until = Date.now() + 300_000;
  let number = (await api('operations')).items.find((one) => one.kind === kind && one.state === 'done')?.number;
  while (number === undefined) {
    try {
      number = (await api(path, { method: 'POST', body: JSON.stringify(body) })).number;
    } catch (error) {
      // Few operations may run at the same time.
      if (Date.now() > until) throw error;
      await new Promise((resolve) => setTimeout(resolve, 2000));
    }
  }
  await ended(number, until);
  return number;
}

/** Waits for the end of an operation; its result. */
export async function ended(number, until = Date.now() + 300_000) {
  for (;;) {
    const operation = await api(`operations/${number}`);
    if (operation.state === 'done') return operation.result;
    if (operation.state !== 'running' || Date.now() > until)
      throw new Error(`${operation.kind}: ${operation.state} ${operation.error}`);
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}
