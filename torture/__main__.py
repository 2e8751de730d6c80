"""`python -m torture --seed 7 --minutes 20`: attack Reclick, and print the failures.

The seed determines every attempt. A run that was stopped continues later; `--again` starts from the
beginning. The inputs of failures are saved, reduced in size if possible. The exit code is 1 if
anything failed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from torture.runner import CAMPAIGNS, Tally, run_campaigns

WORK = Path(__file__).parent / "work"


def main() -> int:
    """Run, print the table, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m torture", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="determines all attempts")
    parser.add_argument("--minutes", type=float, default=20.0, help="minutes per worker")
    parser.add_argument("--workers", type=int, default=2, help="number of processes")
    parser.add_argument(
        "--campaign", action="append", help="run only this campaign; repeat for more"
    )
    parser.add_argument(
        "--again",
        action="store_true",
        help="start from the beginning, not where an earlier run stopped",
    )
    options = parser.parse_args()
    names = [campaign.name for campaign in CAMPAIGNS]
    for name in options.campaign or ():
        if name not in names:
            parser.error(f"no campaign {name!r}. There are {', '.join(names)}.")
    folder = WORK / f"seed-{options.seed}"
    if options.again:
        shutil.rmtree(folder, ignore_errors=True)
    total = run_campaigns(folder, options.seed, options.minutes, options.workers, options.campaign)
    print(format_table(total))
    n_failures = sum(sum(campaign["failures"].values()) for campaign in total.values())
    if n_failures:
        print(f"{n_failures} failures. Their inputs are in {folder / 'failures'}.")
    return 1 if n_failures else 0


def format_table(total: dict[str, Tally]) -> str:
    """A row per campaign: tries, failures by kind, minutes."""
    lines = [f"{'campaign':<22}{'tries':>8}{'failures':>10}{'minutes':>9}"]
    for name, tally in total.items():
        failures = sum(tally["failures"].values())
        kinds = ", ".join(f"{count} {kind}" for kind, count in tally["failures"].items())
        minutes = tally["seconds"] / 60
        lines.append(
            f"{name:<22}{tally['tries']:>8,}{failures:>10,}{minutes:>9.1f}  {kinds}".rstrip()
        )
    tries = sum(campaign_tally["tries"] for campaign_tally in total.values())
    n_failures = sum(sum(campaign_tally["failures"].values()) for campaign_tally in total.values())
    minutes = sum(campaign_tally["seconds"] for campaign_tally in total.values()) / 60
    lines.append(f"{'all':<22}{tries:>8,}{n_failures:>10,}{minutes:>9.1f}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
