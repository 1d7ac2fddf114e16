from pathlib import Path

import orjson
import pytest

TESTDATA = Path(__file__).parents[2] / ".." / "shared" / "testdata"


@pytest.fixture
def testdata():
    """The reference data beside the project; skips where it is not there."""

    def path(*parts):
        found = TESTDATA.joinpath(*parts)
        if not found.exists():
            pytest.skip(f"reference data ../shared/testdata/{'/'.join(parts)} is not here")
        return found

    return path


@pytest.fixture
def workload_file(tmp_path):
    """Write a Batsim workload: jobs as (id, subtime, res, walltime, delay)."""

    def write(*jobs, machines=4, **changes):
        value = {
            "nb_res": machines,
            "jobs": [
                {"id": i, "subtime": s, "res": r, "walltime": w, "profile": f"d{d}"}
                for i, s, r, w, d in jobs
            ],
            "profiles": {f"d{d}": {"type": "delay", "delay": d} for *_, d in jobs},
        } | changes
        path = tmp_path / "jobs.json"
        path.write_bytes(orjson.dumps(value, option=orjson.OPT_INDENT_2))
        return path

    return write
