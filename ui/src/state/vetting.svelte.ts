// Figures of vetting, which several views show, and whether a first verdict should be explained.

import { api, type Vetting } from '../api';
import { Resource } from './resource.svelte';
import { session } from './session.svelte';
import { read, write } from './theme.svelte';

const KEY = 'tracewise-first-verdict-explained';

class VettingState extends Resource<Vetting> {
  private isExplained = $state(read(KEY) !== null);

  refresh(): void {
    this.start((signal) => api.vetting(signal));
  }

  /** Nobody gave a clear verdict yet: show how. */
  get needsHint(): boolean {
    const figures = this.value?.days30;
    return !this.isExplained && session.mayVet && figures !== undefined && figures.anomalies + figures.normal === 0;
  }

  explained(): void {
    this.isExplained = true;
    write(KEY, 'yes');
  }
}

export const vetting = new VettingState();
