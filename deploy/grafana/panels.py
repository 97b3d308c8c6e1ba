"""Panels, variables and layout of Classic dashboards, with one data source that is chosen in the dashboard."""

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

# The colours of Okabe and Ito, which people with any kind of colour blindness can tell apart.
BLUE, SKY, GREEN, YELLOW = "#0072B2", "#56B4E9", "#009E73", "#F0E442"
ORANGE, VERMILLION, PURPLE, GREY = "#E69F00", "#D55E00", "#CC79A7", "#8C8C8C"
PALETTE = [BLUE, ORANGE, GREEN, VERMILLION, PURPLE, SKY, YELLOW, GREY]

# A score and a strength of 1 are the threshold of the detector.
SCORE = [(None, BLUE), (1, ORANGE), (2, VERMILLION)]
NEUTRAL = [(None, BLUE)]


def target(number, query, **options):
    expression, legend = query
    made = {"refId": chr(ord("A") + number), "datasource": DATASOURCE, "expr": expression, "legendFormat": legend}
    return made | options


def panel(kind, title, description, unit, queries, size, steps, options, custom=None, overrides=(), query_options=None):
    defaults = {
        "unit": unit,
        "color": {"mode": "thresholds"},
        "thresholds": {"mode": "absolute", "steps": [{"value": value, "color": color} for value, color in steps]},
        "custom": custom or {},
    }
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": DATASOURCE,
        "size": size,
        "targets": [target(number, query, **(query_options or {})) for number, query in enumerate(queries)],
        "fieldConfig": {"defaults": defaults, "overrides": list(overrides)},
        "options": options,
    }


def override(name, **properties):
    values = [{"id": key.replace("__", "."), "value": value} for key, value in properties.items()]
    return {"matcher": {"id": "byName", "options": name}, "properties": values}


def link(title, url):
    return [{"title": title, "url": url, "targetBlank": False}]


LAST_VALUE = {"calcs": ["lastNotNull"], "fields": "", "values": False}


def stat(title, description, unit, expression, steps=NEUTRAL, width=4):
    options = {"reduceOptions": LAST_VALUE, "colorMode": "value", "graphMode": "none", "textMode": "value"}
    return panel("stat", title, description, unit, [(expression, "")], (width, 4), steps, options,
                 query_options={"instant": True})


def series(title, description, unit, queries, names=None, steps=NEUTRAL, width=12, stacked=False, links=(), maximum=None):
    """Lines over time. Series of known names have fixed colours; others are coloured by comparing them with `steps`."""
    names = names or [legend for _, legend in queries if "{{" not in legend]
    colors = [override(name, color=fixed(PALETTE[number])) for number, name in enumerate(names)]
    custom = {
        "lineWidth": 1,
        "fillOpacity": 60 if stacked else 0,
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "dashed" if len(steps) > 1 else "off"},
        "spanNulls": False,
    }
    options = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    made = panel("timeseries", title, description, unit, queries, (width, 8), steps, options, custom, colors)
    made["fieldConfig"]["defaults"] |= {"min": 0, "links": list(links)} | ({"max": maximum} if maximum else {})
    return made


def by_query(made):
    """Colours all series of a query alike, where the names of series are not known in advance."""
    made["fieldConfig"]["overrides"] = [
        {"matcher": {"id": "byFrameRefID", "options": one["refId"]},
         "properties": [{"id": "color", "value": fixed(PALETTE[number])}]}
        for number, one in enumerate(made["targets"])
    ]
    return made


def fixed(color):
    return {"mode": "fixed", "fixedColor": color}


def bars(title, description, unit, query, steps, links, width=12):
    options = {"reduceOptions": LAST_VALUE, "orientation": "horizontal", "displayMode": "basic", "showUnfilled": True}
    made = panel("bargauge", title, description, unit, [query], (width, 8), steps, options,
                 query_options={"instant": True})
    made["fieldConfig"]["defaults"] |= {"min": 0, "decimals": 2, "links": links}
    return made


def table(title, description, unit, expression, columns, value, steps, links, width=12):
    """Rows of an instant query: `columns` are labels, `value` is the name of the value's column."""
    overrides = [override(value, custom__displayMode="color-text", decimals=2)]
    overrides += [override(name, links=url) for name, url in links.items()]
    made = panel(
        "table", title, description, unit, [(expression, "")], (width, 8), steps,
        {"showHeader": True, "sortBy": [{"displayName": value, "desc": True}]},
        {"filterable": False}, overrides, {"instant": True, "format": "table"},
    )
    order = {name: number for number, name in enumerate([*columns, "Value"])}
    hidden = {name: True for name in ["Time", "__name__", "instance", "job"]}
    organize = {"excludeByName": hidden, "indexByName": order, "renameByName": {"Value": value}}
    made["transformations"] = [{"id": "organize", "options": organize}]
    return made


def variable(kind, name, label, query, **more):
    return {"type": kind, "name": name, "label": label, "query": query, "hide": 0, "skipUrlSync": False} | more


def query_variable(name, label, query, **more):
    request = {"query": query, "refId": name}
    return variable("query", name, label, request, datasource=DATASOURCE, definition=query, refresh=2, sort=1, **more)


def layout(rows):
    """Places panels from left to right, and a heading above each row."""
    placed, y = [], 0
    for title, panels in rows:
        heading = {"type": "row", "title": title, "collapsed": False, "panels": []}
        placed.append(heading | {"gridPos": {"x": 0, "y": y, "w": 24, "h": 1}})
        x, y, line_height = 0, y + 1, 0
        for one in panels:
            width, height = one.pop("size")
            if x + width > 24:
                x, y, line_height = 0, y + line_height, 0
            placed.append(one | {"gridPos": {"x": x, "y": y, "w": width, "h": height}})
            x, line_height = x + width, max(line_height, height)
        y += line_height
    return [{"id": number} | one for number, one in enumerate(placed, 1)]
