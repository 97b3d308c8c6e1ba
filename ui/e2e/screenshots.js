// Makes the pictures of the documentation from a running server that has an event, such as `tracewise demo`:
// TRACEWISE_URL=http://127.0.0.1:9743 CHROMIUM=/usr/bin/chromium node ui/e2e/screenshots.js

import { fileURLToPath } from 'node:url';
import { launch, open, URL_OF_SERVER } from './browser.js';

const FOLDER = fileURLToPath(new URL('../../docs/images/', import.meta.url));
const VIEWPORT = { width: 1280, height: 720 };
/** Until live data and charts are there. */
const SETTLE_MS = 4000;

const { items } = await (await fetch(`${URL_OF_SERVER}/api/v1/events`)).json();
if (items.length === 0) throw new Error('there is no event yet; wait for one');
/** An open event is shown if there is one. */
const event = items.find((one) => !one.end) ?? items[0];
const browser = await launch();
for (const [name, hash] of [
  ['cluster', '#/'],
  ['event', `#/events/${event.id}`],
  ['node', `#/nodes/${encodeURIComponent(event.node ?? event.nodes[0])}?last=900`],
]) {
  const { page, close } = await open(browser, hash, { viewport: VIEWPORT, colorScheme: 'light' });
  await page.waitForTimeout(SETTLE_MS);
  await page.screenshot({ path: `${FOLDER}${name}.png` });
  await close();
}
await browser.close();
