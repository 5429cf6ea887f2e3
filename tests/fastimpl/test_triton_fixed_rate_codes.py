"""KIVI and TurboQuant in Triton are judged under the interpreter, and refuse what they cannot take."""

import os

import pytest

from proofs_checks.judge.verify import verify

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
os.environ.setdefault("TRITON_INTERPRET", "1")

from fastimpl.baselines.kivi import kivi_dequantize, kivi_quantize  # noqa: E402
from fastimpl.baselines.turboquant import (  # noqa: E402
    turboquant_decode,
    turboquant_encode,
    turboquant_pack_slots,
    turboquant_unpack_slots,
)
from fastimpl.checks import ArgumentError  # noqa: E402

STAGES = (
    "kivi_quantize",
    "kivi_dequantize",
    "turboquant_encode",
    "turboquant_decode",
    "turboquant_pack_slots",
    "turboquant_unpack_slots",
)


def test_the_interpreted_kernels_pass_their_stages(monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    port = tmp_path / "one_dtype.py"
    port.write_text("from fastimpl.port import *\nfrom fastimpl.port import FRAMEWORK\nDTYPES = ('float32',)\n")
    report = verify(str(port), list(STAGES), "quick", None, 120.0)
    assert report.verdict == "PASS", report
    assert {row.stage for row in report.stages if row.verdict == "PASS"} == set(STAGES)
    assert not report.departures


x, codes, numbers = torch.zeros(2, 4), torch.zeros(2, 4, dtype=torch.uint8), torch.ones(2)
eye, levels = torch.eye(4), torch.tensor([-0.5, 0.5])
slot = {"key_codes": codes, "key_norm": numbers, "value_codes": codes, "value_scale": numbers, "value_zero": numbers}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: kivi_quantize(keys=x[None], values=x[None], bits=2, group_size=3),
            "group_size: expected a divisor of T=2",
        ),
        (lambda: kivi_quantize(keys=x[None], values=x[None].double(), bits=2), "values: expected dtype"),
        (lambda: kivi_quantize(keys=x[None], values=x[None], bits=9, group_size=1), "bits: expected in 1..8"),
        (
            lambda: kivi_dequantize(
                key_codes=codes[None],
                key_scale=torch.ones(1, 3, 4),
                key_zero=torch.ones(1, 3, 4),
                value_codes=codes[None],
                value_scale=torch.ones(1, 2, 1),
                value_zero=torch.ones(1, 2, 1),
            ),
            "key_scale: expected a number of groups that divides 2, got 3",
        ),
        (lambda: turboquant_encode(x=x, rotation=eye[:2, :2].contiguous(), levels=levels), "rotation: expected shape"),
        (lambda: turboquant_encode(x=x, rotation=eye, levels=levels[:1]), "levels: expected 2 to 256, got 1"),
        (
            lambda: turboquant_decode(
                codes=codes.int(), norm=numbers, rotation=eye, levels=levels, norm_correction=False
            ),
            "codes: expected dtype uint8",
        ),
        (lambda: turboquant_pack_slots(**{**slot, "key_norm": numbers[:1]}), "key_norm: expected shape"),
        (
            lambda: turboquant_pack_slots(**{**slot, "key_codes": codes[:, :3], "value_codes": codes[:, :3]}),
            "key_codes: expected an even number",
        ),
        (lambda: turboquant_unpack_slots(slots=codes), "slots: expected d \\+ 6 bytes"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()
