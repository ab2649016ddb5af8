# The page beside the CSV file: one file, no network, any browser. Python writes the data and the fixed parts; the
# script in the page draws the plot and the table, filters and sorts.
"""HTML page of a comparison."""

import html
import json
import math
import os

_STYLE = """
:root { color-scheme: light dark; --bad: #c0392b; --good: #2e7d32; --line: #8886; --note: #777; }
body { font: 14px/1.45 system-ui, sans-serif; margin: 1.5rem auto; max-width: 1300px; padding: 0 1rem; }
h1 { font-size: 1.3rem; margin: 0 0 .3rem; } p { margin: .3rem 0; } .note { color: var(--note); }
#first { border-left: .4rem solid var(--bad); padding: .5rem .8rem; margin: 1rem 0; background: #c0392b14; }
#first.good { border-color: var(--good); background: #2e7d3214; }
code, td, th { font-variant-numeric: tabular-nums; }
svg { width: 100%; height: 260px; border: 1px solid var(--line); display: block; }
svg text { font-size: 11px; fill: currentColor; } svg .grid { stroke: var(--line); }
svg circle { fill: var(--good); cursor: pointer; } svg circle.bad { fill: var(--bad); }
form { margin: .8rem 0; display: flex; gap: 1rem; align-items: center; flex-wrap: wrap; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
td, th { padding: .2rem .5rem; border-bottom: 1px solid var(--line); text-align: left; white-space: nowrap; }
th { cursor: pointer; position: sticky; top: 0; background: Canvas; } th[aria-sort]::after { content: " \\25B2"; }
th[aria-sort=descending]::after { content: " \\25BC"; }
td:last-child { white-space: normal; min-width: 16rem; }
tr.bad td { color: var(--bad); } tr.on td { outline: 2px solid; }
"""

_SCRIPT = """
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const state = { filter: "", bad: false, sort: 0, down: false };
for (const part of location.hash.slice(1).split("&")) {
  const [key, value] = part.split("=").map(decodeURIComponent);
  if (key === "filter") state.filter = value || "";
  if (key === "bad") state.bad = value === "1";
  if (key === "sort") state.sort = Math.max(0, data.columns.findIndex(c => c === value));
  if (key === "down") state.down = value === "1";
}
const make = (tag, attributes, text) => {
  const svg = ["svg", "line", "circle", "text", "title", "polyline"].includes(tag);
  const e = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const name in attributes || {}) e.setAttribute(name, attributes[name]);
  if (text !== undefined) e.textContent = text;
  return e;
};
const order = (a, b) => {
  const x = a.cells[state.sort], y = b.cells[state.sort], m = Number(x), n = Number(y);
  const plain = v => v === "" || v === "NaN";
  if (plain(x) || plain(y)) return plain(x) - plain(y);
  const c = Number.isNaN(m) || Number.isNaN(n) ? x.localeCompare(y) : m - n;
  return state.down ? -c : c;
};
const chosen = () => {
  const words = state.filter.toLowerCase().split(/\\s+/).filter(Boolean);
  return data.rows.filter(r => (!state.bad || r.bad) && words.every(w => r.text.includes(w))).sort(order);
};
function plot(rows) {
  const box = document.getElementById("plot"), W = 1200, H = 260, left = 46, bottom = 22;
  box.replaceChildren();
  box.setAttribute("viewBox", `0 0 ${W} ${H}`);
  const low = -16, high = 3;
  const level = e => Math.min(high, Math.max(low, e > 0 ? Math.log10(e) : low));
  const x = i => left + (W - left - 10) * (data.rows.length < 2 ? 0.5 : (i - 1) / (data.rows.length - 1));
  const y = v => 8 + (H - bottom - 8) * (high - v) / (high - low);
  for (let v = low; v <= high; v += 4) {
    box.append(make("line", { class: "grid", x1: left, x2: W - 10, y1: y(v), y2: y(v) }),
               make("text", { x: 4, y: y(v) + 4 }, "1e" + v));
  }
  box.append(make("text", { x: left, y: H - 6 }, "operators in the order of the run; height: " + data.measure));
  for (const r of rows) {
    if (r.error === null) continue;
    const look = { r: r.bad ? 4 : 2.5, class: r.bad ? "bad" : "" };
    const dot = make("circle", { cx: x(r.index), cy: y(level(r.error)), ...look });
    dot.append(make("title", {}, `${r.cells[2]}  ${data.measure} ${r.error}`));
    dot.addEventListener("click", () => mark(r.index));
    box.append(dot);
  }
}
function mark(index) {
  for (const row of document.querySelectorAll("tbody tr")) {
    const on = row.dataset.index === String(index);
    row.classList.toggle("on", on);
    if (on) row.scrollIntoView({ block: "center" });
  }
}
function draw() {
  const rows = chosen(), body = document.querySelector("tbody");
  plot(rows);
  body.replaceChildren(...rows.map(r => {
    const row = make("tr", { "data-index": r.index, class: r.bad ? "bad" : "" });
    row.append(...r.cells.map(c => make("td", {}, c)));
    return row;
  }));
  document.getElementById("count").textContent = `${rows.length} of ${data.rows.length} rows`;
  document.querySelectorAll("th").forEach((th, i) => {
    if (i === state.sort) th.setAttribute("aria-sort", state.down ? "descending" : "ascending");
    else th.removeAttribute("aria-sort");
  });
}
const head = document.querySelector("thead tr");
data.columns.forEach((name, i) => {
  const th = make("th", { scope: "col", tabindex: 0 }, name);
  const click = () => { state.down = state.sort === i && !state.down; state.sort = i; draw(); };
  th.addEventListener("click", click);
  th.addEventListener("keydown", e => { if (e.key === "Enter") click(); });
  head.append(th);
});
const filter = document.getElementById("filter"), bad = document.getElementById("bad");
filter.value = state.filter;
bad.checked = state.bad;
filter.addEventListener("input", () => { state.filter = filter.value; draw(); });
bad.addEventListener("change", () => { state.bad = bad.checked; draw(); });
document.querySelector("form").addEventListener("submit", e => e.preventDefault());
draw();
"""


def _first(comparison) -> str:
    """The box on top: the first operator out of tolerance, or that there is none."""
    if not comparison.failed:
        return '<div id="first" class="good"><strong>Every operator is within tolerance.</strong></div>'
    row = min(comparison.failed, key=lambda r: (r.npu_dump == "NaN", r.index))
    name = row.npu_dump if row.npu_dump != "NaN" else row.ground_truth
    error = row.result["RelativeEuclideanDistance"]
    measured = "" if isinstance(error, str) or math.isnan(error) else f" Relative Euclidean distance {error:.3g}."
    return (
        f'<div id="first">First operator out of tolerance: <strong>{html.escape(name)}</strong> '
        f"({html.escape(row.phase or 'forward')}), {html.escape(row.tensor_index)}, {html.escape(row.npu_dtype)} "
        f"{html.escape(row.shape)}.{measured} {html.escape(row.result.reason)}</div>"
    )


def page(comparison, my_path: str, truth_path: str) -> str:
    """The page of a compare.Comparison."""
    from compare import header

    columns = header(comparison.algorithms)
    rows = []
    for row in comparison.rows:
        cells = row.cells(comparison.algorithms)
        error = row.result["RelativeEuclideanDistance"]
        plotted = None if isinstance(error, str) or math.isnan(error) else (1e300 if math.isinf(error) else error)
        text = " ".join(cells).lower()
        rows.append({"index": row.index, "cells": cells, "bad": not row.result.passed, "error": plotted, "text": text})
    data = json.dumps({"columns": columns, "rows": rows, "measure": "RelativeEuclideanDistance"}, allow_nan=False)
    data = data.replace("<", "\\u003c")  # so that no value can end the script element
    failed = len(comparison.failed_operators())
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Operator comparison: {html.escape(os.path.basename(my_path))}</title><style>{_STYLE}</style></head><body>
<h1>Operator comparison</h1>
<p>NPUDump <code>{html.escape(my_path)}</code>, GroundTruth <code>{html.escape(truth_path)}</code></p>
<p>{comparison.operators()} operators compared, {failed} out of tolerance.</p>
{_first(comparison)}
<svg id="plot" role="img" aria-label="error of each operator"></svg>
<form><label>Filter <input id="filter" type="search" placeholder="operator, dtype, reason"></label>
<label><input id="bad" type="checkbox"> out of tolerance only</label><span id="count" class="note"></span></form>
<div class="scroll"><table><thead><tr></tr></thead><tbody></tbody></table></div>
<noscript>The table needs JavaScript; the CSV file beside this page has the same rows.</noscript>
<script type="application/json" id="data">{data}</script><script>{_SCRIPT}</script></body></html>
"""
