"""Attack every method in one way: rebuild features, edges and labels of a client from the messages that are counted.

The attacker sees what `fedrepro.engine.traffic` counts, and knows the model and the weights that the server sends. Its
guesses follow one rule for all methods, and are therefore lower bounds: an attack made for one method may do better
(FG-I6 and GFL-Q7 have such attacks).

    features   of a message about a node: its row, or the row of least norm that gives its embedding. Else the columns
               of the first layer's update, and the row of least norm that gives a client's mean embedding. None of
               these is assigned to a node. The score is the absolute cosine with a node's features, as a mean over the
               client's nodes. If vectors belong to no node, each node has the best of them.
    edges      the cosine of two nodes' messages, or of two columns of the powers that another client holds. The
               score is the area under the ROC curve over the pairs of the client's nodes, and 0.5 if no message names
               nodes.
    labels     of training nodes: the class that the client's uploaded model predicts from the rows. Without rows it is
               the class that the first update of the last bias raises most, for all nodes; without an update it is
               drawn. The score is the share that is right.

Each row has two controls. Normal noise instead of every message must give chance: 0 or, for m vectors that belong to no
node, at most the cosine that the best of m random vectors has; 0.5; and one over the classes. Plain data instead of the
messages must give 1, 1 and 1.

A message reveals what it adds to a guess that needs none. The `prior` guess knows the other clients' data: the mean of
their rows for every node, and the commonest class of their training nodes. The `class` guess names the client's own
commonest class for all nodes. An update without rows reveals that class at most, and no label of a node.

The noise is drawn anew for each run and client. Without rows a guess names one class for all nodes, and its share of
right labels scatters much, so that such labels are guessed from `LABEL_DRAWS` draws. Both were changed after the
control of noise had failed: all runs and clients had the same few draws, and it was their scatter that failed. The
prior guess was added after the shares had been seen. They had been taken from noise on, and most were below it.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.across import messages
from fedrepro.engine.nn import random
from fedrepro.papers.fedstruct.attack import auc
from fedrepro.papers.fedstruct.structure import adjacency
from fedrepro.runs import tasks
from fedrepro.runs.run import Run

VICTIMS, DRAWS, LABEL_DRAWS = 3, 20, 400
GOALS = ("features", "edges", "labels")
WHAT = ("update", "bias", "W1", "b1", "W2", "b2", "rows", "embeddings", "mean", "powers")  # known is no message


class Victim(NamedTuple):
    """The truth about a client: features `[nodes, features]`, edges `[nodes, nodes]`, labels and training nodes."""

    x: Tensor
    a: Tensor
    y: Tensor
    train: Tensor
    classes: int


class Guess(NamedTuple):
    """An attacker's guesses from messages: vectors, whether each belongs to a node, scores of pairs, and labels."""

    vectors: Tensor | None
    assigned: bool
    pairs: Tensor | None
    labels: Tensor


def by_node(seen: dict[str, Tensor]) -> bool:
    """Return whether the messages let the attacker guess the label of each node by itself."""
    return bool({"rows", "embeddings"} & seen.keys()) and {"W1", "W2"} <= seen.keys()


def guess(seen: dict[str, Tensor], victim: Victim, *draw: int) -> Guess:
    """Return the attacker's guesses from the messages of a client.

    It uses nothing of the victim but the numbers of its nodes and classes.

    Args:
        draw: numbers on which labels that are drawn depend, such as the seed of a run.
    """
    n = len(victim.y)
    rows, keys = seen.get("rows"), seen.get("rows", seen.get("embeddings"))
    if rows is None and "embeddings" in seen:
        rows = seen["embeddings"] @ torch.linalg.pinv(seen["known"])
    parts = [seen["update"].T] if "update" in seen else []
    if "mean" in seen:
        parts.append(seen["mean"] @ torch.linalg.pinv(seen["known"]))
    vectors = rows if rows is not None else torch.cat(parts) if parts else None
    powers = seen["powers"].T if "powers" in seen else keys
    pairs = None if powers is None else F.normalize(powers) @ F.normalize(powers).T
    if rows is not None and by_node(seen):
        zero = rows.new_zeros(1)
        hidden = F.relu(rows @ seen["W1"] + seen.get("b1", zero))
        labels = (hidden @ seen["W2"] + seen.get("b2", zero)).argmax(1)
    elif "bias" in seen:
        labels = (-seen["bias"]).argmax().expand(n)
    else:
        labels = (random.uniform((n,), "labels", *draw) * victim.classes).long()
    return Guess(vectors, rows is not None, pairs, labels)


def rate(guesses: Guess, victim: Victim) -> dict[str, float]:
    """Return the mean cosine, the area under the curve and the share of right labels of a guess.

    A node without features, such as a tenth of Chameleon's, has no cosine and does not count.
    """
    upper = torch.triu(torch.ones_like(victim.a, dtype=torch.bool), 1)
    scores = np.zeros(int(upper.sum())) if guesses.pairs is None else guesses.pairs[upper].double().numpy()
    cosine = torch.zeros(len(victim.x))
    if guesses.vectors is not None and guesses.assigned:
        cosine = F.cosine_similarity(guesses.vectors, victim.x).abs()
    elif guesses.vectors is not None:
        cosine = (F.normalize(victim.x) @ F.normalize(guesses.vectors).T).abs().max(1).values
    right = (guesses.labels == victim.y)[victim.train].float()
    edges = auc(scores, victim.a[upper].numpy() > 0)
    return {"features": float(cosine[victim.x.any(1)].mean()), "edges": edges, "labels": float(right.mean())}


def noise(seen: dict[str, Tensor], *draw: int) -> dict[str, Tensor]:
    """Return normal noise instead of every message; weights that the server has sent stay known.

    Args:
        draw: numbers on which the noise depends: the seed of a run, the client, and the number of the draw.
    """
    return {
        name: value if name == "known" else random.normal(tuple(value.shape), "noise", *draw, name).to(value)
        for name, value in seen.items()
    }


def from_noise(seen: dict[str, Tensor], victim: Victim, *draw: int) -> dict[str, float]:
    """Return the mean rates of guesses from noise instead of the messages."""
    rates = [rate(guess(noise(seen, *draw, i), victim, *draw, i), victim) for i in range(DRAWS)]
    means = {goal: float(np.mean([one[goal] for one in rates])) for goal in GOALS}
    if not by_node(seen):
        last = {name: value for name, value in seen.items() if name == "bias"}  # all that such a guess uses
        guesses = (guess(noise(last, *draw, i), victim, *draw, i).labels for i in range(LABEL_DRAWS))
        right = [(labels == victim.y)[victim.train].float().mean() for labels in guesses]
        means["labels"] = float(np.mean(right))
    return means


def plain(victim: Victim) -> Guess:
    """Return the guess of an attacker who is given the data."""
    return Guess(victim.x, True, victim.a, victim.y)


def chance(seen: dict[str, Tensor], victim: Victim) -> dict[str, float]:
    """Return what knowing nothing gives: of m random vectors the best has a cosine of about sqrt(2 log(2mn) / d)."""
    vectors = [seen[name] for name in ("rows", "embeddings") if name in seen]
    loose = sum(seen[name].shape[-1 if name == "update" else 0] for name in ("update", "mean") if name in seen)
    width = victim.x.shape[1]
    best = math.sqrt(2 * math.log(2 * (1 if vectors else max(1, loose))) / width) + 1 / math.sqrt(width)
    return {"features": best if vectors or loose else 0.0, "edges": 0.5, "labels": 1 / victim.classes}


def prior(victim: Victim, x: Tensor, y: Tensor) -> dict[str, float]:
    """Return the rates of a guess from other data: their mean row, no edge, and their commonest class.

    Args:
        victim: the client.
        x: rows of other nodes `[others, features]`.
        y: classes of other training nodes `[labelled others]`.
    """
    n = len(victim.y)
    return rate(Guess(x.mean(0).expand(n, -1), True, None, commonest(y).expand(n)), victim)


def commonest(y: Tensor) -> Tensor:
    """Return the commonest class of labels `[nodes]`, the first of equals; -1 if there is no label."""
    return torch.bincount(y).argmax() if len(y) else torch.tensor(-1)


def leak(run: Run) -> dict[str, Any]:
    """Attack the messages of a training, with both controls.

    The options are those of the training run and `of`, the method. Its rounds are those after which the attacker takes
    the uploaded model. Up to three clients are attacked, and results are means over them.

    Returns:
        "result": `sent`, `noise`, `plain`, `chance` and `prior`, each with the entries of `GOALS`; `class`, the share
        of labels that the client's commonest class has; `used` and `unused`, the messages that the attacker makes
        something of and those that it does not; `draws`, those of noise for labels that are guessed without rows.
    """
    trained = messages.trained(run)
    listened = messages.listen(trained)
    fed, data = listened[1], tasks.graph(trained)
    parts = fed.sources[0].parts
    if len(parts[0]) == 1:  # one node a client: the server sees them all
        parts = (torch.arange(int(data.num_nodes)),)
    a = torch.from_numpy(adjacency(data).toarray())
    rows = messages.dense(data.x).float()
    measured: list[dict[str, dict[str, float]]] = []
    class_shares: list[float] = []
    used: set[str] = set()
    for client, nodes in enumerate(parts[:VICTIMS]):
        victim = Victim(rows[nodes], a[nodes][:, nodes], data.y[nodes], data.train_mask[nodes], fed.classes)
        seen = messages.of_client(trained, client, listened) if trained.method not in ("Local", "Central") else {}
        others = torch.ones(len(rows), dtype=torch.bool)
        others[nodes] = len(nodes) == len(rows)  # a client that is the whole graph has no others
        used |= seen.keys() & set(WHAT)
        measured.append(
            {
                "sent": rate(guess(seen, victim, run.seed), victim),
                "noise": from_noise(seen, victim, run.seed, client),
                "plain": rate(plain(victim), victim),
                "chance": chance(seen, victim),
                "prior": prior(victim, rows[others], data.y[others & data.train_mask]),
            }
        )
        labels = victim.y[victim.train]
        class_shares.append(float((labels == commonest(labels)).float().mean()))
    result: dict[str, Any] = {
        kind: {goal: float(np.nanmean([one[kind][goal] for one in measured])) for goal in GOALS} for kind in measured[0]
    }
    counted = fed.traffic.summary()
    names = {name.partition(".")[2] for part in ("before", "training") for name in counted[part]}
    weights = {name.partition(".")[2] for name in messages.WEIGHTS}
    unused = {name for name in names - messages.USED - weights if not name.startswith("gradient of ")}
    told = {"used": ", ".join(sorted(used)), "unused": ", ".join(sorted(unused)), "draws": LABEL_DRAWS}
    return {"result": {**result, "class": float(np.nanmean(class_shares)), **told}}
