#!/usr/bin/env python3
"""Events as a table: of an archive, or of a service.

    tracewise detect events --model model --data traces --json | python3 examples/python/events.py
    tracewise review --list --json | python3 examples/python/events.py
"""

import json
import sys

import pandas
import polars

COLUMNS = ["id", "subject", "node", "job", "start", "minutes", "level", "strength", "certainty", "kind", "why"]


def rows(events: list[dict]) -> list[dict]:
    """One flat row per event."""
    return [
        {
            **event,
            # The first job is the responsible one.
            "job": event["jobs"][0] if event["jobs"] else None,
            # An open event has no end.
            "minutes": (event["end"] - event["start"]) / 60 if event.get("end") else None,
            "kind": next((kind["kind"] for kind in event["kinds"] if kind["is_inside"]), None),
        }
        for event in events
    ]


def main() -> None:
    events = [item.get("event", item) for item in json.load(sys.stdin)]
    if not events:
        print("there are no events")
        return
    table = pandas.DataFrame(rows(events)).reindex(columns=COLUMNS)
    table["start"] = pandas.to_datetime(table["start"], unit="s", utc=True)
    print(table.drop(columns=["why", "id"]).to_string(index=False), "\n")
    counts = polars.DataFrame(rows(events), infer_schema_length=None).group_by("level").len().sort("level")
    print(counts)
    assert counts["len"].sum() == len(table)


if __name__ == "__main__":
    main()
