#!/usr/bin/env python3
"""Checks the dashboards and rules.

    check.py                                     without a server; promtool checks the syntax of queries
    check.py --prometheus http://127.0.0.1:9090  also runs every query; each has to return data
    check.py --prometheus … --strict             the same, also for queries that have no data in `tracewise demo`

The rules are those of grafana/dashboard-linter, and some of our own. Not applied:
- template-job, template-instance, target-job, target-instance: a cluster has one service, and people look for nodes and
  jobs of the cluster, not for scrape targets. The variables are `cluster`, `node` and `jobid` instead.
- target-logql, target-logql-auto: there are no logs.
"""

import argparse
import itertools
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PROMETHEUS_FILES = HERE.parent / "prometheus"
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
UNITS = {"none", "percentunit", "bytes", "Bps", "s", "h", "ops"}
OKABE_ITO = {"#0072B2", "#56B4E9", "#009E73", "#F0E442", "#E69F00", "#D55E00", "#CC79A7", "#8C8C8C"}
PLACEHOLDERS = {"cluster": "a", "node": "n1", "jobid": "1", "__rate_interval": "1m"}

# Metrics without data in `tracewise demo`.
NO_DATA_IN_DEMO = {
    "tracewise_serve_alert": "the demo has no receivers of alerts",
    "tracewise_competition_": "models compete at 02:00 UTC for the first time",
    "tracewise_drift_": "models compete at 02:00 UTC for the first time",
    "tracewise_shadow_": "there is a challenger after a competition only",
    "tracewise_events_precision": "nobody has given a verdict",
    "tracewise_verdict_delay_seconds": "nobody has given a verdict",
    "tracewise_serve_ignored_total": "the simulated cluster sends nothing that is ignored",
}


# Rules about a dashboard. Each yields what is wrong.


def template_datasource(board):
    sources = [one for one in board["templating"]["list"] if one["type"] == "datasource"]
    if [(one["name"], one["label"], one["query"]) for one in sources] != [("datasource", "Data source", "prometheus")]:
        yield "has no variable `datasource` of the type prometheus"


def template_reload(board):
    for one in board["templating"]["list"]:
        if one["type"] == "query" and one["refresh"] != 2:
            yield f"variable {one['name']} is not read again when the time range changes"


def job_is_a_text_box(board):
    for one in board["templating"]["list"]:
        if one["type"] == "query" and "job" in one["name"]:
            yield f"variable {one['name']} would list every job"


def panel_datasource(board):
    variables = [one for one in board["templating"]["list"] if one["type"] == "query"]
    for one in [*charts(board), *board["annotations"]["list"], *variables]:
        for part in [one, *one.get("targets", [])]:
            if part.get("datasource") != DATASOURCE:
                yield f"{one.get('title', one.get('name'))!r} does not use ${{datasource}}"


def panel_title_description(board):
    for one in charts(board):
        if not one["title"] or not one["description"].endswith("."):
            yield f"{one['title']!r} has no title, or its description is not a sentence"


def panel_units(board):
    for one in charts(board):
        if one["fieldConfig"]["defaults"].get("unit") not in UNITS:
            yield f"{one['title']!r} has no known unit"


def target_rate_interval(board):
    for title, expression in expressions(board):
        for interval in re.findall(r"\[([^\]]*)\]", expression):
            if interval != "$__rate_interval":
                yield f"{title!r} has the range [{interval}] instead of [$__rate_interval]"


def target_counter_aggregation(board):
    selector = r"(?P<function>\w+\()?(?P<metric>\w+_total)\b(\{[^}]*\})?(?P<range>\[)?"
    for title, expression in expressions(board):
        for found in re.finditer(selector, expression):
            if found["function"] not in ("rate(", "irate(", "increase(") or not found["range"]:
                yield f"{title!r} shows the counter {found['metric']} without rate or increase"


def uneditable(board):
    if board["editable"] is not False:
        yield "can be edited"


def identity(board):
    if board["id"] is not None or not board["uid"].startswith("tracewise-") or len(board["uid"]) > 40:
        yield "needs `id: null` and a uid of at most 40 characters"
    if "__inputs" in board or "${DS_" in json.dumps(board):
        yield "has placeholders of an export, which provisioning does not resolve"


def unique_panel_ids(board):
    ids = [one["id"] for one in board["panels"]]
    if len(set(ids)) != len(ids):
        yield "has two panels with the same id"


def no_overlap(board):
    taken = {}
    for one in board["panels"]:
        place = one["gridPos"]
        if place["x"] + place["w"] > 24:
            yield f"{one['title']!r} is wider than the page"
        columns = range(place["x"], place["x"] + place["w"])
        lines = range(place["y"], place["y"] + place["h"])
        covered = {taken.setdefault(cell, one["id"]) for cell in itertools.product(columns, lines)} - {one["id"]}
        if covered:
            yield f"{one['title']!r} covers panel {min(covered)}"


def colours(board):
    for colour in set(re.findall(r'"(#\w{6})"', json.dumps(board))) - OKABE_ITO:
        yield f"the colour {colour} is not in the palette for colour-blind people"


RULES = [
    template_datasource, template_reload, job_is_a_text_box, panel_datasource, panel_title_description, panel_units,
    target_rate_interval, target_counter_aggregation, uneditable, identity, unique_panel_ids, no_overlap, colours,
]


# Parts of dashboards


def charts(board):
    return [one for one in board["panels"] if one["type"] != "row"]


def expressions(board):
    """The title and the query of every target and annotation."""
    for one in charts(board):
        yield from ((one["title"], target["expr"]) for target in one["targets"])
    yield from ((f"annotation {one['name']}", one["expr"]) for one in board["annotations"]["list"])


def variable_queries(board):
    """Name, selector and label of every variable that the server is asked for."""
    for one in board["templating"]["list"]:
        if one["type"] == "query":
            selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", one["definition"]).groups()
            yield one["name"], selector, label


def substitute(expression, values):
    for name, value in values.items():
        expression = re.sub(r"\$%s\b|\$\{%s\}" % (name, name), lambda _: value, expression)
    return expression


def metrics(text):
    return set(re.findall(r"\b(?<!:)(?:tracewise_\w+|anomaly_score|process_\w+)\b(?![:\w(])", text))


# Checks without a server


def promql(boards, promtool):
    """`promtool check rules` parses expressions; `promtool promql format` needs Prometheus 2.46."""
    rules, titles = [], []
    for board in boards:
        variables = ((f"variable {name}", selector) for name, selector, _ in variable_queries(board))
        for title, expression in itertools.chain(expressions(board), variables):
            rules.append({"record": f"query_{len(rules)}", "expr": substitute(expression, PLACEHOLDERS)})
            titles.append(f"{board['title']}: {title!r}")
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"groups": [{"name": "queries", "rules": rules}]}, file)
        file.flush()
        done = subprocess.run([promtool, "check", "rules", file.name], capture_output=True, text=True)
    if done.returncode != 0:
        for number, message in re.findall(r'"query_(\d+)": (.*)', done.stderr) or [("0", done.stderr.strip())]:
            yield f"{titles[int(number)]}: {message}"


def documented_metrics(boards):
    """Renamed metrics are found here, because the references are generated from the code or tested against it."""
    known = set()
    for name in ("serve-reference.md", "agent.md"):
        known |= set(re.findall(r"^\| `(\w+)", (ROOT / "docs" / name).read_text(), re.MULTILINE))
    texts = {board["title"]: " ".join(text for _, text in expressions(board)) for board in boards}
    rules = (PROMETHEUS_FILES / "rules" / "tracewise.yaml").read_text()
    texts["rules/tracewise.yaml"] = " ".join(re.findall(r"expr:(.*(?:\n {10}.*)*)", rules))
    for where, text in texts.items():
        for name in sorted(metrics(text) - known):
            # One metric for each line of /proc/meminfo.
            if not name.startswith("tracewise_memory_"):
                yield f"{where}: {name} is in no reference below docs/"


def alerts():
    text = (PROMETHEUS_FILES / "rules" / "tracewise.yaml").read_text()
    tests = (PROMETHEUS_FILES / "rules" / "tests.yaml").read_text()
    for block in re.split(r"^\s*- (?=alert:|record:)|^  - name:", text, flags=re.MULTILINE):
        if block.startswith("alert:"):
            name = block.split()[1]
            missing = [key for key in ("severity", "summary", "description", "runbook") if f" {key}:" not in block]
            if missing:
                yield f"alert {name} has no {' and no '.join(missing)}"
            if f'alertname="{name}"' not in tests:
                yield f"alert {name} has no test"


# Checks with a server


class Prometheus:
    def __init__(self, address):
        self.address = address.rstrip("/")

    def get(self, path, **parameters):
        url = f"{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(json.load(error).get("error", error)) from None

    def has_data(self, expression, minutes):
        """Whether there was a result at any time of the last minutes: events end."""
        now = time.time()
        return bool(self.get("query_range", query=expression, start=now - 60 * minutes, end=now, step=15)["result"])

def choices(prometheus, minutes):
    """Values for the variables: jobs with the highest scores, nodes with events, jobs that an agent reports."""
    def labels(number, metric):
        query = f"topk({number}, max by (cluster, node, jobid) (last_over_time({metric}[{minutes}m])))"
        return [one["metric"] for one in prometheus.get("query", query=query)["result"]]

    found = labels(3, 'anomaly_score{jobid!=""}') + labels(5, 'tracewise_event_strength{node!=""}')
    found += labels(5, "tracewise_job_tasks")
    keep = ("cluster", "node", "jobid")
    return [{"__rate_interval": "1m"} | {name: escape(one.get(name, "")) for name in keep} for one in found]


def escape(value):
    """As Grafana escapes values for `=~`."""
    return re.sub(r"([\\^$*+?.()|{}\[\]])", r"\\\\\1", value)


def why_no_data(expression):
    for start, reason in NO_DATA_IN_DEMO.items():
        if any(name.startswith(start) for name in metrics(expression)):
            return reason
    return None


def live(boards, prometheus, minutes, is_strict, counts):
    values = choices(prometheus, minutes)
    if not values:
        yield "there are no scores of jobs yet"
        return
    for board in boards:
        for name, selector, label in variable_queries(board):
            match = substitute(selector, values[0])
            if not prometheus.get(f"label/{label}/values", **{"match[]": match}):
                yield f"{board['title']}: variable {name} has no values"
        for title, expression in expressions(board):
            variants = dict.fromkeys(substitute(expression, one) for one in values)
            reason = why_no_data(expression)
            try:
                if any(prometheus.has_data(one, minutes) for one in variants):
                    counts["with data"] += 1
                elif reason and not is_strict:
                    counts["without"] += 1
                    print(f"no data: {board['title']}: {title!r}: {reason}")
                else:
                    yield f"{board['title']}: {title!r} has no data: {expression}"
            except ValueError as error:
                yield f"{board['title']}: {title!r}: {error}: {expression}"
    for group in prometheus.get("rules")["groups"]:
        for rule in group["rules"]:
            if rule["health"] == "err":
                yield f"rule {rule['name']}: {rule['lastError']}"


def find_promtool():
    built = ROOT / "target/components/prometheus/usr/bin/promtool"
    return str(built) if built.exists() else shutil.which("promtool")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--promtool", default=find_promtool(), help="the program promtool")
    parser.add_argument("--prometheus", metavar="URL", help="a Prometheus that scrapes Tracewise and an agent")
    parser.add_argument("--minutes", type=int, default=15, help="how old data may be [default: 15]")
    parser.add_argument("--strict", action="store_true", help="every query needs data")
    arguments = parser.parse_args()
    if not arguments.promtool:
        sys.exit("promtool is not installed; scripts/components installs it")
    boards = [json.loads(path.read_text()) for path in sorted((HERE / "dashboards").glob("*.json"))]
    wrong = []
    for board, rule in itertools.product(boards, RULES):
        wrong += [f"{board['title']}: {rule.__name__}: {message}" for message in rule(board)]
    wrong += [*promql(boards, arguments.promtool), *documented_metrics(boards), *alerts()]
    n_queries = sum(len(list(expressions(board))) for board in boards)
    counts = {"with data": 0, "without": 0}
    if arguments.prometheus:
        wrong += live(boards, Prometheus(arguments.prometheus), arguments.minutes, arguments.strict, counts)
    for message in wrong:
        print(message, file=sys.stderr)
    summary = f"{len(boards)} dashboards, {n_queries} queries, {len(RULES)} rules: {len(wrong)} problems"
    if arguments.prometheus:
        summary += f"; {counts['with data']} queries have data, {counts['without']} cannot have any in the demo"
    print(summary)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
