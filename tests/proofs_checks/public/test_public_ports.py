"""Adapters say what they are without being imported; whatever a package does is a verdict; the page is generated."""

import inspect
import json
import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from proofs_checks.cli import main
from proofs_checks.judge.declared import PortError
from proofs_checks.judge.stages import STAGES
from proofs_checks.public import environments, judge
from proofs_checks.public.adapters import adapters, read_adapter
from proofs_checks.public.environments import Environment, prepare
from proofs_checks.public.page import render

ROOT = Path(__file__).parents[3]
DOCUMENT = json.loads((ROOT / "docs" / "public-ports.json").read_text(encoding="utf-8"))
LISTED = {
    "turboquant": "0.2.0",
    "tiny-turboquant": "0.18.0",
    "turboquant-pro": "1.9.1",
    "turboquant-vllm": "1.5.0",
    "pyturboquant": "0.1.1",
    "turboquant-llm": "0.1.0",
    "turboquant-torch": "0.4.0",
    "turboquant-py": "0.1.0",
    "fused-turboquant": "0.1.0",
    "kvpress": "0.5.5",
    "locks-kv": "0.1.4",
}
PORT = """PACKAGE, UNUSED = "no", 1
PACKAGE = "some-package"
VERSION = "1.0"
MODULES = ("some_package",)
DRIVES = "a merge"


def affine_dequantize(*, codes, scale, zero):
    {body}
"""
RIGHT = "return codes * scale[..., None] + zero[..., None]"
WRONG = "return codes * scale[..., None] - zero[..., None]"


def written(folder, text):
    path = folder / "some_package_port.py"
    path.write_text(text)
    return path


def test_every_listed_package_has_an_adapter_and_an_entry():
    assert {one.package: one.version for one in adapters()} == LISTED
    entries = {(entry["package"], entry["version"], entry["adapter"]) for entry in DOCUMENT["ports"]}
    expected = {(one.package, one.version, one.path.relative_to(ROOT).as_posix()) for one in adapters()}
    assert entries == expected


PUBLIC = [one for one in adapters() if one.path.parent.name == "public"]


def test_adapters_are_imported_where_nothing_is_installed():
    code = (
        "import runpy, sys\n"
        "for path in sys.argv[1:]: runpy.run_path(path)\n"
        "taken = {'torch', 'triton', 'numpy', 'turboquant'} & set(sys.modules)\n"
        "assert not taken, taken\n"
    )
    paths = [str(one.path) for one in PUBLIC]
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code, *paths], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("adapter", PUBLIC, ids=lambda one: one.name)
def test_functions_of_an_adapter_are_stages_with_their_keywords(adapter, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # some adapters set it
    description = spec_from_file_location(f"adapter_{adapter.name}", adapter.path)
    module = module_from_spec(description)
    description.loader.exec_module(module)
    functions = {n: f for n, f in vars(module).items() if inspect.isfunction(f) and not n.startswith("_")}
    assert functions
    for name, function in functions.items():
        stage = STAGES[name]
        taken = set(inspect.signature(function).parameters)
        assert set(stage.arguments) - set(stage.optional) <= taken <= set(stage.arguments) | set(stage.optional), name


def test_the_page_is_generated_from_the_verdicts():
    page = (ROOT / "docs" / "public-ports.md").read_text(encoding="utf-8")
    assert page == render(DOCUMENT), "run: kvproof public --from-json docs/public-ports.json --markdown ..."
    for name in LISTED:
        assert f"[{name}](#{name}-" in page
    anchors = set(re.findall(r"\]\(#([^)]+)\)", page))
    headings = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^## (.*)$", page, re.M)}
    assert anchors == headings


# What was found by hand before this verb existed: the kit must find it without being told.
FOUND = [
    ("turboquant", ["numpy<2.4"], "lloyd_max_codebook", "sphere-d128-4-bits", "times the optimum"),
    ("turboquant", [], "lloyd_max_codebook", "sphere-d64-4-bits", "numpy"),
    ("turboquant", [], "qjl_inner_products", "unbiased", "0.125"),
    ("tiny-turboquant", [], "affine_quantize", "below-minus-65504", "-inf"),
    ("tiny-turboquant", [], "qjl_inner_products", "unbiased", "0.125"),
    ("tiny-turboquant", [], "lloyd_max_codebook", "normal", ""),
    ("turboquant-pro", [], "lloyd_max_codebook", "normal-d64-3-bits", "1.318"),
    ("turboquant-pro", [], "lloyd_max_codebook", "normal-d64-4-bits", "1.137"),
    ("turboquant-pro", [], "turboquant_rotation", "haar-d32", "negative"),
    ("turboquant-vllm", [], "qjl_inner_products", "unbiased", "0.125"),
    ("turboquant-vllm", [], "lloyd_max_codebook", "normal-d64-4-bits", "1.051"),
    ("pyturboquant", [], "lloyd_max_codebook", "normal-d64-8-bits", "times the optimum"),
    ("turboquant-llm", [], "turboquant_rotation", "haar-d8", "0.000 of the"),
    ("turboquant-llm", [], "affine_quantize", "rows-1-and-100", "scale"),
    ("turboquant-torch", [], "lloyd_max_codebook", "sphere-d16-4-bits", "1.0044"),
    ("turboquant-py", [], "lloyd_max_codebook", "sphere-d4096-4-bits", "1.063"),
    ("turboquant-py", [], "lloyd_max_codebook", "sphere-d8192-4-bits", ""),
]


def failures(package, extra, stage):
    for entry in DOCUMENT["ports"]:
        if entry["package"] == package and entry["with"] == extra:
            for row in entry["stages"]:
                if row["stage"] == stage:
                    yield from row["failures"]


@pytest.mark.parametrize(("package", "extra", "stage", "case", "word"), FOUND)
def test_what_was_known_is_found(package, extra, stage, case, word):
    if case == "normal":
        assert len(list(failures(package, extra, stage))) > 1
        return
    told = [f["message"] for f in failures(package, extra, stage) if f["case"].startswith(f"{stage}/{case}")]
    assert told
    assert word in told[0]


def test_what_is_right_is_called_right():
    verdicts = {entry["adapter"]: entry["verdict"] for entry in DOCUMENT["ports"]}
    for name in ("fused_turboquant", "fused_turboquant_triton", "kvpress"):
        assert verdicts[f"examples/ports/public/{name}_port.py"] == "right"
    assert verdicts["examples/ports/locks_kv_port_dialect.py"] == "right"


def test_the_two_paths_of_one_package_break_ties_apart():
    ties = {
        entry["adapter"]: any(d["id"] == "AMB-48" for d in entry["departures"])
        for entry in DOCUMENT["ports"]
        if entry["package"] == "turboquant-vllm"
    }
    assert ties == {
        "examples/ports/public/turboquant_vllm_port.py": False,
        "examples/ports/public/turboquant_vllm_tq4_port.py": True,
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PORT.replace('VERSION = "1.0"\n', ""), "expected a constant VERSION"),
        (PORT.replace('"1.0"', "1.0"), "VERSION: expected a text, got 1.0"),
        (PORT.replace('("some_package",)', '"some_package"'), "MODULES: expected a tuple of texts"),
        (PORT.replace('"a merge"', "'a ' + str(1)"), "DRIVES: expected a literal"),
        (PORT.replace('"a merge"', '"a merge"\nALSO_WITH = ("numpy",)'), "ALSO_WITH: expected a tuple of texts"),
        ("def :", "expected a Python file"),
    ],
)
def test_an_adapter_that_does_not_say_what_it_is_is_refused(text, message, tmp_path):
    with pytest.raises(PortError, match=re.escape(message)):
        read_adapter(written(tmp_path, text))


def test_errors_of_the_verb(tmp_path, capsys):
    assert main(["public", "--package", "no-such-package"]) == 3
    assert "expected one of" in capsys.readouterr().err
    assert main(["public", "--adapter", str(tmp_path / "none.py")]) == 3
    assert "expected a Python file" in capsys.readouterr().err
    (tmp_path / "bad.json").write_text("{}")
    assert main(["public", "--from-json", str(tmp_path / "bad.json")]) == 3
    assert "expected verdicts of kvproof public" in capsys.readouterr().err
    assert main(["public", "--json", str(tmp_path / "no" / "folder.json")]) == 2


def here(monkeypatch, failure=None, notes=()):
    """Let the judge find this interpreter as the package's environment."""
    ready = Environment(Path(sys.executable), failure, notes)
    monkeypatch.setattr(judge, "prepare", lambda *given: ready)


@pytest.mark.parametrize(("body", "verdict", "exit_code"), [(RIGHT, "right", 0), (WRONG, "wrong", 0)])
def test_the_verb_judges_an_adapter_from_anywhere(body, verdict, exit_code, tmp_path, monkeypatch):
    here(monkeypatch, notes=("a note",))
    path, target = written(tmp_path, PORT.format(body=body)), tmp_path / "out.json"
    page = tmp_path / "page.md"
    assert main(["public", "--adapter", str(path), "--json", str(target), "--markdown", str(page)]) == exit_code
    (entry,) = json.loads(target.read_text())["ports"]
    assert (entry["verdict"], entry["package"], entry["notes"]) == (verdict, "some-package", ["a note"])
    assert entry["versions"]["numpy"]
    (row,) = entry["stages"]
    assert row["passed"] + len(row["failures"]) == row["cases"] > 5
    assert "Note: a note." in page.read_text()
    assert ("affine_dequantize/scale-and-zero" in page.read_text()) is (verdict == "wrong")


def test_what_does_not_run_is_a_verdict(tmp_path, monkeypatch):
    here(monkeypatch, "import some_package: ModuleNotFoundError")
    entry = judge.judge_one(read_adapter(written(tmp_path, PORT.format(body=RIGHT))), (), tmp_path, "quick")
    assert (entry["verdict"], entry["reason"]) == ("does not run", "import some_package: ModuleNotFoundError")
    assert "It does not run here: import some_package" in render({"schema": 1, "ports": [entry]})


def test_a_second_verdict_replaces_the_first_and_leaves_the_others(tmp_path, monkeypatch):
    target = tmp_path / "out.json"
    for body in (RIGHT, WRONG):
        here(monkeypatch)
        path = written(tmp_path, PORT.format(body=body))
        assert main(["public", "--adapter", str(path), "--json", str(target)]) == 0
    other = tmp_path / "other_port.py"
    other.write_text(PORT.format(body=RIGHT).replace('"some-package"', '"another"'))
    assert main(["public", "--adapter", str(other), "--json", str(target)]) == 0
    entries = json.loads(target.read_text())["ports"]
    assert [(e["package"], e["verdict"]) for e in entries] == [("another", "right"), ("some-package", "wrong")]


def fake(monkeypatch, answers):
    """Environments without an installer: ``answers`` are what it says, call by call."""
    calls = []

    def install(python, words):
        calls.append(words)
        return answers.pop(0)

    def create(place, seen):
        (place / "bin").mkdir(parents=True)
        (place / "bin" / "python").symlink_to(sys.executable)

    monkeypatch.setattr(environments, "_install", install)
    monkeypatch.setattr(environments, "_create", create)
    monkeypatch.setattr(environments, "shared", lambda folder: None)
    return calls


def test_a_package_that_cannot_be_installed(tmp_path, monkeypatch):
    fake(monkeypatch, ["looking\nERROR: No matching distribution found for p==1\n"])
    ready = prepare(tmp_path, "p", ("p==1",), (), ("json",))
    assert ready.failure == "cannot be installed: No matching distribution found for p==1"
    assert not (tmp_path / "p").exists()


def test_a_package_for_another_python_is_installed_with_a_note(tmp_path, monkeypatch):
    calls = fake(monkeypatch, ["ERROR: Ignored the following versions that require a different python version", None])
    ready = prepare(tmp_path, "p", ("p==1",), (), ("json",))
    assert ready.failure is None
    assert "another Python" in ready.notes[0]
    assert calls[1][0] == "--ignore-requires-python"
    again = prepare(tmp_path, "p", ("p==1",), (), ("json",))
    assert (again.notes, len(calls)) == (ready.notes, 2)


def test_options_are_for_the_package_alone(tmp_path, monkeypatch):
    calls = fake(monkeypatch, [None, None])
    assert prepare(tmp_path, "p", ("p==1", "torch"), ("--no-deps",), ()).failure is None
    assert calls == [["--no-deps", "p==1"], ["torch"]]


def test_a_module_that_cannot_be_imported(tmp_path, monkeypatch):
    fake(monkeypatch, [None])
    ready = prepare(tmp_path, "p", ("p==1",), (), ("json", "no_such_module_here"))
    assert ready.failure.startswith("import no_such_module_here: ModuleNotFoundError")


def test_the_example_of_the_page_is_an_adapter(tmp_path):
    page = (ROOT / "docs" / "public-adapters.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    adapter = read_adapter(written(tmp_path, text))
    assert (adapter.package, adapter.version, adapter.modules) == ("some-package", "1.0.0", ("some_package",))
