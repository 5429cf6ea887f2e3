"""The command `kvproof`. Exit codes: 0 pass, 1 fail, 2 wrong usage, 3 the port or the environment could not be used."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from proofs_checks.bench import command as bench
from proofs_checks.capture import CaptureError
from proofs_checks.fixtures import FixtureError
from proofs_checks.judge import commands
from proofs_checks.judge.verify import PortError
from proofs_checks.mutants import command as mutants
from proofs_checks.version import version

Verb = tuple[str, Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], int]]

VERBS: dict[str, Verb] = {
    "verify": ("judge a port", commands.add_verify, commands.run_verify),
    "list": ("list the stages and the cases", commands.add_list, commands.run_list),
    "explain": ("say what a case looks for", commands.add_explain, commands.run_explain),
    "repro": ("make the one call of one case", commands.add_repro, commands.run_repro),
    "bench": ("time kernels, or compile them for absent devices", bench.add_arguments, bench.run),
    "mutants": ("judge the deliberately wrong ports: the kill matrix", mutants.add_arguments, mutants.run),
}


def build_parser() -> argparse.ArgumentParser:
    """The parser of all verbs."""
    parser = argparse.ArgumentParser(prog="kvproof", description=__doc__)
    parser.add_argument("--version", action="version", version=f"kvproof {version()}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, (summary, add, run) in VERBS.items():
        verb = verbs.add_parser(name, help=summary, description=run.__doc__)
        add(verb)
        verb.set_defaults(run=run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    args = build_parser().parse_args(argv)
    run: Callable[[argparse.Namespace], int] = args.run
    try:
        return run(args)
    except commands.UsageError as error:
        print(f"kvproof {args.verb}: {error}", file=sys.stderr)
        return 2
    except (PortError, FixtureError, CaptureError) as error:
        print(f"kvproof {args.verb}: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
