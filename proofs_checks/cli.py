"""The command `kvproof`.

What a verb needs is imported when it is asked for, so that judging a port loads neither plots nor ball arithmetic.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module

from proofs_checks.capture import CaptureError
from proofs_checks.fixtures import FixtureError
from proofs_checks.judge import commands
from proofs_checks.judge.declared import PortError
from proofs_checks.judge.reports.targets import TargetError
from proofs_checks.judge.waivers import WaiverError
from proofs_checks.version import version

DESCRIPTION = """Judge a port of a KV-cache-reading kernel: which stage is wrong, by how many times its error bound, on
which small input. Start with: kvproof list, then kvproof verify PORT. A verb's options: kvproof VERB --help"""
EXIT_CODES = "exit codes: 0 pass, 1 fail, 2 wrong usage, 3 the port, a file or an extra could not be used"


@dataclass(frozen=True)
class Verb:
    """One verb: what it does, and the module whose functions ``add`` and ``run`` hold its options and its work."""

    summary: str
    module: str
    add: str = "add_arguments"
    run: str = "run"

    def function(self, name: str) -> Callable[..., int]:
        """One of the verb's functions."""
        found: Callable[..., int] = getattr(import_module(self.module), name)
        return found


JUDGE = "proofs_checks.judge.commands"
FILES = "proofs_checks.judge.files.commands"
VERBS = {
    "verify": Verb("judge a port", JUDGE, "add_verify", "run_verify"),
    "cases": Verb("write the calls of all cases as files, for a port in any language", FILES, "add_cases", "run_cases"),
    "judge": Verb("judge the answers that a program wrote beside those calls", FILES, "add_judge", "run_judge"),
    "list": Verb(
        "list the stages, and the cases or what is built on request",
        "proofs_checks.judge.listing",
        "add_list",
        "run_list",
    ),
    "explain": Verb("say what a case looks for and show its inputs", JUDGE, "add_explain", "run_explain"),
    "repro": Verb("make the one call of one case again and judge it", JUDGE, "add_repro", "run_repro"),
    "mutants": Verb("judge ports that are wrong on purpose: the kill matrix", "proofs_checks.mutants.command"),
    "prove": Verb("check every numbered statement of the papers", "proofs_checks.statements.command"),
    "golden": Verb("write, check, list or explain the golden files", "proofs_checks.golden.command"),
    "microscope": Verb("repeat the papers' measurements on a capture", "proofs_checks.microscope.command"),
    "bench": Verb("time the Triton kernels, or compile them for absent devices", "proofs_checks.bench.command"),
    "public": Verb("judge public packages, each in an environment of its own", "proofs_checks.public.command"),
    "capture": Verb(
        "make a capture from a GGUF Llama-family model, on the CPU", "proofs_checks.microscope.gguf_capture"
    ),
}


def build_parser(verb: str | None) -> argparse.ArgumentParser:
    """The parser of all verbs; the options of ``verb`` alone are filled in."""
    parser = argparse.ArgumentParser(prog="kvproof", description=DESCRIPTION, epilog=EXIT_CODES)
    parser.add_argument("--version", action="version", version=f"kvproof {version()}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, about in VERBS.items():
        one = verbs.add_parser(
            name, help=about.summary, description=f"{about.summary[0].upper()}{about.summary[1:]}.", epilog=EXIT_CODES
        )
        if name == verb:
            about.function(about.add)(one)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    verb = next((word for word in words if word in VERBS), None)
    args = build_parser(verb).parse_args(words)
    try:
        return VERBS[args.verb].function(VERBS[args.verb].run)(args)
    except (commands.UsageError, TargetError, WaiverError) as error:
        print(f"kvproof {args.verb}: {error}", file=sys.stderr)
        return 2
    except (PortError, FixtureError, CaptureError) as error:
        print(f"kvproof {args.verb}: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
