#!/usr/bin/env python3
"""The highest scores of every job, and how far its windows are apart in the embedding space.

    tracewise detect score --model model --data traces --out scores.parquet
    tracewise detect embed --model model --data traces --out embeddings.parquet
    python3 examples/python/scores.py scores.parquet embeddings.parquet
"""

import sys

import numpy
import pandas
import polars

WINDOW = ["node", "cpu", "job", "window_start"]


def main() -> None:
    scores = pandas.read_parquet(sys.argv[1])
    embeddings = polars.read_parquet(sys.argv[2])
    # A strength above 1 exceeds a threshold; an event needs three such windows in a row.
    by_job = scores.groupby("job").agg(windows=("score", "size"), highest=("score", "max"), strength=("strength", "max"))
    print(by_job.sort_values("highest", ascending=False).head(10).to_string(), "\n")

    dimensions = [name for name in embeddings.columns if name.startswith("z")]
    spread = (
        embeddings.filter(polars.col("job").is_not_null())
        .group_by("job")
        .agg(polars.col(dimensions).std())
        .select("job", spread=polars.mean_horizontal(dimensions))
        .drop_nulls()
        .sort("spread", descending=True)
    )
    print(spread.head(10))

    # Both tables have one row per window, in any order.
    both = scores.merge(embeddings.to_pandas(), on=WINDOW)
    assert len(both) == len(scores) == len(embeddings), "the tables are of different windows"
    assert numpy.isfinite(both[dimensions].to_numpy()).all()


if __name__ == "__main__":
    main()
