#!/usr/bin/env python3
"""Uses the HTTP API: lists events without a verdict, gives one verdict, and undoes it. Needs no packages.

    TRACEWISE_TOKEN=tw_… python3 examples/python/api.py http://127.0.0.1:9743
"""

import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request


class Tracewise:
    def __init__(self, address: str, token: str | None = None):
        self.address = address.rstrip("/")
        self.headers = {"authorization": f"Bearer {token}"} if token else {}

    def request(self, method: str, path: str, body: dict | None = None):
        data = None if body is None else json.dumps(body).encode()
        headers = {**self.headers, "content-type": "application/json"}
        request = urllib.request.Request(f"{self.address}/api/v1/{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            # Every error has a code for programs and a message for people.
            raise SystemExit(f"{method} {path}: {json.load(error)['error']['message']}") from error

    def items(self, path: str, **query):
        """All items of a list, page by page."""
        while True:
            page = self.request("GET", f"{path}?{urllib.parse.urlencode(query)}")
            yield from page["items"]
            if page["next"] is None:
                return
            query["after"] = page["next"]


def main() -> None:
    service = Tracewise(sys.argv[1], os.environ.get("TRACEWISE_TOKEN"))
    waiting = list(service.items("events", limit=50, standing="unvetted"))
    for event in waiting:
        print(f"{event['id']}  {event['node']}  job {', '.join(event['jobs'])}  {event['strength']:.1f}  {event['why']}")
    if not waiting:
        print("no event waits for a verdict")
        return
    event = waiting[0]["id"]
    verdict = service.request("POST", f"events/{event}/verdicts", {"answer": "unsure", "comment": "an example"})
    print(f"verdict {verdict['number']} about event {event}: {verdict['answer']}")
    service.request("DELETE", f"verdicts/{verdict['number']}")
    left = [other["id"] for other in service.items("events", standing="unvetted")]
    assert event in left, "the verdict was not undone"
    print(f"verdict {verdict['number']} is undone")


if __name__ == "__main__":
    main()
