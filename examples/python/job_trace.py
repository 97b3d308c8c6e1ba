#!/usr/bin/env python3
"""Compares arrivals and sizes of a real and a synthetic job trace with pandas and Polars.

    python3 examples/python/job_trace.py jobs.txt synthetic.parquet
"""

import sys
from pathlib import Path

import pandas
import polars


def read(path: str) -> pandas.DataFrame:
    """A trace in the layout of sacct: its output, or the table that `tracewise jobs sample` makes of it."""
    table = pandas.read_parquet(path) if path.endswith(".parquet") else pandas.read_csv(path, sep="|")
    for column in ["Submit", "Start", "End"]:
        table[column] = pandas.to_datetime(table[column])
    return table.sort_values("Submit", ignore_index=True)


def main() -> None:
    traces = {Path(path).stem: read(path) for path in sys.argv[1:3]}
    summary = {}
    for name, trace in traces.items():
        interval = trace["Submit"].diff().dt.total_seconds().dropna()
        summary[name] = {
            "jobs": len(trace),
            "users": trace["User"].nunique(),
            "median interval, s": interval.median(),
            "lag-1 autocorrelation": interval.autocorr(1),
            "median run time, s": trace["ElapsedRaw"].median(),
            "mean nodes": trace["NNodes"].mean(),
        }
    print(pandas.DataFrame(summary).round(3).to_string(), "\n")
    for name, trace in traces.items():
        hours = polars.from_pandas(trace[["Submit"]]).group_by(polars.col("Submit").dt.hour().alias("hour")).len()
        assert hours["len"].sum() == len(trace)
        busiest = hours.sort("len", descending=True).row(0, named=True)
        print(f"{name}: most jobs arrive between {busiest['hour']}:00 and {busiest['hour'] + 1}:00")


if __name__ == "__main__":
    main()
