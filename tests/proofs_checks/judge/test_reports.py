"""Markdown, JUnit and HTML: the same verdict, safe with whatever a port says, and drawn where something failed."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from proofs_checks.cli import main
from proofs_checks.judge.checks.selection import judge_pages
from proofs_checks.judge.judgement import Judgement, compare
from proofs_checks.judge.pictures import COLUMNS, PAGES, ROWS, PageRow, RatioMap, ratio_map
from proofs_checks.judge.report import Failure, Record, Report, StageReport
from proofs_checks.judge.reports.html import html
from proofs_checks.judge.reports.junit import junit
from proofs_checks.judge.reports.markdown import markdown
from proofs_checks.judge.reports.svg import LEFT, WIDTH, position

PORTS = Path(__file__).parents[3] / "examples" / "ports"
VOID = {"meta", "br"}


class Balanced(HTMLParser):
    """Checks that every element is closed in order; collects names and addresses."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.addresses = [], [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open, tag
        assert self.open.pop() == tag


def parsed(page):
    parser = Balanced()
    parser.feed(page)
    parser.close()
    assert not parser.open
    return parser


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    words = [f"--{form}={folder / form}" for form in ("json", "markdown", "junit", "html")]
    stages = "merge_attention,locks_select_pages,locks_pack_basis"
    code = main(["verify", str(PORTS / "broken_base2_merge.py"), "--stages", stages, "--profile", "quick", *words])
    assert code == 1
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_markdown_has_verdict_stages_failures_and_reproductions(files):
    text, report = files["markdown"], json.loads(files["json"])
    assert text.startswith("## kvproof: FAIL\n")
    assert "| `merge_attention` | **FAIL** |" in text
    assert "| `locks_select_pages` | PASS |" in text
    failure = next(s for s in report["stages"] if s["failures"])["failures"][0]
    assert failure["repro"] in text
    assert failure["case"] in text


def test_junit_counts_every_case_and_carries_the_reproduction(files):
    root, report = ElementTree.fromstring(files["junit"]), json.loads(files["json"])
    suites = {suite.get("name"): suite for suite in root}
    for stage in report["stages"]:
        suite = suites[stage["stage"]]
        assert int(suite.get("tests")) == len(suite)
        assert len(suite) - int(suite.get("skipped")) == stage["cases"]
        failed = [case for case in suite if case.find("failure") is not None]
        assert int(suite.get("failures")) == len(failed) == len(stage["failures"])
        for case, failure in zip(failed, stage["failures"], strict=True):
            assert case.get("name") == failure["case"]
            assert failure["repro"] in case.find("failure").text
    assert int(root.get("failures")) == sum(len(s["failures"]) for s in report["stages"])


def test_html_stands_alone_and_draws_ratios_and_the_failing_tensor(files):
    page = parsed(files["html"])
    assert "script" not in page.seen
    assert "link" not in page.seen
    assert not page.addresses
    assert page.seen.count("svg") >= 2
    assert "error / bound in output" in files["html"]
    assert 'class="bad"' in files["html"]


def test_html_draws_a_failing_selection(tmp_path):
    port = tmp_path / "port.py"
    port.write_text(
        "import numpy as np\n"
        "def locks_select_pages(*, shares, budget_tokens, page_size):\n"
        "    kept = min(-(-budget_tokens // page_size), shares.shape[1])\n"
        "    return np.tile(np.arange(kept), (len(shares), 1))\n"  # the first pages, whatever their shares
    )
    main(["verify", str(port), "--profile", "quick", "--html", str(tmp_path / "r.html")])
    page = (tmp_path / "r.html").read_text()
    parsed(page)
    assert "MUST, MAY and kept" in page
    assert 'class="wrong"' in page


HOSTILE = '<script>alert(1)</script> & "quoted" | `tick` \x00\x1b]]>'


def hostile_report():
    failure = Failure("attention/head-map", "exact", None, HOSTILE, "G", HOSTILE)
    row = StageReport("attention", "FAIL", float("inf"), 1, [failure], [HOSTILE])
    row.records = [Record("attention/head-map", "exact", "FAIL", float("inf"), HOSTILE, 0.1)]
    return Report(HOSTILE, verdict="FAIL", stages=[row], notes=[HOSTILE])


def test_what_a_port_says_is_never_markup():
    page = html(hostile_report())
    assert "script" not in parsed(page).seen
    spans = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")  # inline code shows its content as it is
    text = markdown(hostile_report())
    assert len(spans.findall(text)) >= 4
    assert "<script" not in spans.sub("", text)
    case = ElementTree.fromstring(junit(hostile_report()))[0][0]
    assert case.find("failure").get("message").startswith("<script>alert(1)</script> &")


def test_a_port_that_cannot_be_used_has_every_report(tmp_path):
    words = [f"--{form}={tmp_path / form}" for form in ("json", "markdown", "junit", "html")]
    assert main(["verify", "no_such_port_at_all", *words]) == 3
    assert (tmp_path / "markdown").read_text().startswith("## kvproof: ERROR")
    root = ElementTree.fromstring((tmp_path / "junit").read_text())
    assert root.get("errors") == "1"
    assert "no_such_port_at_all" in root[0][0].find("error").get("message")
    parsed((tmp_path / "html").read_text())


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--html", "no/folder/r.html"], "--html: no folder no/folder"),
        (["--junit", "."], "--junit: . is a folder"),
        (["--markdown", "same", "--html", "same"], "name a file for each"),
        (["--json", "-", "--markdown", "-"], "name a file for each"),
        (["--memory-limit", "0"], "--memory-limit: expected MiB above 0"),
    ],
)
def test_a_report_with_nowhere_to_go_is_wrong_usage(words, line, capsys):
    assert main(["verify", str(PORTS / "numpy_port.py"), *words]) == 2
    assert line in capsys.readouterr().err


def test_markdown_to_standard_output_is_markdown_alone(capsys):
    main(["verify", str(PORTS / "numpy_port.py"), "--stages", "locks_pack_basis", "--markdown", "-"])
    assert capsys.readouterr().out.startswith("## kvproof: PASS\n")


def test_a_fault_remembers_where_in_the_tensor_it_is():
    judgement = Judgement()
    answer = np.zeros((2, 3, 4))
    answer[1, 2, 3] = 5.0
    compare(judgement, "output", answer, np.zeros((2, 3, 4)), 2.0)
    picture = judgement.faults[0].picture
    assert isinstance(picture, RatioMap)
    assert picture.shape == (2, 3, 4)
    assert [[j for j, v in enumerate(row) if v] for row in picture.cells] == [[]] * 5 + [[3]]
    assert picture.cells[5][3] == 2.5


def test_a_picture_stays_small_and_keeps_the_worst():
    rng = np.random.default_rng(1)
    ratio = rng.random((50, 7, 1000))
    ratio[31, 3, 777] = 9.0
    cells = ratio_map("output", ratio).cells
    assert (len(cells), len(cells[0])) == (ROWS, COLUMNS)
    assert max(map(max, cells)) == 9.0
    assert ratio_map("scalar", np.array(3.0)).cells == ((3.0,),)
    assert ratio_map("empty", np.zeros((0, 4))).cells == ()


def test_a_wrong_selection_remembers_must_may_and_kept():
    judgement = Judgement()
    shares = np.array([0.1, 0.4, 0.2, 0.2, 0.1])
    judge_pages(judgement, [0, 2, 3, 4], shares, shares, 4, (1,))
    picture = judgement.faults[0].picture
    assert isinstance(picture, PageRow)
    assert (picture.must, picture.may, picture.kept) == ({0, 1, 4}, {0, 1, 2, 3, 4}, {0, 2, 3, 4})


def test_a_selection_of_many_pages_is_drawn_in_part_with_every_wrong_one():
    judgement = Judgement()
    shares = np.linspace(1, 2, 20_000)
    judge_pages(judgement, [*range(9), 19_999], shares, shares, 10, (0,))
    picture = judgement.faults[0].picture
    assert picture.total == 20_000
    assert len(picture.pages) == PAGES
    assert picture.must - picture.kept == set(range(19_991, 19_999))
    assert picture.kept - picture.may == set(range(1, 9))
    assert len(judgement.faults[0].message) < 300


def test_the_axis_puts_one_in_the_middle_and_never_leaves_the_plot():
    assert position(1.0) == LEFT + WIDTH / 2
    places = [position(r) for r in (0.0, 1e-300, 1e-3, 1.0, 1e3, 1e300, float("inf"))]
    assert places == sorted(places)
    assert (places[0], places[-1]) == (LEFT, LEFT + WIDTH)
