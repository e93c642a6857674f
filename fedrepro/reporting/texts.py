"""Hold the paragraphs of the generated pages that no number enters."""

from __future__ import annotations

from fedrepro.reporting.readings import NO_CAUSE

RULE = (
    "A printed number and our runs get one word. Let d be our mean less the printed one, in accuracy points. The number"
    " *agrees* if the 90% interval of d lies within two points. It is *compatible* if it lies in the 95% prediction"
    " interval, so that a rerun of the paper could print it; where this interval is wider than five points either way,"
    " it is *compatible, but wide*. It *differs* if it lies outside and the 90% interval of d lies outside two points."
    " It *differs a little* otherwise.",
    "The margin replaces one of a point, or of the paper's own spread, which was in force until release 0.2.0. It was"
    " changed after the numbers had been seen, and the reason is power: under the former rule most cells stayed"
    " undecided, many of them for any number of runs, so that even a perfect copy would seldom have been recognized."
    " The rule was chosen by simulation alone: at a true difference of two points *agrees* is wrong in at most 6% of"
    " cases, and up to two points *differs* is. `tests/reporting/test_rule.py` repeats the simulation.",
    "The variance of our runs is moderated by a prior for each paper (Smyth 2004), estimated once from the spreads in"
    " its main tables and kept in a file. But for the graphs drawn anew, below, no other cell changes the word of a"
    " cell.",
)

ONE_GRAPH = (
    "GFL-APPNP trains on one graph of each block model, and so does our main reading, on another one. The runs of"
    " either side show how scores vary with the noise on the features, and not with the graph. Our runs on graphs drawn"
    " anew (GFL-T2-redrawn) show both. Their variance stands for the error of the printed mean. The error of our mean"
    " has besides its own part the excess of their variance over that on our graph. SNC has such runs for one row only,"
    " whose variance stands for that of its other rows.",
    "This was changed after the numbers had been seen. Before, the spread of our runs on one graph stood for the error"
    " of the printed mean, and ours had no part for its graph. The reason is the rate of wrong words: where graphs"
    " differ far more than runs on one of them, as on SNC, both *agrees* and *differs* were wrong in more than a fifth"
    " of cases at a true difference of two points. `tests/reporting/test_rule.py` has this simulation too. The words of"
    " the two main tables were and are:",
)

CAUSES = (
    "Each row is a printed number that our main reading misses. The difference, ours minus printed, is in points."
    " Beside it stand the other readings that were run on this number, each with its word and its difference. The cause"
    f" is the first of them under which the number agrees or is compatible; where there is none, {NO_CAUSE}."
    " Before it a table says of each reading on how many numbers it was run, how many fit there (agree or are"
    " compatible), and how many of those that differ it explains. Among those run on all, the one"
    " that fits most often is marked.\n"
)
