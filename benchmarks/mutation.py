"""Mutation run of refimpl: which changes of one expression do the tests of refimpl notice?

Run: python benchmarks/mutation.py [--again] [--jobs N] [FILE...]. mutmut writes the mutants of the given files (default:
all of refimpl) into a copy of the repository, build/mutation. One pytest session there collects tests/refimpl and the
examples in refimpl's docstrings, notes which test enters which function, and then forks once per mutant and runs the
tests of its function, the fastest first, until one fails or TEST_SECONDS are spent. Mutants that
benchmarks/mutation_reasons.toml explains as equivalent are not run. Results are kept in build/mutation.json by function:
a mutant of an unchanged function is not run again, or with --again only if it survived.
The order is that of a hash of their names, so that whatever part was run is a random sample of all.
benchmarks/mutation_report.py writes the report.
"""

import argparse
import gc
import hashlib
import importlib
import json
import os
import pkgutil
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TREE = ROOT / "build" / "mutation"
RESULTS = ROOT / "build" / "mutation.json"
EXPLAINED = tomllib.loads((ROOT / "benchmarks" / "mutation_reasons.toml").read_text())
REASONS, HISTORY = EXPLAINED["reason"], EXPLAINED["history"]
TEST_SECONDS = 4.0
"""CPU time of a function's tests after which its mutant has survived, the fastest tests first."""
SLOWER, MEMORY_BYTES = 20, 6 * 2**30
"""A test that takes so many times its usual CPU time (and 2 s) is stopped: the mutant counts as killed (timeout)."""
PYTEST = ["-o", "addopts=", "--import-mode=importlib", "--doctest-modules", "--strict-markers", "--capture=no"]
PYTEST += ["--assert=plain", "-p", "no:terminal", "-p", "no:cacheprovider", "--rootdir=.", "tests/refimpl", "refimpl"]


def copy_tree():
    shutil.rmtree(TREE, ignore_errors=True)
    listed = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).exists():
            (TREE / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, TREE / name)


def write_mutants():
    """Write every mutant of refimpl into the copy; {module.function: (hash, {mutant: change})}."""
    from mutmut.mutation.file_mutation import mutate_file_contents

    functions = {}
    for path in sorted((TREE / "refimpl").rglob("*.py")):
        name = str(path.relative_to(TREE))
        mutated = mutate_file_contents(name, path.read_text())
        path.write_text(mutated.code)
        lines, spans = mutated.code.splitlines(), mutated.line_span_by_function_name
        text = {n: [line.strip().replace(n, "") for line in lines[s.start - 1 : s.end]] for n, s in spans.items()}
        for mutant in mutated.mutant_names:
            key = mutant.rpartition("__mutmut_")[0]
            function = name.removesuffix(".py").replace("/", ".") + "." + key
            entry = functions.setdefault(function, (mutated.hash_by_function_name[key], {}))
            entry[1][mutant] = change(text[f"{key}__mutmut_orig"], text[mutant])
    return functions


def change(old, new):
    """ "old lines => new lines", without the lines that both begin and end with."""
    first = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    old, new = old[first:], new[first:]
    same = next((i for i, (a, b) in enumerate(zip(old[::-1], new[::-1], strict=False)) if a != b), 0)
    return " ".join(old[: len(old) - same]) + " => " + " ".join(new[: len(new) - same])


def reason_of(function, text):
    return next((r for r in REASONS if re.search(r["pattern"], f"{function}: {text}")), None)


def forget_mutants_examples():
    """Drop the mutants' docstrings: the examples of the original are enough, and they meet the mutant."""
    for info in pkgutil.walk_packages([str(TREE / "refimpl")], "refimpl."):
        for name, value in vars(importlib.import_module(info.name)).items():
            if "__mutmut_" in name and name.rpartition("_")[2].isdigit():
                value.__doc__ = None


def in_random_order(functions):
    """(function, mutant) of all, by a hash of the name."""
    pairs = [(function, mutant) for function, (_, mutants) in functions.items() for mutant in mutants]
    return sorted(pairs, key=lambda pair: hashlib.sha256(".".join(pair).encode()).digest())


def memoised():
    """Functions of the tree that remember results."""
    modules = [m for m in sys.modules.values() if str(getattr(m, "__file__", None)).startswith(str(TREE))]
    return {v for m in modules for v in vars(m).values() if callable(getattr(v, "cache_clear", None))}


class MutationSession:
    """A pytest plugin that replaces the loop over the tests by the loop over the mutants."""

    def __init__(self, functions, results, jobs, again):
        self.functions, self.results, self.jobs, self.again = functions, results, jobs, again
        self.failed, self.forked, self.names, self.running = False, False, {}, {}

    def pytest_collection_modifyitems(self, items):
        # what is left of the repeated docstrings are methods'
        items[:] = [i for i in items if "__mutmut_" not in i.nodeid or i.nodeid.endswith("__mutmut_orig")]
        self.names = {i: dict(i.dtest.globs) for i in items if hasattr(i, "dtest")}
        self.memoised = memoised()

    def forget(self):
        """Forget memoised results: a mutant must be computed, and every test meet the functions it depends on."""
        for function in self.memoised:
            function.cache_clear()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item, call):
        """In a fork no failure is explained, which is what takes longest."""
        if self.forked:
            bad = call.excinfo is not None and not call.excinfo.errisinstance(pytest.skip.Exception)
            outcome = "failed" if bad else "skipped" if call.excinfo is not None else "passed"
            place = item.nodeid, item.location, {}
            return pytest.TestReport(*place, outcome, None, call.when, duration=call.duration)
        return None

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
        self.control([(1.0, item) for i, item in enumerate(session.items) if item in self.names or i % 10 == 0])
        gc.freeze()
        for place, (function, mutant) in enumerate(in_random_order(self.functions)):
            known, text = self.results[function], self.functions[function][1][mutant]
            status, reason = known["mutants"].get(mutant), reason_of(function, text)
            if reason and reason["equivalent"]:
                if status in ("killed", "timeout"):
                    sys.exit(f"a test refutes that it is equivalent ({reason['name']}): {function}: {text}")
                known["mutants"][mutant], known["changes"][mutant] = "equivalent", text
            elif status in (None, "equivalent") or (self.again and status in ("survived", "no tests")):
                self.start(function, mutant, sorted(tests[function], key=lambda t: t[0]))
            if place % 50 == 0:
                RESULTS.write_text(json.dumps(self.results))
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
            self.forget()
            start = time.process_time()
            if not self.passes(item, following):
                sys.exit(f"{item.nodeid} fails without a mutant")
            for function in state()._stats:
                tests[function].append((time.process_time() - start, item))
            state()._stats.clear()
        return tests

    def control(self, tests):
        """No mutant, all examples and a tenth of the tests in a fork beside the first mutants: it must survive."""
        self.start("control", "none", tests, seconds=float("inf"))

    def start(self, function, mutant, tests, seconds=TEST_SECONDS):
        if not tests:
            self.keep(function, mutant, "no tests")
            return
        while len(self.running) >= self.jobs:
            self.finish_one()
        pid = os.fork()
        if pid:
            self.running[pid] = function, mutant
            return
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        os.environ["MUTANT_UNDER_TEST"] = f"{function.rpartition('.')[0]}.{mutant}"
        gc.disable()
        self.forked = True
        self.forget()
        try:
            survived = self.survives(tests, time.process_time() + seconds)
        except BaseException:  # a mutant that breaks the session is noticed
            survived = False
        os._exit(0 if survived else 1)

    def survives(self, tests, until):
        for (usual, item), (_, following) in zip(tests, [*tests[1:], (0, None)], strict=True):
            if time.process_time() > until:
                break
            signal.setitimer(signal.ITIMER_PROF, 2 + SLOWER * usual)  # its signal ends the process
            if not self.passes(item, following):
                return False
        return True

    def finish_one(self):
        pid, status = os.wait()
        function, mutant = self.running.pop(pid)
        code = os.waitstatus_to_exitcode(status)
        self.keep(function, mutant, {0: "survived", 1: "killed"}.get(code, "timeout"))

    def keep(self, function, mutant, status):
        if function == "control":
            if status != "survived":
                RESULTS.unlink(missing_ok=True)
                sys.exit("the tests fail in a fork without a mutant")
            return
        entry = self.results[function]
        entry["mutants"][mutant] = status
        entry["changes"].pop(mutant, None)
        if status in ("survived", "no tests"):
            entry["changes"][mutant] = self.functions[function][1][mutant]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", help="such as refimpl/locks/select.py; all")
    parser.add_argument("--again", action="store_true", help="run survivors again")
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    copy_tree()
    functions = write_mutants()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results = {name: results[name] for name in functions if name in results}
    modules = [f.removesuffix(".py").replace("/", ".") for f in arguments.files] or ["refimpl"]
    chosen = {n: f for m in modules for n, f in functions.items() if n.startswith(m + ".")}
    for name, (digest, mutants) in functions.items():
        if results.get(name, {}).get("hash") != digest:
            results[name] = {"hash": digest, "mutants": {}, "changes": {}}
        results[name]["total"] = len(mutants)

    os.environ |= {"HYPOTHESIS_PROFILE": "mutation", "OMP_NUM_THREADS": "1", "MUTANT_UNDER_TEST": ""}
    os.chdir(TREE)
    sys.path[:] = [str(TREE), *(p for p in sys.path if Path(p).resolve() not in (ROOT, ROOT / "benchmarks"))]
    forget_mutants_examples()
    sys.exit(pytest.main(PYTEST, plugins=[MutationSession(chosen, results, arguments.jobs, arguments.again)]))


if __name__ == "__main__":
    main()
