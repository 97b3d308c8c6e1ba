// Names and colours of the parts of an attempt. Waiting is pale, work is dark. The hues are those of Okabe and Ito
// ("Color Universal Design", 2008), which people with any colour vision can tell apart.

import type { Theme } from '../state/theme.svelte';

const PARTS: Record<string, { name: string; light: string; dark: string }> = {
  ready: { name: 'waiting for other tasks', light: 'transparent', dark: 'transparent' },
  wms_delay: { name: 'workflow system', light: '#c9d0d8', dark: '#46505d' },
  pre_script: { name: 'pre-script', light: '#97a3b0', dark: '#6d7987' },
  queue: { name: 'queue', light: '#f0d777', dark: '#8f7d2c' },
  held: { name: 'held', light: '#d55e00', dark: '#f08a3c' },
  stage_in: { name: 'stage in', light: '#009e73', dark: '#2fc294' },
  runtime: { name: 'runtime', light: '#0072b2', dark: '#4aa3e8' },
  stage_out: { name: 'stage out', light: '#cc79a7', dark: '#e59cc6' },
  post_script: { name: 'post-script', light: '#66717e', dark: '#9aa5b2' },
};

/** Colours of parts that this page does not know. */
const OTHERS = { light: '#8a5a00', dark: '#d9a441' };

export const partName = (part: string) => PARTS[part]?.name ?? part.replaceAll('_', ' ');

export const partColour = (part: string, theme: Theme) => (PARTS[part] ?? OTHERS)[theme];
