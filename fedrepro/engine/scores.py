"""Score the nodes of a federation after each round, and report the scores of the rounds that validation chooses.

Accuracy, or micro-averaged F1 where a node may have several labels, is computed in every round. Macro-averaged F1 and
the area under the ROC curve cost more, and are computed for the last round and for the round of best validation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedrepro.engine.federation import Federation
from fedrepro.engine.nn import layers

VIEWS = ("before", "after")
MASKS = ("val", "test")


class Scored(NamedTuple):
    """The nodes of one split that are scored: the run of each, its number in that run's graph, and its label."""

    run: np.ndarray
    node: np.ndarray
    label: Tensor


@dataclass
class Scores:
    """The scores of one view after each round, `[rounds]` per entry and run.

    The entries are "val" and "test" (pooled over nodes), "val_clients" and "test_clients" (averaged over clients), and
    "val_loss" (pooled). `each` holds, per run, every client's test score at the round of best validation. `best` and
    `last` hold the logits of the scored nodes, `{split: [nodes, classes]}`: per run those of the round of best
    validation, and those of the last round.
    """

    values: dict[str, list[np.ndarray]] = field(default_factory=dict)
    each: dict[int, np.ndarray] = field(default_factory=dict)
    best: dict[int, dict[str, Tensor]] = field(default_factory=dict, repr=False)
    last: dict[str, Tensor] = field(default_factory=dict, repr=False)
    _best: dict[int, float] = field(default_factory=dict, repr=False)

    def add(self, scores: dict[str, np.ndarray], run: np.ndarray, logits: dict[str, Tensor]) -> None:
        """Append the scores of one round.

        Args:
            scores: as `score` returns them.
            run: the run of each client, `[clients]`.
            logits: those of the scored nodes, `{split: [nodes, classes]}`.
        """
        self.last = logits
        for number, val in enumerate(scores["val"]):
            if number not in self.each or val > self._best[number]:
                self.each[number], self._best[number] = scores["each"][run == number], val
                self.best[number] = logits
        for name, value in scores.items():
            if name != "each":
                self.values.setdefault(name, []).append(value)

    def series(self, run: int) -> dict[str, list[float]]:
        """Return the scores of one run, `{entry: [rounds]}`."""
        return {name: [float(v[run]) for v in rounds] for name, rounds in self.values.items()}


@dataclass
class History:
    """The record of a training: scores before and after local training, training loss, and diverged runs.

    "before" scores the weights that clients hold between rounds, after this round's aggregation. "after" scores each
    client's own weights at the end of this round's local training, before the server replaces them. `diverged` maps a
    run to the round, from 1, in which a loss or a weight was not finite. `nodes` holds the scored nodes per split.
    """

    rounds: int
    runs: int
    before: Scores = field(default_factory=Scores)
    after: Scores = field(default_factory=Scores)
    loss: list[np.ndarray] = field(default_factory=list)
    diverged: dict[int, int] = field(default_factory=dict)
    chunk: int = 0
    nodes: dict[str, Scored] = field(default_factory=dict, repr=False)

    def add(self, view: str, fed: Federation, logits: Tensor) -> None:
        """Append one round's scores. A run has diverged if its validation loss is not finite."""
        kept = _by_split(fed, logits)
        scores = _score(fed, kept)
        getattr(self, view).add(scores, runs_of(fed), kept)
        self.nodes = self.nodes or {mask: _scored(fed, _asked(fed, mask).rows) for mask in MASKS}
        for number in np.flatnonzero(~np.isfinite(scores["val_loss"]) & ~np.isnan(scores["val"])):
            self.diverged.setdefault(int(number), len(self.loss))

    def result(self, run: int) -> dict[str, dict[str, dict[str, float]]]:
        """Return the scores of a run at three rounds per view.

        Returns:
            `{view: {"last": scores, "best": scores, "best_loss": scores}}`: at the last round, at the first round of
            best validation accuracy, and at the first round of lowest validation loss. Each holds "round", from 1.
            "last" and "best" also hold, for each split, the entries of `metrics` with the split before their name,
            such as "test_auc".
        """
        out: dict[str, dict[str, dict[str, float]]] = {}
        for view in VIEWS:
            scores: Scores = getattr(self, view)
            series = scores.series(run)
            if not series:
                continue
            picks = {"last": self.rounds - 1}
            # Without validation nodes the loss is NaN, and no round can be chosen.
            if np.isfinite(series["val_loss"]).all():
                picks |= {"best": int(np.argmax(series["val"])), "best_loss": int(np.argmin(series["val_loss"]))}
            out[view] = {
                name: {"round": at + 1, **{entry: values[at] for entry, values in series.items()}}
                for name, at in picks.items()
            }
            for name, logits in (("last", scores.last), ("best", scores.best.get(run))):
                if name in picks and logits and run not in self.diverged:
                    out[view][name] |= self._metrics(run, logits)
        return out

    def _metrics(self, run: int, logits: dict[str, Tensor]) -> dict[str, float]:
        return {
            f"{mask}_{name}": value
            for mask, nodes in self.nodes.items()
            for name, value in metrics(*_of_run(nodes, run, logits[mask])).items()
        }

    def majority(self, run: int) -> dict[str, float]:
        """Return the share of the most frequent class among a run's scored nodes of each split.

        It is the accuracy of one constant prediction. It is NaN for a split without nodes, and where a node may have
        several labels.
        """
        out = {}
        for mask, nodes in self.nodes.items():
            y = nodes.label[torch.from_numpy(nodes.run == run)]
            single = y.dim() == 1 and len(y) > 0
            out[mask] = int(torch.bincount(y).max()) / len(y) if single else float("nan")
        return out

    def predictions(self, run: int) -> dict[str, dict[str, list[Any]]]:
        """Return what a run predicted for its scored nodes at the round of best validation.

        Returns:
            `{"val": columns, "test": columns}` with the columns "node" (its number in the graph), "label", and for
            each view "before" and "after" that was scored the predicted class, or a list of 0 and 1 per label.
        """
        out: dict[str, dict[str, list[Any]]] = {}
        for mask, nodes in self.nodes.items():
            mine = nodes.run == run
            columns = {"node": nodes.node[mine].tolist(), "label": nodes.label[torch.from_numpy(mine)].tolist()}
            for view in VIEWS:
                if kept := getattr(self, view).best.get(run):
                    logits, y = _of_run(nodes, run, kept[mask])
                    predicted = logits.argmax(1) if y.dim() == 1 else (logits > 0).int()
                    columns[view] = predicted.tolist()
            out[mask] = columns
        return out


def runs_of(fed: Federation) -> np.ndarray:
    """Return the run of each client, copied from the device once."""
    run: np.ndarray = fed.cached("run on the host", lambda: fed.run.cpu().numpy())
    return run


def _scored(fed: Federation, rows: Tensor) -> Scored:
    run = fed.run[fed.batch.batch[rows]].cpu().numpy()
    return Scored(run, fed.batch.node_id[rows].cpu().numpy(), fed.batch.y[rows].cpu())


def _of_run(nodes: Scored, run: int, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logits and labels of one run's nodes."""
    mine = torch.from_numpy(nodes.run == run)
    return logits.cpu()[mine], nodes.label[mine]


def metrics(logits: Tensor, y: Tensor) -> dict[str, float]:
    """Compute what accuracy hides where one class is far larger than the others.

    Args:
        logits: `[nodes, classes]`.
        y: the class of each node `[nodes]`, or 0 and 1 per label `[nodes, labels]`.

    Returns:
        "f1", the mean over classes of the F1 score (macro-F1), over the classes that occur among labels or
        predictions. "auc", the mean over classes of the area under the ROC curve of that class against the rest,
        ranked by its softmax probability (by its logit if a node may have several labels), over the classes with nodes
        inside and outside. "classes", the number of classes that are predicted at least once. All are NaN without
        nodes, and "auc" is NaN if all nodes have one class.
    """
    # Imported here, since a run that is not scored needs none of it and the import takes a second.
    from sklearn.metrics import f1_score, roc_auc_score

    if not len(y):
        return dict.fromkeys(("f1", "auc", "classes"), float("nan"))
    if y.dim() == 1:
        truth = torch.nn.functional.one_hot(y, logits.shape[1]).bool()
        said = logits.argmax(1)
        kinds = int((torch.bincount(said) > 0).sum())
        f1 = f1_score(y.numpy(), said.numpy(), average="macro", zero_division=0.0)
        rank = logits.double().softmax(1)
    else:
        truth, said, rank = y > 0, logits > 0, logits
        kinds = int(said.any(0).sum())
        f1 = f1_score(truth.numpy(), said.numpy(), average="macro", zero_division=0.0)
    ranked = truth.any(0) & ~truth.all(0)
    auc = roc_auc_score(truth[:, ranked].numpy(), rank[:, ranked].numpy()) if ranked.any() else float("nan")
    return {"f1": float(f1), "auc": float(auc), "classes": float(kinds)}


def score(fed: Federation, logits: Tensor) -> dict[str, np.ndarray]:
    """Score logits on validation and test nodes.

    The score is accuracy, or micro-averaged F1 if a node may have several labels. Only a client's own nodes count, and
    clients without nodes in a split are left out of its average.

    Args:
        fed: the federation, with masks and labels.
        logits: `[nodes, classes]`.

    Returns:
        The entries of `Scores`, `[runs]` each, and "each", every client's test score `[clients]`, NaN without test
        nodes.
    """
    return _score(fed, _by_split(fed, logits))


def _by_split(fed: Federation, logits: Tensor) -> dict[str, Tensor]:
    """Return the logits of the scored nodes, `{split: [nodes, classes]}`."""
    return {mask: logits[_asked(fed, mask).rows] for mask in MASKS}


def _score(fed: Federation, logits: dict[str, Tensor]) -> dict[str, np.ndarray]:
    """Score the logits of each split's nodes, see `score`."""
    out: dict[str, np.ndarray] = {}
    runs = runs_of(fed)
    asked = {mask: _asked(fed, mask) for mask in MASKS}
    columns = {}
    for mask, split in asked.items():
        losses = [layers.node_losses(logits[mask], split.label).double()] if mask == "val" else []
        columns[mask] = [*_points(logits[mask], split.label), *losses]
    # One copy for all, since each makes a GPU wait.
    told = torch.cat([column for mask in MASKS for column in columns[mask]]).cpu().numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        start = 0
        for mask, split in asked.items():
            end = start + len(columns[mask]) * len(split.rows)
            won, *others = told[start:end].reshape(len(columns[mask]), len(split.rows))
            start = end
            won = np.bincount(split.client, won, fed.clients)
            several = split.label.dim() == 2
            possible = np.bincount(split.client, others.pop(0), fed.clients) if several else split.counts
            has = split.counts > 0
            of_client = np.where(has, won / np.maximum(possible, 1), np.nan)
            out[mask] = np.bincount(runs, won, fed.runs) / np.bincount(runs, possible, fed.runs)
            total = np.bincount(runs[has], of_client[has], fed.runs)
            out[f"{mask}_clients"] = total / np.bincount(runs[has], minlength=fed.runs)
            if others:
                loss = np.bincount(runs[split.client], others[0], fed.runs)
                out["val_loss"] = loss / np.bincount(runs, split.counts, fed.runs)
    out["each"] = of_client
    return out


class _Asked(NamedTuple):
    """The scored nodes of a split: rows, the client of each and their number by client on the host, and labels."""

    rows: Tensor
    client: np.ndarray
    counts: np.ndarray
    label: Tensor


def _asked(fed: Federation, mask: str) -> _Asked:
    """Return the nodes of a split that are scored."""

    def asked() -> _Asked:
        rows = fed.rows(mask)[0]
        client = fed.batch.batch[rows].cpu().numpy()
        return _Asked(rows, client, np.bincount(client, minlength=fed.clients), fed.batch.y[rows])

    nodes: _Asked = fed.cached(("scored", mask), asked)
    return nodes


def _points(logits: Tensor, y: Tensor) -> list[Tensor]:
    """Return the numerator of the score of each node, `[rows]`, and its denominator where that is not 1.

    Accuracy adds 1 or 0 to the numerator. With several labels, micro-averaged F1 adds twice the true positives to both,
    and the false positives and false negatives to the denominator.
    """
    if y.dim() == 1:
        return [(logits.argmax(1) == y).double()]
    predicted, true = logits > 0, y > 0
    agreed = 2 * (predicted & true).sum(1).double()
    return [agreed, agreed + (predicted != true).sum(1)]
