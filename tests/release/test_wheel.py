"""From a clean environment with the wheel alone, and a C++ port, to a verdict; the wheel is built from the sdist."""

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from compiled import CXX

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--outdir", folder, ROOT], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """A function that runs one command of an environment that holds the wheel and what it requires, in a folder."""
    place = tmp_path_factory.mktemp("clean")
    venv.create(place / "env", with_pip=True)
    programs = place / "env" / "bin"
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    (wheel,) = built.glob("*.whl")
    subprocess.run(
        [programs / "python", "-m", "pip", "install", "--quiet", wheel], check=True, capture_output=True, env=clean
    )

    def run(program, *words):
        command = [programs / program, *words]
        return subprocess.run(command, cwd=place, env=clean, capture_output=True, text=True, check=False)

    run.place = place
    return run


def test_the_wheel_holds_packages_and_fixtures_and_no_stray_top_level(built):
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {
        "refimpl",
        "fastimpl",
        "proofs_checks",
        "kvproof.py",
    }
    for needed in ("refimpl/py.typed", "proofs_checks/py.typed", "fastimpl/py.typed", "proofs_checks/coverage.toml"):
        assert needed in names
    assert any(name.startswith("proofs_checks/fixtures/captures/") for name in names)


def test_the_sdist_holds_what_the_checkout_needs(built):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        tops = {name.split("/", 2)[1] for name in archive.getnames() if "/" in name}
    assert {"refimpl", "fastimpl", "proofs_checks", "tests", "fixtures", "docs", "examples", "tox.ini"} <= tops


def test_a_python_port_is_judged_outside_the_checkout(installed):
    for name in ("numpy_port.py", "numpy_port_readkv.py"):
        shutil.copy(ROOT / "examples" / "ports" / name, installed.place)
    good = installed(
        "kvproof", "verify", "numpy_port.py", "--profile", "quick", "--stages", "attention,locks_score_pages"
    )
    assert good.returncode == 0, good.stdout + good.stderr
    shutil.copy(ROOT / "examples" / "ports" / "broken_base2_merge.py", installed.place)
    bad = installed("kvproof", "verify", "broken_base2_merge.py", "--profile", "quick")
    assert bad.returncode == 1
    assert "FAIL merge_attention" in bad.stdout


def test_the_golden_files_are_checked_outside_the_checkout(installed):
    done = installed("kvproof", "golden", "check")
    assert done.returncode == 0, done.stdout + done.stderr
    refused = installed("kvproof", "golden", "write", "mine")
    assert refused.returncode == 3
    assert "kvproof[certify]" in refused.stderr


def test_judging_loads_no_torch_and_the_package_is_typed(installed):
    look = "import sys, kvproof; print(sorted({'torch', 'triton', 'mpmath', 'matplotlib'} & set(sys.modules)))"
    done = installed("python", "-c", look)
    assert done.stdout.strip() == "[]", done.stderr


def test_what_needs_a_checkout_says_so(installed):
    done = installed("python", "-m", "proofs_checks.coverage")
    assert done.returncode == 3
    assert "checkout" in done.stderr


@pytest.mark.skipif(CXX is None, reason="no C++ compiler")
def test_a_cpp_port_is_judged_through_files(installed):
    program = installed.place / "port"
    source = ROOT / "examples" / "ports" / "cpp" / "port.cpp"
    subprocess.run([CXX, "-std=c++17", "-O2", "-o", program, source], check=True)
    assert installed("kvproof", "cases", "cases", "--profile", "quick", "--stages", "merge_attention").returncode == 0
    subprocess.run([program, installed.place / "cases"], check=True, capture_output=True)
    verdict = installed("kvproof", "judge", "cases")
    assert verdict.returncode == 0, verdict.stdout + verdict.stderr
    assert "PASS" in verdict.stdout
