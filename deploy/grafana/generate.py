#!/usr/bin/env python3
"""Writes the dashboards of Tracewise as Classic JSON, which Grafana 9 to 13 read.

    generate.py                                      writes dashboards/*.json
    generate.py --page https://tracewise.example.org with links to your Tracewise
    generate.py --check                              exits with 1 if a file is not current
"""

import argparse
import json
import pathlib
import sys

from panels import BLUE, DATASOURCE, ORANGE, SCORE, VERMILLION
from panels import bars, by_query, layout, link, query_variable, series, stat, table, variable

DIRECTORY = pathlib.Path(__file__).parent / "dashboards"
# Grafana 9 writes 37. Later versions migrate it when they load a dashboard.
SCHEMA_VERSION = 37

# Scores and events name their cluster. Other series have the label only if the scrape configuration adds it.
CLUSTER = 'cluster=~"$cluster"'
SERVICE = 'cluster=~"$cluster|"'
NODE = CLUSTER + ', node=~"$node"'
AGENT = SERVICE + ', node=~"$node"'
NODE_SCORE = f'max by (cluster, node) (anomaly_score{{{CLUSTER}, jobid="", cpu=""}})'
JOB_SCORE = f'max by (cluster, node, jobid) (anomaly_score{{{CLUSTER}, jobid!="", cpu=""}})'
EVENTS = f"tracewise_event_strength{{{CLUSTER}}}"
NODE_EVENTS = f'tracewise_event_strength{{{CLUSTER}, node=~"$node|"}}'

NODE_LINK = "/d/tracewise-detail?${__url_time_range}&${datasource:queryparam}&${cluster:queryparam}&var-node="
MODES = ["user", "system", "iowait", "nice", "irq", "softirq", "steal", "idle"]


def event_table(expression, width):
    return table(
        "Open events",
        "Events that are not over and that no verdict hides, the strongest first. Strength is evidence divided by its "
        "threshold; the level is the evidence that opened the event.",
        "none", f"sort_desc({expression})", ["event", "cluster", "subject", "node", "jobid", "level"], "strength", SCORE,
        {"event": link("Show in Tracewise", "${page:raw}/#/events/${__data.fields.event}"),
         "node": link("Show the node", NODE_LINK + "${__data.fields.node}")}, width,
    )


def rate(metric, selector=SERVICE, by=""):
    return f"sum{by and f' by ({by})'} (rate({metric}{{{selector}}}[$__rate_interval]))"


def cluster():
    everything = {"text": ["All"], "value": ["$__all"]}
    query = "label_values(anomaly_score, cluster)"
    return query_variable("cluster", "Cluster", query, multi=True, includeAll=True, allValue=".*", current=everything)


def job_field():
    """A field instead of a list: the list would have every job of the time range, which may be 100,000."""
    chosen = {"text": ".+", "value": ".+"}
    return variable("textbox", "jobid", "Job", ".+", current=chosen, options=[chosen | {"selected": True}])


def summary():
    healthy = [
        stat("Open events", "Events that are not over and that no verdict hides.", "none",
             f"count({EVENTS}) or vector(0)", [(None, BLUE), (1, ORANGE)]),
        stat("Nodes above the threshold", "Nodes with a score above 1.", "none",
             f"sum({NODE_SCORE} > bool 1)", [(None, BLUE), (1, ORANGE)]),
        stat("Scored nodes", "Nodes with a score. A node without new windows for five minutes has none.", "none",
             f"count({NODE_SCORE})"),
        stat("Highest score", "The highest score of a node; above 1 is anomalous.", "none", f"max({NODE_SCORE})", SCORE),
        stat("Precision, 7 days", "Confirmed anomalies as a fraction of the events with a clear verdict.", "percentunit",
             f'min(tracewise_events_precision{{{SERVICE}, days="7"}})', [(None, VERMILLION), (0.5, ORANGE), (0.8, BLUE)]),
        stat("Unvetted, 7 days", "The fraction of events without a verdict. Jobs of such events are not learned from.",
             "percentunit", f'max(tracewise_events_unvetted_ratio{{{SERVICE}, days="7"}})',
             [(None, BLUE), (0.5, ORANGE), (0.8, VERMILLION)]),
    ]
    worst = [
        event_table(EVENTS, 24),
        bars("Worst nodes", "The ten nodes with the highest score. The score of a node is the highest of its threads and "
             "jobs; above 1 is anomalous.", "none", (f"topk(10, {NODE_SCORE})", "{{node}}"), SCORE,
             link("Show the node", NODE_LINK + "${__field.labels.node}")),
        table("Jobs with the highest score", "The ten jobs with the highest score, on each of their nodes.", "none",
              f"sort_desc(topk(10, {JOB_SCORE}))", ["jobid", "cluster", "node"], "score", SCORE,
              {"jobid": link("Show the job", NODE_LINK + "${__data.fields.node}&var-jobid=${__data.fields.jobid}"),
               "node": link("Show the node", NODE_LINK + "${__data.fields.node}")}),
    ]
    over_time = [
        series("Events over time", "Open events, by what they are about.", "none",
               [(f"count by (subject) ({EVENTS})", "{{subject}}")], ["job", "node", "cluster"], stacked=True),
        series("Opened events", "Events that were opened within each interval of the chart.", "none",
               [(f"sum(increase(tracewise_serve_events_total{{{SERVICE}}}[$__rate_interval]))", "opened")]),
        series("Scores of the worst nodes", "The five nodes with the highest score at each time. The dashed lines are 1, "
               "above which a node is anomalous, and 2.", "none", [(f"topk(5, {NODE_SCORE})", "{{node}}")], steps=SCORE,
               links=link("Show the node", NODE_LINK + "${__field.labels.node}")),
        series("Anomalous threads", "Hardware threads with a score above 1, of all nodes.", "none",
               [(f"sum(tracewise_node_anomalous_threads{{{CLUSTER}}})", "threads")]),
    ]
    return dashboard("summary", "Is the cluster healthy: open events, the worst nodes and jobs, and how good events are.",
                     [cluster()], EVENTS, [("Now", healthy), ("Where", worst), ("Over time", over_time)])


def detail():
    job = AGENT + ', jobid=~"$jobid"'
    owner = f'on (instance, cpu) group_left (jobid) tracewise_cpu_owner_info{{{job}, owner="job"}}'

    def gauges(*names):
        return [(f"tracewise_job_{name}_bytes{{{job}}}", "{{jobid}} " + legend) for name, legend in names]

    def rates(*names):
        return [(f"rate(tracewise_job_{name}_total{{{job}}}[$__rate_interval])", "{{jobid}} " + legend)
                for name, legend in names]

    scores = [
        series("Score of the node", "The highest score of the node's threads and jobs, and the 99th percentile of its "
               "threads. The dashed lines are 1, above which the node is anomalous, and 2.", "none",
               [(f'max by (node) (anomaly_score{{{NODE}, jobid="", cpu=""}})', "highest"),
                (f"max by (node) (tracewise_node_score_p99{{{NODE}}})", "99th percentile")], steps=SCORE),
        series("Anomalous threads", "Hardware threads of the node with a score above 1.", "none",
               [(f"max by (node) (tracewise_node_anomalous_threads{{{NODE}}})", "threads")]),
        series("Scores of jobs", "Scores of the jobs on the node that match the field “Job”; above 1 is anomalous.",
               "none", [(f'max by (jobid) (anomaly_score{{{NODE}, jobid=~"$jobid", jobid!="", cpu=""}})', "{{jobid}}")],
               steps=SCORE, links=link("Show in Tracewise", "${page:raw}/#/jobs/${__field.labels.jobid}")),
        series("Reconstruction error of jobs", "The mean reconstruction error of a job's threads: how much its windows "
               "differ from what the model reconstructs.", "none",
               [(f'max by (jobid) (tracewise_job_reconstruction_error{{{NODE}, jobid=~"$jobid"}})', "{{jobid}}")]),
        event_table(NODE_EVENTS, 24),
    ]
    node = [
        series("CPU time of the node", "Hardware threads that spend their time in each mode, from the agent.", "none",
               [(rate("tracewise_cpu_seconds_total", AGENT, "mode"), "{{mode}}")], MODES, stacked=True),
        series("Pressure on the node", "The fraction of time in which some task of the node waited for a resource.",
               "percentunit",
               [(f"rate(tracewise_pressure_{name}_waiting_seconds_total{{{AGENT}}}[$__rate_interval])", name)
                for name in ("cpu", "memory", "io")]),
        series("Memory of the node", "Memory that is installed, and memory that programs can still get.", "bytes",
               [(f"tracewise_memory_mem_total_bytes{{{AGENT}}}", "total"),
                (f"tracewise_memory_mem_available_bytes{{{AGENT}}}", "available")]),
        series("Load of the node", "Tasks that ran or waited to, over 1 and over 15 minutes.", "none",
               [(f"tracewise_load1{{{AGENT}}}", "1 min"), (f"tracewise_load15{{{AGENT}}}", "15 min")]),
    ]
    jobs = [
        series("CPU time of the job", "Hardware threads of the job that spend their time in each mode. Threads that "
               "belong to several jobs do not count.", "none",
               [(f"sum by (mode) (rate(tracewise_cpu_seconds_total{{{AGENT}}}[$__rate_interval]) * {owner})",
                 "{{mode}}")],
               MODES, stacked=True),
        by_query(series("Pressure on the job", "The fraction of time in which some task of the job waited for a resource.",
                        "percentunit", rates(("pressure_cpu_waiting_seconds", "CPU"),
                                             ("pressure_memory_waiting_seconds", "memory"),
                                             ("pressure_io_waiting_seconds", "I/O")))),
        by_query(series("Memory of the job", "All memory that is charged to the job, memory of its processes, page cache, "
                        "and its limit if it has one.", "bytes",
                        gauges(("memory", "all"), ("memory_anon", "processes"), ("memory_file", "page cache"),
                               ("memory_limit", "limit")))),
        by_query(series("I/O of the job", "Bytes from and to block devices, without network file systems.", "Bps",
                        rates(("io_read_bytes", "read"), ("io_written_bytes", "written")))),
    ]
    nodes = query_variable("node", "Node", f"label_values(anomaly_score{{{CLUSTER}}}, node)")
    return dashboard("detail", "One node and its jobs: scores, CPU time, memory and pressure.",
                     [cluster(), nodes, job_field()], NODE_EVENTS,
                     [("Scores", scores), ("Node, from the agent", node), ("Job, from the agent", jobs)])


def operations():
    def gauge(name, by=""):
        return f"max{by and f' by ({by})'} (tracewise_{name}{{{SERVICE}}})"

    def service_rate(name, by=""):
        return rate(f"tracewise_serve_{name}_total", by=by)

    def days(name):
        return [(f'max(tracewise_{name}{{{SERVICE}, days="{n}"}})', f"{n} days") for n in (7, 30)]

    inputs = [
        series("Received readings", "Readings of nodes per second, by input. A node sends one reading per second.", "ops",
               [(service_rate("readings", "input"), "{{input}}")], ["agent", "remote_write", "prometheus", "simulated"]),
        series("Ignored", "Readings and samples per second that were received and not used. “metric”, “duplicate” and "
               "“other_input” are normal; “time”, “labels” and “late” are not.", "ops",
               [(service_rate("ignored", "reason"), "{{reason}}")],
               ["metric", "duplicate", "other_input", "time", "labels", "late"]),
        series("Failed requests", "Requests per second to agents and Prometheus servers that failed, and requests of "
               "clients that were refused.", "ops",
               [(service_rate("failed_pulls"), "agents"), (service_rate("failed_polls"), "Prometheus"),
                (service_rate("refused_requests"), "refused clients")]),
        series("Lost readings", "Readings per second that agents no longer had when they were asked.", "ops",
               [(service_rate("lost_readings"), "lost")]),
    ]
    scoring = [
        series("Lag", "Time from the last sample of the windows that were scored last to their scores.", "s",
               [(gauge("serve_lag_seconds"), "lag")], steps=[(None, BLUE), (30, ORANGE)], width=8),
        series("Stride", "Time from one scored window to the next; 5 s unless serve.scoring.stride is set. It grows when "
               "scoring is too slow.", "s", [(gauge("serve_stride_seconds"), "stride")], width=8),
        series("Scored windows", "Windows that are scored per second, and window batches that are left out because "
               "scoring is too slow.", "ops",
               [(service_rate("scored_windows"), "windows"), (service_rate("skipped_batches"), "skipped batches")], width=8),
        series("Seconds per stage", "The fraction of time that each stage of the pipeline is busy.", "percentunit",
               [(service_rate("stage_seconds", "stage"), "{{stage}}")],
               ["store", "buffer", "score", "shadow", "record"], width=8),
        series("Queues", "Deliveries that wait to be stored, and window batches that wait to be scored.", "none",
               [(gauge("serve_waiting_arrivals"), "deliveries"), (gauge("serve_waiting_batches"), "window batches")],
               width=8),
        series("Memory", "Resident memory of the service.", "bytes",
               [(f"process_resident_memory_bytes{{{SERVICE}}} and on (job, instance) tracewise_serve_stride_seconds",
                 "service")], width=8),
    ]
    alerts = [
        series("Alerts", "Changes of events per second that receivers accepted and refused, and requests that failed and "
               "are made again.", "ops",
               [(service_rate("alerts_sent"), "delivered"), (service_rate("alert_failures"), "failed"),
                (service_rate("alerts_refused"), "refused")], width=8),
        series("Waiting alerts", "Changes of events that a receiver has not been told yet.", "none",
               [(gauge("serve_alerts_waiting", "receiver"), "{{receiver}}")], steps=[(None, BLUE), (1, ORANGE)], width=8),
        series("Export", "Samples per second that are sent by remote write, and requests that failed.", "ops",
               [(service_rate("exported_samples"), "samples"), (service_rate("failed_exports"), "failed requests")],
               width=8),
    ]
    models = [
        stat("Since the last competition", "Time since models competed last. They compete every night.", "s",
             f"time() - {gauge('competition_timestamp_seconds')}", [(None, BLUE), (2 * 86400, ORANGE)]),
        stat("Shadow mode", "For how long the challenger has scored the champion's windows.", "h", gauge("shadow_hours")),
        stat("Events of the challenger", "Events that the challenger would have reported.", "none",
             gauge("shadow_events")),
        stat("Events of the champion", "Events that the champion reported in the same time.", "none",
             gauge("shadow_champion_events")),
        stat("Hidden events, 7 days", "Events that verdicts hid.", "none",
             f'max(tracewise_events_hidden{{{SERVICE}, days="7"}})'),
        stat("Jobs without series", "Jobs beyond serve.export.max_jobs. Those with the highest scores have series.",
             "none", gauge("jobs_omitted")),
        series("Competition", "How long each part of the last competition took.", "s",
               [(gauge("competition_seconds", "part"), "{{part}}")],
               ["collection", "preparation", "training", "competition", "deployment"], stacked=True),
        series("Drift", "How much the jobs of the last competition differ from those that the champion was trained with, as a "
               "ratio to what chance alone gives, for each rate and for the reconstruction error. Above 1, the quantity has "
               "drifted.", "none", [(gauge("drift_ratio", "quantity"), "{{quantity}}")], steps=[(None, BLUE), (1, ORANGE)]),
        series("Precision", "Confirmed anomalies as a fraction of the events with a clear verdict.", "percentunit",
               days("events_precision"), maximum=1, width=8),
        series("Unvetted events", "The fraction of events without a verdict.", "percentunit",
               days("events_unvetted_ratio"), maximum=1, width=8),
        series("Verdict delay", "The median time from an event to its first verdict.", "s", days("verdict_delay_seconds"),
               width=8),
    ]
    return dashboard("operations", "Is Tracewise itself healthy: inputs, scoring, alerts, models and verdicts.",
                     [cluster()], EVENTS, [("Inputs", inputs), ("Scoring", scoring), ("Alerts and export", alerts),
                                           ("Models and verdicts", models)])


def dashboard(name, description, variables, events, rows):
    source = variable("datasource", "datasource", "Data source", "prometheus", refresh=1, regex="")
    annotation = {
        "name": "Events",
        "datasource": DATASOURCE,
        "enable": True,
        "hide": False,
        "iconColor": VERMILLION,
        "expr": events,
        "step": "15s",
        "titleFormat": "{{subject}} {{node}} {{jobid}}",
        "textFormat": "{{level}}, event {{event}}",
        "tagKeys": "level",
    }
    common = {"asDropdown": False, "icon": "dashboard", "tooltip": "", "keepTime": True, "includeVars": True,
              "targetBlank": False}
    return {
        "id": None,
        "uid": f"tracewise-{name}",
        "title": f"Tracewise {name}",
        "description": description,
        "tags": ["tracewise"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "links": [
            common | {"type": "dashboards", "title": "Tracewise", "url": "", "tags": ["tracewise"]},
            common | {"type": "link", "title": "Tracewise page", "url": "${page:raw}/", "tags": [], "targetBlank": True,
                      "icon": "external link", "keepTime": False, "includeVars": False},
        ],
        "templating": {"list": [source, *variables]},
        "annotations": {"list": [annotation]},
        "panels": layout(rows),
    }


def page_variable(address):
    """A constant, because a variable that a link to the dashboard can set could lead anywhere."""
    return variable("constant", "page", "Tracewise page", address) | {"hide": 2, "skipUrlSync": True}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", default="http://127.0.0.1:9743", help="the address of the Tracewise page")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file is not current")
    arguments = parser.parse_args()
    for make in (summary, detail, operations):
        made = make()
        made["templating"]["list"].append(page_variable(arguments.page.rstrip("/")))
        text = json.dumps(made, indent=2, ensure_ascii=False) + "\n"
        path = DIRECTORY / f"{make.__name__}.json"
        if not arguments.check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            sys.exit(f"{path} is not current: run deploy/grafana/generate.py")


if __name__ == "__main__":
    main()
