"""Thread counts follow affinity and quota."""

from __future__ import annotations

import math
import os

import pytest

from tidemill.engine.threads import available_threads, cpu_quota

V2 = "/sys/fs/cgroup"
V1 = "/sys/fs/cgroup/cpu"
OWN = "/proc/self/cgroup"


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, math.inf),
        ({f"{V2}/cpu.max": "150000 100000\n"}, 1.5),
        ({f"{V2}/cpu.max": "max 100000\n"}, math.inf),
        ({f"{V2}/cpu.max": "nonsense"}, math.inf),
        ({f"{V1}/cpu.cfs_quota_us": "250000\n", f"{V1}/cpu.cfs_period_us": "100000\n"}, 2.5),
        ({f"{V1}/cpu.cfs_quota_us": "-1\n", f"{V1}/cpu.cfs_period_us": "100000\n"}, math.inf),
        ({OWN: "0::/a/b\n", f"{V2}/a/cpu.max": "50000 100000", f"{V2}/a/b/cpu.max": "200000 100000"}, 0.5),
        (
            {
                OWN: "5:memory:/x\n4:cpu,cpuacct:/c\n",
                f"{V2}/cpu,cpuacct/c/cpu.cfs_quota_us": "300000",
                f"{V2}/cpu,cpuacct/c/cpu.cfs_period_us": "100000",
            },
            3.0,
        ),
    ],
)
def test_quota(files, quota):
    assert cpu_quota(files.get) == quota


@pytest.mark.parametrize(
    ("affinity", "limit", "threads"),
    [(8, "max", 8), (8, "150000", 2), (1, "150000", 1), (8, "10000", 1), (4, "400000", 4)],
)
def test_the_smaller_of_affinity_and_quota_counts(affinity, limit, threads):
    assert available_threads(affinity, {f"{V2}/cpu.max": f"{limit} 100000"}.get) == threads


def test_this_machine_has_threads():
    assert 1 <= available_threads() <= len(os.sched_getaffinity(0))
