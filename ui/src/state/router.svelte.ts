// Where the visitor is. Views read `router.place` and change the address; they keep no view state of their own.

import { changed, href, parse, type Place, type QueryChange, type Route } from '../routes';

class Router {
  place = $state.raw<Place>(parse(location.hash));

  constructor() {
    addEventListener('hashchange', () => {
      this.place = parse(location.hash);
    });
  }

  go(route: Route, query: QueryChange = {}): void {
    location.hash = href(route, query);
  }

  /** Goes to a place that leaves no trace in the history, such as away from the login page. */
  replace(hash: string): void {
    history.replaceState(null, '', hash);
    this.place = parse(hash);
  }

  /** Changes parameters of this view. Small changes should not fill the history, so the entry is replaced. */
  set(change: QueryChange, keepsHistory = false): void {
    const hash = href(this.place.route, changed(this.place.query, change));
    if (keepsHistory) location.hash = hash;
    else this.replace(hash);
  }

  /** An address of this view with other parameters. */
  hrefWith(change: QueryChange): string {
    return href(this.place.route, changed(this.place.query, change));
  }
}

export const router = new Router();
