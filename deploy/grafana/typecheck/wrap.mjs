// Writes each dashboard as a TypeScript module, because the type of an imported JSON file has no literal strings.
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';

const from = new URL('../dashboards/', import.meta.url);
const into = new URL('wrapped/', import.meta.url);
mkdirSync(into, { recursive: true });
for (const name of readdirSync(from).filter((name) => name.endsWith('.json'))) {
  const text = readFileSync(new URL(name, from), 'utf8').trim();
  const module = `import type { TracewiseDashboard } from '../dashboard';
export default ${text} satisfies TracewiseDashboard;
`;
  writeFileSync(new URL(name.replace('.json', '.ts'), into), module);
}
