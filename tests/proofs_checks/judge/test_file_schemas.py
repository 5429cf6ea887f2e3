"""The schemas of the files say what is written, for every stage and dtype, and refuse what is not."""

import json
from pathlib import Path

import jsonschema
import pytest

from proofs_checks.judge.files import layout
from proofs_checks.judge.files.session import DECLARABLE
from proofs_checks.judge.files.write import write_cases
from proofs_checks.judge.stages import STAGES
from proofs_checks.numbers import FORMATS

SCHEMAS = Path(__file__).parents[3] / "proofs_checks" / "judge" / "schemas"

DRAWN = {"turboquant_rotation", "turboquant_inner_products", "qjl_inner_products"}
"""Stages that draw at random: judged over many calls of a live port, which files cannot hold."""


def validator(name):
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("schemas") / "cases"
    write_cases(folder, list(STAGES), "quick", list(FORMATS))
    return folder


def test_every_call_fits_its_schema_and_names_its_own_folder(folder):
    check = validator("call")
    paths = sorted(folder.glob("*/*/call.json"))
    for path in paths:
        call = json.loads(path.read_text())
        check.validate(call)
        name = call["id"].partition("/")[2] + (".changed" if call["call"] == "changed" else "")
        assert path.parent.relative_to(folder).as_posix() == f"{call['stage']}/{name}@{call['dtype']}"
    assert {json.loads(p.read_text())["stage"] for p in paths} == set(STAGES) - DRAWN


def test_the_manifest_fits_its_schema(folder):
    validator("cases").validate(json.loads((folder / layout.MANIFEST).read_text()))


def test_the_schema_of_port_json_lists_what_is_read():
    check = validator("port")
    assert set(check.schema["properties"]) == set(DECLARABLE)
    assert set(check.schema["$defs"]["format"]["enum"]) == set(FORMATS)
    check.validate({"DTYPES": ["bfloat16"], "TIES": "lowest_index", "OUTPUT": None})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", {"DTYPES": ["fp8"]}),
        ("port", {"DEVICE": "cuda"}),
        ("call", {"format": 1, "id": "../../etc"}),
        ("cases", {"format": 2}),
    ],
)
def test_the_schemas_refuse_what_is_not_ours(name, value):
    assert not validator(name).is_valid(value)
