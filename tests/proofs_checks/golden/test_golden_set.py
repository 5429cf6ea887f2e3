"""The golden set that ships: whole, canonical, small, and covering every stage and every kind of mistake."""

import hashlib
import json
import subprocess
import sys
import time
from collections import Counter

import jsonschema
import numpy as np
import pytest
import rfc8785

from proofs_checks.cli import main
from proofs_checks.fixtures import fixtures_directory
from proofs_checks.golden import check as checking
from proofs_checks.golden.check import SUMS, Failure, golden_directory
from proofs_checks.golden.flags import FAMILIES, FLAGS
from proofs_checks.golden.manifest import NAME
from proofs_checks.golden.storable import storable
from proofs_checks.golden.tensors import parse
from proofs_checks.judge.stages import STAGES

SCHEMA = checking.__file__.rpartition("/")[0] + "/schemas/manifest.schema.json"


@pytest.fixture(scope="module")
def manifest():
    return json.loads((golden_directory() / NAME).read_bytes())


def test_the_whole_set_is_checked_in_time_and_is_right(tmp_path, manifest):
    target, start = tmp_path / "check.json", time.perf_counter()
    assert main(["golden", "check", "--json", str(target)]) == 0
    assert time.perf_counter() - start < 20
    assert json.loads(target.read_text()) == {"checked": len(manifest["cases"]), "failures": []}


def test_the_manifest_is_canonical_json_by_its_schema(manifest):
    content = (golden_directory() / NAME).read_bytes()
    assert rfc8785.dumps(manifest) == content
    with open(SCHEMA) as stream:
        jsonschema.Draft202012Validator(json.load(stream)).validate(manifest)


def test_sums_are_those_of_all_files():
    place = golden_directory()
    listed = dict(reversed(line.split("  ")) for line in (place / SUMS).read_text().splitlines())
    files = {p.relative_to(place).as_posix(): p for p in place.rglob("*") if p.is_file() and p.name != SUMS}
    assert listed == {name: hashlib.sha256(p.read_bytes()).hexdigest() for name, p in files.items()}


def test_every_stage_family_and_flag_has_cases(manifest):
    cases = manifest["cases"]
    assert {case["stage"] for case in cases} == {stage for stage in STAGES if storable(stage)}
    assert {case["family"] for case in cases} == set(FAMILIES)
    assert {flag for case in cases for flag in case["flags"]} == set(FLAGS) == set(manifest["flags"])
    assert len({case["id"] for case in cases}) == len(cases)
    least = Counter(case["stage"] for case in cases).most_common()[-1]
    assert least[1] >= 2, least


FAULTS = {
    "locks_select_pages/low-contrast-16384",
    "locks_select_pages/low-contrast-16385",
    "locks_page_shares/low-contrast-16385",
    "locks_build_summary/constant-pages",
    "locks_decode/constant-pages",
    "locks_decode/golden-open-page-of-one",
    "sparse_attention/open-page-of-one",
    "merge_attention/all-empty",
    "locks_pack_basis/all-nibbles",
    "locks_unpack_basis/all-bytes",
    "locks_quantize_summary/exact-halves",
    "affine_quantize/halves",
    "locks_select_pages/threshold-ties",
    "readkv_encode/every-split",
    "readkv_encode/cell-ends",
    "readkv_choose_depths/dead-weights",
    *(f"{s}/head-map-G{G}" for G in (3, 6, 7) for s in ("sparse_attention", "locks_decode", "readkv_attention")),
    *(f"{s}/tight-locks-proposition-2" for s in ("locks_build_summary", "exact_page_scores")),
    *(f"{s}/capture-slice" for s in ("attention", "locks_decode", "readkv_attention")),
}


def test_the_families_where_real_faults_were_are_there(manifest):
    assert set(FAULTS) <= {case["id"] for case in manifest["cases"]}


def test_half_precision_is_stored_as_bits_and_nothing_needs_metadata(manifest):
    place = golden_directory()
    half = [case for case in manifest["cases"] if any(t["dtype"] == "bfloat16" for t in case["tensors"].values())]
    assert len(half) > 100
    for case in manifest["cases"]:
        entries = parse((place / case["file"]).read_bytes())
        assert {name: t["stored"] for name, t in case["tensors"].items()} == {n: e["dtype"] for n, e in entries.items()}
        assert {e["dtype"] for e in entries.values()} <= {"F64", "F32", "U16", "I64", "I8", "U8"}


def test_sizes():
    place = fixtures_directory()
    sizes = {p: p.stat().st_size for p in place.rglob("*") if p.is_file()}
    assert sum(sizes.values()) <= 24 << 20
    assert sum(size for p, size in sizes.items() if p.is_relative_to(place / "golden")) <= 8 << 20


def test_selections_hold_the_best_pages_past_the_buffer(manifest):
    """Eight pages before the last are the largest by hand; the sets must say so of every one of them."""
    for P in (16384, 16385):
        entry = next(c for c in manifest["cases"] if c["id"] == f"locks_select_pages/low-contrast-{P}")
        entries = parse((golden_directory() / entry["file"]).read_bytes())
        must, may = (np.frombuffer(bytes(entries[f"{k}/pages"]["data"]), np.uint8) for k in ("must", "may"))
        assert len(must) == P
        assert np.flatnonzero(must).tolist() == [0, *range(P - 9, P)]
        assert (must == may).all()


def test_checking_loads_neither_mpmath_nor_a_schema_library():
    code = (
        "import sys; from proofs_checks.cli import main; main(['golden', 'check', '--stages', 'merge_attention']);"
        "assert not {'mpmath', 'jsonschema', 'torch', 'rfc8785'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_the_linter_speaks_of_strange_missing_and_forgotten_files(tmp_path, manifest):
    place = golden_directory()
    sums = checking.read_sums((place / SUMS).read_bytes())
    read = checking.load_manifest((place / NAME).read_bytes(), sums)
    gone = next(iter(read.cases))
    copy = tmp_path / "golden"
    copy.mkdir()
    (copy / "stray.safetensors").write_bytes(b"")
    assert Failure("stray.safetensors", None, "belongs to no case") in checking.lint(copy, read, sums)
    without = {name: s for name, s in sums.items() if name != f"{gone}.safetensors"}
    assert any(f.message == f"{gone}.safetensors: has no digest" for f in checking.lint(place, read, without))
    more = {**sums, "old/one.safetensors": "0" * 64}
    assert any("old/one.safetensors: belongs to no case" in f.message for f in checking.lint(place, read, more))
    stage = next(iter(read.cases.values())).stage
    fewer = checking.Manifest({c: e for c, e in read.cases.items() if e.stage != stage}, [])
    assert any(f.message == f"stage {stage} has no case" for f in checking.lint(place, fewer, sums))
    missing = checking.check_case(copy, read.cases[gone], sums)
    assert [(f.file, f.case) for f in missing] == [(f"{gone}.safetensors", gone)]
    assert "cannot be read" in missing[0].message


def test_list_and_explain_say_what_a_case_is_for(capsys, tmp_path):
    assert main(["golden", "explain", "merge_attention/all-empty"]) == 0
    told = capsys.readouterr().out
    assert "only empty splits: output 0 and lse -inf" in told
    assert FLAGS["empty-splits"].effect in told
    assert main(["golden", "list", "--stages", "merge_attention", "--json", str(tmp_path / "list.json")]) == 0
    listed = json.loads((tmp_path / "list.json").read_text())
    assert {case["stage"] for case in listed["cases"]} == {"merge_attention"}
    assert main(["golden", "explain", "merge_attention/nothing"]) == 2
    assert main(["golden", "check", str(tmp_path)]) == 2


def test_a_copy_is_the_whole_set_and_overwrites_nothing(tmp_path, capsys):
    target = tmp_path / "mine"
    assert main(["golden", "copy", str(target)]) == 0
    assert main(["golden", "check", str(target), "--stages", "merge_attention"]) == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine"]
    assert main(["golden", "copy", str(target)]) == 2
    assert main(["golden", "copy", str(tmp_path / "no" / "such")]) == 2
    assert "expected a new folder" in capsys.readouterr().err
