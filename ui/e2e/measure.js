// Measures the page on a running server and prints the figures as JSON. `bench/ui.py` makes docs/results/ui.md from them.

import { gzipSync } from 'node:zlib';

import { api, launch, open, URL_OF_SERVER } from './browser.js';
import { framesOf } from './frames.js';
import { anHour } from './memory.js';
import { clean, largeRun, manyThreads, put } from './samples.js';

const FRAMES = 600;
const LOADS = 7;
const REQUESTS = 30;

const sorted = (values) => [...values].sort((a, b) => a - b);
const quantile = (values, part) => sorted(values)[Math.min(values.length - 1, Math.floor(values.length * part))];
const figures = (values) => ({ median: quantile(values, 0.5), p95: quantile(values, 0.95), max: Math.max(...values) });

async function paints(browser) {
  const times = [];
  for (let load = 0; load < LOADS; load += 1) {
    const { page, close } = await open(browser);
    await page.waitForSelector('.health.good h1, .health.problem h1, .health.unknown h1');
    times.push(
      await page.evaluate(() => ({
        paint: performance.getEntriesByName('first-contentful-paint')[0].startTime,
        answer: performance.now(),
      })),
    );
    await close();
  }
  return { paint: figures(times.map((one) => one.paint)), answer: figures(times.map((one) => one.answer)) };
}

async function scriptBytes() {
  const html = await (await fetch(`${URL_OF_SERVER}/`)).text();
  const names = new Set(html.match(/assets\/[\w.-]+\.js/g));
  let bytes = 0;
  for (const name of names) {
    const text = await (await fetch(`${URL_OF_SERVER}/${name}`)).text();
    bytes += gzipSync(text).length;
    for (const other of text.match(/[\w-]+-[\w-]{8}\.js/g) ?? []) names.add(`assets/${other}`);
  }
  return { bytes, files: names.size };
}

async function heatMap(browser) {
  const { page, close } = await open(browser, '#/', { before: manyThreads });
  await page.waitForSelector('.map canvas');
  const frames = await framesOf(page, '[aria-roledescription="heat map"]', 'move', FRAMES);
  await close();
  return { ...figures(frames.steps), cpu: frames.cpuMs, drawn: frames.nDrawn };
}

async function gantt(browser) {
  await put('workflows/e2e-large.txt', largeRun(100_000));
  const { page, close } = await open(browser, '#/workflows/e2e-large.txt');
  const plot = '[aria-roledescription="Gantt chart"]';
  await page.waitForSelector(plot, { timeout: 60_000 });
  const frames = await framesOf(page, plot, 'wheel', FRAMES);
  await close();
  await clean();
  return { ...figures(frames.steps), cpu: frames.cpuMs, drawn: frames.nDrawn };
}

async function requests() {
  const [{ items: nodes }, { items: jobs }, { items: events }] = [await api('nodes'), await api('jobs'), await api('events')];
  const { items: models } = await api('models');
  const name = encodeURIComponent;
  const paths = {
    session: 'session',
    cluster: 'cluster',
    'cluster?format=plane': 'cluster?format=plane',
    'cluster/layout': 'cluster/layout',
    nodes: 'nodes',
    'nodes/{node}': `nodes/${name(nodes[0].node)}`,
    'nodes/{node}/usage': `nodes/${name(nodes[0].node)}/usage`,
    'nodes/{node}/threads': `nodes/${name(nodes[0].node)}/threads`,
    'nodes/{node}/threads?cpu=0': `nodes/${name(nodes[0].node)}/threads?cpu=0`,
    jobs: 'jobs',
    'jobs/{job}': `jobs/${name(jobs[0].job)}`,
    events: 'events?limit=100',
    vetting: 'vetting',
    diagnoses: 'diagnoses',
    models: 'models',
    'models/{version}': `models/${name(models[0].version)}`,
    competitions: 'competitions',
    timings: 'timings',
  };
  if (events.length > 0) paths['events/{id}'] = `events/${name(events[0].id)}`;
  const found = {};
  for (const [shown, path] of Object.entries(paths)) {
    const times = [];
    for (let time = 0; time < REQUESTS; time += 1) {
      const begun = performance.now();
      await (await fetch(`${URL_OF_SERVER}/api/v1/${path}`)).arrayBuffer();
      times.push(performance.now() - begun);
    }
    found[shown] = figures(times);
  }
  return { threads: nodes.reduce((sum, one) => sum + one.threads, 0), paths: found };
}

const browser = await launch();
const { items } = await api('nodes');
const measured = {
  browser: browser.version(),
  scripts: await scriptBytes(),
  requests: await requests(),
  loads: await paints(browser),
  heatMap: await heatMap(browser),
  gantt: await gantt(browser),
  memory: {
    map: await anHour(browser, '#/', '.map canvas'),
    node: await anHour(browser, `#/nodes/${encodeURIComponent(items[0].node)}?last=300`, '.spark'),
  },
};
await browser.close();
console.log(JSON.stringify(measured, null, 1));
