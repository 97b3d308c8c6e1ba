#!/usr/bin/env python3
"""EpilogSlurmctld: leaves what Tracewise found about a job in its AdminComment, where `sacct` shows it for years.

In slurm.conf, on the machine of slurmctld:
    EpilogSlurmctld=/usr/share/tracewise/slurm/summary.py
It runs as SlurmUser, which cannot read /etc/tracewise. The address of the service is therefore in /etc/slurm/tracewise.json, with
a token of the role viewer, for SlurmUser only: install -m 600 -o slurm tracewise.json /etc/slurm/
    {"url": "https://tracewise.example.org", "token": "tw_..."}

It needs slurmdbd: `scontrol` cannot change a job that has ended. It never fails a job: slurmctld waits only until the work is
handed to another process, which gives up after half a minute. A comment that is there already, such as that of jobstats, stays.
A job without events gets no comment.
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request

SETTINGS = os.environ.get("TRACEWISE_SLURM_SETTINGS", "/etc/slurm/tracewise.json")
MAX_SECONDS = 30
# The last seconds of a job are scored after its end.
WAIT_SECONDS = 10
MAX_LENGTH = 200


def fetch(url, token):
    request = urllib.request.Request(url, headers={"Authorization": "Bearer " + token} if token else {})
    # No proxy: the service is on the cluster's own network.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=5) as response:
        return json.loads(response.read(1 << 20))


def summary(detail):
    """One line about the events that are reported; None if there are none."""
    events = [event for event in detail["events"] if event.get("hidden_by") is None]
    if not events:
        return None
    strongest = max(events, key=lambda event: event["strength"])
    count = "1 event" if len(events) == 1 else "%d events" % len(events)
    where = " on " + strongest["node"] if strongest.get("node") else ""
    text = "tracewise: %s; the strongest%s, %.1f times its threshold" % (count, where, strongest["strength"])
    if strongest.get("why"):
        text += ": " + strongest["why"]
    printable = "".join(letter if letter.isprintable() else " " for letter in text)
    return printable if len(printable) <= MAX_LENGTH else printable[: MAX_LENGTH - 1] + "…"


def output_of(*command):
    output = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=10, check=True)
    return output.stdout.decode(errors="replace").strip()


def comment(job):
    with open(SETTINGS, encoding="utf-8") as file:
        settings = json.load(file)
    time.sleep(settings.get("wait_seconds", WAIT_SECONDS))
    url = settings["url"].rstrip("/") + "/api/v1/jobs/" + urllib.parse.quote(job, safe="")
    text = summary(fetch(url, settings.get("token")))
    if not text:
        return
    # The number of the last task is that of the whole array; it would get the comment of every task.
    if os.environ.get("SLURM_ARRAY_JOB_ID") == job:
        job += "_" + os.environ.get("SLURM_ARRAY_TASK_ID", "")
    which = ["--jobs=" + job, "--allocations", "--noheader", "--parsable2", "--format=AdminComment"]
    if not output_of("sacct", *which):
        output_of("sacctmgr", "--immediate", "update", "job", "where", "jobid=" + job, "set", "AdminComment=" + text)


def main():
    job = os.environ.get("SLURM_JOB_ID", "")
    # slurmctld goes on at once.
    if os.fork() > 0:
        return
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    signal.alarm(MAX_SECONDS)
    try:
        if job:
            comment(job)
    except Exception as error:  # A job must not depend on it.
        subprocess.run(["logger", "--tag", "tracewise", "job %s has no summary: %s" % (job, error)], check=False)


if __name__ == "__main__":
    try:
        main()
    finally:
        sys.exit(0)
