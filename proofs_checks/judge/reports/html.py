"""The report as one self-contained HTML page: no script, no font and no image from elsewhere."""

from __future__ import annotations

from html import escape

from proofs_checks.judge.classes import spelled
from proofs_checks.judge.pictures import PageRow
from proofs_checks.judge.report import BAD, Failure, Report, StageReport
from proofs_checks.judge.reports.svg import page_picture, ratio_chart, ratio_picture

DRAWN = 3
"""Pictures per failing case, and failing cases per stage that get pictures; all are listed."""

STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1040px; padding: 0 1rem; color: #1d2730;
  background: #fff; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; } h3 { font-size: 1rem; margin-bottom: .2rem; }
table { border-collapse: collapse; } th, td { padding: .2rem .8rem; text-align: left;
  border-bottom: 1px solid #dde3e8; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
code, pre { font: 13px/1.5 ui-monospace, monospace; } pre { background: #f4f6f8; padding: .5rem; overflow-x: auto; }
svg { max-width: 100%; height: auto; display: block; margin: .5rem 0; }
figure { margin: .6rem 0; } figcaption { font-size: 13px; color: #55636f; }
.PASS { color: #1b7f3b; } .FAIL, .ERROR, .TIMEOUT { color: #b3261e; font-weight: 600; }
.grid { stroke: #dde3e8; } .out { fill: #fdf0ee; } .tick { font-size: 11px; text-anchor: middle; fill: #55636f; }
.name { font-size: 12px; text-anchor: end; fill: #1d2730; } .good { fill: #2f74b5; fill-opacity: .65; }
.bad, .wrong { fill: #c8352b; } .share { fill: #9cc0dd; } .spread { fill: #f7b267; } .must { fill: #2f74b5; }
.may { fill: #9cc0dd; } .never, .left { fill: #edf0f3; } .kept { fill: #1b7f3b; }
.missing { fill: none; stroke: #c8352b; stroke-width: 2; }
"""


def html(report: Report) -> str:
    """The page."""
    first = report.first_failing_stage
    where = f", first failing stage <code>{escape(first)}</code>" if first else ""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        f"<title>kvproof: {escape(report.port)}: {report.verdict}</title><style>{STYLE}</style></head><body>",
        f'<h1><span class="{report.verdict}">{report.verdict}</span> <code>{escape(report.port)}</code></h1>',
        f"<p>{escape(report.dialect)} dialect{where}</p>",
        _stages(report),
    ]
    if any(r.ratio is not None for row in report.stages for r in row.records):
        parts += ["<h2>Error / bound</h2>", "<p>One dot per case; right of 1 is out of bound.</p>"]
        parts.append(ratio_chart(report.stages))
    parts += [_failures(row) for row in report.stages if row.verdict in BAD]
    parts += [_notes(report), "</body></html>"]
    return "\n".join(part for part in parts if part) + "\n"


def _stages(report: Report) -> str:
    rows = [row for row in report.stages if row.verdict != "NOT_PROVIDED"]
    if not rows:
        return ""
    lines = [
        "<table><thead><tr><th>stage</th><th>verdict</th>"
        '<th class="number">error / bound</th><th class="number">cases</th><th class="number">seconds</th></tr></thead>'
    ]
    for row in rows:
        ratio = "" if row.worst_ratio is None else f"{row.worst_ratio:.3g}"
        lines.append(
            f'<tr><td><code>{escape(row.stage)}</code></td><td class="{row.verdict}">{row.verdict}</td>'
            f'<td class="number">{ratio}</td><td class="number">{row.cases}</td>'
            f'<td class="number">{row.seconds:.1f}</td></tr>'
        )
    missing = [escape(row.stage) for row in report.stages if row.verdict == "NOT_PROVIDED"]
    tail = f"<p>Not provided: {', '.join(missing)}.</p>" if missing else ""
    return "\n".join(lines) + "</table>" + tail


def _failures(row: StageReport) -> str:
    parts = [f"<h2>{escape(row.stage)}</h2>"]
    drawn = 0
    for failure in row.failures:
        parts.append(f"<h3>{escape(failure.case)}</h3><p>{escape(failure.message)}<br>")
        parts.append(f"suspect {escape(spelled(failure.suspect))}</p><pre>{escape(failure.repro)}</pre>")
        if failure.pictures and drawn < DRAWN:
            parts.append(_pictures(failure))
            drawn += 1
    return "\n".join(parts)


def _pictures(failure: Failure) -> str:
    figures = []
    for picture in dict.fromkeys(failure.pictures[:DRAWN]):
        if isinstance(picture, PageRow):
            drawing = page_picture(picture)
            caption = (
                f"pages{list(picture.where)}: dark blue must be kept, light blue may be, grey must not; green was "
                "rightly kept, red wrongly, a red frame is missing; orange is what rounding leaves open of a share"
            )
        else:
            drawing = ratio_picture(picture)
            caption = (
                f"{picture.result} {list(picture.shape)}: error / bound, leading axes down, last axis across; "
                "blue is within the bound, orange to red outside it"
            )
        figures.append(f"<figure>{drawing}<figcaption>{escape(caption)}</figcaption></figure>")
    return "\n".join(figures)


def _notes(report: Report) -> str:
    said = [f"{row.stage}: {n}" for row in report.stages if row.verdict != "NOT_PROVIDED" for n in row.notes]
    said += [f"departure {d.id}: {d.what}{f' ({d.cost})' if d.cost else ''}" for d in report.departures]
    said += report.notes
    items = "".join(f"<li>{escape(text)}</li>" for text in said)
    return f"<h2>Notes</h2><ul>{items}</ul>" if said else ""
