"""The profiler's CSV is cut into calls at the markers, and its units are read."""

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "readkv_dram.py"
REPORT = """==PROF== Connected
"ID","Kernel Name","dram__bytes_read.sum","dram__bytes_write.sum"
"","","Mbyte","Kbyte"
"0","logits","1.5","2"
"1","values","1,000.5","3"
"2","at::cuda::spin_kernel(long)","9","9"
"3","dense","0.25","1"
"4","at::cuda::spin_kernel(long)","9","9"
"""


def test_kernels_between_markers_are_added_up():
    spec = importlib.util.spec_from_file_location("readkv_dram", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.traffic(REPORT) == [[1002e6, 5e3], [0.25e6, 1e3]]
