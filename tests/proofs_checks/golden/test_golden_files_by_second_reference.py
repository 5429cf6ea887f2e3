"""The stored answers against the second, independently written reference: the same number after one rounding.

Both evaluate with 50 digits or more, so that a stored float64 is the nearest one of the second reference's number, bit
for bit (but for a tie within 1e-40, which none of these meets).
"""

from fractions import Fraction

import numpy as np
import pytest

from proofs_checks.golden.check import SUMS, golden_directory, inputs_of, load_case, load_manifest, read_sums
from proofs_checks.golden.manifest import NAME
from proofs_checks.golden.rounding import rounded
from proofs_checks.golden.second import reader, summary, tree
from proofs_checks.golden.second.allocation import choose_depths

PLACE = golden_directory()
SUMS_READ = read_sums((PLACE / SUMS).read_bytes())
CASES = load_manifest((PLACE / NAME).read_bytes(), SUMS_READ).cases


def stored(case):
    entry = CASES[case]
    tensors = load_case((PLACE / entry.file).read_bytes(), entry, SUMS_READ)
    return entry, tensors, inputs_of(entry, tensors)


def of(stage, largest=10**9):
    """Cases of a stage, up to a number of input bytes."""
    small = [c for c, e in CASES.items() if e.stage == stage and (PLACE / e.file).stat().st_size <= largest]
    assert small
    return small


def exact(array):
    """An array as nested lists of Fractions."""
    return [exact(row) for row in array] if np.ndim(array) else Fraction(float(array))


@pytest.mark.parametrize("case", of("locks_build_summary"))
def test_summaries(case):
    """Projector, reconstruction and centroid of every page whose modes are all kept or far from the zero level."""
    _, tensors, inputs = stored(case)
    for h, p in np.ndindex(inputs["key_pages"].shape[:2]):
        (page,) = summary.build_summary([exact(inputs["key_pages"][h, p])], int(inputs["rank"]))
        assert rounded(page.centroid).tolist() == tensors["expected/centroid"][h, p].tolist()
        # vectors of 120 digits, so the products hold far more than the 16 that are stored; a 0 may be 1e-100
        for kind, own in (
            ("projector", rounded(page.projector)),
            ("reconstruction", rounded(page.reconstruction) - rounded([page.centroid] * len(page.reconstruction))),
        ):
            size = 1.0 if kind == "projector" else float(np.abs(inputs["key_pages"][h, p]).max())
            allowed = 0 if kind == "projector" else 2.0**-51 * size  # the difference of two rounded numbers
            error = np.abs(own - tensors[f"{kind}/basis"][h, p])
            assert error.max() <= max(allowed, 1e-30), kind


@pytest.mark.parametrize("case", of("locks_quantize_summary", 6000))
def test_codes(case):
    entry, tensors, inputs = stored(case)
    for h, p in np.ndindex(inputs["centroid"].shape[:2]):
        parts = [exact(inputs[name][h, p]) for name in ("centroid", "basis", "coefficients")]
        codes = summary.quantize_page(*parts, int(entry.arguments["basis_bits"]))
        for name in ("centroid", "basis", "coefficient"):
            own = np.array(getattr(codes, f"{name}_codes"))
            low, high = (tensors[f"{end}/{name}_codes"][h, p] for end in ("low", "high"))
            assert ((low <= own) & (own <= high)).all()
            assert (high - low <= 1).all()
            scale = rounded(getattr(codes, f"{name}_scale"))
            assert scale.tolist() == tensors[f"expected/{name}_scale"][h, p].tolist()


def cache_of(inputs):
    whole = {n: inputs[n].astype(int).tolist() for n in ("key_codes", "value_codes", "key_signs", "value_signs")}
    state = {n: exact(inputs[n]) for n in ("key_mean", "key_scale", "value_mean", "value_scale")}
    return reader.Cache(**whole, **state)


@pytest.mark.parametrize("case", of("readkv_attention", 9000) + of("readkv_restricted_attention", 9000))
def test_reads(case):
    entry, tensors, inputs = stored(case)
    if "softmax_scale" in inputs:  # the second reference has the default alone: fold the scale into the queries
        d = inputs["queries"].shape[-1]
        assert np.sqrt(d) == int(np.sqrt(d))
        inputs["queries"] = inputs["queries"] * (inputs["softmax_scale"] * np.sqrt(d))
    queries, width = exact(inputs["queries"]), int(inputs.get("stored_depth", 8))
    if entry.stage == "readkv_attention":
        read = reader.pooled_reader(cache_of(inputs), queries, inputs["key_budget"], inputs["value_budget"], width)
    else:
        read = reader.restricted_reader(cache_of(inputs), queries, inputs["rate"], width)
    for name in entry.results:
        own, want = getattr(read, name), tensors[f"expected/{name}"]
        own = np.array(own, dtype=np.int64) if name.endswith("depths") else rounded(own)
        assert np.array_equal(own.reshape(want.shape), want), name


def test_allocations():
    for case in of("readkv_choose_depths", 5000):  # the second reference looks at every item before every step
        _, tensors, inputs = stored(case)
        importance, gains = exact(inputs["importance"]), exact(inputs["gains"])
        own = np.array(choose_depths(importance, gains, inputs["budget"], inputs.get("minimum_depth", 0)), dtype=int)
        assert (tensors["low/depths"] <= own).all(), case
        assert (own <= tensors["high/depths"]).all(), case
        assert "total/depths" not in tensors or own.sum() == tensors["total/depths"], case


def test_the_tree_its_paths_and_its_prefixes():
    _, tensors, _ = stored("readkv_tree/depth-8")
    own = tree.exact_tree()
    for level in range(8):
        assert rounded(own.thresholds[level]).tolist() == tensors[f"expected/thresholds_{level}"].tolist()
        assert rounded(own.centroids[level + 1]).tolist() == tensors[f"expected/centroids_{level + 1}"].tolist()
    assert rounded(own.gains).tolist() == tensors["expected/gains"].tolist()
    for case in of("readkv_encode", 20000):
        _, tensors, inputs = stored(case)
        z, high = np.ravel(inputs["z"]), np.ravel(tensors["high/codes"])
        assert [tree.encode(Fraction(float(x))) for x in z] == high.tolist()
    for case in of("readkv_decode"):
        _, tensors, inputs = stored(case)
        depth = np.broadcast_to(inputs["depth"], inputs["codes"].shape)
        pairs = zip(inputs["codes"].ravel().tolist(), depth.ravel().tolist(), strict=True)
        assert rounded([tree.decode(c, t) for c, t in pairs]).tolist() == tensors["expected/z_hat"].ravel().tolist()


def test_rotations_and_importances():
    for case in of("readkv_rotate", 40000):
        _, tensors, inputs = stored(case)
        signs = [int(s) for s in inputs["signs"]]
        rows = [reader.rotate(exact(row), signs) for row in inputs["x"].reshape(-1, len(signs))]
        assert rounded(rows).reshape(inputs["x"].shape).tolist() == tensors["expected/rotated"].tolist(), case
    for case in of("readkv_key_importance"):
        _, tensors, inputs = stored(case)
        own = reader.key_importance(exact(inputs["rotated_queries"]), exact(inputs["key_scale"]))
        assert rounded(own).tolist() == tensors["expected/importance"].tolist(), case
    for case in of("readkv_value_importance"):
        _, tensors, inputs = stored(case)
        heads = inputs.get("value_head_weight", np.ones(len(inputs["weights"])))
        own = reader.value_importance(exact(inputs["weights"]), exact(heads))
        assert rounded(own).tolist() == tensors["expected/importance"].tolist(), case
