// What elements of forms do when they appear.

/** Takes the focus. */
export function focus(element: HTMLElement): void {
  element.focus();
}

/** Lets Escape leave a form from any of its fields. */
export function onEscape(action: () => void) {
  return (element: HTMLElement) => {
    const listener = (event: KeyboardEvent) => {
      if (event.key !== 'Escape') return;
      event.stopPropagation();
      action();
    };
    element.addEventListener('keydown', listener);
    return () => element.removeEventListener('keydown', listener);
  };
}
