"""Write docs/gpu-readkv.md from benchmarks/results/readkv.json and readkv_dram.json, losing region included.

Run: python benchmarks/readkv_page.py. The numbers are the files'; the sentences around them are here.
"""

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "readkv.json"
TRAFFIC = ROOT / "benchmarks" / "results" / "readkv_dram.json"
PAGE = ROOT / "docs" / "gpu-readkv.md"

CASES = ("2K", "2K, batch 4", "8K", "8K, batch 4", "32K", "32K, batch 4", "128K", "128K, batch 4")
READERS = ("(8, 2)", "(8, 4)", "(4, 2)", "Full (4, 4)", "(4, 4), scheduled")
PEERS = ("cuDNN, contiguous", "own, paged", "FlashInfer, paged", "TurboQuant K4/V4, ours")
GOALS = (
    ("(8, 2)", "128K, batch 4", 1.1, 1.5),
    ("(8, 2)", "128K", 0.85, 1.25),
    ("(8, 2)", "32K, batch 4", 0.85, 1.15),
    ("(8, 2)", "32K", 0.5, 0.8),
    ("(8, 4)", "128K, batch 4", 0.55, 0.9),
)

LIMITS = """\
## Where it wins and where it loses

**It beats dense attention where there is much to read**: at 128K, batch 4, (8, 2) by {near}, by {near_spread} where
attention is spread, and (4, 2) by {near_4_2}; at 128K of one sequence by {near_one}, at 32K of four by {near_four}. Elsewhere
it loses: at 32K of one sequence it takes 1.4 times as long as dense attention, at 8K twice, at 2K three times; (8, 4), which
reads twice the bits, loses everywhere ({near_8_4} at best). Our TurboQuant K4/V4 reader is slower from 8,192 tokens of four
sequences on; at 8K of one it is a little faster ({turbo}x), at 2K twice as fast.

**Short lengths cost five launches.** At 2K tokens, where hardly anything is read, the chain takes {least} us: each kernel
waits for the one before, then for two or three trips to memory that hang on one another. Four of the five take 2 to 5 us
with next to nothing to do, the one between the passes 8. To read 8K tokens 1.5 times as fast as the TurboQuant reader
the chain would have to take {turbo_goal} us in all: with five dependent kernels it cannot, whatever they compute.

**Equal weights are the worst case**: where every token weighs the same (the query is zero), all steps of one depth tie.
The list of ties then holds every pair of tokens, and one program goes through it some seven times: {equal_one} us at 128K,
batch 1, {equal} us at batch 4.

## What it is made of

Microseconds at 128K, batch 4, (8, 2), each part replayed alone or as the difference of two prefixes of the chain:

| part | us | bytes would take |
|---|---|---|
| rotate queries, importances, key depths, slots | {keys} | - |
| key logits | {read_keys} | {key_floor} |
| log-masses, importances of tokens, exact bars of the value depths | {bars} | - |
| value depths, lists, value pass | {values} | {value_floor} |
| merge, rotate back | {merge} | - |

**Instructions, not bytes.** Counted in the machine code for compute capability 9.0: the key pass takes 89 instructions
of each of two warps for 32 slots of 256 tokens, of which 28 masks, 8 permutes and 16 products (a channel at depth 2 is 2
slots, at 3 four, at 4 eight), and some 700 more per warp around them for zeroes, logits, masses and stores; the value
pass takes about 28 per 16 tokens for depths and lists, then per 16 tokens 93 at depth 1, 140 at depth 2, 239 at depth 3,
238 at depth 4 and 442 from depth 5 on; a program is four warps that share lists in shared memory. Both passes run at 16
warps to a multiprocessor (128 registers), and wait: the value pass issues in 42 % of the cycles. Profiled at
128K, batch 4 it moves 144 MB (2.1 TB/s); what is fullest is the first-level cache (69 %): look-ups of depth 5 to 8 meet
three times in a bank, and neighbouring tokens' words are two requests.

**Products are the key pass's floor.** On a scheduler of its own 16 products of a warp take 85 to 87 ns, float16 (16 slots
of 16 tokens) or integers (32 slots) alike; with the masks that make their operands, 121 and 95 ns. An exact weight is two
bytes and needs two integer products, so either way 128K, batch 4 at (8, 2) takes about 31 us in products alone.

**Importances and exact bars take {bars} us of it.** The bars are the greedy allocation's to the last tie. A first
histogram (32 bins to an octave, in shared memory) brackets the bar whatever the rounding; programs wait for each other's
bins with their importances in registers, and each finds the bracket for itself. The few per cent of the steps inside it
are listed, and the last program to list them searches them, eight bits per round. What is left is latency: fences, the
wait, and one program's search. Where the programs do not fit side by side, two kernels do the same.

Programs that wait for each other are launched all at once or not at all (a cooperative launch, which costs nothing beside
one without), so that chains on several streams cannot keep each other out. A list of more than 4,096 steps is read again in
each round of the search.

## What was tried

| tried | what came of it |
|---|---|
| key words straight into registers, two warps to a tile | 40 us at 128K, batch 1; through a ring in shared memory (cp.async, 8 groups of 16 slots, one warp) 27 |
| three kernels for rotation, key depths and slots | 16.4 us at 128K, batch 4; one kernel, eight programs a row that each repeat the cheap steps: 9.7. Three counts in one 32-bit sum and a Hadamard matrix from memory came later |
| key bits as float16 operands, slots by the number of their planes | key pass of 71.1 us at 128K, batch 4 (23.4 at batch 1, 14.9 at 32K) and 213.5 at (8, 4): a channel at depth 4 is read 16 times instead of 4. Integer products over groups of channels of one depth, every plane read once: 69.0 (20.2, 8.4) and 164.8 |
| key pass at 96, 112, 128 registers | with the kernel before, 84.1, 78.8, 79.4 us at 128K, batch 4; with weights in shared memory and several tiles, 128 |
| choice of depths by 15 rounds of sums over the program; by 256 buckets a round, ballots, a thread per channel | first kernel of 6.3 us; 3.5 |
| weights of the key pass from the L2 cache, a block at a time; the first 16 blocks in shared memory at once | 64.2, 62.1 us at 128K, batch 4 (19.4, 18.7 at batch 1); used before they had arrived, they gave wrong logits where several programs share a multiprocessor, and there alone |
| 4 and 8 warps to a tile, each with some of a byte's bits | 7.8 us instead of 7.6 at 32K, batch 1; 88.9 and 146.9 instead of 62.1 at 128K, batch 4: every warp reads all words |
| 1, 2, 3, 4, 8 tiles to a program of the key pass (one wave: 8) | 65.0, 60.8, 61.1, 58.3, 59.6 us at 128K, batch 4; 19.7, 17.4, 23.3, 21.9, 28.8 at batch 1 (one wave: 2) |
| two kernels between the passes; one whose programs wait for each other | 20.6, 10.7 us at 128K, batch 1; 41.4, 21.0 at batch 4; 11.4, 8.3 at 2K |
| the same without a cooperative launch; without a dependent one | 11.4, 9.8 us at 128K, batch 1, and 63.4, 64.4 instead of 63.2 of the whole chain |
| two programs of 16 warps to a multiprocessor, or of 8 | 13.8, 14.3 us instead of 10.7 at 128K, batch 1 |
| merge with the Hadamard transform in two steps of 16 | 7.4 us instead of 2.9 at 128 parts |
| planes of the value pass asked for before the bars are there | 0.5 us less at 2K and 8K, batch 1; 12 more at 128K, batch 4 |
| bracket, collect and resolve as kernels of their own | the whole chain at 32K, batch 1: 85.3 us; in last programs, with the two lines above: 62.4 |
| 512, 1024, 2048 items per program between the passes | chain so far 118.6, 105.7, 101.2 us at 128K, batch 4, and 28.9, 25.1, 25.4 at 32K: every program sums the tiles' masses and adds its bins again |
| 1024, 2048, 4096 items per program that lists | 22, 23, 15 us at 128K, batch 4; 36.3, 37.2, 39.3 of chain so far at 32K |
| several tiles per program of the key pass, planes marked to leave the L2 cache first | illegal instruction: the assembler put the shared address's offset and the cache hint of one asynchronous copy into uniform registers that clash; without the hint the code looks right, but was not run |
| histogram after a reduction over heads | wrong: Triton keeps copies of a reduced value in several threads, and each counted; a token's eight logits are now one thread's |
| value lists of classes 1-2, 3, 4, 5-8, weights made anew per class | 124 us at 128K, batch 4; a list per depth, entries read by fours, ranks by ballots: 103 |
| prefetched words in registers that a loop hands on: the copy waits for the load | value pass of 105 us at 128K, batch 4; packed first, then asked for again: 70 |
| lists in lane order, so that a group's tokens lie in eight runs | 70; in token order 66 |
| depth 4 as eight slots | 446 instructions per 16 tokens; as a table of two tokens' codes 243 |
| whole runs prefetched into the L2 cache; 96 registers | 71 - 74; 86 against 76 us |
| 1024, 2048 tokens per program of the value pass | 75.9, 66.4 us at 128K, batch 4; 22.0, 25.5 at batch 1 |
| merge with 8 warps, 64 parts at a time | 5.5 us at 128 parts; 4 warps, 128 at a time: 4.2 |
| the bar by one bit per round, list in memory | bracket, collect, resolve 44 us; with the list in registers, two bits per round and a stop at the exact count: 20 |
| 32-bit float Hadamard products on the plain units | five minutes to compile at d = 256; three bfloat16 parts are exact and compile at once |
| one Hadamard matrix of d x d | no end of compiling at d = 1024; blocks of 128 with a sign each: a second at any d |

## What next

1. Short rows: one program per row between the passes needs no wait and no list in memory (some 4 of 8 us at 2K). For 8K
   in 17 us key pass, bars and value pass would have to be one kernel.
2. Equal weights: the smallest and the largest listed key first, so that ties end the search at once.
3. The steps around the key pass's products (some 700 instructions per 128 tokens).
4. Value groups through a ring in shared memory (one request per pair of tokens), and the tables of depth 5 to 8 in eight
   copies, which no two lanes meet in.
5. The encoder reaches {encoder} of the copy ceiling. Shared memory holds it back (below): with channels instead of tokens
   on the rows of its products, factors are looked up half as often and loads touch whole lines.

## The encoder

Each kernel is a walk from bfloat16 vectors to packed planes in registers (`encode_ptx.py`). The Hadamard matrix has
16 x 16 blocks of one matrix and its negative, so 48 matrix instructions and one sum each rotate 16 tokens; standardising
is one multiply-add held to 0..1; the descent through the tree is one look-up and one integer sum, exact in steps of
2^-20; eight words of four codes are turned over bit by bit in 48 instructions, where a ballot per plane and token would
take 16 per number. In all 12.8 instructions per value and 13.7 per key.

Profiled at 131,072 tokens of 4 heads (H200): keys 83 us and values 64 us, of which reading and writing alone would take 48
each. Warps issue in 41 % and 51 % of the cycles; the pipe to shared memory and cache is busy in 74 % and 84 %: a look-up
of 32 codes takes 2.1 passes with 16 copies of the table, and factors cost as much again. What was tried, microseconds
for keys, values, and both:

| tried | keys | values | both |
|---|---|---|---|
| sums over tokens across threads (before) | - | - | 2265 |
| 2 programs a multiprocessor, 128 registers (now) | 83.9 | 64.9 | 146.5 |
| 1 program | 99.8 | 69.5 | 168.2 |
| 96 registers | 109.4 | 68.3 | 175.6 |
| 3 programs, 80 registers: spills | 175.2 | 71.1 | 242.2 |
| 8 copies of the table | 87.6 | 70.4 | 155.9 |

## Quality of the same readers

Error of the output against dense attention in float32, relative to its size; entropy of the exact weights in nats. The
capture is SmolLM2-135M's (3 KV heads, d = 64, 2,041 tokens); normal keys and values are the hardest case for any
quantiser, since no channel is worth more than another.

| source | entropy | {reader_heads} |
|---|---|{dashes}|
{quality}

## Checked on this device

`kvproof verify fastimpl.port --device cuda` passes every ReadKV stage, stage by stage, on the kernels as they are here: both
readers and the rotation in three dtypes one by one, with the readers' cases of 2,053 tokens of a served head, and of the
deep profile those of 33,001 tokens of four (cases added since ran in the interpreter alone). `pytest -m gpu` (79 tests):
key and value depths equal the greedy allocation of the same importances to the last tie; the kernel between the passes buys what the two kernels buy; the integer products give
the plain pass's logits, and several tiles of one program the bits that they have alone; turning every unread bit changes
no bit of the output; chains on three streams end; encoding in one go and token by token agree. The scheduled control
equals the Full Reader bit for bit at every length and batch. [Wrong kernels](kill-matrix-gpu.md): all seven killed.
`compute-sanitizer` saw no bad access in `benchmarks/sanitize.py` (`benchmarks/results/sanitizer.txt`).
"""


def traffic(document: dict) -> list[str]:
    """The table of DRAM traffic, in the form of the paper's Table 12."""
    shape, found = document["shape"], {}
    for row in document["rows"]:
        found.setdefault(row["method"], {})[row["state"]] = row["read_bytes"] / 2**20, row["written_bytes"] / 2**20
    lines = [
        "",
        "## DRAM traffic",
        "",
        f"Of one eager call at {shape['tokens']:,} tokens, batch {shape['batch']}, in MiB, warm / evicted: ReadKV's Table 12 for this device",
        "(`benchmarks/readkv_dram.py`, Nsight Compute's counters). All of it fits in the L2 cache here, so a warm call reads nothing;",
        "written bytes are intermediates that the cache lets go, and what eviction itself left behind.",
        "",
        "| method | reads | writes | total |",
        "|---|---|---|---|",
    ]
    for method, states in found.items():
        warm, evicted = states["warm"], states["evicted"]
        cells = [(warm[0], evicted[0]), (warm[1], evicted[1]), (sum(warm), sum(evicted))]
        lines.append(f"| {method} | {' | '.join(f'{a:.2f} / {b:.2f}' for a, b in cells)} |")
    return lines


def page(results: dict, counters: dict) -> str:
    rows = results["rows"]

    def find(case: str, name: str, key: str = "microseconds"):
        return next((r.get(key) for r in rows if r["case"] == case and r["name"] == name), None)

    def number(value, digits: int = 1) -> str:
        return "-" if value is None else f"{value:.{digits}f}"

    def times(case: str, name: str) -> str:
        return f"{find(case, name, 'ratio'):.2f}x"

    shape = results["shape"]
    lines = [
        "# ReadKV on a GPU",
        "",
        f"One {results['device']}, torch {results['versions']['torch']}, Triton {results['versions']['triton']}; "
        f"{shape['kv_heads']} KV heads of {shape['group']} query heads, d = {shape['d']}, {shape['dtype']}. "
        f"{results['method']}. Written by `benchmarks/readkv_page.py` from `benchmarks/results/readkv.json`, "
        "which `kvproof bench readkv` writes.",
        "",
        "Readers follow the restricted policy of App. F.8 and G: a budget per KV head, depth 1 at least, tokens in pairs.",
        "All depths 0 to 8 are exact, and so are budgets, ties and remainders.",
        "",
        "## Time of one layer's decode step, microseconds",
        "",
        f"| case | {' | '.join(p for p in PEERS if any(r['name'] == p for r in rows))} | {' | '.join(READERS)} | floor |",
        f"|---|{'---|' * (len(READERS) + 1 + sum(any(r['name'] == p for r in rows) for p in PEERS))}",
    ]
    ceiling = results["read_ceiling_gigabytes_per_second"]
    for case in CASES:
        peers = [number(find(case, p)) for p in PEERS if any(r["name"] == p for r in rows)]
        floor = 2.3 + (find(case, "(8, 2)", "bytes") or 0) / ceiling / 1e3
        lines.append(f"| {case} | {' | '.join(peers + [number(find(case, r)) for r in READERS])} | {floor:.1f} |")
    lines += [
        "",
        f"Floor: 2.3 us for a kernel and the bytes of (8, 2) at the measured read ceiling ({ceiling:.0f} GB/s).",
        "",
        "## Ratios",
        "",
        "To the fastest dense peer of the same run, and to our TurboQuant reader; warm, evicted, and spread attention.",
        "",
        "| case | (8, 2) x dense | x TurboQuant | evicted, us | entropy, nats | spread: x dense | entropy | workspace, MB | retained, MB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for case in CASES:
        cells = [number(find(case, "(8, 2)", "ratio"), 2), number(find(case, "(8, 2)", "over_turboquant"), 2),
                 number(find(case, "(8, 2), evicted")), number(find(case, "(8, 2)", "entropy_nats")),
                 number(find(case, "(8, 2), spread", "ratio"), 2), number(find(case, "(8, 2), spread", "entropy_nats")),
                 number((find(case, "(8, 2)", "workspace_bytes") or 0) / 1e6),
                 number((find(case, "(8, 2)", "retained_bytes") or 0) / 1e6)]  # fmt: skip
        lines.append(f"| {case} | {' | '.join(cells)} |")
    lines += ["", "| asked for | solid | goal | reached |", "|---|---|---|---|"]
    for reader, case, solid, goal in GOALS:
        lines.append(f"| {reader} {case} | {solid}x | {goal}x | {number(find(case, reader, 'ratio'), 2)}x |")
    turbo = number(find("8K", "(8, 2)", "over_turboquant"), 2)
    parts = find("128K", "choose .. value bars") - find("128K", "choose and read keys")
    lines += [f"| (8, 2) against TurboQuant, 8K | 1.5x | 2x | {turbo}x |",
              f"| encoder, of the copy ceiling | 60 % | 80 % | {100 * find('128K', 'prefill', 'of_copy_ceiling'):.0f} % |",
              f"| depths of 4 x 128 channels, with rotation, importances and slots | 8 us | 4 us | {find('128K', 'choose_keys')} us |",
              f"| bars of 4 x 131,072 tokens, with log-masses and importances; the value pass makes the lists | 20 us | 10 us | {parts:.0f} us |"]  # fmt: skip
    big = "128K, batch 4"
    whole, bars = (find(big, n) for n in ("choose and read keys", "choose .. value bars"))
    sources = list(dict.fromkeys(r["case"] for r in rows if r["kind"] == "quality"))
    readers = [r for r in READERS if any(q["kind"] == "quality" and q["name"] == r for q in rows)]
    quality = []
    for source in sources:
        own = {r["name"]: r for r in rows if r["kind"] == "quality" and r["case"] == source}
        cells = " | ".join(f"{own[r]['relative_error']:.3f}" for r in readers)
        quality.append(f"| {source} | {next(iter(own.values()))['entropy_nats']} | {cells} |")
    half = (find(big, "(8, 2)", "bytes") or 0) / 2 / ceiling / 1e3 + 2.3
    text = LIMITS.format(
        near=times(big, "(8, 2)"), near_spread=times(big, "(8, 2), spread"), near_4_2=times(big, "(4, 2)"),
        near_8_4=times(big, "(8, 4)"), near_one=times("128K", "(8, 2)"), near_four=times("32K, batch 4", "(8, 2)"),
        least=number(find("2K", "(8, 2)"), 0), turbo_goal=number(find("8K", PEERS[-1]) / 1.5, 0), keys=number(find(big, "choose_keys")),
        read_keys=number(find(big, "read_keys")), bars=number(bars - whole),
        values=number(find(big, "read_values")), merge=number(find(big, "merge")), key_floor=number(half),
        value_floor=number(half), turbo=turbo, equal=number(find(big, "(8, 2), equal"), 0),
        equal_one=number(find("128K", "(8, 2), equal"), 0),
        encoder=f"{100 * find('128K', 'prefill', 'of_copy_ceiling'):.0f} %", reader_heads=" | ".join(readers),
        dashes="---|" * (len(readers) - 1) + "---", quality="\n".join(quality),
    )  # fmt: skip
    notes = [f"- {note}" for note in results["notes"] if "equals" not in note and "value depths" not in note]
    return "\n".join(
        [*lines, *traffic(counters), "", text.rstrip(), *(["", "## About this run", "", *notes] if notes else []), ""]
    )


if __name__ == "__main__":
    PAGE.write_text(page(json.loads(RESULTS.read_text()), json.loads(TRAFFIC.read_text())))
