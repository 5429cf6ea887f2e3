"""The pytest plugin and `proofs_checks.parametrize`, run by pytest's own pytester in processes of their own."""

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from xml.etree import ElementTree

import pytest

from proofs_checks.judge.suite import cases_of

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[3]
PORTS = ROOT / "examples" / "ports"
STAGES = "merge_attention,locks_unpack_basis"
QUICK = [c.id for s in STAGES.split(",") for c in cases_of(s) if c.profile == "quick"]
INSTALLED = any(point.name == "kvproof" for point in entry_points(group="pytest11"))


@pytest.fixture
def run(pytester, monkeypatch):
    for name in ("numpy_port.py", "numpy_port_readkv.py", "broken_base2_merge.py"):
        (pytester.path / name).write_bytes((PORTS / name).read_bytes())
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    plugin = () if INSTALLED else ("-p", "proofs_checks.judge.pytest_plugin")

    def runs(*words):
        return pytester.runpytest_subprocess(*plugin, "-p", "no:cacheprovider", *words)

    return runs


def port_words(port, *more):
    return ("--kvproof-port", port, "--kvproof-profile", "quick", "--kvproof-stages", STAGES, *more)


@pytest.mark.parametrize("port", ["numpy_port", "numpy_port.py"])
def test_every_case_of_a_right_port_is_a_passing_test_with_its_id(port, run):
    result = run(*port_words(port, "-v"))
    result.assert_outcomes(passed=len(QUICK))
    for case in QUICK:
        result.stdout.fnmatch_lines([f"{port}::{case} PASSED*"])


def test_a_wrong_port_fails_in_the_judge_s_words_and_k_selects_cases(run):
    result = run(*port_words("broken_base2_merge.py", "-k", "masses-8-and-2 or unpack"))
    unpack = sum(case.startswith("locks_unpack") for case in QUICK)
    result.assert_outcomes(failed=sum("masses-8-and-2" in case for case in QUICK), passed=unpack)
    result.stdout.fnmatch_lines(
        [
            "FAIL merge_attention/masses-8-and-2  suspect B (*",
            "  output*expected*within*",
            "  kvproof repro merge_attention/masses-8-and-2 --port broken_base2_merge.py",
        ]
    )
    result.stdout.no_fnmatch_line("*Traceback*")
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_junit_comes_from_pytest(run, pytester):
    run(*port_words("broken_base2_merge.py", "--junitxml", "report.xml"))
    suite = ElementTree.parse(pytester.path / "report.xml").getroot()[0]
    assert {case.get("name") for case in suite} == set(QUICK)
    failed = {case.get("name") for case in suite if case.find("failure") is not None}
    assert "merge_attention/masses-8-and-2" in failed
    assert not any(name.startswith("locks_unpack") for name in failed)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--kvproof-port", "no_such_port"), "cannot import no_such_port"),
        (("--kvproof-port", "numpy_port", "--kvproof-stages", "nothing"), "no stage 'nothing'"),
        (("--kvproof-port", "misspelt.py"), "did you mean locks_score_pages?"),
        (("--kvproof-port", "numpy_port", "--kvproof-expected", "absent.toml"), "absent.toml: No such file"),
    ],
)
def test_a_port_that_cannot_be_used_is_wrong_usage(words, line, run, pytester):
    (pytester.path / "misspelt.py").write_text("def locks_score_page(*, queries): pass\n")
    result = run(*words)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: --kvproof-port: *{line}*"])


def test_a_port_that_dies_costs_its_case_only(run, pytester):
    (pytester.path / "dying.py").write_text(
        "import os\nfrom numpy_port import locks_unpack_basis\n"
        "def merge_attention(*, outputs, lses):\n    os._exit(3)\n"
    )
    result = run(*port_words("dying.py"))
    merge = sum(case.startswith("merge") for case in QUICK)
    result.assert_outcomes(failed=merge, passed=len(QUICK) - merge)
    result.stdout.fnmatch_lines(["*exited with status 3 while running merge_attention/*"])


def test_known_failures_are_xfails_and_an_unexpected_pass_fails(run, pytester):
    entry = '[[expected]]\nid = "{}"\nreason = "base 2"\nlink = "https://example.org/1"\nexpires = 2999-01-01\n'
    ids = ("merge_attention/masses-8-and-2", "locks_unpack_basis/all-bytes")
    (pytester.path / "kvproof-expected.toml").write_text("".join(entry.format(i) for i in ids))
    result = run(*port_words("broken_base2_merge.py", "-k", "(masses-8-and-2 and not d128) or all-bytes", "-rx"))
    result.assert_outcomes(xfailed=1, failed=1)
    result.stdout.fnmatch_lines(["*locks_unpack_basis/all-bytes*suspect*", "*passes, but is expected to fail*"])


def test_parametrize_gives_one_s_own_test_every_case(run, pytester):
    folder = pytester.mkdir("checks")
    (folder / "test_port.py").write_text(
        "import proofs_checks\n"
        f"@proofs_checks.parametrize('port_here.py', profile='quick', stages={STAGES.split(',')})\n"
        "def test_port(case):\n"
        "    assert case.id.startswith(case.stage)\n"
        "    case.check()\n"
    )
    (folder / "port_here.py").write_bytes((PORTS / "broken_base2_merge.py").read_bytes())
    for name in ("numpy_port.py", "numpy_port_readkv.py"):
        (folder / name).write_bytes((PORTS / name).read_bytes())
    result = run("checks", "-v")
    outcome = result.parseoutcomes()
    assert outcome["passed"] + outcome["failed"] == len(QUICK)
    result.stdout.fnmatch_lines(["*::test_port?merge_attention/masses-8-and-2? FAILED*"])
    result.stdout.fnmatch_lines(["FAIL merge_attention/masses-8-and-2  suspect B (*"])
    result.stdout.no_fnmatch_line("*pytest_plugin.py*")


def test_parametrize_takes_a_module(run, pytester):
    pytester.makepyfile(
        test_module="""
        import numpy_port
        import proofs_checks

        @proofs_checks.parametrize(numpy_port, profile="quick", stages=["locks_unpack_basis"], argument="what")
        def test_port(what):
            what.check()
        """
    )
    unpack = sum(case.startswith("locks_unpack") for case in QUICK)
    run("test_module.py").assert_outcomes(passed=unpack)


def test_without_a_port_the_plugin_adds_nothing_and_loads_nothing(run, pytester):
    pytester.makepyfile(
        """
        import sys

        def test_modules():
            loaded = {"numpy", "torch", "rich", "proofs_checks.judge.stages"} & set(sys.modules)
            assert not loaded, loaded
        """
    )
    run("-p", "no:hypothesispytest").assert_outcomes(passed=1)


def test_importing_the_package_and_the_plugin_loads_neither_torch_nor_numpy():
    for module, others in (
        ("proofs_checks", ("torch", "numpy", "pytest")),
        ("proofs_checks.judge.pytest_plugin", ("torch", "numpy")),
    ):
        code = f"import sys, {module}; print([m for m in {others} if m in sys.modules])"
        shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
        assert shown.stdout.strip() == "[]"
