"""Compare what deviations.csv tells of outcomes and of trials with the committed exhibits."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from fedrepro import paths
from fedrepro.reporting import exhibits

FIGURES = paths.root() / "figures" / "fedsheafhn"
READING = "Cora, 20 clients: reading"


def outcomes(folder: Path) -> dict[str, bool]:
    """Return whether the exhibits in a folder bear out each statement, by the ID of its deviation."""
    both = pd.concat([pd.read_csv(folder / f"SH-T{number}.csv") for number in (1, 2)])
    both = both[both["runs"].gt(0)].set_index(["method", "dataset", "clients"]).sort_index()
    before = both["other_mean"] - both["ours_mean"]
    gain, lead = before["FedSheafHN"], both["ours_mean"]["FedSheafHN"] - both["ours_mean"]["Local"]
    overlap = [("Cora", 30), ("Cora", 50)]
    higher = [*overlap, *(("CiteSeer", clients) for clients in (10, 20, 30, 50))]
    small = [("Photo", 30), ("Photo", 50)]
    level = gain.drop([*higher, *small]).drop("Computers", level="dataset")
    pubmed = both.loc["pFedHN"].loc["PubMed"].loc[[10, 20]]
    readings = pd.read_csv(folder / "SH-M2.csv").set_index(READING)
    outside = readings["low"].gt(0) | readings["high"].lt(0)
    parts = readings.index[readings.index.str.contains("sheaf's rate|channels|maps|layer")]
    rates = readings[readings.index.str.startswith("hypernetwork's rate")]
    choices = pd.read_csv(folder / "SH-M3.csv").set_index(["choice", "method"])
    dropped, unit = choices.loc["input features not dropped"], choices.loc["generator's losses in the features' unit"]
    hidden = choices.loc["a tenth of the nodes hidden from the generator"]
    trials = pd.read_csv(folder / "SH-T9.csv").dropna(subset=["dataset"]).set_index(["method", "dataset"])
    reached = (100 * trials["val"]).groupby(level=["method", "dataset"]).max()
    sage, average = reached["FedSage+"].round().astype(int), round(reached["FedAvg", "Photo"])
    masks = trials.loc[("FED-PUB", "Cora")]
    penalized, decayed = masks["own"].eq("penalties=printed"), masks["weight_decay"].eq(5e-4)
    best = [f"{100 * masks['val'][some].max():.1f}" for some in (penalized, decayed, ~(penalized | decayed))]
    chosen = trials.xs("Cora", level="dataset").query("used == True")
    rows = exhibits.deviations("fedsheafhn").set_index("id")
    told = rows["what we do"] + " " + rows["why"]
    return {
        "SH-B1, trials": f"scores {sage['Cora']}, {sage['CiteSeer']} and {sage['PubMed']}%" in told["SH-B1"]
        and f"leave FedSage+ at {sage['Photo']}% and FedAvg at {average}%" in told["SH-B1"],
        "SH-B4": all(
            part in told["SH-B4"] for part in (f"reach {best[0]} and", f"reach {best[1]},", f"reach {best[2]}.")
        ),
        "SH-TUN": f"in {int(chosen['lr'].eq(0.02).sum())} of {len(chosen)} rows" in told["SH-TUN"],
        "SH-M": bool(pd.read_csv(folder / "SH-M1.csv")["points_mean"].ge(0).all()),
        "SH-V, higher": bool(gain[[*higher, *small]].gt(0).all()),
        "SH-V, more than the lead": bool(gain[higher].gt(lead[higher]).all()),
        "SH-V, lower": bool(gain["Computers"].lt(0).all()),
        "SH-V, level": bool(level.abs().lt(0.3).all()),
        "SH-V, others": all(before[m][d].gt(0).all() for m in ("FedPer", "FED-PUB") for d in ("Cora", "CiteSeer")),
        "SH-DROP": list(dropped.index[(dropped["low"] > 0) | (dropped["high"] < 0)]) == ["FED-PUB"],
        "SH-B1": bool((unit["low"].le(0) & unit["high"].ge(0)).all()),
        "SH-B1, hidden": bool((hidden["high"] < 0).all()),
        "SH-Q13, weight decay": bool(readings["high"]["weight decay of Table 9"] < 0),
        "SH-Q13, pFedHN": bool((pubmed["ours_mean"] - pubmed["majority"]).gt(5).all()),
        "SH-X0": not outside["embeddings not standardized"],
        "SH-HN, rates": bool(len(rates) == 2 and rates["minus SH-T1"].lt(0).all() and not outside[rates.index].any()),
        "SH-HN, others": list(parts[outside[parts]]) == ["5 channels"] and bool(readings["high"]["5 channels"] < 0),
    }


@pytest.mark.parametrize("name", list(outcomes(FIGURES)))
def test_the_exhibits_bear_out_the_deviations(name: str) -> None:
    """Each outcome that a deviation states in words is that of the committed exhibit; if not, the words are old."""
    assert outcomes(FIGURES)[name]


def plant(file: str, where: Callable[[pd.DataFrame], pd.Series], **by: float) -> Callable[[Path], None]:
    """Return a function that adds numbers to the columns of some rows of an exhibit."""

    def at(folder: Path) -> None:
        table = pd.read_csv(folder / file)
        for column, more in by.items():
            table.loc[where(table), column] += more
        table.to_csv(folder / file, index=False)

    return at


def ours(dataset: str) -> Callable[[pd.DataFrame], pd.Series]:
    return lambda table: table["method"].eq("FedSheafHN") & table["dataset"].eq(dataset)


def reading(name: str) -> Callable[[pd.DataFrame], pd.Series]:
    return lambda table: table[READING].eq(name)


@pytest.mark.parametrize(
    ("name", "planted"),
    [
        ("SH-B1, trials", plant("SH-T9.csv", lambda table: table["method"].eq("FedSage+"), val=0.01)),
        ("SH-B4", plant("SH-T9.csv", lambda table: table["method"].eq("FED-PUB"), val=0.001)),
        ("SH-TUN", plant("SH-T9.csv", lambda table: table["method"].eq("Flow"), lr=0.01)),
        ("SH-M", plant("SH-M1.csv", lambda table: table["method"].eq("Flow"), points_mean=-9)),
        ("SH-V, higher", plant("SH-T2.csv", ours("Photo"), other_mean=-9)),
        ("SH-V, more than the lead", plant("SH-T2.csv", ours("Cora"), ours_mean=1, other_mean=1)),
        ("SH-V, lower", plant("SH-T1.csv", ours("Computers"), other_mean=9)),
        ("SH-V, level", plant("SH-T1.csv", ours("PubMed"), other_mean=-1)),
        ("SH-V, others", plant("SH-T1.csv", lambda table: table["method"].eq("FedPer"), other_mean=-9)),
        ("SH-DROP", plant("SH-M3.csv", lambda table: table["method"].eq("FGGP"), low=9)),
        ("SH-B1", plant("SH-M3.csv", lambda table: table["method"].eq("FedSage+"), high=-9)),
        ("SH-B1, hidden", plant("SH-M3.csv", lambda table: table["choice"].str.startswith("a tenth"), high=9)),
        ("SH-Q13, weight decay", plant("SH-M2.csv", reading("weight decay of Table 9"), high=9)),
        ("SH-Q13, pFedHN", plant("SH-T1.csv", lambda table: table["method"].eq("pFedHN"), ours_mean=-9)),
        ("SH-X0", plant("SH-M2.csv", reading("embeddings not standardized"), high=-9)),
        ("SH-HN, rates", plant("SH-M2.csv", reading("hypernetwork's rate 0.02"), high=-9)),
        ("SH-HN, others", plant("SH-M2.csv", reading("one layer of diffusion"), high=-9)),
    ],
)
def test_an_outcome_that_changed_is_seen(name: str, planted: Callable[[Path], None], tmp_path: Path) -> None:
    """A planted number in an exhibit that contradicts the words is found."""
    folder = shutil.copytree(FIGURES, tmp_path / "fedsheafhn")
    assert outcomes(folder)[name]
    planted(folder)
    assert not outcomes(folder)[name]
