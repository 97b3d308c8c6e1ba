// Who the visitor is, and what the role allows. What a role may not do is not offered.

import { api, type Role, type User } from '../api';
import { listeners } from '../api/client';
import { router } from './router.svelte';

const RANK: Record<Role, number> = { viewer: 0, vetter: 1, admin: 2 };

class SessionState {
  user = $state.raw<User | null>(null);
  logins = $state.raw<string[]>([]);
  isKnown = $state(false);

  get mayVet(): boolean {
    return this.may('vetter');
  }

  get mayPromote(): boolean {
    return this.may('admin');
  }

  private may(role: Role): boolean {
    return this.user !== null && RANK[this.user.role] >= RANK[role];
  }

  /** Asks the server. Throws if it does not respond. */
  async load(): Promise<void> {
    const { user, logins } = await api.session();
    this.user = user;
    this.logins = logins;
    this.isKnown = true;
    if (user === null) this.toLogin();
  }

  async logIn(token: string): Promise<void> {
    await api.logIn(token);
    await this.load();
    router.replace(router.place.query.back || '#/');
  }

  async logOut(): Promise<void> {
    await api.logOut();
    this.user = null;
    router.replace('#/login');
  }

  /** Goes to the login page, and comes back after it. */
  toLogin(): void {
    this.user = null;
    if (router.place.route.view === 'login') return;
    const back = location.hash || '#/';
    router.replace(`#/login?back=${encodeURIComponent(back)}`);
  }
}

export const session = new SessionState();
listeners.unauthorized = () => session.toLogin();
