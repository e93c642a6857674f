"""Optimizers on stacked weights, against torch.optim on each slice."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fedrepro.engine.nn.optim import Optimizer, OptimizerState
from fedrepro.errors import ArgumentError

SHAPES = {"a": (4, 3, 2), "b": (4, 5)}
RULES = {
    "adam": Optimizer("adam", lr=0.05),
    "adam with weight decay": Optimizer("adam", lr=0.05, weight_decay=0.1),
    "sgd": Optimizer("sgd", lr=0.05),
    "sgd with all": Optimizer("sgd", lr=0.05, weight_decay=0.1, momentum=0.9),
}
Weights = dict[str, Tensor]


def draw(seed: int) -> Weights:
    made = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=made, dtype=torch.float64) for name, shape in SHAPES.items()}


def reference(rule: Optimizer, weights: Weights, index: int) -> tuple[Weights, torch.optim.Optimizer]:
    """torch.optim on a copy of one slice."""
    parameters = {name: torch.nn.Parameter(w[index].clone()) for name, w in weights.items()}
    if rule.name == "adam":
        return parameters, torch.optim.Adam(parameters.values(), lr=rule.lr, weight_decay=rule.weight_decay)
    decay = {"weight_decay": rule.weight_decay, "momentum": rule.momentum}
    return parameters, torch.optim.SGD(parameters.values(), lr=rule.lr, **decay)


def walk(rule: Optimizer, active: list[list[int]], names: list[tuple[str, ...]] | None = None) -> tuple[float, Weights]:
    """Largest difference to torch.optim after steps in which only some slices, and some weights, take part."""
    names = names or [tuple(SHAPES)] * len(active)
    weights = draw(0)
    references = [reference(rule, weights, i) for i in range(4)]
    state = rule.init(weights)
    for step, (who, which) in enumerate(zip(active, names, strict=True), start=1):
        grads = {name: g for name, g in draw(step).items() if name in which}
        chosen = torch.tensor([i in who for i in range(4)])
        rule.step(weights, grads, state, None if len(who) == 4 else chosen)
        for i in who:
            parameters, optimizer = references[i]
            for name, parameter in parameters.items():
                parameter.grad = grads[name][i].clone() if name in grads else None
            optimizer.step()
    difference = max(
        float((weights[name][i] - parameters[name].detach()).abs().max())
        for i, (parameters, _) in enumerate(references)
        for name in SHAPES
    )
    return difference, weights


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_every_slice_takes_the_step_of_torch_optim(rule: Optimizer) -> None:
    """Five steps of all slices equal torch.optim on each slice to 1e-12."""
    assert walk(rule, [[0, 1, 2, 3]] * 5)[0] < 1e-12


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_slices_that_took_fewer_steps_take_theirs_once(rule: Optimizer) -> None:
    """Slices with different step counts move side by side, each as torch.optim would move it."""
    assert walk(rule, [[0], [0, 1], [0, 1, 2, 3], [2], [0, 2, 3]])[0] < 1e-12


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_weights_without_gradient_do_not_move(rule: Optimizer) -> None:
    """A step with gradients of some names equals torch.optim where the others have none, bias correction included."""
    names = [("a", "b"), ("a",), ("b",), ("a",), ("a", "b")]
    assert walk(rule, [[0, 1, 2, 3]] * 5, names)[0] < 1e-12


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_slices_that_do_not_take_part_are_frozen_bitwise(rule: Optimizer) -> None:
    """Weights, moments and step counts of inactive slices keep their bits, even where their gradient is NaN."""
    weights = draw(0)
    state = rule.init(weights)
    rule.step(weights, draw(1), state)

    def bits(index: int) -> list[Tensor]:
        kept = [*weights.values(), *state.first.values(), *state.second.values()]
        counts = [torch.tensor(count[index]) for count in state.steps.values()]
        return [*counts, *(part[index].clone() for part in kept)]

    before = bits(2)
    moving = weights["a"][0].clone()
    grads = draw(2)
    for grad in grads.values():
        grad[2] = torch.nan
    rule.step(weights, grads, state, torch.tensor([True, True, False, True]))
    assert all(torch.equal(a, b) for a, b in zip(before, bits(2), strict=True))
    assert not torch.equal(moving, weights["a"][0])


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_gradient_that_is_no_number_stays_in_its_slice(rule: Optimizer) -> None:
    """A NaN gradient in one slice leaves the other slices bitwise as without it."""
    results = []
    for bad in (False, True):
        weights = draw(0)
        state = rule.init(weights)
        for step in (1, 2):
            grads = draw(step)
            if bad:
                grads["a"][1] = torch.nan
            rule.step(weights, grads, state)
        results.append(weights["a"][[0, 2, 3]])
    assert torch.equal(*results)


@pytest.mark.parametrize("turned", ["gradient", "weight"])
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_the_layout_in_memory_does_not_matter(rule: Optimizer, turned: str) -> None:
    """Three steps with a gradient or a weight that is transposed in memory equal torch.optim to 1e-12."""
    weights = {name: w for name, w in draw(0).items() if name == "a"}
    if turned == "weight":
        weights["a"] = weights["a"].mT.contiguous().mT
    references = [reference(rule, weights, i) for i in range(4)]
    state = rule.init(weights)
    for step in (1, 2, 3):
        grad = draw(step)["a"]
        rule.step(weights, {"a": grad.mT.contiguous().mT if turned == "gradient" else grad}, state)
        for i, (parameters, optimizer) in enumerate(references):
            parameters["a"].grad = grad[i].clone()
            optimizer.step()
    difference = max(
        float((weights["a"][i] - parameters["a"].detach()).abs().max()) for i, (parameters, _) in enumerate(references)
    )
    assert difference < 1e-12


def test_a_view_of_the_state_writes_to_it() -> None:
    """Stepping a view of consecutive slices moves those of the whole state and no other."""
    rule, weights = RULES["adam"], draw(0)
    state = rule.init(weights)
    part: OptimizerState = state.view(slice(1, 3))
    rule.step({n: w[1:3] for n, w in weights.items()}, {n: g[1:3] for n, g in draw(1).items()}, part)
    assert [count.tolist() for count in state.steps.values()] == [[0, 1, 1, 0]] * 2
    assert bool((state.first["a"][1:3] != 0).all()) and not bool(state.first["a"][[0, 3]].any())


@pytest.mark.parametrize(
    "wrong", [{"name": "adamw"}, {"lr": 0.0}, {"lr": -1.0}, {"weight_decay": -0.1}, {"momentum": 1.0}], ids=str
)
def test_a_rule_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    """Each bad hyper-parameter is an `ArgumentError` that names it."""
    argument = {"name": "optimizer"}.get(next(iter(wrong)), next(iter(wrong)))
    with pytest.raises(ArgumentError, match=f"^{argument} must be"):
        Optimizer(**wrong)  # type: ignore[arg-type]
