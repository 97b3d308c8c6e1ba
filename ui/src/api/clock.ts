// The server's clock. Browsers may be minutes off, and "3 minutes ago" must not depend on that.

/** `Date` headers have whole seconds, so smaller differences mean nothing. */
const TOLERANCE_SECONDS = 2;

export class Clock {
  private offsetSeconds = 0;

  constructor(private readonly browserNow: () => number = () => Date.now() / 1000) {}

  /** Takes the `Date` header of an answer. */
  note(header: string | null): void {
    const time = header === null ? NaN : Date.parse(header) / 1000;
    if (Number.isNaN(time)) return;
    const offset = time - this.browserNow();
    if (Math.abs(offset - this.offsetSeconds) > TOLERANCE_SECONDS) this.offsetSeconds = offset;
  }

  /** Seconds since 1970 on the server. */
  now(): number {
    return this.browserNow() + this.offsetSeconds;
  }

  /** How far the browser's clock is behind the server's. */
  get offset(): number {
    return this.offsetSeconds;
  }
}

export const serverClock = new Clock();
