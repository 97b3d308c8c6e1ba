#!/usr/bin/env python3
"""The mean rates of every job, from the ticks in an archive, with pandas and with Polars.

    python3 examples/python/archive.py traces
"""

import json
import sys
from pathlib import Path

import pandas
import polars
import pyarrow.parquet

MODES = ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"]
THREAD = ["node", "cpu"]


def are_counters(archive: Path) -> bool:
    """Whether ticks are counted since boot. Otherwise, each reading has those of its own interval."""
    first = next(archive.glob("cpu/**/*.parquet"))
    footer = json.loads(pyarrow.parquet.read_metadata(first).metadata[b"tracewise"])
    return footer["source"]["measure"] == "counter"


def with_pandas(archive: Path) -> pandas.DataFrame:
    rows = pandas.read_parquet(archive / "cpu").sort_values([*THREAD, "time"], ignore_index=True)
    ticks = rows[MODES].astype("float64").fillna(0.0)
    if are_counters(archive):
        ticks = ticks.groupby([rows["node"], rows["cpu"]], observed=True).diff()
        # The first reading of a thread sets the baseline; after a reboot, counters begin again.
        ticks = ticks[(ticks >= 0).all(axis=1)]
    ticks = ticks.assign(job=rows["job"]).dropna(subset="job").groupby("job", observed=True)[MODES].sum()
    rates = ticks.div(ticks.sum(axis=1), axis=0)
    return pandas.DataFrame(
        {
            "user": rates["user"] + rates["nice"],
            "system": rates["system"],
            "iowait": rates["iowait"],
            "other": rates[["idle", "irq", "softirq", "steal"]].sum(axis=1),
        }
    ).sort_index()


def with_polars(archive: Path) -> polars.DataFrame:
    rows = polars.scan_parquet(archive / "cpu/**/*.parquet", hive_partitioning=True).sort([*THREAD, "time"])
    rows = rows.with_columns(polars.col(MODES).cast(polars.Float64).fill_null(0.0))
    if are_counters(archive):
        rows = rows.with_columns(polars.col(MODES).diff().over(THREAD))
        rows = rows.filter(polars.all_horizontal(polars.col(MODES) >= 0))
    ticks = rows.filter(polars.col("job").is_not_null()).group_by("job").agg(polars.col(MODES).sum())
    total = polars.sum_horizontal(MODES)
    return ticks.select(
        "job",
        user=(polars.col("user") + polars.col("nice")) / total,
        system=polars.col("system") / total,
        iowait=polars.col("iowait") / total,
        other=polars.sum_horizontal("idle", "irq", "softirq", "steal") / total,
    ).sort("job").collect()


def main() -> None:
    archive = Path(sys.argv[1])
    one, other = with_pandas(archive), with_polars(archive)
    difference = abs(one.to_numpy() - other.drop("job").to_numpy()).max()
    assert list(one.index) == other["job"].to_list() and difference < 1e-9, "pandas and Polars disagree"
    assert abs(one.sum(axis=1) - 1).max() < 1e-9, "the four rates of a job do not sum to one"
    print(one.round(3).to_string())


if __name__ == "__main__":
    main()
