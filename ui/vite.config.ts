import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vitest/config';

export default defineConfig({
  // Relative addresses, so that the page also works below a path of a proxy.
  base: './',
  plugins: [svelte()],
  build: {
    // The content security policy allows neither inline scripts nor data: fonts, so nothing is inlined.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: 'es2022',
  },
  server: { proxy: { '/api': 'http://127.0.0.1:9743' } },
  test: { include: ['src/**/*.test.ts'] },
});
