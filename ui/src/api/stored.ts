// Files that people store on the server under a name: upload, download and deletion.

import { BASE } from './calls';
import { checked, send, Unreachable } from './client';

/** The server closed the connection before it had the whole file. */
export class Interrupted extends Error {
  constructor() {
    super('The connection ended before the whole file was sent. It may be larger than the server allows.');
  }
}

export interface StoredFiles {
  list: string;
  at: (name: string) => string;
  /** Where a file can be downloaded. */
  contentOf: (name: string) => string;
  upload: (name: string, file: Blob, noteSent: (fraction: number) => void, signal: AbortSignal) => Promise<void>;
  remove: (name: string) => Promise<void>;
}

/** The files below a path of the API. */
export function stored(path: string): StoredFiles {
  const list = `${BASE}/${path}`;
  const at = (name: string) => `${list}/${encodeURIComponent(name)}`;
  return {
    list,
    at,
    contentOf: (name) => `${at(name)}/file`,
    upload: (name, file, noteSent, signal) => sendFile(at(name), file, noteSent, signal),
    async remove(name) {
      await send(at(name), { method: 'DELETE' });
    },
  };
}

/** Sends a file. `fetch` does not tell how much has been sent, so this is an XMLHttpRequest. */
async function sendFile(
  path: string,
  file: Blob,
  noteSent: (fraction: number) => void,
  signal: AbortSignal,
): Promise<void> {
  signal.throwIfAborted();
  const request = new XMLHttpRequest();
  let hasBegun = false;
  const answer = new Promise<Response>((resolve, reject) => {
    request.upload.onprogress = ({ loaded, total }) => {
      hasBegun = true;
      noteSent(total > 0 ? loaded / total : 0);
    };
    request.onload = () => resolve(responseOf(request));
    request.onerror = () => reject(hasBegun ? new Interrupted() : new Unreachable());
    request.onabort = () => reject(new DOMException('', 'AbortError'));
  });
  signal.addEventListener('abort', () => request.abort());
  request.open('PUT', path);
  request.setRequestHeader('content-type', 'application/octet-stream');
  request.send(file);
  await checked(await answer);
}

function responseOf(request: XMLHttpRequest): Response {
  const headers = new Headers();
  for (const name of ['content-type', 'date']) {
    const value = request.getResponseHeader(name);
    if (value !== null) headers.set(name, value);
  }
  return new Response(request.responseText || null, { status: request.status, headers });
}
