"""The profiler's CSV is cut into calls at the markers, and its units are read."""

import importlib
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

FOLDER = Path(__file__).resolve().parents[3] / "benchmarks"
BYTES = """==PROF== Connected
"ID","Kernel Name","dram__bytes_read.sum","dram__bytes_write.sum"
"","","Mbyte","Kbyte"
"0","logits","1.5","2"
"1","values","1,000.5","3"
"2","at::cuda::spin_kernel(long)","9","9"
"3","dense","0.25","1"
"4","at::cuda::spin_kernel(long)","9","9"
"""


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module


def test_kernels_between_markers_are_added_up(script):
    assert script("readkv_dram").traffic(BYTES) == [[1002e6, 5e3], [0.25e6, 1e3]]


def test_kernels_are_told_apart_by_case(script):
    profile = script("locks_profile")
    names = ["ID", "Kernel Name", *profile.METRICS.values()]
    lines = [names, ["", "", "ns", *["%"] * 6], ["0", "score", "1,500", *["50"] * 6]]
    lines += [["1", "at::cuda::spin_kernel(long)", *["9"] * 7], ["2", "attend", "2000", *["25"] * 6]]
    rows = profile.rows_of("\n".join(",".join(f'"{cell}"' for cell in line) for line in lines))
    assert [(r["case"], r["kernel"], r["microseconds"]) for r in rows] == [
        ("32K", "score", 1.5),
        ("128K", "attend", 2.0),
    ]
    assert rows[1]["dram_percent"] == 25.0
