"""The evidence of FR-H4 counts the cells below, above and surely above zero."""

from __future__ import annotations

from feras_tables import GAINS, get_from, table2

from fedrepro.papers.feras.exhibits import claims
from fedrepro.papers.feras.exhibits.tables import CELL, SCORE


def test_the_evidence_counts_cells_by_their_sign() -> None:
    """Shared weights lose on Photo and gain on PubMed, by the same in all seeds but on PubMed at 40%."""
    frame = table2(GAINS)
    shared, pubmed = frame["method"].eq("GraphSAINT-SW"), frame["dataset"].eq("PubMed")
    frame[SCORE] += 0.009 * (shared & pubmed)
    unsure = shared & pubmed & frame["partition"].str.contains("kappa=0.4")
    frame[SCORE] += 0.05 * unsure * (frame["seed"] - frame["seed"].mean())
    frame = claims.table2(get_from(frame))
    cells = list(claims.ahead(frame).groupby(CELL).groups)
    on_photo = sum(dataset == "Photo" for dataset, _, _ in cells)
    open_ = sum(dataset == "PubMed" and kappa == 40 for dataset, kappa, _ in cells)
    assert 0 < open_ < len(cells) - on_photo
    above = len(cells) - on_photo
    told = f"on average {on_photo} of {len(cells)} cells are below 0, {above} above and {above - open_} surely above"
    assert told in claims.limited(frame)[0]
