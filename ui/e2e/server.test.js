// A server of these tests' own, which they may stop: logging in with real tokens, roles, and a restart. TRACEWISE names
// the program; without it, these tests are skipped.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { launch, open } from './browser.js';

const PROGRAM = process.env.TRACEWISE;
const skip = PROGRAM === undefined ? 'TRACEWISE does not name the program' : false;
/** Variables that begin like this are settings of the program. */
const ENVIRONMENT = Object.fromEntries(
  Object.entries(process.env).filter(([name]) => !name.startsWith('TRACEWISE_')),
);
/** The address of a server that was stopped may be taken for a moment. */
const START_MS = 20_000;

let browser;
let folder;
let config;
let url;
let child;

async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

async function start() {
  child = spawn(PROGRAM, ['serve', '--config', config], { stdio: 'ignore', env: ENVIRONMENT });
  const until = Date.now() + START_MS;
  while (Date.now() < until) {
    const isUp = await fetch(`${url}/healthz`).then(
      (response) => response.ok,
      () => false,
    );
    if (isUp) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error('the server does not start');
}

async function stop() {
  if (!child || child.exitCode !== null) return;
  const ended = new Promise((resolve) => child.once('exit', resolve));
  child.kill();
  await ended;
}

function token(role) {
  const made = execFileSync(PROGRAM, ['token', 'add', '--role', role, '--data', join(folder, 'data'), '--json', role], {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
    env: ENVIRONMENT,
  });
  return JSON.parse(made).token;
}

before(async () => {
  if (skip) return;
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), 'tracewise-e2e-'));
  config = join(folder, 'tracewise.toml');
  const port = await freePort();
  url = `http://127.0.0.1:${port}`;
  writeFileSync(config, `[serve]\nlisten = "127.0.0.1:${port}"\ndata = "${join(folder, 'data')}"\ncluster = "tokens"\n`);
  await start();
});
after(async () => {
  if (skip) return;
  await stop();
  await browser.close();
  rmSync(folder, { recursive: true, force: true });
});

async function logIn(page, secret) {
  await page.fill('#token', secret);
  await page.keyboard.press('Enter');
}

test('a token opens the page with its role, a wrong one is refused, and logging out ends the session', { skip }, async () => {
  const [viewer, admin] = [token('viewer'), token('admin')];
  const { page, faults, close } = await open(browser, '#/models', { url });
  await page.waitForSelector('#token');
  await logIn(page, `${viewer.slice(0, -4)}aaaa`);
  await page.waitForSelector('.login [role=alert], .login .notice');
  assert.equal(await page.locator('h2#versions-title').count(), 0);
  await logIn(page, viewer);
  await page.waitForSelector('h2#versions-title');
  assert.match(await page.textContent('.tools'), /viewer/);
  assert.equal(await page.getByRole('button', { name: 'Exclude a time…' }).count(), 0);
  assert.equal(await page.locator('nav a', { hasText: 'Backtest' }).count(), 0);
  const cookies = await page.context().cookies();
  const cookie = cookies.find((one) => one.name === 'tracewise_session');
  assert.ok(cookie?.httpOnly && cookie.sameSite !== 'None', 'scripts cannot read the session');
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.waitForSelector('#token');
  assert.equal((await page.request.get(`${url}/api/v1/models`)).status(), 401);
  await logIn(page, admin);
  await page.waitForSelector('.user');
  await page.evaluate(() => (location.hash = '#/models'));
  await page.waitForSelector('button:has-text("Exclude a time…")');
  // A wrong token, and requests after logging out, are refused.
  assert.deepEqual(faults.filter((fault) => !fault.includes('status of 401')), []);
  await close();
});

test('the page reconnects after the server was restarted, and the session is still there', { skip }, async () => {
  const secret = token('vetter');
  const { page, close } = await open(browser, '#/', { url });
  await logIn(page, secret);
  await page.waitForSelector('.connection.live');
  await page.evaluate(() => (window.isSame = true));
  await stop();
  await page.waitForSelector('text=No answer since', { timeout: 20_000 });
  await start();
  await page.waitForSelector('.connection.live', { timeout: 40_000 });
  assert.equal(await page.evaluate(() => window.isSame), true, 'it was not reloaded');
  assert.equal(await page.locator('#token').count(), 0);
  await close();
});
