"""The plots of the HTML report as plain SVG: error / bound in powers of ten, where a tensor fails, pages kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from proofs_checks.judge.pictures import PageRow, RatioMap
from proofs_checks.judge.report import StageReport

LEFT, WIDTH, ROW = 210, 760, 22
LOW, HIGH = -6, 6
"""Powers of ten of the axis; smaller and larger ratios stand at its ends."""


def _svg(width: float, height: float, title: str, body: Sequence[str]) -> str:
    head = f'<svg viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img" aria-label="{escape(title)}">'
    return "".join([head, f"<title>{escape(title)}</title>", *body, "</svg>"])


def position(ratio: float) -> float:
    """The x of error / bound on the axis of powers of ten.

    >>> position(1.0) == LEFT + WIDTH / 2, position(0.0) == LEFT, position(float("inf")) == LEFT + WIDTH
    (True, True, True)
    """
    power = LOW if ratio <= 0 else HIGH if math.isinf(ratio) else math.log10(ratio)
    return LEFT + WIDTH * (min(max(power, LOW), HIGH) - LOW) / (HIGH - LOW)


def ratio_chart(rows: Sequence[StageReport]) -> str:
    """One dot per case, one line per stage; everything right of 1 is out of bound."""
    rows = [row for row in rows if any(r.ratio is not None for r in row.records)]
    height = ROW * len(rows) + 30
    one = position(1.0)
    body = [f'<rect x="{one:g}" y="0" width="{LEFT + WIDTH - one:g}" height="{height - 26}" class="out"/>']
    for power in range(LOW, HIGH + 1, 2):
        x = position(10.0**power)
        body.append(f'<line x1="{x:g}" x2="{x:g}" y1="0" y2="{height - 26}" class="grid"/>')
        text = {LOW: f"\u2264 1e{LOW}", 0: "1", HIGH: f"\u2265 1e{HIGH}"}.get(power, f"1e{power}")
        body.append(f'<text x="{x:g}" y="{height - 10}" class="tick">{text}</text>')
    for number, row in enumerate(rows):
        y = ROW * number + ROW / 2
        body.append(f'<text x="{LEFT - 12}" y="{y + 4:g}" class="name">{escape(row.stage)}</text>')
        for record in row.records:
            if record.ratio is not None:
                tip = escape(f"{record.case}: {record.ratio:.3g}")
                kind = "bad" if record.ratio > 1 else "good"
                x = position(record.ratio)
                body.append(f'<circle cx="{x:g}" cy="{y:g}" r="4" class="{kind}"><title>{tip}</title></circle>')
    return _svg(LEFT + WIDTH + 40, height, "error / bound of every case, by stage", body)


def shade(ratio: float) -> str:
    """The colour of one cell: blue inside the bound, from orange to red outside it.

    >>> shade(0.0), shade(0.5) == shade(2.0)
    ('#f4f6f8', False)
    """
    if ratio <= 0:
        return "#f4f6f8"
    if ratio <= 1:
        return "#c9dcec" if ratio < 0.1 else "#9cc0dd"
    return next((c for limit, c in ((10, "#f7b267"), (1e3, "#ee7b4f")) if ratio < limit), "#c8352b")


def ratio_picture(picture: RatioMap) -> str:
    """A cell per element, or per block of elements; its tooltip says error / bound."""
    size = 10 if len(picture.cells) and len(picture.cells[0]) > 24 else 16
    body = []
    for i, row in enumerate(picture.cells):
        for j, ratio in enumerate(row):
            place = f'x="{j * size}" y="{i * size}" width="{size - 1}" height="{size - 1}"'
            body.append(f'<rect {place} fill="{shade(ratio)}"><title>{ratio:.3g}</title></rect>')
    wide = size * max((len(row) for row in picture.cells), default=1)
    title = f"error / bound in {picture.result} {list(picture.shape)}: rows are the leading axes, columns the last"
    return _svg(wide, size * max(len(picture.cells), 1), title, body)


def page_picture(picture: PageRow) -> str:
    """A column per page: its share's enclosure above, below it MUST or MAY, and whether it was kept."""
    count = len(picture.pages)
    size = max(6.0, min(26.0, 900 / max(count, 1)))
    top = max((h for h in picture.high if math.isfinite(h)), default=0.0) or 1.0
    body = []
    for place, (page, low, high) in enumerate(zip(picture.pages, picture.low, picture.high, strict=True)):
        x, wide = 60 + place * size, size - 2
        low_at, high_at = (80 * min(v / top, 1.0) if math.isfinite(v) else 80.0 for v in (low, high))
        kind = "must" if page in picture.must else "may" if page in picture.may else "never"
        kept = page in picture.kept
        wrong = "missing" if kind == "must" and not kept else "wrong" if kind == "never" and kept else None
        tip = f"page {page}: share {low:.4g} to {high:.4g}; {kind}; {'kept' if kept else 'not kept'}"
        body += [
            f"<g><title>{escape(tip)}</title>",
            _bar(x, 90 - high_at, wide, max(high_at, 1), "share"),
            _bar(x, 90 - high_at, wide, high_at - low_at, "spread"),
            _bar(x, 96, wide, 14, kind),
            _bar(x, 114, wide, 14, wrong or ("kept" if kept else "left")) + "</g>",
        ]
        if count <= 40:
            body.append(f'<text x="{x + wide / 2:g}" y="144" class="tick">{page}</text>')
    labels = (("share", 60), ("allowed", 107), ("port", 125), *([("page", 144)] if count <= 40 else []))
    body += [f'<text x="52" y="{y}" class="name">{text}</text>' for text, y in labels]
    some = f" ({count} of {picture.total} pages)" if count < picture.total else ""
    return _svg(70 + count * size, 150, f"pages{list(picture.where)}: MUST, MAY and kept{some}", body)


def _bar(x: float, y: float, wide: float, high: float, kind: str) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{wide:g}" height="{high:g}" class="{kind}"/>'
