"""Compiles every kernel of `fastimpl` for devices that are not here: one representative configuration per branch.

Each compile runs in a process of its own (`compile_server.py`), since a back end may abort. Branch "ptx" has inline PTX
and is for NVIDIA; "plain" is what other devices run.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from proofs_checks.bench.compile_readkv import configurations as readkv_configurations
from proofs_checks.bench.compile_server import Job, compile_jobs

TARGETS = ("cuda:80", "cuda:90", "cuda:100", "hip:gfx942")
SWITCHES = {"TABLE": 1, "LENGTHS": True}
PAGE = {"B": 16, "B_PAD": 16, "D": 128, "D_PAD": 128}
POINTERS = {
    **dict.fromkeys(("queries", "keys", "values"), "*bf16"),
    **dict.fromkeys(("block_table", "tokens"), "*i64"),
    **dict.fromkeys(("scores", "outputs", "lses", "lse", "largests", "totals", "grams", "vectors", "shares"), "*fp32"),
    **dict.fromkeys(("records", "centroids", "bases", "coefficients", "packed"), "*u8"),
    **dict.fromkeys(("kept_ids", "kept_values", "kept_blocks", "scratch"), "*i32"),
    **dict.fromkeys(("x", "scales"), "*fp32"),
    "codes": "*i8",
    "output": "*bf16",
}
"""Types of pointer arguments by name, where a configuration does not say otherwise."""

PAGE_SCORES = {"M": 16, "D": 128, "D_PAD": 128, "G": 8, "G_PAD": 16}
SUMMARIES = dict.fromkeys(
    ("minimum", "maximum", "centroids", "directions", "energies", "mean", "basis", "coordinates"), "*fp32"
)
NUMBERS = ("scale", "scale_log2", "half_variance", "log_tokens", "level")
"""Scalars that are no integers."""

REGISTERS = {"build_kernel": 168, "logits_by_lanes": 128, "mix_by_lanes": 128, "allocate_by_lanes": 128}
"""Caps on a thread's registers, as the launches set them."""

Configuration = tuple[str, dict[str, Any], dict[str, str], int]
"""Module, compile-time constants, pointer types of its own, warps."""


def configurations(branch: str, hopper: bool) -> dict[str, Configuration]:
    """One configuration per kernel that has this branch."""
    record = importlib.import_module("fastimpl.locks.record").Layout(16, 128, 8, 4, "float16")
    scoring = importlib.import_module("fastimpl.locks.score_records")
    selection = importlib.import_module("fastimpl.locks.select_ptx")
    choice = selection.Choice
    ptx, layout = branch == "ptx", record.constants
    follow = {"DEPENDENT": hopper and ptx}
    group = {"G": 8, "G_PAD": 16}
    lanes = {"M": 2 if ptx else 1, "B": 16, "SWEEPS": 12, "PTX": ptx}
    two: dict[str, Configuration] = {
        "score_records_kernel": (
            "locks.score_records",
            {"M": 16, **PAGE, "RANK": 8, **group, "ROWS": 8, "WARPS": 2, "PTX": ptx, "WIDE": True, **follow,
             **SWITCHES, **layout, **scoring.ptx_of(record, ptx, 8, 2, 2, "bulk" if hopper else "async")},
            {}, 2 if ptx else 4,
        ),
        "select_attend_kernel": (
            "locks.attend",
            {"ITEMS": 4096, "SOURCE": 2, "STEP": 128, **group, "G_ROWS": 8, "D": 128, "D_PAD": 128, "PAGE": 16,
             "BLOCK": 64, "KEPT": 128, "STAGES": 2 if ptx else 5, "PLACES": 8, **SWITCHES, **follow,
             **selection.constants(choice(4096, 4, 4, 8) if ptx else None, 4)},
            {"values": "*i32", "ids": "*i32", "pages": "*i32", "blocks": "*i32", "value_cache": "*bf16"}, 4,
        ),
        "select_kernel": (
            "locks.select",
            {"CHUNK": 1024, "BLOCK": 1024, "SOURCE": 1, "LAST": False, "ONE_BLOCK": True, "LENGTHS": True,
             "G": 8, "G_PAD": 8, "STEP": 64, **follow, **selection.constants(choice(1024, 8, 8) if ptx else None, 8)},
            {"values": "*fp32", "ids": "*fp32"}, 8,
        ),
        "jacobi_kernel": ("locks.jacobi", lanes, {}, 1 if ptx else 4),
    }  # fmt: skip
    if ptx:
        two["build_kernel"] = build_configuration(record)
    two |= readkv_configurations(branch, follow)
    return two if ptx else two | plain_configurations(follow, layout) | other_systems() | fixed_rate_codes()


def build_configuration(layout: Any) -> Configuration:
    """The build by one warp for eight pages: PTX alone; what other devices run are three kernels."""
    summary = importlib.import_module("fastimpl.locks.summary")
    text = summary.build_text_of("bfloat16", layout, True)
    sizes = {"B": layout.page_size, "D": layout.channels, "RANK": layout.rank, "BYTES": layout.bytes}
    constants = {**sizes, **SWITCHES, "PACK": True, "KEY_BYTES": 2, "TEXT": text, "OPERANDS": summary.OPERANDS}
    return "locks.summary", constants, {}, 1


def plain_configurations(follow: dict[str, Any], layout: dict[str, Any]) -> dict[str, Configuration]:
    """One configuration per attention and Locks kernel without inline PTX."""
    group = {"G": 8, "G_PAD": 16}
    summary = {"centroids": "*fp32", "bases": "*fp32", "coefficients": "*fp32"}
    finish = {"M": 1, **PAGE, "RANK": 8, "R_PAD": 8, "V_PAD": 16, "PACK": True, "LEVEL": 7.0, "DROP": 1e-5}
    finish |= {"QUAD_COUNT": 4, **SWITCHES, **layout}
    chunk = {"G": 8, "G_PAD": 8, "CHUNK": 1024, "LENGTHS": True, "ROWS": 8}
    line: dict[str, Any] = {"RANK": 8, "BLOCK": 1024, "D": 128}
    split = {
        **group,
        "D": 128,
        "D_PAD": 128,
        "PAGE": 16,
        "BLOCK": 64,
        "SPARSE": True,
        "STAGES": 3,
        **SWITCHES,
        **follow,
    }
    return {
        "split_attention_kernel": ("attention", split, {"pages": "*i32"}, 4),
        "merge_kernel": ("attention", {"G": 8, "D": 128, "D_PAD": 128, "BLOCK": 32, **follow}, {}, 4),
        "score_summary_kernel": ("locks.score", {"M": 16, **PAGE, "RANK": 8, **group, **SWITCHES}, summary, 4),
        "exact_scores_kernel": ("locks.score", {"M": 4, **PAGE, **group, "OPEN": False, **SWITCHES}, {}, 4),
        "mass_kernel": ("locks.combine", {**chunk, "POOL": False}, {}, 4),
        "shares_kernel": ("locks.combine", {**chunk, "RULE": 0, "STEP": 64}, {}, 4),
        "gram_kernel": ("locks.summary", {"M": 1, **PAGE, "PRECISION": "ieee", **SWITCHES}, {}, 1),
        "finish_kernel": ("locks.summary", finish, {}, 1),
        "quantize_kernel": ("locks.quantize", {"N": 128, "N_PAD": 128, "LINES": 4}, {}, 4),
        "dequantize_kernel": ("locks.quantize", {"N": 128, "BLOCK": 1024}, {}, 4),
        "pack_kernel": ("locks.quantize", line, {}, 4),
        "unpack_kernel": ("locks.quantize", line, {}, 4),
    }  # fmt: skip


def fixed_rate_codes() -> dict[str, Configuration]:
    """One configuration per kernel of KIVI and TurboQuant; none has inline PTX."""
    coded = {"x": "*bf16", "codes": "*u8", "zeros": "*fp32"}
    vectors = {**coded, "rotation": "*fp32", "levels": "*fp32", "norms": "*fp32"}
    slot = {"keys": "*u8", "values": "*u8", "slots": "*u8", "zeros": "*fp32", "norms": "*fp32"}
    size = {"D": 128, "D_PAD": 128}
    return {
        "kivi_group_kernel": ("baselines.kivi", {"N": 32, "N_PAD": 32, "LINES": 4}, {**coded, "levels": "fp32"}, 4),
        "kivi_ungroup_kernel": ("baselines.kivi", {"N": 32, "BLOCK": 1024}, {**coded, "x": "*fp32"}, 4),
        "turboquant_encode_kernel": ("baselines.turboquant", {**size, "L": 16}, vectors, 4),
        "turboquant_decode_kernel": ("baselines.turboquant", {**size, "CORRECT": True}, {**vectors, "x": "*fp32"}, 4),
        "slot_pack_kernel": ("baselines.turboquant", {"D": 128, "HALF_PAD": 64}, slot, 1),
        "slot_unpack_kernel": ("baselines.turboquant", {"D": 128, "HALF_PAD": 64}, slot, 1),
    }


def other_systems() -> dict[str, Configuration]:
    """One configuration per kernel of `fastimpl.baselines`; none has inline PTX."""
    probe = {"BLOCK": 64, "RANK": 32, "R_PAD": 32, "D": 128, "G": 8, "G_PAD": 16}
    gathered = {"probes": "*fp32", "factors": "*fp32", "channels": "*i64"}
    return {
        "envelope_kernel": ("baselines.quest", PAGE, SUMMARIES, 4),
        "envelope_scores_kernel": ("baselines.quest", PAGE_SCORES, SUMMARIES, 4),
        "centroid_scores_kernel": ("baselines.centroid", PAGE_SCORES, SUMMARIES, 4),
        "moment_scores_kernel": ("baselines.moment_core", {**PAGE_SCORES, "RANK": 8}, SUMMARIES, 4),
        "shared_scores_kernel": ("baselines.shared_basis", {**PAGE_SCORES, **PAGE, "M": 8, "RANK": 48}, SUMMARIES, 4),
        "probe_kernel": ("baselines.sparq", probe, gathered, 4),
    }


def names() -> list[tuple[str, str]]:
    """Every kernel and branch."""
    return [(kernel, branch) for branch in ("plain", "ptx") for kernel in configurations(branch, False)]


def used_jobs() -> list[Job]:
    """Every kernel for every target, in the branch that runs there: inline PTX on NVIDIA where a kernel has it."""
    in_ptx = {kernel for kernel, branch in names() if branch == "ptx"}
    return [
        (kernel, target, branch)
        for target in TARGETS
        for kernel, branch in names()
        if branch == ("ptx" if kernel in in_ptx and target.startswith("cuda") else "plain")
    ]


def compile_here(kernel: str, target: str, branch: str) -> dict[str, Any]:
    """Compile in this process; the resources that the back end reports."""
    triton = importlib.import_module("triton")
    compiler = importlib.import_module("triton.backends.compiler")
    backend, arch = target.split(":")
    goal = compiler.GPUTarget(backend, int(arch) if arch.isdigit() else arch, 32 if backend == "cuda" else 64)
    hopper = backend == "cuda" and int(arch) >= 90
    module, constants, pointers, warps = configurations(branch, hopper)[kernel]
    function = getattr(importlib.import_module(f"fastimpl.{module}"), kernel)
    signature = {}
    for parameter in function.params:
        name = parameter.name
        kind = (POINTERS | pointers).get(name, "fp32" if name in NUMBERS else "i32")
        signature[name] = "constexpr" if parameter.is_constexpr else kind
    # pointers and strides are multiples of 16, as the launcher finds them for d = 128: loads are vectors only then
    aligned = {
        (i,): [["tt.divisibility", 16]]
        for i, (name, kind) in enumerate(signature.items())
        if kind.startswith("*") or name.startswith("stride")
    }
    source = importlib.import_module("triton.compiler").ASTSource(
        fn=function, signature=signature, constexprs=constants, attrs=aligned
    )
    options = {"num_warps": warps} | ({"maxnreg": REGISTERS[kernel]} if kernel in REGISTERS else {})
    compiled = triton.compile(source, target=goal, options=options)
    used = _nvidia(compiled.asm["cubin"]) if backend == "cuda" else _amd(compiled.asm["amdgcn"])
    return {"registers": used[0], "spills": used[1], "shared_bytes": compiled.metadata.shared}


def _nvidia(binary: bytes) -> tuple[int | None, int | None]:
    """Registers per thread and bytes of local memory, as the disassembler that Triton ships reports them."""
    triton: Any = importlib.import_module("triton")
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    if not tool.is_file():
        return None, None
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        text = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=False).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (None, None)


def _amd(text: str) -> tuple[int | None, int | None]:
    """Vector registers and spilled vector registers, from the kernel's own notes."""
    values = [re.search(rf"\.{name}:\s+(\d+)", text) for name in ("vgpr_count", "vgpr_spill_count")]
    registers, spills = (int(v[1]) if v else None for v in values)
    return registers, spills


def compile_all(
    targets: list[str] | None = None, kernels: list[str] | None = None, workers: int | None = None
) -> list[dict[str, Any]]:
    """A row per kernel, target and branch: kernel, target, branch, ok, registers, spills, shared_bytes, message."""
    jobs = [
        (kernel, target, branch)
        for target in targets or TARGETS
        for kernel, branch in names()
        if not (branch == "ptx" and target.startswith("hip")) and not (kernels and kernel not in kernels)
    ]
    results = compile_jobs(jobs, workers or os.cpu_count() or 1)
    return [{"kernel": k, "target": t, "branch": b, **r} for (k, t, b), r in zip(jobs, results, strict=True)]
