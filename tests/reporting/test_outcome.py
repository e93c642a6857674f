"""Sentences tell what claims, checks and tables came to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fedrepro.errors import ArgumentError
from fedrepro.reporting import answer, checks, outcome, readings, rule, session


def test_claims_are_counted_and_told_one_by_one() -> None:
    """The verdict stands first, and a single claim needs no count."""
    rows = [("A-C1", "Ours is best.", "fails"), ("A-C2", "It is fast", "holds"), ("A-C3", "It is small.", "holds")]
    frame = pd.DataFrame(rows, columns=["id", "claim", "verdict"])
    assert outcome.sentences(frame) == [
        "Among 3 claims, 1 fails and 2 hold.",
        "**fails** (A-C1): Ours is best.",
        "**holds** (A-C2): It is fast.",
        "**holds** (A-C3): It is small.",
    ]
    assert outcome.sentences(frame[:1]) == ["**fails** (A-C1): Ours is best."]


def test_a_check_that_fails_and_a_control_that_passes_are_named() -> None:
    """Checks and controls are counted apart; one that came out otherwise than it should is told."""
    rows = [
        checks.row("A-1", "small", 0, 1),
        checks.row("A-2", "smaller", 2, 1),
        checks.control("A-1", "broken", 2, 1),
        checks.control("A-2", "hardly broken", 0, 1),
    ]
    assert outcome.sentences(pd.DataFrame(rows)) == [
        "1 of 2 checks hold.",
        "**fails** (A-2): smaller.",
        "1 of 2 negative controls fail, as they must.",
        "**passes, as it must not** (A-2-control): hardly broken.",
    ]
    assert outcome.sentences(pd.DataFrame(rows[:1] + rows[2:3])) == [
        "1 of 1 checks hold.",
        "1 of 1 negative controls fail, as they must.",
    ]


def test_of_many_that_fail_the_rest_is_counted() -> None:
    """Six are named and the others are counted by their verdict."""
    rows = [checks.row(f"A-{n}", "small", 2, 1) for n in range(9)]
    said = outcome.sentences(pd.DataFrame(rows))
    assert len(said) == 8 and said[-1] == "The tables name the others that do not hold: 3 with the verdict fails."


KNOWN: dict[str, Any] = {
    "printed": 10,
    "tested": 8,
    "untested": Counter({"not measured": 1, "the printed number is of another protocol or row": 1}),
    "words": {rule.AGREES: 1, rule.COMPATIBLE: 4, rule.WIDE: 0, rule.LITTLE: 1, rule.DIFFERS: 2},
    "expected": {rule.AGREES: 1.4, rule.COMPATIBLE: 5.6, rule.WIDE: 0.0, rule.LITTLE: 0.6, rule.DIFFERS: 0.4},
    "absent": [],
    "median": -0.04,
    "within": 0.75,
    "narrow": 1.0,
    "partly": {},
    "single": 3,
    "prior_sds": [1.916],
    "causes": {("the code", "before", rule.DIFFERS): 1, (readings.NO_CAUSE, "", rule.DIFFERS): 1},
    "unread": 1,
    "readings": 4.0,
    "placebo": {rule.DIFFERS: (0, 3), rule.WIDE: (0, 1)},
    "beside": {"Sub-graph by sub-graph": Counter({rule.AGREES: 2, rule.NOT_TESTED: 1}), "Not drawn": Counter()},
    "leads": {"leads": 5, "signed": 5, "same_sign": 4, "printed_lead": 1.26, "our_lead": -0.04, "ratio": 1.0},
    "claims": {"holds": 1, "fails": 0, "undecided": 2},
    "main": ("It is fast.", "undecided", "1 shown, 2 contradicted, 3 undecided: Cora +1.0 [+0.0, +2.0] shown"),
    "rows": [(2, 2, 0.3), (3, 6, -1.2)],
}


def test_tables_are_told_in_sentences() -> None:
    """Counts stand in sentences with the number of their verb, and what does not occur is not told."""
    assert outcome.of_tables(KNOWN, "Table 1") == [
        "The paper prints 10 distinct numbers in Table 1; 8 could be tested.",
        "Among the others, 1 was not measured here and 1 is of another protocol or row.",
        "Among the tested numbers, 1 agrees, 4 are compatible, 1 differs a little and 2 differ.",
        "For a perfect copy, with the same runs and spreads, one would expect that 1 agrees, 6 are"
        " compatible and 1 differs a little.",
        "Our number is equal to the printed one in the median, and 75% of the tested numbers lie within two points of"
        " the printed ones.",
        "The 95% interval reaches at most five points either way for 100% of them.",
        "3 of the tested numbers rest on one run, whose spread is the prior's (1.9 points, by graph).",
        "Among the 3 that differ or differ a little, other readings were run on 2; they explain 1 (1 by “the code”,"
        " chosen before our numbers were seen) and not the other 1.",
        "On 1 no other reading was run.",
        "A reading may fit by chance. To see how often, one half of our seeds was taken for another reading: of the 4"
        " numbers that the other half leaves open (they differ, or the interval is wide), it fits none.",
        "In the median 4 other readings were run on a number; the more there are, the more often one fits by chance.",
        "Sub-graph by sub-graph: 2 agree and 1 is not tested.",
        "The paper's method leads a row that is no variant of it by 1.3 points in print"
        " and by 0.0 here, in the median of 5 tested leads;"
        " 4 of 5 have the printed sign.",
        "Among 3 claims that were judged, 1 holds and 2 are undecided.",
        "The paper's main claim is undecided (1 shown, 2 contradicted, 3 undecided parts): It is fast.",
    ]


def test_the_verdict_has_four_items() -> None:
    """How much replicates, of which rows, what becomes of claim and lead, and what explains the rest."""
    assert outcome.main_findings(KNOWN) == [
        "**Most numbers replicate.** 5 of 8 tested numbers agree or are compatible."
        " Of a perfect copy's numbers, 7 would.",
        "Among the numbers of the paper's method and its variants, 2 of 2 agree or are compatible, and ours is 0.3"
        " points above the printed one in the median; among those of other rows, 3 of 6 agree or are compatible, and"
        " ours is 1.2 points below the printed one in the median.",
        "The paper's main claim is undecided (1 shown, 2 contradicted, 3 undecided parts): It is fast."
        " The paper's method leads other methods by 1.3 points in print"
        " and by 0.0 here, in the median.",
        "Among the 3 numbers that differ, if only a little, another reading of the paper fits 1, none that was run fits"
        " 1 and no other reading was run on 1.",
    ]
    words = {**KNOWN["words"], rule.COMPATIBLE: 2, rule.DIFFERS: 4}
    first, *_, last = outcome.main_findings(KNOWN | {"words": words, "placebo": {rule.DIFFERS: (1, 3)}})
    assert first.startswith("**Most numbers do not replicate.** 3 of 8") and last.endswith(
        "fits 1 of 3, as told below."
    )
    like = KNOWN | {"words": {**KNOWN["words"], rule.COMPATIBLE: 5, rule.WIDE: 1, rule.DIFFERS: 0}, "causes": {}}
    first, *_ = outcome.main_findings(like | {"unread": 0})
    assert first.startswith(
        "**The numbers replicate as those of a perfect copy would.** 7 of 8 tested numbers agree or"
    )
    assert "(1 of them within an interval too wide" in first
    assert outcome.main_findings({"printed": 0}) == []
    half, *_, last = outcome.main_findings(
        KNOWN
        | {"words": {**KNOWN["words"], rule.COMPATIBLE: 3, rule.DIFFERS: 3}, "placebo": {rule.DIFFERS: (1, 3)}}
        | {"causes": {(readings.NO_CAUSE, "", rule.DIFFERS): 2}}
    )
    assert half.startswith("**Most numbers do not replicate.** 4 of 8")  # a half is not most
    assert "Chance" not in last  # which explains none, where no reading does


def test_a_number_on_which_no_other_reading_was_run_has_not_been_looked_into() -> None:
    """It is counted apart from those that no reading explains, and readings chosen afterwards are said to be."""
    none = outcome.of_tables(KNOWN | {"causes": {}, "unread": 3, "placebo": {}}, "Table 1")
    assert "Among the 3 that differ or differ a little, other readings were run on none." in none
    causes = {
        ("the code", "after", rule.DIFFERS): 1,
        ("the code", "after", rule.LITTLE): 2,
        ("the text", "before", rule.LITTLE): 1,
    }
    placebo = {rule.LITTLE: (2, 4), rule.DIFFERS: (0, 3)}
    all_ = outcome.of_tables(KNOWN | {"causes": causes, "unread": 0, "placebo": placebo}, "Table 1")
    assert (
        "Among the 4 that differ or differ a little, other readings were run on 4; they explain 4 (3 by “the code”,"
        " chosen after our numbers were seen; 1 by “the text”, chosen before our numbers were seen)."
    ) in all_
    assert "Among the explained numbers, 1 differs and 3 differ a little in the main reading." in all_
    assert any(one.endswith("(2 of 4 that differ a little and none of 3 that differ).") for one in all_)
    assert not any("no other reading" in one for one in all_)


def test_single_runs_are_told_where_there_are_any() -> None:
    """One has its own verb, and none is not told."""
    one, none = (outcome.of_tables(KNOWN | {"single": count, "readings": 1.0}, "Table 1") for count in (1, 0))
    assert not any(text.startswith("In the median 1") for text in one)
    assert any(text.startswith("1 of the tested numbers rests on one run") for text in one)
    assert not any("on one run" in text for text in none)


def test_incomplete_graphs_are_told_where_there_are_any() -> None:
    """Their names and the count of their numbers are told."""
    told = outcome.of_tables(KNOWN | {"partly": {"A~incomplete": 2, "B~incomplete": 1}}, "Table 1")
    wanted = "3 of the tested numbers were measured on A~incomplete and B~incomplete, of which a part is missing."
    assert wanted in told and not any("missing" in one for one in outcome.of_tables(KNOWN, "Table 1"))


def test_a_share_is_all_only_if_it_is() -> None:
    """A share of 483 of 485 is not told as 100%, nor one of 2 as 0%."""
    assert [outcome.share(n / 485) for n in (0, 2, 240, 483, 485)] == ["0%", "0.4%", "49%", "99.6%", "100%"]
    assert [outcome.share(n / 200) for n in (1, 199)] == ["0.5%", "99.5%"]  # which round to even


def test_a_printed_lead_of_zero_has_no_sign() -> None:
    """Signs are counted among the leads that are not zero in print, and the sentence says so."""
    told = outcome.of_tables(KNOWN | {"leads": KNOWN["leads"] | {"signed": 4}}, "Table 1")
    assert any(one.endswith("5 tested leads; 4 of 4 that are not zero in print have the printed sign.") for one in told)


def test_a_table_without_tests_or_files_is_told() -> None:
    """A table of which nothing could be tested tells the reasons, and one of which nothing was drawn says only so."""
    none = {
        "tested": 0,
        "single": 0,
        "untested": Counter({"not measured": 10}),
        "causes": {},
        "unread": 0,
        "placebo": {},
        "leads": {},
        "claims": {},
        "beside": {},
    }
    said = outcome.of_tables(KNOWN | none, "Table 1")
    assert said == [
        "The paper prints 10 distinct numbers in Table 1; none could be tested.",
        "Among the printed ones, 10 were not measured here.",
    ]
    assert outcome.of_tables({"printed": 0}, "Table 1") == ["Nothing of Table 1 was drawn."]
    assert [outcome._off(points) for points in (1.26, -1.24)] == [
        "1.3 points above the printed one",
        "1.2 points below the printed one",
    ]


def test_what_is_neither_held_nor_failed_is_not_counted() -> None:
    """The verdict of an attack, or of what was not tested, is told and is no check that fails to hold."""
    attack = checks.row("A-1", "a cosine", 1, 1) | {"verdict": "rebuilt"}
    assert outcome.sentences(pd.DataFrame([attack])) == ["**rebuilt** (A-1): a cosine."]
    both = pd.DataFrame([attack, checks.row("A-2", "small", 0, 1)])
    assert outcome.sentences(both) == ["1 of 1 checks hold.", "**rebuilt** (A-1): a cosine."]


def test_no_check_and_another_frame() -> None:
    """No check is said to be none, and a frame of something else is an error."""
    assert outcome.sentences(pd.DataFrame(columns=list(checks.COLUMNS))) == ["No check was run."]
    with pytest.raises(ArgumentError, match="one of claims or of checks"):
        outcome.sentences(pd.DataFrame({"verdict": ["holds"]}))


def test_a_notebook_tells_claims_and_checks() -> None:
    """`came_out` takes frames as well as IDs, and returns a list in Markdown."""
    nb = session.begin("fedgat/5-x", profile="quick", device="cpu", seeds=0, engine="local")
    told = nb.came_out(pd.DataFrame([checks.row("A-1", "small", 0, 1)])).data
    assert told == "- 1 of 1 checks hold."


def test_a_notebook_tells_of_tables_without_claims_on_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims that another notebook judged, or an earlier run of this one, are not told with a table."""
    monkeypatch.setenv("FEDREPRO_FIGURES", str(Path(__file__).parents[2] / "figures"))
    nb = session.begin("fedstruct/6-evaluation", profile="quick", device="cpu", seeds=0, engine="local")
    on_file = answer.numbers(nb.figures, "fedstruct", ["FS-T2"])
    told = nb.came_out("FS-T2").data
    assert sum(on_file["claims"].values()) and "tested numbers" in told
    assert "claims that were judged" not in told and "main claim" not in told


def test_a_folded_table_says_its_rows_and_escapes_them() -> None:
    """The count stands outside the fold, long cells are whole, and a cell is text and no markup."""
    long = "<b>" + "word " * 40
    html = outcome.folded(pd.DataFrame({"id": ["A-Q1"], "why": [long]}), "deviations").data
    assert html.startswith("<details><summary>1 deviations</summary>") and html.endswith("</details>")
    assert "&lt;b&gt;" in html and html.count("word") == 40
