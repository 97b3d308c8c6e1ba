#!/usr/bin/env python3
"""Prints a made-up job trace in the layout of `sacct --parsable2`, to try `tracewise jobs` without a cluster.

Users come back in sessions: several similar jobs in a row, more of them by day than by night.

    python3 examples/python/sample_job_trace.py --jobs 600 --seed 1 > jobs.txt
"""

import argparse
import datetime
import math
import random

COLUMNS = "JobID|User|Account|Submit|Start|End|ElapsedRaw|Timelimit|NNodes|NCPUS|State"
CORES_PER_NODE = 32


def clock(time: datetime.datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--jobs", type=int, default=600)
    arguments.add_argument("--seed", type=int, default=1)
    options = arguments.parse_args()
    chance = random.Random(options.seed)
    users = [f"user{number:02}" for number in range(1, 13)]
    time = datetime.datetime(2026, 10, 5, 8)
    print(COLUMNS)
    left = 0
    for number in range(1, options.jobs + 1):
        if left == 0:
            left = chance.randint(1, 8)
            user = chance.choice(users)
            nodes = chance.choice([1, 1, 2, 4, 8])
            limit = chance.choice([60, 240, 1440])
            typical = chance.uniform(0.05, 0.9) * limit * 60
            by_day = 1.2 + math.cos((time.hour - 14) / 24 * 2 * math.pi)
            pause = chance.expovariate(by_day / 1_500)
        else:
            pause = chance.uniform(1, 30)
        left -= 1
        time += datetime.timedelta(seconds=round(pause))
        start = time + datetime.timedelta(seconds=round(chance.expovariate(1 / 120)))
        seconds = round(min(typical * chance.lognormvariate(0, 0.3), limit * 60))
        end = start + datetime.timedelta(seconds=seconds)
        state = "TIMEOUT" if seconds == limit * 60 else chance.choices(["COMPLETED", "FAILED"], [9, 1])[0]
        allowed = f"{limit // 1440}-00:00:00" if limit >= 1440 else f"{limit // 60:02}:00:00"
        account = "physics" if users.index(user) < 7 else "chemistry"
        row = [number, user, account, clock(time), clock(start), clock(end), seconds, allowed, nodes, nodes * CORES_PER_NODE]
        print("|".join(map(str, [*row, state])))


if __name__ == "__main__":
    main()
