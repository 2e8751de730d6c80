"""Backward clicks: MultiClick with a fixed prior strength and with strength="auto".

The strength is that of the priors of fatigue and transitions. Models are fitted to the training
part of two real logs (those of `bench.real`). Printed for the test part: the likelihood and the
rank of sessions with a backward click, and expected / observed backward clicks of all sessions.
"""

from __future__ import annotations

from typing import Any

from bench.measure import print_row
from bench.real import CUTS, LOGS, data_folder, part

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    f"multiclick, {variant}, {strength}": ("multiclick", {"variant": variant, "strength": strength})
    for variant in ("paper", "normalised")
    for strength in (10.0, "auto")
}
MODELS["scan"], MODELS["luceclick"] = ("scan", {}), ("luceclick", {})
MOST_LOSS = 0.01  # largest loss of log-likelihood per session, as queries may have few sessions
FIGURES = (  # title, metric, sessions
    ("all, in order", "log_likelihood", "all"),
    ("backward, in order", "log_likelihood", "reverse"),
    ("backward, rank of 2", "rank@2", "reverse"),
    ("expected/observed", "backward_ratio", "all"),
)


def main() -> bool:
    """Print a table per log and page length; return whether "auto" never loses much likelihood."""
    import reclick as rc

    good = True
    for name in LOGS:
        path = data_folder() / f"{name}.parquet"
        if not path.exists():
            print(f"\n{name}: skipped, {path} is not there (set RECLICK_DATA to its folder)")
            continue
        for longest in CUTS:
            train, test = (part(str(path), split, longest) for split in ("train", "test"))
            models = {
                label: rc.MODELS[model](**settings) for label, (model, settings) in MODELS.items()
            }
            scores = rc.evaluate(models, test, train=train, progress=False).scores.to_pylist()
            values = {
                (row["model"], row["metric"], row["sessions"]): row["value"]
                for row in scores
                if row["volume"] == "all"
            }
            print(f"\n{name}, pages of {longest} results\n")
            print(f"{'':<32}" + "".join(f"{title:>22}" for title, _, _ in FIGURES))
            for label in MODELS:
                cells = (f"{values[label, metric, some]:.4f}" for _, metric, some in FIGURES)
                print(f"{label:<32}" + "".join(f"{cell:>22}" for cell in cells), flush=True)
            for variant in ("paper", "normalised"):
                before, after = (
                    values[f"multiclick, {variant}, {strength}", "log_likelihood", "all"]
                    for strength in (10.0, "auto")
                )
                row = f"{variant}: auto, in order"
                least = before - MOST_LOSS
                good &= print_row(row, f"{after:.4f}", f"≥ {least:.4f}", after >= least)
    return good


if __name__ == "__main__":
    main()
