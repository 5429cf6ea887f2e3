"""Write docs/gpu.md from benchmarks/results/locks.json, losing region included.

Run: python benchmarks/gpu_page.py. The numbers are the file's; the sentences around them are here.
"""

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "locks.json"
PAGE = ROOT / "docs" / "gpu.md"

GOALS = {
    "8K": "0.97 (auto)",
    "32K": "1.2",
    "128K": "2.1",
    "512K": "3.6",
    "1M": "4.6",
    "32K, batch 8": "2.6",
    "128K, batch 8": "4.4",
}

LIMITS = """\
## What limits, and what was tried

**Scoring** is most of the time from 128K on, and neither bytes nor instructions limit it: a warp needs about 95
instructions a page (30 us of issue at 1M, all schedulers busy), the reads 50 us; it takes {score} us. By these counts
what is left is latency (the counters were not read).

| tried | at 1M, us |
|---|---|
| one group's words in registers, block ids one step ahead, each program its own run of pages, 832-byte records | 94.7 |
| the same, registers capped at 64 | 207 - 230 |
| two groups' words in registers, each program its own run of pages, 832 / 896 bytes | 155 / 127 |
| the same, programs of a row side by side in memory (now, 896 bytes) | 139 / 93 |
| one group's words in registers, block ids not ahead (now, 832 bytes) | 131 - 143 |

Records of 896 bytes begin on whole 128-byte lines; 832 bytes do not, and lose although they are fewer. The next ideas,
in order: load the block ids one step ahead again (the table read now stands in front of every record read, and the
first row of the table had it hidden); copy records to shared memory with bulk copies and barriers, which frees 74
registers a group and lifts occupancy; pad the float16 record to 896 bytes.

**Select** takes {select} us at 1M in two launches. A launch with its barriers costs 5 us even at 8K. Next: let every
attention program do the last pass itself, over the survivors.

**Attend and merge**: 7 us for 4 MB, of which reading is 3. At batch 8 it reads at a third of the ceiling; the block
table's look-ups stand in front of the reads there too, as they do in our paged dense kernel (1.2 times the contiguous
one). Next: load the page ids of the following block early.

**Build**: {build} million pages a second. The eigenvectors alone reach 104 (six to seven sweeps); the Gram and finish
kernels take the rest, one page to a warp at 168 and 248 registers. All three in one kernel: 11. Next: coefficients and
columns of several modes at once on tensor cores, two warps a page.

**Short sequences**: the chain is four launches (five from 4096 pages on) of about 5 us, so it cannot beat dense
attention's one and a merge below about 64K tokens. `mode="auto"` attends densely below 262144 tokens x KV heads (64K
tokens at four heads), between the measured 32K, which loses, and 128K, which wins.

Not measured here: the released locks-kv kernels and FlashInfer in this run, the profile counters of these kernels, and
compute-sanitizer.
"""


def find(rows, case, kind, name):
    return next(r for r in rows if (r["case"], r["kind"], r["name"]) == (case, kind, name))


def page(document):
    rows = document["rows"]
    v = document["versions"]
    lines = [
        "# Locks on a GPU",
        "",
        "<!-- Written by benchmarks/gpu_page.py from benchmarks/results/locks.json; edit those. -->",
        "",
        f"One {document['device']}, torch {v['torch']}, triton {v['triton']}. One layer, one decode step: 32 query",
        "heads on 4 KV heads, d = 128, bfloat16, pages of 16 tokens, 128 pages kept, rank 8, int4 basis.",
        "Microseconds per call:",
        f"{document['method']}. `kvproof bench locks --json FILE` repeats it.",
        "",
        "The ratio is to the fastest dense attention of the same run (our split decoding or cuDNN, contiguous). Below",
        "1 the chain loses; dense attention is then the right choice.",
        "",
        "| case | dense | Locks, float32 scales | ratio | Locks, float16 scales | ratio | asked for |",
        "|---|---|---|---|---|---|---|",
    ]
    for case, goal in GOALS.items():
        dense = min(r["microseconds"] for r in rows if (r["case"], r["kind"]) == (case, "peer"))
        wide, half = (find(rows, case, "chain", f"records with {s} scales") for s in ("float32", "float16"))
        lines.append(
            f"| {case} | {dense} | {wide['microseconds']} | {wide['ratio']} | {half['microseconds']} | {half['ratio']} "
            f"| {goal} |"
        )
    lines += [
        "",
        "| case | score, float32 scales | of the read ceiling | score, float16 | select | attend and merge |",
        "|---|---|---|---|---|---|",
    ]
    for case in GOALS:
        stage = {
            n: find(rows, case, "stage", n) for n in ("score, float32", "score, float16", "select", "attend and merge")
        }
        us = {n: r["microseconds"] for n, r in stage.items()}
        lines.append(
            f"| {case} | {us['score, float32']} | {stage['score, float32']['of_ceiling']:.0%} | {us['score, float16']} "
            f"| {us['select']} | {us['attend and merge']} |"
        )
    build = next(r for r in rows if r["kind"] == "build")
    lines += ["", f"Read ceiling: {document['read_ceiling_gigabytes_per_second']:.0f} GB/s.", ""]
    lines += [f"- {note}" for note in document.get("notes", [])]
    text = LIMITS.format(
        score=find(rows, "1M", "stage", "score, float32")["microseconds"],
        select=find(rows, "1M", "stage", "select")["microseconds"],
        build=build["million_pages_per_second"],
    )
    return "\n".join([*lines, "", text])


if __name__ == "__main__":
    PAGE.write_text(page(json.loads(RESULTS.read_text())))
