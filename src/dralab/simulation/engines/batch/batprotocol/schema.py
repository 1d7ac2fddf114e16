"""The types of batprotocol: field names, their order, defaults, and the members of unions.

From its published schema (`batprotocol.fbs` of 29 October 2024, the latest that could be had).
Numbers of fields and members follow from their order. What Batsim 5.0.0-rc2 has added since is
marked: its names are known from the sources of Batsim, its numbers are not, so that it exists in
JSON only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

Scalar = Literal["bool", "byte", "uint32", "uint64", "float64"]
SIZES: Final[Mapping[str, int]] = {"bool": 1, "byte": 1, "uint32": 4, "uint64": 8, "float64": 8}


@dataclass(frozen=True, slots=True)
class Field:
    """A field: `kind` is a scalar, `string`, an enumeration, a union or a table."""

    name: str
    kind: str
    repeated: bool = False
    default: float | bool | str | None = None


def _fields(text: str) -> Sequence[Field]:
    found = []
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, _, kind = part.partition(" ")
        kind, _, default = kind.partition("=")
        repeated = kind.startswith("[")
        kind = kind.strip("[]")
        value: float | bool | str | None = None
        if kind in ENUMERATIONS:
            value = default or ENUMERATIONS[kind][0]
        elif kind == "bool":
            value = default == "true"
        elif kind in SIZES:
            value = None if default == "null" else float(default or 0)
            if value is not None and kind != "float64":
                value = int(value)
        found.append(Field(name, kind, repeated, None if repeated else value))
    return tuple(found)


ENUMERATIONS: Final[Mapping[str, Sequence[str]]] = {
    "GenerationStrategy": ("DefinedAmountsUsedForEachValue", "DefinedAmountsSpreadUniformly"),
    "TraceType": ("SMPI", "FractionalComputation"),
    "FinalJobState": (
        "COMPLETED_SUCCESSFULLY",
        "COMPLETED_FAILED",
        "COMPLETED_WALLTIME_REACHED",
        "COMPLETED_KILLED",
        "REJECTED",
    ),
    "PlacementStrategy": ("SpreadOverHostsFirst", "FillOneHostCoresFirst"),
    "TimeUnit": ("Second", "Millisecond"),
    "Validation": ("None", "MatchJobRequestExactly", "MatchJobRequestBigEnough"),
    "HostState": ("SLEEPING", "IDLE", "COMPUTING", "SWITCHING_ON", "SWITCHING_OFF"),
}
UNIONS: Final[Mapping[str, Sequence[str]]] = {
    "Profile": (
        "DelayProfile",
        "ParallelTaskProfile",
        "ParallelTaskHomogeneousProfile",
        "SequentialCompositionProfile",
        "ForkJoinCompositionProfile",
        "ParallelTaskMergeCompositionProfile",
        "ParallelTaskOnStorageHomogeneousProfile",
        "ParallelTaskDataStagingBetweenStoragesProfile",
        "TraceReplayProfile",
    ),
    "ExecutorPlacement": (
        "PredefinedExecutorPlacementStrategyWrapper",
        "CustomExecutorToHostMapping",
    ),
    "KillProgress": (
        "KillProgressAtomicProfile",
        "KillProgressSequentialProfile",
        "KillProgressForkJoinProfile",
    ),
    "PeriodicMode": ("Infinite", "FinitePeriodNumber"),
    "TemporalTrigger": ("OneShot", "Periodic"),
    "Event": (
        "JobSubmittedEvent",
        "JobCompletedEvent",
        "RejectJobEvent",
        "ExecuteJobEvent",
        "KillJobsEvent",
        "JobsKilledEvent",
        "RegisterProfileEvent",
        "RegisterJobEvent",
        "CreateProbeEvent",
        "StopProbeEvent",
        "TriggerProbeEvent",
        "ResetProbeEvent",
        "ProbeDataEmittedEvent",
        "CallMeLaterEvent",
        "RequestedCallEvent",
        "StopCallMeLaterEvent",
        "BatsimHelloEvent",
        "EDCHelloEvent",
        "SimulationBeginsEvent",
        "SimulationEndsEvent",
        "AllStaticJobsHaveBeenSubmittedEvent",
        "AllStaticExternalEventsHaveBeenInjectedEvent",
        "FinishRegistrationEvent",
        "ForceSimulationStopEvent",
    ),
}
# Members of `Event` that are known by name alone.
JSON_ONLY: Final = frozenset(
    {
        "ChangeHostsPStateEvent",
        "HostsPStateChangedEvent",
        "TurnOnOffHostsEvent",
        "HostsTurnedOnOffEvent",
        "ExternalEventOccurredEvent",
    }
)
TABLES: Final[Mapping[str, Sequence[Field]]] = {
    name: _fields(text)
    for name, text in {
        "Message": "now float64; events [EventAndTimestamp]",
        "EventAndTimestamp": "timestamp float64; event Event",
        # Profiles
        "DelayProfile": "delay float64",
        "ParallelTaskProfile": "computation_vector [float64]; communication_matrix [float64]",
        "SequentialCompositionProfile": "repetition_count uint32=1; profile_ids [string]",
        "ForkJoinCompositionProfile": "profile_ids [string]",
        "ParallelTaskMergeCompositionProfile": "profile_ids [string]",
        "ParallelTaskHomogeneousProfile": (
            "computation_amount float64; communication_amount float64;"
            "generation_strategy GenerationStrategy"
        ),
        "ParallelTaskOnStorageHomogeneousProfile": (
            "storage_name string; bytes_to_read float64; bytes_to_write float64;"
            "generation_strategy GenerationStrategy"
        ),
        "ParallelTaskDataStagingBetweenStoragesProfile": (
            "bytes_to_transfer float64; emitter_storage_name string; receiver_storage_name string"
        ),
        "TraceReplayProfile": "trace_type TraceType; filename string",
        "ProfileAndId": "id string; profile Profile",
        # Jobs. A walltime that is not there is none (rc2 says null, the schema before it 0).
        "Job": (
            "resource_request uint32; walltime float64=null; extra_data string; rigid bool=true;"
            "profile_id string"
        ),
        "JobSubmittedEvent": "job_id string; job Job; submission_time float64",
        "JobCompletedEvent": "job_id string; state FinalJobState; return_code uint32",
        "RejectJobEvent": "job_id string",
        "PredefinedExecutorPlacementStrategyWrapper": "strategy PlacementStrategy",
        "CustomExecutorToHostMapping": "mapping [uint32]",
        "StorageHost": "storage_name string; host_id uint32",
        "AllocationPlacement": "host_allocation string; executor_placement ExecutorPlacement",
        "ProfileAllocationPlacement": (
            "profile_id string; host_allocation string; executor_placement ExecutorPlacement"
        ),
        "ExecuteJobEvent": (
            "job_id string; allocation AllocationPlacement;"
            "profile_allocation_override [ProfileAllocationPlacement];"
            "storage_placement [StorageHost]"
        ),
        "KillJobsEvent": "job_ids [string]",
        "KillProgressAtomicProfile": "profile_id string; progress float64",
        "KillProgressSequentialProfile": (
            "profile_id string; current_repetition uint32; current_task_index uint32;"
            "current_task_progress KillProgressWrapper"
        ),
        "KillProgressForkJoinProfile": ("profile_id string; tasks_progress [KillProgressWrapper]"),
        "KillProgressWrapper": "kill_progress KillProgress",
        "JobAndProgress": "job_id string; wrapper KillProgressWrapper",
        "JobsKilledEvent": "job_ids [string]; progresses [JobAndProgress]",
        "RegisterProfileEvent": "profile ProfileAndId",
        "RegisterJobEvent": "job_id string; job Job",
        # Time
        "OneShot": "time uint64; time_unit TimeUnit",
        "Infinite": "",
        "FinitePeriodNumber": "nb_periods uint32",
        "Periodic": "period uint64; offset uint64; time_unit TimeUnit; mode PeriodicMode",
        "CallMeLaterEvent": "call_me_later_id string; when TemporalTrigger",
        "RequestedCallEvent": "call_me_later_id string; last_periodic_call bool",
        "StopCallMeLaterEvent": "call_me_later_id string",
        # Probes: known, so that they can be refused by name
        "CreateProbeEvent": "probe_id string",
        "StopProbeEvent": "probe_id string",
        "TriggerProbeEvent": "probe_id string",
        "ResetProbeEvent": "probe_id string",
        "ProbeDataEmittedEvent": "probe_id string",
        # The simulation
        "BatsimHelloEvent": (
            "batprotocol_version string; batsim_version string; batsim_commit string"
        ),
        "EDCRequestedSimulationFeatures": (
            "dynamic_registration bool; profile_reuse bool; acknowledge_dynamic_jobs bool;"
            "forward_profiles_on_job_submission bool; forward_profiles_on_jobs_killed bool;"
            "forward_profiles_on_simulation_begins bool; forward_unknown_external_events bool"
        ),
        "EDCSchedulingConstraints": (
            "compute_sharing bool; storage_sharing bool=true;"
            "job_allocation_validation_strategy Validation=MatchJobRequestExactly"
        ),
        "EDCHelloEvent": (
            "batprotocol_version string; decision_component_name string;"
            "decision_component_version string; decision_component_commit string;"
            "requested_simulation_features EDCRequestedSimulationFeatures;"
            "scheduling_constraints EDCSchedulingConstraints"
        ),
        "HostProperty": "key string; value string",
        "Host": (
            "id uint32; name string; pstate uint32; pstate_count uint32=1; state HostState;"
            "properties [HostProperty]; zone_properties [HostProperty]; core_count uint32=1;"
            "computation_speed [float64]"
        ),
        "WorkloadAndFilename": "name string; filename string",
        "SimulationBeginsEvent": (
            "host_number uint32; computation_host_number uint32; computation_hosts [Host];"
            "storage_host_number uint32; storage_hosts [Host]; batsim_arguments [string];"
            "batsim_execution_context_json string; workloads [WorkloadAndFilename];"
            "profiles [ProfileAndId]"
        ),
        "SimulationEndsEvent": "",
        "AllStaticJobsHaveBeenSubmittedEvent": "",
        "AllStaticExternalEventsHaveBeenInjectedEvent": "",
        "FinishRegistrationEvent": "",
        "ForceSimulationStopEvent": "",
        # JSON only
        "ChangeHostsPStateEvent": "host_ids string; pstate uint32",
        "HostsPStateChangedEvent": "host_ids string; pstate uint32",
        "TurnOnOffHostsEvent": "host_ids string; state string",
        "HostsTurnedOnOffEvent": "host_ids string; state string",
        "ExternalEventOccurredEvent": "",
    }.items()
}
