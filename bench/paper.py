"""The paper's experiment on the simulated market: a million sessions in three weeks.

Week 1 is the history, week 2 the training log and week 3 the test log, as in the paper. The market
is calibrated only on the baselines of the paper: their figures have limits. The figures of
MultiClick and LuceClick are printed next to the paper's figure of MultiClick, without a limit. As
in the paper, DBN has one prior mean for all pairs.
"""

from __future__ import annotations

from bench.measure import print_row
from reclick.evaluation import Evaluation, evaluate
from reclick.models import AM, DBN, ICM, PM, LuceClick, MultiClick
from reclick.simulation import simulate

SESSIONS = 333_334  # per week
FIRST_CLICK = {"PM": (0.72, 0.02), "AM": (0.735, 0.03), "DBN": (0.727, 0.02), "ICM": (0.717, 0.03)}
LABEL_AUC = {"DBN": (0.78, 0.04)}  # the paper's figure, and the tolerance
TITLES = {"first_click_accuracy": "first click", "roc_auc": "area under the ROC of labels"}
PAPER = {"first_click_accuracy": 0.7959, "roc_auc": 0.8653}  # of MultiClick


def main(sessions: int = SESSIONS, seed: int = 0) -> bool:
    """Print a table, and return whether every baseline is close to its figure in the paper."""
    market = simulate(sessions, seed=seed)
    history, train, test = market.weeks
    models = {
        "PM": PM(),
        "AM": AM(),
        "DBN": DBN(attractiveness_prior="overall"),
        "ICM": ICM(),
        "MultiClick": MultiClick(),
        "LuceClick": LuceClick(),
    }
    evaluation = evaluate(
        models,
        test,
        train=train,
        history=history,
        labels=market.labels,
        ads=market.ads,
        resamples=100,
    )
    print(f"\nThe paper's experiment: {3 * sessions:,} simulated sessions, seed {seed}\n")
    good = _print_baselines(evaluation, "first_click_accuracy", FIRST_CLICK)
    good &= _print_baselines(evaluation, "roc_auc", LABEL_AUC)
    for metric, figure in PAPER.items():
        for name in ("MultiClick", "LuceClick"):
            value = f"{evaluation.value(name, metric):.2%}"
            print(
                f"{f'{TITLES[metric]}, {name}':<70} {value:>10}   paper's MultiClick {figure:.2%}"
            )
    return good


def _print_baselines(
    evaluation: Evaluation, metric: str, targets: dict[str, tuple[float, float]]
) -> bool:
    rows = []
    for name, (figure, tolerance) in targets.items():
        value = evaluation.value(name, metric) or 0.0
        limit = f"{figure:.2%} ± {tolerance:.0%}"
        good = abs(value - figure) <= tolerance
        rows.append(print_row(f"{TITLES[metric]}, {name}", f"{value:.2%}", limit, good))
    return all(rows)


if __name__ == "__main__":
    main()
