"""Memory of counting a log in an object store, relative to the same log on this disk.

A log of 3 million sessions is put into a bucket of an S3 server on this machine. A process each
counts it from the disk and from the bucket, and reports the peak of its memory.
"""

from __future__ import annotations

import os
import shutil

from bench.biglogs import write_log
from bench.checkouts import THIS_CHECKOUT
from bench.measure import WORK, print_row

SESSIONS, LIMIT = 3_000_000, 1.25  # the client of the store has buffers of its own
COUNT = """
import resource, reclick as rc
rc.count({log!r})
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def main() -> bool:
    """Print the peaks and their ratio, and return whether it is within the limit."""
    from reclick.runtime.outputs import atomic_file
    from tests.support.s3_server import run_s3_server

    path = write_log(WORK / f"remote-{SESSIONS}.parquet", SESSIONS, seed=1)
    with run_s3_server() as server:
        os.environ.update(server.environment)
        server.client.create_dir("logs")
        remote = "s3://logs/log.parquet"
        with atomic_file(remote) as copy:
            shutil.copyfile(path, copy)
        peaks = [
            float(THIS_CHECKOUT.run(COUNT.format(log=log))) / 1024 for log in (str(path), remote)
        ]
    local, from_bucket = peaks
    row = f"count {SESSIONS:,} sessions: {local:,.0f} MB from disk, {from_bucket:,.0f} MB from S3"
    ratio = from_bucket / local
    return print_row(row, f"{ratio:.2f} ×", f"≤ {LIMIT:g} ×", ratio <= LIMIT)
