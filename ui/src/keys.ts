// Whether a key press is meant for the page, and not for a field or a combination of the browser.

export function isPlainKey(event: KeyboardEvent): boolean {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || event.isComposing) return false;
  const target = event.target;
  if (!(target instanceof HTMLElement)) return true;
  return !target.isContentEditable && !['INPUT', 'SELECT', 'TEXTAREA'].includes(target.tagName);
}
