// What runs are called by people and by the classifier.

/** Labels with a key. The names are those of the training data; see `docs/workflows.md`. */
export const LABELS = [
  { key: 'h', label: 'normal', name: 'Healthy' },
  { key: 'c', label: 'cpu', name: 'CPU fault' },
  { key: 'd', label: 'hdd', name: 'Disk fault' },
  { key: 'n', label: 'loss', name: 'Network fault' },
] as const;

export const HEALTHY = 'normal';

/** A label in words. Labels may have a strength, as `hdd_50`. */
export function labelName(label: string): string {
  const [base, ...strength] = label.split('_');
  const known = LABELS.find((one) => one.label === base);
  if (!known) return label;
  return strength.length === 0 ? known.name : `${known.name} (${strength.join('_')})`;
}

/** The class of a label: what comes before its strength. */
export const classOf = (label: string) => label.split('_')[0];

const MAX_LABEL = 100;

/** Why a label is not possible; null if it is. */
export function labelProblem(label: string): string | null {
  if (label === '') return 'Enter a label.';
  if (label.length > MAX_LABEL) return `A label has at most ${MAX_LABEL} characters.`;
  return /^[\w.-]+$/.test(label) ? null : 'A label has letters, digits, dots, dashes and underscores.';
}
