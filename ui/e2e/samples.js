// Data of tests: files that a visitor may send, and large answers of the server.

import { api, ended, URL_OF_SERVER } from './browser.js';

export const put = (path, body) => fetch(`${URL_OF_SERVER}/api/v1/${path}`, { method: 'PUT', body });
const remove = (path) => fetch(`${URL_OF_SERVER}/api/v1/${path}`, { method: 'DELETE' });

/** What an earlier run may have left behind. */
export async function clean() {
  for (const { name } of (await api('job-traces')).items) if (name.startsWith('e2e-')) await remove(`job-traces/${name}`);
  for (const { name } of (await api('workflows')).items) if (name.startsWith('e2e-')) await remove(`workflows/${name}`);
  const { classifier } = await api('workflow-classifier');
  if (classifier?.from === 'labels') await ended((await api('workflow-classifier', { method: 'DELETE' })).number);
}

/** A job trace as a CSV file. */
export function trace(jobs) {
  const rows = Array.from({ length: jobs }, (_, job) => {
    const submit = 1_700_000_000 + job * 60 + (job % 7) * 5;
    return `${submit},${60 + ((job * 37) % 900)},${2 ** (job % 5)},u${Math.floor(job / 10) % 3}`;
  });
  return ['submit,run_time,cores,user', ...rows, ''].join('\n');
}

/** A workflow run as a Nextflow trace; a larger number makes its tasks longer. */
export function run(seconds) {
  const header = 'task_id\thash\tnative_id\tname\tstatus\texit\tsubmit\tduration\trealtime';
  const rows = Array.from({ length: 12 }, (_, task) => {
    const own = seconds + (task % 3);
    const kind = ['ALIGN', 'SORT', 'CALL'][Math.floor(task / 4)];
    const minute = String(Math.floor(task / 4) * 2).padStart(2, '0');
    return `${task}\t0a/${task}\t${task}\t${kind} (s${task})\tCOMPLETED\t0\t2026-11-01 10:${minute}:00.000\t${own + 2}s\t${own}s`;
  });
  return [header, ...rows, ''].join('\n');
}

/** A run with many tasks, a hundred at a time, as a Nextflow trace. */
export function largeRun(tasks) {
  const rows = ['task_id\thash\tnative_id\tname\tstatus\texit\tsubmit\tduration\trealtime'];
  for (let task = 0; task < tasks; task += 1) {
    const [own, status] = [30 + (task % 20), task % 5000 === 0 ? 'FAILED\t1' : 'COMPLETED\t0'];
    const submitted = new Date(1_793_500_000_000 + Math.floor(task / 100) * 60_000).toISOString();
    const time = submitted.replace('T', ' ').replace('Z', '');
    rows.push(`${task}\t0a/${task}\t${task}\tKIND${task % 20} (s${task})\t${status}\t${time}\t${own + 2}s\t${own}s`);
  }
  return `${rows.join('\n')}\n`;
}

/** Runs with labels, enough for a classifier. */
export async function labelled() {
  for (let index = 0; index < 12; index += 1) {
    const [name, label] = [`e2e-labelled-${index}.txt`, index < 6 ? 'normal' : 'cpu'];
    const sent = await put(`workflows/${name}`, run((index < 6 ? 20 : 60) + index));
    if (sent.status !== 201) throw new Error(`${name}: ${sent.status}`);
    await api(`workflows/${name}/label`, { method: 'PUT', body: JSON.stringify({ label }) });
  }
}

/** A classifier that was trained with labels. */
export async function aClassifier() {
  await labelled();
  const { number } = await api('workflow-classifier', { method: 'POST', body: '{}' });
  await ended(number);
}

/** A projection of many windows. */
export function manyWindows(n) {
  const all = Array.from({ length: n }, (_, index) => index);
  return {
    axes: ['PC 1', 'PC 2'],
    window_seconds: 100,
    x: all.map((index) => Math.sin(index * 1.7) * (index % 97)),
    y: all.map((index) => Math.cos(index * 2.3) * (index % 89)),
    time: all.map((index) => 1_795_000_000 + index),
    node: all.map((index) => index % 40),
    cpu: all.map((index) => index % 128),
    job: all.map((index) => (index % 5 === 0 ? null : index % 300)),
    kind: all.map((index) => index % 12),
    score: all.map((index) => (index % 50 === 0 ? 3 : 0.2)),
    max_iowait: all.map((index) => (index % 13) / 20),
    is_training: all.map((index) => index < n / 2),
    nodes: Array.from({ length: 40 }, (_, index) => `n${index}`),
    jobs: Array.from({ length: 300 }, (_, index) => `${index}`),
    kinds: Array.from({ length: 12 }, (_, index) => `kind-${index}`),
    distances: { 'kind-3': all.map((index) => index % 71) },
  };
}

/** Lets a page believe that the cluster has 1,000 nodes with 128 threads each. */
export async function manyThreads(page) {
  const nodes = Array.from({ length: 1000 }, (_, index) => ({
    node: `n${index}`,
    threads: 128,
    runs: [
      [0, 64, `${index}`],
      [64, 64, `${index >> 3}`],
    ],
  }));
  const rows = nodes.map((one) => `${one.node}=128`).join(',');
  const plane = () => Buffer.from(Uint8Array.from({ length: 128_000 }, () => Math.random() * 90));
  await page.route('**/api/v1/cluster/layout', (route) => route.fulfill({ json: { nodes } }));
  await page.route('**/api/v1/cluster?format=plane', (route) =>
    route.fulfill({ body: plane(), headers: { 'tracewise-rows': rows, 'content-type': 'application/octet-stream' } }),
  );
}
