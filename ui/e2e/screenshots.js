// Makes the pictures of the documentation from a running server that has an event, such as `tracewise demo`:
// TRACEWISE_URL=http://127.0.0.1:9743 CHROMIUM=/usr/bin/chromium node ui/e2e/screenshots.js
//
// With a folder as its argument, it puts every view in both themes there instead, to look at them.

import { mkdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { anEvent, anOperation, launch, open } from './browser.js';
import { aClassifier, clean, put, trace } from './samples.js';

const OF_DOCUMENTATION = fileURLToPath(new URL('../../docs/images/', import.meta.url));
const VIEWPORT = { width: 1280, height: 720 };
/** Until live data and charts are there. */
const SETTLE_MS = 4000;
const RUN = 'e2e-labelled-11.txt';

const review = process.argv[2];
const event = await anEvent();
await clean();
await aClassifier();
await put('job-traces/e2e-trace.csv', trace(2000));
const node = encodeURIComponent(event.node ?? event.nodes[0]);
const embeddings = await anOperation('embeddings', 'embeddings', {});
const synthesis = await anOperation('synthesis', 'job-traces/e2e-trace.csv/synthesis', {});
const views = {
  cluster: '#/',
  event: `#/events/${event.id}`,
  node: `#/nodes/${node}?last=900`,
  embeddings: `#/embeddings?operation=${embeddings}`,
  models: '#/models',
  'job-trace': `#/job-traces/e2e-trace.csv?operation=${synthesis}`,
  workflow: `#/workflows/${RUN}`,
};
if (review) {
  Object.assign(views, {
    table: '#/?show=table',
    thread: `#/nodes/${node}?cpu=0&last=300`,
    job: `#/jobs/${encodeURIComponent(event.jobs[0] ?? '')}`,
    events: '#/events?standing=any&hidden=any',
    'job-traces': '#/job-traces',
    workflows: '#/workflows',
    comparison: `#/workflows/e2e-labelled-0.txt/compare/${RUN}`,
    login: '#/login',
    sampling: `#/sampling?operation=${await anOperation('sampling', 'sampling', {})}`,
    backtest: `#/backtest?operation=${await anOperation('backtest', 'backtests', {})}`,
  });
}
const browser = await launch();
if (review) mkdirSync(review, { recursive: true });
for (const theme of review ? ['light', 'dark'] : ['light']) {
  for (const [name, hash] of Object.entries(views)) {
    const { page, close } = await open(browser, hash, { viewport: VIEWPORT, colorScheme: theme });
    await page.waitForTimeout(SETTLE_MS);
    const path = review ? `${review}/${name}-${theme}.png` : `${OF_DOCUMENTATION}${name}.png`;
    await page.screenshot({ path, fullPage: Boolean(review) });
    await close();
  }
}
await browser.close();
await clean();
