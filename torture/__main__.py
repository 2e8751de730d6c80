"""`python -m torture --seed 7 --minutes 20`: attack Reclick, and print what it withstood.

Every attempt follows from the seed. A run that was stopped goes on where it was; `--again` starts
anew. The inputs of failures are kept, as small as they could be made. The exit code is 1 if
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
    parser.add_argument("--seed", type=int, default=0, help="what all attempts follow from")
    parser.add_argument("--minutes", type=float, default=20.0, help="of every worker")
    parser.add_argument("--workers", type=int, default=2, help="processes that work at once")
    parser.add_argument("--campaign", action="append", help="only this one; repeat for more")
    parser.add_argument("--again", action="store_true", help="do not go on with an earlier run")
    options = parser.parse_args()
    names = [each.name for each in CAMPAIGNS]
    for name in options.campaign or ():
        if name not in names:
            parser.error(f"no campaign {name!r}. There are {', '.join(names)}.")
    folder = WORK / f"seed-{options.seed}"
    if options.again:
        shutil.rmtree(folder, ignore_errors=True)
    total = run_campaigns(folder, options.seed, options.minutes, options.workers, options.campaign)
    print(format_table(total))
    failed = sum(sum(each["failures"].values()) for each in total.values())
    if failed:
        print(f"{failed} failures. Their inputs are in {folder / 'failures'}.")
    return 1 if failed else 0


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
    tries = sum(each["tries"] for each in total.values())
    failed = sum(sum(each["failures"].values()) for each in total.values())
    minutes = sum(each["seconds"] for each in total.values()) / 60
    lines.append(f"{'all':<22}{tries:>8,}{failed:>10,}{minutes:>9.1f}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
