"""One folder for each paper, with the same names in the same order; no paper imports another one.

    method.py      what trains, read next to the paper's algorithm box
    protocol.py    the algorithm line by line, message by message, where it differs from what trains
    theory.py      bounds and identities as plain functions (a folder where one file would be too long)
    attack.py      what a curious or malicious party can do
    exhibits/      the runs behind every exhibit, and what is measured for each claim
    exhibits.csv   the list of exhibits;  published.csv  the printed numbers;  claims.csv  the claims in words
    deviations.csv where the suite parts from the text;  chosen.csv  what validation chose;  settings.toml  its tables
    checks.csv     the checks of theorems and algorithms in words, where the records keep only their numbers

A paper's package says its printed name in `NAME`. A new paper is a new folder; `ORDER` only puts it in its place.
"""

ORDER = ("fedgat", "fedstruct", "gfl", "feras", "fedsheafhn", "engine")
