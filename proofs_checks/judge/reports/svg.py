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
    pages = len(picture.low)
    size = max(6.0, min(26.0, 900 / max(pages, 1)))
    top = max((h for h in picture.high if math.isfinite(h)), default=0.0) or 1.0
    body = []
    for page in range(pages):
        x = 60 + page * size
        low, high = (
            min(v[page], top) / top * 80 if math.isfinite(v[page]) else 80 for v in (picture.low, picture.high)
        )
        kind = "must" if page in picture.must else "may" if page in picture.may else "never"
        wrong = (kind == "must" and page not in picture.kept) or (kind == "never" and page in picture.kept)
        tip = f"page {page}: share {picture.low[page]:.4g} to {picture.high[page]:.4g}; {kind}"
        tip += ", kept" if page in picture.kept else ", not kept"
        wide = size - 2
        body += [
            f"<g><title>{escape(tip)}</title>",
            f'<rect x="{x:g}" y="{90 - high:g}" width="{wide:g}" height="{max(high, 1):g}" class="share"/>',
            f'<rect x="{x:g}" y="{90 - high:g}" width="{wide:g}" height="{max(high - low, 1):g}" class="spread"/>',
            f'<rect x="{x:g}" y="96" width="{wide:g}" height="14" class="{kind}"/>',
            f'<rect x="{x:g}" y="114" width="{wide:g}" height="14" '
            f'class="{"wrong" if wrong else "kept" if page in picture.kept else "left"}"/></g>',
        ]
        if pages <= 40:
            body.append(f'<text x="{x + wide / 2:g}" y="144" class="tick">{page}</text>')
    labels = (("share", 60), ("allowed", 107), ("port", 125), ("page", 144))
    body += [f'<text x="52" y="{y}" class="name">{text}</text>' for text, y in labels]
    return _svg(70 + pages * size, 150, f"pages{list(picture.where)}: MUST, MAY and kept", body)
