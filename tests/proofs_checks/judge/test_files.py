"""Files as a way in: what is written, the same verdict as a live port, and what of a folder is refused as a whole."""

import json
import re
import runpy
import shutil

import numpy as np
import pytest
from answering_files import PORTS, answer, rows, verdict, widened
from safetensors.numpy import load_file, save_file

from proofs_checks.cli import main
from proofs_checks.judge.files.layout import chosen_cases, in_files
from proofs_checks.judge.files.session import byte_swapped
from proofs_checks.judge.files.tensors import load_tensors
from proofs_checks.judge.files.write import FolderError, write_cases
from proofs_checks.judge.judging import prepare
from proofs_checks.judge.stages import STAGES
from proofs_checks.judge.suite import cases_of, find_case
from proofs_checks.judge.verify import verify

CALL = "merge_attention/masses-8-and-2@float32"


@pytest.fixture(scope="module")
def answered(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files") / "cases"
    write_cases(folder, ["attention", "merge_attention", "locks_unpack_basis"], "quick", ["float32"])
    answer(folder)
    return folder


@pytest.fixture
def folder(answered, tmp_path):
    copy = tmp_path / "cases"
    shutil.copytree(answered, copy)
    return copy


def test_every_plain_case_of_every_stage_is_written_and_reads_back_bit_for_bit(tmp_path):
    folder = tmp_path / "all"
    count = write_cases(folder, list(STAGES), "quick", ["bfloat16"])
    assert count == len(list(folder.glob("*/*/call.json")))
    chosen = list(chosen_cases(list(STAGES), "quick", ["bfloat16"]))
    assert count == sum(1 if case.relation is None else 2 for case, _ in chosen)
    for case, dtype in chosen:
        path = folder / case.stage / f"{case.name}@{dtype}"
        call, stored = json.loads((path / "call.json").read_text()), load_file(path / "inputs.safetensors")
        sent = prepare(case, dtype).sent
        assert set(sent) == set(stored) | set(call["arguments"])
        assert call["id"] == case.id
        for name, array in stored.items():
            carried = call["tensors"][name]
            assert carried["shape"] == list(sent[name].shape)
            assert widened(array, carried["dtype"]).tobytes() == np.ascontiguousarray(sent[name]).tobytes()


def test_bf16_travels_as_bit_patterns_with_its_true_dtype(tmp_path):
    folder = tmp_path / "halves"
    write_cases(folder, ["locks_score_pages"], "quick", ["bfloat16"])
    path = next(folder.glob("locks_score_pages/*@bfloat16"))
    call, stored = json.loads((path / "call.json").read_text()), load_file(path / "inputs.safetensors")
    assert call["tensors"]["queries"] == {
        "dtype": "bfloat16",
        "stored": "U16",
        "shape": list(stored["queries"].shape),
    }
    assert stored["queries"].dtype == np.uint16
    assert call["tensors"]["centroid"]["dtype"] == "float32", "only inputs are rounded"
    assert call["results"]["scores"]["role"] == "float"


@pytest.mark.parametrize("dtype", ["BF16", "U16"])
def test_a_bf16_answer_is_read_from_its_bit_patterns(dtype, tmp_path, folder):
    header = f'{{"output":{{"dtype":"{dtype}","shape":[2],"data_offsets":[0,4]}}}}'.encode()
    path = tmp_path / "outputs.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\x80\x3f\x00\xc0")  # 0x3F80 is 1, 0xC000 is -2
    values = load_tensors(path, 1 << 10)["output"]
    assert values.tolist() == ([1.0, -2.0] if dtype == "BF16" else [0x3F80, 0xC000])
    answered = load_file(folder / CALL / "outputs.safetensors")
    halves = {name: (array.view(np.uint32) >> 16).astype(np.uint16) for name, array in answered.items()}
    save_file(halves, folder / CALL / "outputs.safetensors")
    row = rows(verdict(folder, "--stages", "merge_attention")[1])["merge_attention"]
    assert "out of bound" in row["failures"][0]["message"], "numbers cut to bf16, not refused and not within float32"


def test_how_arrays_lie_in_memory_is_left_out(tmp_path):
    write_cases(tmp_path / "d", ["paged_attention"], "quick", ["float32"])
    written = {path.name.partition("@")[0] for path in (tmp_path / "d" / "paged_attention").iterdir()}
    assert written == {c.name for c in cases_of("paged_attention") if c.profile == "quick" and in_files(c)}
    assert not written & {"strided-views", "reused-buffers", "interleaved-pools"}


def test_the_verdict_is_that_of_the_live_port(folder):
    code, report = verdict(folder)
    assert code == 0, report
    live = {row.stage: row for row in verify(str(PORTS / "numpy_port.py"), list(rows(report)), "quick").stages}
    for stage, row in rows(report).items():
        delivered = sum(not in_files(c) for c in cases_of(stage) if c.profile == "quick")
        assert row["cases"] == live[stage].cases - delivered


def test_a_wrong_port_fails_with_the_same_message_through_files(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(PORTS))
    broken = runpy.run_path(str(PORTS / "broken_base2_merge.py"))
    answer(folder, {"merge_attention": broken["merge_attention"]})
    code, report = verdict(folder)
    assert code == 1
    assert report["first_failing_stage"] == "merge_attention"
    live = verify(str(PORTS / "broken_base2_merge.py"), ["merge_attention"], "quick").stages[0]
    said = {failure["case"]: failure["message"] for failure in rows(report)["merge_attention"]["failures"]}
    assert said == {f.case: f.message for f in live.failures if in_files(find_case(f.case))}


def test_the_reproduction_line_works_on_a_folder(folder, capsys):
    save_file(
        {"output": np.zeros(3, np.float32), "lse": np.zeros(3, np.float32)}, folder / CALL / "outputs.safetensors"
    )
    _, report = verdict(folder)
    failure = rows(report)["merge_attention"]["failures"][0]
    capsys.readouterr()
    assert main(failure["repro"].split()[1:]) == 1
    assert failure["message"] in capsys.readouterr().out


def test_missing_outputs_are_not_provided(folder):
    (folder / CALL / "outputs.safetensors").unlink()
    for path in (folder / "attention").iterdir():
        (path / "outputs.safetensors").unlink()
    code, report = verdict(folder)
    assert code == 0
    assert "attention" not in rows(report)
    assert rows(report)["merge_attention"]["verdict"] == "PASS"


def test_many_missing_outputs_are_told_in_few_lines(folder, capsys):
    for path in list((folder / "attention").iterdir())[1:]:
        (path / "outputs.safetensors").unlink()
    capsys.readouterr()
    assert verdict(folder, "--stages", "attention")[0] == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note: attention")]
    assert len(notes) == 5
    assert re.search(r"and \d+ more such cases", notes[-1])


def test_an_entry_of_no_case_is_named_and_not_opened(folder):
    (folder / "attention" / "no-such-case@float32").mkdir()
    code, report = verdict(folder)
    assert code == 0
    assert any("no-such-case@float32" in note and "no case" in note for note in report["notes"])


def test_no_answer_at_all_is_an_error(tmp_path):
    folder = tmp_path / "unanswered"
    write_cases(folder, ["locks_unpack_basis"], "quick", ["float32"])
    code, report = verdict(folder)
    assert code == 3
    assert report["verdict"] == "ERROR"


def test_port_json_declares_and_is_checked(folder):
    (folder / "port.json").write_text(json.dumps({"DTYPES": ["float32"], "OUTPUT": "float16"}))
    assert verdict(folder)[0] == 0
    for content, line in (
        ({"DTYPES": ["fp8"]}, "DTYPES: expected one of"),
        ({"DTYPES": ["bfloat16"]}, "the cases were written in float32"),
        ({"TIES": "random"}, "TIES: expected"),
        ({"PORT": 1}, "port.json: expected some of DTYPES"),
        ({"ACCUMULATE": {}}, "ACCUMULATE: expected one of"),
        ({"DTYPES": [[1]]}, "DTYPES: expected one of"),
        ([], "expected a JSON object, got list"),
    ):
        (folder / "port.json").write_text(json.dumps(content))
        code, report = verdict(folder)
        assert code == 3
        assert line in report["notes"][0]


@pytest.mark.parametrize(
    ("key", "value"),
    [("format", 2), ("stages", ["../.."]), ("stages", []), ("dtypes", "float32"), ("profile", "all"), ("stages", [[]])],
)
def test_a_manifest_that_is_not_ours_is_refused(key, value, folder):
    content = json.loads((folder / "cases.json").read_text())
    (folder / "cases.json").write_text(json.dumps({**content, key: value}))
    code, report = verdict(folder)
    assert code == 3
    assert f"cases.json: {key}" in report["notes"][0]


def test_a_folder_in_use_is_refused_and_left_as_it_was(tmp_path, capsys):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "notes").write_text("keep")
    assert main(["cases", str(folder), "--stages", "locks_unpack_basis"]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert [p.name for p in folder.iterdir()] == ["notes"]
    (folder / "notes").unlink()
    assert main(["cases", str(folder), "--stages", "locks_unpack_basis", "--profile", "quick"]) == 0


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["cases", "new", "--stages", "nothing"], "no stage 'nothing'"),
        (["cases", "new", "--dtypes", "fp8"], "--dtypes: expected some of"),
        (["cases", "new", "--dtypes", "float32,float32"], "--dtypes: each dtype once"),
        (["cases", "no/such/new"], "no folder no/such; create it first"),
        (["judge", "no-such-folder"], "no folder no-such-folder"),
        (["judge", "."], "holds no cases.json"),
    ],
)
def test_wrong_usage_exits_2_with_one_line(words, line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    error = capsys.readouterr().err
    assert line in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_an_interrupted_write_leaves_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("proofs_checks.judge.files.write.save_tensors", full)
    with pytest.raises(FolderError, match="No space left"):
        write_cases(tmp_path / "d", ["locks_unpack_basis"], "quick", ["float32"])
    assert not list(tmp_path.iterdir())


def test_right_answers_are_never_taken_for_byte_swapped():
    rng = np.random.default_rng(0)
    for dtype in ("float32", "float64", "float16", "int64"):
        values = (rng.normal(size=200) * 100).astype(dtype)
        assert not byte_swapped(values, values.astype(np.float64))
        assert byte_swapped(values.byteswap(), values.astype(np.float64))
    assert not byte_swapped(np.zeros(3, np.float32), np.zeros(3))
    assert not byte_swapped(np.full(2, -np.inf, np.float32), np.full(2, -np.inf))
