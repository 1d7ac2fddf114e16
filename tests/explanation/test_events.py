"""An event of a pod that waits tells only what the scheduler confirms in its whole state."""

from clusters import random_cluster
from crowded import flat, gpu_node, holder, waiter
from dralab.explanation.answers import ReasonWriter
from dralab.explanation.trial import LiveTrial, Trial
from dralab.explanation.why import WaitingPod, diagnosis_of
from dralab.objects.metadata import NamespacedName
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.pod_question import PodQuestion
from dralab.scheduling.state import Refusal
from stockverdicts import as_stored


def told(*groups):
    """The text of the event of the one pod that waits."""
    model = ClusterModel(flat(*groups))
    (pod,) = model.waiting
    return ReasonWriter(lambda: 0)(model.try_pod(pod), model.state)


def test_a_help_is_told_where_it_is_enough():
    assert "Help: ask for 4 devices." in told(gpu_node("n1", 4), waiter("train", 5))
    busy = told(gpu_node("n1", 2), holder("run", "n1", 0, 1), waiter("train", 2))
    assert "Help: wait until claim run-gpus ends." in busy


def test_a_help_is_left_out_where_something_else_is_missing_too():
    # The node of four has no CPU for it, and on that of two only the devices are free.
    text = told(
        gpu_node("n1", 2, cpu="1"),
        holder("run", "n1", 0, 1),
        waiter("train", 2, requests={"cpu": "2"}),
    )
    assert "Help:" not in text


def test_a_cluster_without_nodes_is_the_reason():
    assert told(waiter("train", 1)) == "no nodes available to schedule pods (DRA007)"


def test_tries_on_a_scheduler_at_work_and_on_a_model_agree_and_leave_no_trace():
    enough = short = 0
    for seed in range(0, 60, 2):
        cluster = random_cluster(seed, without=frozenset({"group"}))
        for each in cluster.waiting():
            name = each["metadata"]["name"]
            model = ClusterModel([as_stored(item) for item in cluster.alone(name)])
            pod = next(pod for pod in model.waiting if pod.key.name == name)
            refusal = model.try_pod(pod)
            if not isinstance(refusal, Refusal) or refusal.blocked is not None:
                continue
            asked = PodQuestion(model.state, pod)
            claims = model.state.devices.claims_of(pod, asked.demand)
            found = diagnosis_of(
                WaitingPod(asked=asked, refusal=refusal, title=name, problem=asked.problem())
            )
            names = {str(one): NamespacedName(one.namespace, one.name) for one in claims}
            live, whole = LiveTrial(asked, names), Trial(model, asked)
            for help_ in found.helps:
                if live.is_enough(help_):
                    enough += 1
                    assert whole.is_enough(help_), (seed, name, help_)
                else:
                    short += 1
            assert model.try_pod(pod).reasons == refusal.reasons, (seed, name)
    assert enough
    assert short
