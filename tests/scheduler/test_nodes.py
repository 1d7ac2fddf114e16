from hypothesis import given
from hypothesis import strategies as st

from builders import pod, worker
from dralab.runtime.resources import EVENTS, NODES, PODS
from dralab.scheduling.filters import room
from dralab.scheduling.nodes import NodeTable
from dralab.scheduling.pods import pod_info


def test_pods_go_where_there_is_room_and_wait_where_there_is_none(lab):
    lab.server.add(NODES, worker("small", cpu="1"), worker("large", cpu="4"))
    lab.start()
    lab.add(PODS, pod("big", requests={"cpu": "3"}), pod("huge", requests={"cpu": "5"}))
    assert lab.node_of("big") == "large"
    assert lab.why("huge").startswith("0/2 nodes are available: 2 Insufficient cpu.")
    lab.set_status(NODES, "small", allocatable={"cpu": "8", "memory": "8Gi", "pods": "9"})
    lab.wait(2)
    assert lab.node_of("huge") == "small"


def test_a_pod_that_ends_leaves_its_room_to_the_next(lab):
    lab.server.add(NODES, worker("n", cpu="1"))
    lab.start()
    lab.add(PODS, pod("a", requests={"cpu": "1"}), pod("b", requests={"cpu": "1"}))
    assert (lab.node_of("a"), lab.node_of("b")) == ("n", None)
    lab.set_status(PODS, "a", phase="Succeeded")
    lab.wait(2)
    assert lab.node_of("b") == "n"


def test_every_reason_is_counted_by_node(lab):
    lab.server.add(
        NODES,
        worker("cordoned", unschedulable=True),
        worker("tainted", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}]),
        worker("full", pods="0"),
        worker("other", labels={"zone": "b"}),
        worker("tight", cpu="1", memory="1Gi", labels={"zone": "a"}),
    )
    lab.server.patch(NODES, "full", {"metadata": {"labels": {"zone": "a"}}})
    lab.start()
    lab.add(PODS, pod("p", requests={"cpu": "2", "memory": "2Gi"}, nodeSelector={"zone": "a"}))
    assert lab.why("p").startswith(
        "0/5 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 1 Too many pods, "
        "1 node(s) didn't match Pod's node affinity/selector, "
        "1 node(s) had untolerated taint {k: v}, 1 node(s) were unschedulable."
    )
    [event] = [event for event in lab.server.all(EVENTS) if event["reason"] == "FailedScheduling"]
    assert event["message"] == lab.why("p")


def test_an_identical_refusal_is_written_once(lab):
    lab.server.add(NODES, worker("n", cpu="1"))
    lab.start()
    lab.add(PODS, pod("p", requests={"cpu": "2"}))
    for number in range(3):
        lab.server.patch(NODES, "n", {"metadata": {"labels": {"x": str(number)}}})
        lab.wait(30)
    assert sum(entry[:2] == ("patch status", "pods") for entry in lab.server.log) == 1


def test_pods_of_other_schedulers_are_left_alone(lab):
    lab.server.add(NODES, worker("n"))
    lab.start()
    lab.add(PODS, pod("mine"), pod("theirs", schedulerName="bashScheduler"))
    assert (lab.node_of("mine"), lab.node_of("theirs")) == ("n", None)
    assert lab.why("theirs") is None


def test_a_scheduler_that_does_not_lead_watches_and_takes_over(lab):
    lab.server.add(NODES, worker("n", cpu="2"))
    lab.start()
    lab.scheduler.rest()
    lab.add(PODS, pod("p", requests={"cpu": "1"}), pod("gated", schedulingGates=[{"name": "g"}]))
    wanted = pod("bound", requests={"cpu": "1"}, nodeName="n")
    lab.add(PODS, wanted)
    assert lab.node_of("p") is None
    assert lab.why("p") is None
    lab.scheduler.lead()
    lab.wait(1)
    assert lab.node_of("p") == "n"
    lab.add(PODS, pod("late", requests={"cpu": "1"}))
    assert lab.why("late").startswith("0/1 nodes are available: 1 Insufficient cpu.")


def test_a_gated_pod_waits_until_its_gates_are_gone(lab):
    lab.server.add(NODES, worker("n"))
    lab.start()
    lab.add(PODS, pod("p", schedulingGates=[{"name": "example.com/ready"}]))
    assert lab.node_of("p") is None
    assert lab.why("p").startswith("Scheduling is blocked due to non-empty scheduling gates")
    lab.server.patch(PODS, "p", {"spec": {"schedulingGates": None}}, "default")
    lab.wait(2)
    assert lab.node_of("p") == "n"


def test_higher_priority_goes_first(lab):
    lab.server.add(NODES, worker("n", cpu="1"))
    lab.server.add(
        PODS,
        pod("low", requests={"cpu": "1"}, priority=1),
        pod("high", requests={"cpu": "1"}, priority=9),
    )
    lab.start()
    assert (lab.node_of("low"), lab.node_of("high")) == (None, "n")


def test_preferred_nodes_are_taken_where_there_is_a_choice(lab):
    lab.server.add(
        NODES,
        worker("a", taints=[{"key": "k", "effect": "PreferNoSchedule"}]),
        worker("b"),
        worker("c", labels={"disk": "ssd"}),
    )
    lab.start()
    wish = {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 50,
                    "preference": {
                        "matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]
                    },
                }
            ]
        }
    }
    lab.add(PODS, pod("plain"), pod("wishes", affinity=wish))
    assert (lab.node_of("plain"), lab.node_of("wishes")) == ("b", "c")


def test_a_node_that_has_the_image_is_preferred(lab):
    image = {"names": ["registry.example/big:latest"], "sizeBytes": 800 << 20}
    with_image = worker("n1")
    with_image["status"]["images"] = [image]
    lab.server.add(NODES, worker("n0"), with_image, worker("n2"))
    lab.start()
    made = pod("p")
    made["spec"]["containers"][0]["image"] = "registry.example/big"
    lab.add(PODS, made, pod("other"))
    assert lab.node_of("p") == "n1"
    assert lab.node_of("other") != "n1"
    lab.server.delete(NODES, "n1")
    lab.wait(1)
    assert not any(lab.scheduler.state.table.images.values())


def test_host_ports_collide_on_a_node(lab):
    lab.server.add(NODES, worker("n"))
    lab.start()

    def listening(name):
        made = pod(name)
        made["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
        return made

    lab.add(PODS, listening("a"), listening("b"))
    assert lab.node_of("a") == "n"
    assert "1 node(s) didn't have free ports for the requested pod ports" in lab.why("b")


def test_a_binding_that_fails_gives_the_room_back_and_is_tried_again(lab):
    from dralab.api.status import ApiError

    lab.server.add(NODES, worker("n", cpu="1"))
    lab.start()
    lab.server.fail_next("binding", "pods", ApiError("ServiceUnavailable", "down"))
    lab.add(PODS, pod("p", requests={"cpu": "1"}))
    lab.wait(0.5)
    [condition] = lab.server.get(PODS, "p", "default")["status"]["conditions"]
    assert (condition["reason"], condition["message"]) == ("SchedulerError", "down")
    lab.wait(5)
    assert lab.node_of("p") == "n"
    assert int(lab.scheduler.state.table.free("cpu")[0]) == 0


NODE_NAMES = ["n0", "n1", "n2"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["node", "no node", "pod", "no pod"]),
            st.sampled_from(NODE_NAMES),
            st.integers(0, 3),
            st.integers(0, 4),
        ),
        max_size=60,
    )
)
def test_what_is_free_is_what_is_offered_less_what_is_there(steps):
    table, offers, placed = NodeTable(), {}, {}
    for step, name, which, amount in steps:
        if step == "node":
            offers[name] = amount
            table.put_node(worker(name, cpu=str(amount)))
        elif step == "no node":
            offers.pop(name, None)
            table.remove_node(name)
        else:
            info = pod_info(pod(f"p{which}", requests={"cpu": str(which)}))
            uid = f"{name}/{which}"
            object.__setattr__(info, "uid", uid)
            if step == "pod":
                table.add_pod(name, info)
                placed[uid] = name, which
            else:
                table.remove_pod(name, uid)
                placed.pop(uid, None)
    assert set(table.row_of) == set(offers)
    for name, offer in offers.items():
        used = sum(cpu for node, cpu in placed.values() if node == name)
        count = sum(node == name for node, _ in placed.values())
        row = table.row_of[name]
        assert table.free("cpu")[row] == 1000 * (offer - used)
        assert table.free("pods")[row] == 110 - count
        fits = bool(room(table, pod_info(pod("x", requests={"cpu": "2"})))[row])
        assert fits == (offer - used >= 2)


def test_a_node_may_learn_a_new_resource_later(lab):
    lab.server.add(NODES, worker("n"))
    lab.start()
    lab.add(PODS, pod("p", requests={"example.com/x": "2"}))
    assert lab.why("p").startswith("0/1 nodes are available: 1 Insufficient example.com/x.")
    offer = lab.get(NODES, "n")["status"]["allocatable"]
    lab.set_status(NODES, "n", allocatable={**offer, "example.com/x": "2"})
    lab.wait(2)
    assert lab.node_of("p") == "n"


def test_a_pod_that_names_its_node_goes_there_and_nowhere_else(lab):
    lab.server.add(NODES, worker("a"), worker("b"), worker("full", pods="0"))
    lab.start()

    def named(name, node):
        fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
        required = {"nodeSelectorTerms": [{"matchFields": fields}]}
        return pod(
            name,
            affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
        )

    lab.add(PODS, named("p", "b"), named("q", "full"), named("r", "none"))
    assert lab.node_of("p") == "b"
    assert lab.why("q").startswith(
        "0/3 nodes are available: 1 Too many pods, "
        "2 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    )
    assert "3 node(s) didn't satisfy plugin(s) [NodeAffinity]" in lab.why("r")
