"""Return the runs of the other readings of FedStruct's main tables under the tables' row names.

`readings.csv` lists the readings, and `readings` trains them. A reading has only the rows that it changes. Four
readings are the tables' own runs, or those of another reading, scored at another point of the round or of the training.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from fedrepro.papers.fedstruct.exhibits import readings
from fedrepro.papers.fedstruct.exhibits.cells import CLIENTS, HOP2VEC
from fedrepro.papers.fedstruct.exhibits.tables import PERSONAL
from fedrepro.reporting.readings import listed

if TYPE_CHECKING:
    from fedrepro.reporting.session import Notebook

# The exhibits whose runs are readings of each main table.
SOURCES = {
    "FS-T2": ("FS-T2-readings", "FS-T6-readings", "FS-T2"),
    "FS-T6": ("FS-T2-readings", "FS-T6-readings", "FS-T6"),
    "FS-T7": ("FS-T2-readings", "FS-T6-readings", "FS-T7"),
    "FS-T8": ("FS-T2-readings", "FS-T8-readings", "FS-T8"),
}
# The names of FedStruct (H2V)'s readings (FS-T2-readings) in `readings.csv`; one run without structure is no reading.
OF_HOP2VEC = {
    readings.CODE_NAME: "the code's epochs, rate and depth",
    "softmax twice, as in the public code": "softmax twice",
    "gradients weighted by all nodes, as in the public code": "gradients weighted by nodes",
    "Eq. 15: S has the classes as columns (FS-Q6)": "Eq. 15",
    "Appendix D's block budgets (FS-Q9)": "Appendix D's budgets",
    "plain gradient descent (FS-Q10)": "plain gradient descent",
}
OTHERS = {"joined by a layer": "joined by a layer", "73 orbits": "73 orbits, logarithms"}
_SHOWN = {spec: name for name, spec in readings.PARTS.items()}


def others(nb: Notebook, exhibit_id: str) -> dict[str, pd.DataFrame]:
    """Return the stored runs of each reading of a main table under the table's names, by the reading's name."""
    return runs_by_reading({source: nb.stored(source) for source in SOURCES[exhibit_id]}, exhibit_id)


def runs_by_reading(frames: dict[str, pd.DataFrame], exhibit_id: str) -> dict[str, pd.DataFrame]:
    """Return the runs of each reading of a main table under the table's names, by the reading's name.

    Args:
        frames: an exhibit of `SOURCES` to its frame, as `tables.prepare` returns it.
        exhibit_id: the main table.
    """
    parts = [_split(frame, source) for source, frame in frames.items() if len(frame)]
    if not parts:
        return {}
    frame = pd.concat(parts, ignore_index=True)
    frame["partition"] = frame["partition"].replace(_SHOWN)
    fedgcn = frame["reading"].isin([readings.CODE_FEDGCN, readings.FEDGCN_AFTER])
    coded = fedgcn & frame["partition"].eq("random")
    if exhibit_id == "FS-T2":  # the public code trains FedGCN with 10 clients, whatever the column
        elsewhere = [frame[coded].assign(clients=count) for count in CLIENTS if count != 10]
        frame = pd.concat([frame, *elsewhere], ignore_index=True)
    if exhibit_id == "FS-T8":
        frame["method"] = frame["method"].replace({HOP2VEC: "FedStruct (DGCN+H2V)"})  # one row (FS-Q2)
    known = set(listed("fedstruct", exhibit_id)["reading"])  # a reading of another table's rows is none of this one
    return {str(name): runs for name, runs in frame.groupby("reading", sort=False) if name in known}


def _split(frame: pd.DataFrame, source: str) -> pd.DataFrame:
    """Return the frame with the row as `method`, and the reading's name in `readings.csv` as `reading`."""
    if source == "FS-T2-readings":
        return frame.assign(method=HOP2VEC, reading=frame["method"].map(OF_HOP2VEC)).dropna(subset="reading")
    if source in SOURCES:
        averaged, personal = frame["method"].str.startswith("FedAvg "), frame["method"].eq(PERSONAL)
        found = {
            readings.AFTER: _scored(frame[averaged], "after.last"),
            readings.BEFORE: _scored(frame[personal], "before.last"),
            readings.BEST: pd.concat(
                [_scored(frame[~personal], "before.best"), _scored(frame[personal], "after.best")]
            ),
        }
        return pd.concat([runs.assign(reading=reading) for reading, runs in found.items()])
    parts = frame["method"].astype(str).str.partition(", ")
    same = (readings.CODE_FEDGCN, readings.WHOLE_INPUT, readings.LOCAL_DEGREES, readings.SLACK, readings.FEW_POWERS)
    known = {name: name for name in (*readings.CODED, *readings.PUB, *same)}
    found = frame.assign(method=parts[0], reading=parts[2].map(known | OTHERS)).dropna(subset="reading")
    coded = found[found["reading"].eq(readings.CODE_FEDGCN)]
    return pd.concat([found, _scored(coded, "after.last").assign(reading=readings.FEDGCN_AFTER)])


def _scored(frame: pd.DataFrame, when: str) -> pd.DataFrame:
    """Return runs with their test accuracy in percent at a point such as `before.last`."""
    column = f"{when}.test"
    return frame.assign(percent=100 * frame[column].astype(float)) if len(frame) else frame
