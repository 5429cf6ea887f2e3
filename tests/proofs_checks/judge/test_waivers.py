"""Known failures: they hide nothing for good."""

from datetime import date
from pathlib import Path

import pytest

from proofs_checks.cli import main
from proofs_checks.judge.verify import verify
from proofs_checks.judge.waivers import FILE, Waiver, WaiverError, beside, read_waivers

BROKEN = str(Path(__file__).parents[3] / "examples" / "ports" / "broken_base2_merge.py")
FAILING = verify(BROKEN, ["merge_attention"], "quick").stages[0].failures
LATER, PAST = date(2999, 1, 1), date(2020, 1, 31)


def waiver(name, expires=LATER):
    return Waiver(name, "merges in base 2", "https://example.org/issues/7", expires)


def judged(*waivers):
    return verify(BROKEN, ["merge_attention"], "quick", waivers={w.id: w for w in waivers})


def test_a_port_whose_every_failure_is_waived_passes_and_says_so():
    report = judged(*(waiver(f.case) for f in FAILING))
    row = report.stages[0]
    assert (report.verdict, row.verdict, row.failures) == ("PASS", "PASS", [])
    assert row.worst_ratio is not None
    assert row.worst_ratio <= 1
    waived = [note for note in row.notes if ": WAIVED: " in note]
    assert len(waived) == len(FAILING)
    assert all("merges in base 2, https://example.org/issues/7" in note for note in waived)


def test_one_failure_without_a_waiver_still_fails():
    report = judged(*(waiver(f.case) for f in FAILING[1:]))
    assert report.verdict == "FAIL"
    assert [f.case for f in report.stages[0].failures] == [FAILING[0].case]


def test_an_unexpected_pass_is_a_failure():
    report = judged(*(waiver(f.case) for f in FAILING), waiver("merge_attention/single-split"))
    assert [f.case for f in report.stages[0].failures] == ["merge_attention/single-split"]
    assert "passes, but is expected to fail" in report.stages[0].failures[0].message


def test_an_expired_waiver_is_a_failure_that_still_says_what_is_wrong():
    report = judged(*(waiver(f.case) for f in FAILING[1:]), waiver(FAILING[0].case, PAST))
    failure = report.stages[0].failures[0]
    assert failure.case == FAILING[0].case
    assert "its waiver expired on 2020-01-31" in failure.message
    assert FAILING[0].message in failure.message


def test_an_expired_waiver_of_a_passing_case_is_a_failure_too():
    report = judged(*(waiver(f.case) for f in FAILING), waiver("merge_attention/single-split", PAST))
    assert [f.case for f in report.stages[0].failures] == ["merge_attention/single-split"]


def test_a_waiver_counts_on_its_last_day():
    report = judged(*(waiver(f.case, date.today()) for f in FAILING))
    assert report.verdict == "PASS"


def test_a_waived_crash_does_not_hide_the_cases_after_it(tmp_path):
    port = tmp_path / "dying.py"
    port.write_text("import os\ndef merge_attention(*, outputs, lses):\n    os._exit(1)\n")
    names = [r.case for r in verify(BROKEN, ["merge_attention"], "quick").stages[0].records]
    row = verify(str(port), ["merge_attention"], "quick", waivers={names[0]: waiver(names[0])}).stages[0]
    assert row.verdict == "ERROR"
    assert [f.case for f in row.failures] == [names[1]]


ENTRY = {
    "id": '"merge_attention/masses-8-and-2"',
    "reason": '"base 2"',
    "link": '"https://example.org/1"',
    "expires": "2999-01-01",
}


def written(tmp_path, *entries):
    path = tmp_path / FILE
    path.write_text("".join("[[expected]]\n" + "".join(f"{k} = {v}\n" for k, v in e.items()) for e in entries))
    return path


def test_a_file_is_read_and_found_beside_the_port(tmp_path):
    path = written(tmp_path, ENTRY, {**ENTRY, "id": '"attention/head-map@bfloat16"'})
    assert set(read_waivers(path)) == {"merge_attention/masses-8-and-2", "attention/head-map@bfloat16"}
    (tmp_path / "port.py").touch()
    assert beside(str(tmp_path / "port.py")) == path
    assert beside(str(tmp_path)) is None, "a folder's waivers lie beside it, not in it"


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"id": '"attention/nothing"'}, "no case 'attention/nothing'"),
        ({"id": '"attention/tf32-product@bfloat16"'}, "not bfloat16"),
        ({"reason": '" "'}, "reason: expected a text"),
        ({"reason": None}, "reason: expected a text, got None"),
        ({"link": None}, "link: expected a text, got None"),
        ({"expires": None}, "expires: expected a date"),
        ({"expires": '"2999-01-01"'}, "expires: expected a date"),
        ({"until": "2999-01-01"}, "got 'until'"),
    ],
)
def test_an_entry_that_is_not_whole_is_wrong_usage(change, line, tmp_path, capsys):
    entry = {k: v for k, v in {**ENTRY, **change}.items() if v is not None}
    path = written(tmp_path, entry)
    assert main(["verify", BROKEN, "--expected", str(path)]) == 2
    error = capsys.readouterr().err
    assert line in error
    assert "entry 1" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[[expected]\n", "not TOML"),
        ("[waivers]\n", r"expected only tables \[\[expected\]\]"),
        ("expected = 3\n", "expected only tables"),
        ("expected = [3]\n", "entry 1: expected a table"),
    ],
)
def test_a_file_of_another_form_is_refused(text, line, tmp_path):
    path = tmp_path / FILE
    path.write_text(text)
    with pytest.raises(WaiverError, match=line):
        read_waivers(path)


def test_an_id_listed_twice_is_refused(tmp_path):
    with pytest.raises(WaiverError, match="listed twice"):
        read_waivers(written(tmp_path, ENTRY, ENTRY))
