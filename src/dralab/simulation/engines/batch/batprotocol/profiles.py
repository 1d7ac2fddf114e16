"""Profiles of jobs, as batprotocol has them and as workload files of Batsim have them."""

from collections.abc import Mapping
from typing import Any, Final

from dralab.scenarios.errors import DecisionError

SPREAD: Final = "DefinedAmountsSpreadUniformly"
TOTAL: Final = frozenset({"parallel_homogeneous_total", "parallel_homogeneous_pfs"})
# By table: the type in workload files, and by field of the table, that of the file.
NAMES: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "DelayProfile": ("delay", {"delay": "delay"}),
    "ParallelTaskProfile": (
        "parallel",
        {"computation_vector": "cpu", "communication_matrix": "com"},
    ),
    "ParallelTaskHomogeneousProfile": (
        "parallel_homogeneous",
        {"computation_amount": "cpu", "communication_amount": "com"},
    ),
    "SequentialCompositionProfile": (
        "composed",
        {"repetition_count": "repeat", "profile_ids": "seq"},
    ),
    "ParallelTaskOnStorageHomogeneousProfile": (
        "ptask_on_storage_homogeneous",
        {
            "storage_name": "storage",
            "bytes_to_read": "bytes_to_read",
            "bytes_to_write": "bytes_to_write",
        },
    ),
    "ParallelTaskDataStagingBetweenStoragesProfile": (
        "data_staging",
        {
            "bytes_to_transfer": "nb_bytes",
            "emitter_storage_name": "from",
            "receiver_storage_name": "to",
        },
    ),
    "TraceReplayProfile": ("smpi", {"filename": "trace"}),
}
# Other names of the same, in the files of Batsim 4 and 5.
TABLE_OF: Final[Mapping[str, str]] = {
    **{kind: table for table, (kind, _) in NAMES.items()},
    **{table: table for table in NAMES},
    "msg_par": "ParallelTaskProfile",
    "ptask": "ParallelTaskProfile",
    "parallel_homogeneous_total": "ParallelTaskHomogeneousProfile",
    "ptask_homogeneous": "ParallelTaskHomogeneousProfile",
    "parallel_homogeneous_pfs": "ParallelTaskOnStorageHomogeneousProfile",
    "usage_trace": "TraceReplayProfile",
}


def in_file(kind: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a profile that a component registers as a workload file would have it."""
    if kind not in NAMES:
        raise DecisionError(f"registered a {kind}, which is not simulated")
    name, fields = NAMES[kind]
    found = {theirs: value[ours] for ours, theirs in fields.items() if ours in value}
    if kind == "TraceReplayProfile":
        found["trace_type"] = value.get("trace_type", "SMPI")
    strategy = value.get("generation_strategy")
    if strategy is not None:
        found["generation_strategy"] = strategy
    if "seq" in found:
        found["seq"] = [one.rpartition("!")[2] for one in found["seq"]]
    return {"type": name, **found}


def of_file(key: str, entry: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a ProfileAndId for a profile of a workload file; None if it has no such form."""
    kind = str(entry.get("type", ""))
    table = TABLE_OF.get(kind)
    if table is None:
        return None
    workload = key.partition("!")[0]
    value: dict[str, Any] = {}
    for ours, theirs in NAMES[table][1].items():
        given = entry.get(theirs, entry.get(ours))
        if given is not None:
            value[ours] = given
    if "profile_ids" in value:
        value["profile_ids"] = [f"{workload}!{one}" for one in value["profile_ids"]]
    if table == "TraceReplayProfile":
        usage = kind == "usage_trace" or entry.get("trace_type") == "FractionalComputation"
        value["trace_type"] = "FractionalComputation" if usage else "SMPI"
    if kind in TOTAL or entry.get("generation_strategy") == SPREAD:
        value["generation_strategy"] = SPREAD
    return {"id": key, "profile_type": table, "profile": value}
