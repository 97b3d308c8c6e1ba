// How fast the page draws: one input for every frame, so that every measured frame has something to draw.

/** The time from frame to frame at 60 frames per second, in milliseconds. */
export const FRAME_MS = 1000 / 60;

/** Runs in the page. Sends an input in each of `n` frames; returns the times of the frames and how often something was drawn. */
function drive(element, { kind, n }) {
  const box = element.getBoundingClientRect();
  const [height, base] = [Math.min(box.height, innerHeight - box.top), { bubbles: true, cancelable: true }];
  /** A place that differs from step to step, back and forth across the element. */
  const at = (step) => {
    const part = Math.abs(((step * 7) % 200) - 100) / 100;
    return { clientX: box.left + box.width * (0.25 + part / 2), clientY: box.top + height * (0.2 + part / 2) };
  };
  const point = (step) =>
    element.dispatchEvent(new PointerEvent('pointermove', { ...base, ...at(step), movementX: 1, pointerId: 1 }));
  const inputs = {
    move: point,
    wheel: (step) =>
      element.dispatchEvent(
        new WheelEvent('wheel', { ...base, ...at(0), deltaY: step % 60 < 30 ? -120 : 120 }),
      ),
    scroll: (step) => scrollBy(0, step % 60 < 30 ? 60 : -60),
  };
  // A chart zooms only if the pointer was moved on it.
  if (kind === 'wheel') point(0);
  const clear = CanvasRenderingContext2D.prototype.clearRect;
  let nDrawn = 0;
  CanvasRenderingContext2D.prototype.clearRect = function (...box) {
    nDrawn += 1;
    return clear.apply(this, box);
  };
  return new Promise((resolve) => {
    const times = [];
    const next = (time) => {
      times.push(time);
      if (times.length > n) {
        CanvasRenderingContext2D.prototype.clearRect = clear;
        resolve({ times, nDrawn });
        return;
      }
      // As browsers do: an input arrives between two frames, and is drawn in the next one.
      setTimeout(() => {
        inputs[kind](times.length);
        requestAnimationFrame(next);
      });
    };
    requestAnimationFrame(next);
  });
}

/**
 * The times from frame to frame while an element gets an input in every frame (`move`, `wheel` or `scroll`), and the CPU
 * time of the page's main thread for each frame. Other programs prolong the first, and hardly change the second.
 */
export async function framesOf(page, selector, kind, n) {
  const devtools = await page.context().newCDPSession(page);
  await devtools.send('Performance.enable', { timeDomain: 'threadTicks' });
  const worked = async () => {
    const { metrics } = await devtools.send('Performance.getMetrics');
    return metrics.find((one) => one.name === 'TaskDuration').value * 1000;
  };
  const before = await worked();
  const { times, nDrawn } = await page.locator(selector).first().evaluate(drive, { kind, n });
  const cpuMs = ((await worked()) - before) / n;
  await devtools.detach();
  return { steps: times.slice(1).map((time, index) => time - times[index]), cpuMs, nDrawn };
}
