"""Mutation run of refimpl: which changes of one expression do the tests of refimpl notice?

Run: python benchmarks/mutation.py [--again] [--jobs N] [FILE...]. mutmut writes the mutants of the given files (default:
all of refimpl) into a copy of the repository, build/mutation. One pytest session there collects tests/refimpl and the
examples in refimpl's docstrings, notes which test enters which function, and then forks once per mutant and runs the
tests of its function, the fastest first, until one fails. Results are kept in build/mutation.json by function: a killed
mutant of an unchanged function is not run again, a survivor with --again or when it was not run yet.
benchmarks/mutation_report.py writes the report.
"""

import argparse
import importlib
import json
import os
import pkgutil
import resource
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TREE = ROOT / "build" / "mutation"
RESULTS = ROOT / "build" / "mutation.json"
CPU_SECONDS, MEMORY_BYTES = 60, 6 * 2**30  # what one mutant may use; one that needs more counts as killed (timeout)
PYTEST = ["-o", "addopts=", "--import-mode=importlib", "--doctest-modules", "--strict-markers", "--capture=no"]
PYTEST += ["-p", "no:terminal", "-p", "no:cacheprovider", "--rootdir=.", "tests/refimpl", "refimpl"]


def write_mutants():
    """Copy the repository and write every mutant of refimpl into the copy; {function: (hash, mutants)}."""
    from mutmut.mutation.file_mutation import mutate_file_contents

    shutil.rmtree(TREE, ignore_errors=True)
    listed = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).exists():
            (TREE / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, TREE / name)
    functions = {}
    for path in sorted((TREE / "refimpl").rglob("*.py")):
        name = str(path.relative_to(TREE))
        mutated = mutate_file_contents(name, path.read_text())
        path.write_text(mutated.code)
        module = name.removesuffix(".py").replace("/", ".")
        for mutant in mutated.mutant_names:
            key = mutant.rpartition("__mutmut_")[0]
            functions.setdefault(f"{module}.{key}", (mutated.hash_by_function_name[key], []))[1].append(mutant)
    return functions


def forget_mutants_examples():
    """Drop the mutants' docstrings: the examples of the original are enough, and they meet the mutant."""
    for info in pkgutil.walk_packages([str(TREE / "refimpl")], "refimpl."):
        for name, value in vars(importlib.import_module(info.name)).items():
            if "__mutmut_" in name and name.rpartition("_")[2].isdigit():
                value.__doc__ = None


def clear_caches():
    """Forget memoised results, so that a mutant is computed and every test meets the functions it depends on."""
    for module in list(sys.modules.values()):
        if str(getattr(module, "__file__", None)).startswith(str(TREE)):
            for value in list(vars(module).values()):
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


class MutationSession:
    """A pytest plugin that replaces the loop over the tests by the loop over the mutants."""

    def __init__(self, functions, results, jobs, again):
        self.functions, self.results, self.jobs, self.again = functions, results, jobs, again
        self.failed, self.names = False, {}
        self.running = {}

    def pytest_collection_modifyitems(self, items):
        # what is left of the repeated docstrings are methods'
        items[:] = [i for i in items if "__mutmut_" not in i.nodeid or i.nodeid.endswith("__mutmut_orig")]
        self.names = {i: dict(i.dtest.globs) for i in items if hasattr(i, "dtest")}

    def pytest_runtest_logreport(self, report):
        self.failed |= report.failed
        if report.failed and os.environ["MUTANT_UNDER_TEST"] == "stats":
            print(report.nodeid, report.longreprtext)

    def passes(self, item, following):
        if item in self.names:  # a doctest forgets its names when it has run
            item.dtest.globs = dict(self.names[item])
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        return not self.failed

    def pytest_runtestloop(self, session):
        tests = self.tests_of_functions(session.items)
        self.results["refimpl.control"] = {"mutants": {}}
        self.start("refimpl.control", "none", session.items, seconds=600)
        self.finish_one()
        if self.results.pop("refimpl.control")["mutants"]["none"] != "survived":
            sys.exit("the tests fail in a fork without a mutant")
        for function, (digest, mutants) in self.functions.items():
            known = self.results.get(function, {})
            if known.get("hash") != digest:
                known = self.results[function] = {"hash": digest, "mutants": {}}
            for mutant in mutants:
                status = known["mutants"].get(mutant)
                if status is None or (self.again and status in ("survived", "no tests")):
                    self.start(function, mutant, [item for _, item in sorted(tests[function], key=lambda t: t[0])])
            RESULTS.write_text(json.dumps(self.results))
            print(f"{time.process_time():.0f} s: {function}", flush=True)
        while self.running:
            self.finish_one()
        RESULTS.write_text(json.dumps(self.results))
        return True

    def tests_of_functions(self, items):
        """{function: [(seconds, test), ...]}, the tests that enter it; every test must pass without a mutant."""
        from mutmut.state import state

        tests = defaultdict(list)
        os.environ["MUTANT_UNDER_TEST"] = "stats"
        for item, following in zip(items, [*items[1:], None], strict=True):
            clear_caches()
            start = time.process_time()
            if not self.passes(item, following):
                sys.exit(f"{item.nodeid} fails without a mutant")
            for function in state()._stats:
                tests[function].append((time.process_time() - start, item))
            state()._stats.clear()
        return tests

    def start(self, function, mutant, items, seconds=CPU_SECONDS):
        if not items:
            self.results[function]["mutants"][mutant] = "no tests"
            return
        while len(self.running) >= self.jobs:
            self.finish_one()
        pid = os.fork()
        if pid:
            self.running[pid] = function, mutant
            return
        limit = int(time.process_time()) + seconds
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        os.environ["MUTANT_UNDER_TEST"] = f"{function.rpartition('.')[0]}.{mutant}"
        clear_caches()
        try:
            survived = all(self.passes(i, j) for i, j in zip(items, [*items[1:], None], strict=True))
        except BaseException:  # a mutant that breaks the session is noticed
            survived = False
        os._exit(0 if survived else 1)

    def finish_one(self):
        pid, status = os.wait()
        function, mutant = self.running.pop(pid)
        code = os.waitstatus_to_exitcode(status)
        self.results[function]["mutants"][mutant] = {0: "survived", 1: "killed"}.get(code, "timeout")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", help="such as refimpl/locks/select.py")
    parser.add_argument("--again", action="store_true", help="run survivors again")
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    functions = write_mutants()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results = {name: results[name] for name in functions if name in results}
    modules = tuple(f.removesuffix(".py").replace("/", ".") + "." for f in arguments.files) or ("refimpl.",)
    chosen = {name: value for name, value in functions.items() if name.startswith(modules)}

    import pytest

    os.environ |= {"HYPOTHESIS_PROFILE": "mutation", "OMP_NUM_THREADS": "1", "MUTANT_UNDER_TEST": ""}
    os.chdir(TREE)
    sys.path[:] = [str(TREE), *(p for p in sys.path if Path(p).resolve() not in (ROOT, ROOT / "benchmarks"))]
    forget_mutants_examples()
    sys.exit(pytest.main(PYTEST, plugins=[MutationSession(chosen, results, arguments.jobs, arguments.again)]))


if __name__ == "__main__":
    main()
