// Light or dark: the system's choice until the visitor makes one.

export type Theme = 'light' | 'dark';

const KEY = 'tracewise-theme';

class ThemeState {
  private readonly system = matchMedia('(prefers-color-scheme: dark)');
  private chosen = $state<Theme | null>(null);
  private systemTheme = $state<Theme>('light');

  constructor() {
    const stored = read(KEY);
    this.chosen = stored === 'light' || stored === 'dark' ? stored : null;
    this.systemTheme = this.system.matches ? 'dark' : 'light';
    this.system.addEventListener('change', () => {
      this.systemTheme = this.system.matches ? 'dark' : 'light';
      this.show();
    });
    this.show();
  }

  get current(): Theme {
    return this.chosen ?? this.systemTheme;
  }

  toggle(): void {
    const next = this.current === 'dark' ? 'light' : 'dark';
    // The system's own choice needs no memory, so that it is followed again.
    this.chosen = next === this.systemTheme ? null : next;
    write(KEY, this.chosen);
    this.show();
  }

  private show(): void {
    document.documentElement.dataset.theme = this.current;
  }
}

/** Storage may be forbidden; then the choice lasts until the page is left. */
export function read(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

export function write(key: string, value: string | null): void {
  try {
    if (value === null) localStorage.removeItem(key);
    else localStorage.setItem(key, value);
  } catch {
    // See `read`.
  }
}

export const theme = new ThemeState();
