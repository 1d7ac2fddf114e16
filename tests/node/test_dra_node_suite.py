"""What the kubelet's own DRA suite asks of a node (test/e2e_node/dra_test.go, 1.36.2), case by case.

The names are those of the suite's cases. Its minutes are simulated; cases about sockets have real
ones, in test_dra_node_sockets.py.
"""

import pytest

from dralab.api.resource.features import with_gates
from dralab.components.nodes import equip
from nodelab import DRIVER, NodeLab

OTHER = "test-driver2.cdi.k8s.io"
SHARES = ("0a0a0a0a-0b0b-4c0c-8d0d-0e0e0e0e0e01", "0a0a0a0a-0b0b-4c0c-8d0d-0e0e0e0e0e02")


@pytest.fixture
def lab(tmp_path):
    return NodeLab(tmp_path)


@pytest.fixture
def driver(lab):
    lab.start()
    return lab.driver()


@pytest.fixture
def two(lab, driver):
    return driver, lab.driver(OTHER)


# --- resource kubelet plugin ----------------------------------------------------------------------


def test_must_process_pod_created_when_kubelet_is_not_running(lab, driver):
    lab.stop()
    lab.pod()
    assert lab.phase() == "Pending"
    lab.start()
    lab.wait(10)
    assert lab.phase() == "Succeeded"


def test_must_keep_pod_in_pending_state_if_node_prepare_resources_times_out(lab, driver):
    # A call without an answer within 45 s is a failed call; see test_bad_drivers.py.
    driver.failing.add("prepare")
    lab.pod()
    lab.wait(60)
    assert lab.phase() == "Pending"
    assert driver.count("prepare") > 1


def test_must_run_pod_if_node_prepare_resources_fails_and_then_succeeds(lab, driver):
    driver.failing.add("prepare")
    lab.pod()
    assert lab.phase() == "Pending"
    driver.failing.clear()
    lab.wait(120)
    assert lab.phase() == "Succeeded"
    assert driver.calls[-2:] == [("prepare", True), ("unprepare", True)]


def test_must_run_pod_if_node_unprepare_resources_fails_and_then_succeeds(lab, driver):
    driver.failing.add("unprepare")
    lab.pod(wait=20)
    assert lab.phase() == "Running", "its end is told before its devices are given back"
    driver.failing.clear()
    lab.wait(120)
    assert lab.phase() == "Succeeded"
    assert driver.calls[-1] == ("unprepare", True)


def test_must_retry_node_prepare_resources_after_kubelet_restart(lab, driver):
    driver.failing.add("prepare")
    lab.pod()
    lab.stop()
    driver.failing.clear()
    lab.start()
    lab.wait(20)
    assert lab.phase() == "Succeeded"
    assert ("prepare", True) in driver.calls


def test_must_retry_node_unprepare_resources_after_kubelet_restart(lab, driver):
    driver.failing.add("unprepare")
    lab.pod(wait=20)
    assert ("unprepare", False) in driver.calls
    lab.stop()
    driver.failing.clear()
    lab.start()
    lab.wait(120)
    assert driver.calls[-1] == ("unprepare", True)
    assert lab.phase() == "Succeeded"


def test_must_call_node_unprepare_resources_for_deleted_pod(lab, driver):
    driver.failing.add("unprepare")
    lab.pod(seconds=1, wait=20)
    lab.delete()
    assert driver.calls[-1] == ("unprepare", False)
    driver.failing.clear()
    lab.wait(120)
    assert driver.calls[-1] == ("unprepare", True)
    assert lab.phase() is None


def test_must_call_node_unprepare_resources_for_deleted_pod_after_kubelet_restart(lab, driver):
    driver.failing.add("unprepare")
    lab.pod(seconds=1, wait=20)
    lab.delete(grace=0)
    lab.restart()
    before = driver.count("unprepare")
    lab.wait(70)
    assert driver.count("unprepare") > before
    driver.failing.clear()
    lab.wait(120)
    assert driver.calls[-1] == ("unprepare", True)


def test_must_not_call_node_prepare_resources_for_deleted_pod_after_kubelet_restart(lab, driver):
    driver.failing.add("prepare")
    lab.pod()
    lab.stop()
    lab.delete(grace=0)
    driver.failing.clear()
    calls = driver.count("prepare")
    lab.start()
    lab.wait(120)
    assert driver.count("prepare") == calls


# --- two resource kubelet plugins -----------------------------------------------------------------


def test_two_plugins_must_prepare_and_unprepare_resources(lab, two):
    lab.pod(DRIVER, OTHER, wait=20)
    assert lab.phase() == "Succeeded"
    assert [each.calls for each in two] == [[("prepare", True), ("unprepare", True)]] * 2


def in_use(lab):
    claims = lab.kubelet.claims
    lines = claims.metrics.text(claims.in_use()).splitlines()
    return {
        line.partition('"')[2].partition('"')[0]: int(line.rsplit(" ", 1)[1])
        for line in lines
        if line.startswith("dra_resource_claims_in_use{")
    }


def test_two_plugins_must_provide_metrics(lab, two):
    lab.pod(DRIVER, OTHER, seconds=9999)
    assert lab.phase() == "Running"
    assert in_use(lab) == {"<any>": 1, DRIVER: 1, OTHER: 1}
    lab.delete()
    lab.wait(30)
    assert lab.phase() is None
    assert in_use(lab) == {"<any>": 0}


def test_must_run_pod_if_node_prepare_resources_fails_for_one_plugin_and_then_succeeds(lab, two):
    two[1].failing.add("prepare")
    lab.pod(DRIVER, OTHER)
    assert lab.phase() == "Pending"
    two[1].failing.clear()
    lab.wait(120)
    assert lab.phase() == "Succeeded"


def test_must_run_pod_if_node_unprepare_resources_fails_for_one_plugin_and_then_succeeds(lab, two):
    two[1].failing.add("unprepare")
    lab.pod(DRIVER, OTHER, wait=20)
    assert ("unprepare", False) in two[1].calls
    two[1].failing.clear()
    lab.wait(120)
    assert two[1].calls[-1] == ("unprepare", True)
    assert lab.phase() == "Succeeded"


def test_must_run_pod_if_prepare_is_in_progress_for_one_plugin_when_kubelet_restarts(lab, two):
    two[0].failing.add("prepare")  # to the new kubelet, a call without an answer
    lab.pod(DRIVER, OTHER)
    assert lab.phase() == "Pending"
    lab.restart()
    two[0].failing.clear()
    lab.wait(120)
    assert ("prepare", True) in two[1].calls
    assert lab.phase() == "Succeeded"


def test_must_call_unprepare_again_if_it_s_in_progress_for_one_plugin_when_kubelet_restarts(
    lab, two
):
    two[1].failing.add("unprepare")
    lab.pod(DRIVER, OTHER, wait=20)
    lab.restart()
    two[1].failing.clear()
    lab.wait(120)
    assert two[1].calls[-1] == ("unprepare", True)
    assert lab.phase() == "Succeeded"


# --- resource slices ------------------------------------------------------------------------------


def test_slices_must_be_removed_on_kubelet_startup(lab):
    lab.slice("own")
    lab.slice("others", node="n1-other")
    lab.wait(5)
    assert lab.slices() == ["others", "own"]
    lab.start()
    lab.wait(5)
    assert lab.slices() == ["others"]


def test_slices_must_be_removed_after_plugin_unregistration(lab, driver):
    lab.slice("own")
    lab.wait(5)
    lab.kubelet.plugins.deregister(driver)
    lab.wait(29)
    assert lab.slices() == ["own"]
    lab.wait(2)
    assert lab.slices() == []


def test_slices_must_be_removed_if_plugin_stops_after_registration(lab, driver):
    lab.slice("own")
    lab.kubelet.plugins.connection(driver, up=False)
    lab.wait(31)
    assert lab.slices() == []


def test_slices_must_be_removed_if_plugin_is_unresponsive_after_registration(lab):
    lab.start()

    class Deaf:
        driver = DRIVER

    lab.kubelet.plugins.register(Deaf(), connected=False)
    lab.slice("own")
    lab.wait(31)
    assert lab.slices() == []


def test_slices_must_not_be_removed_if_plugin_restarts_quickly_enough(lab, driver):
    lab.slice("own")
    lab.kubelet.plugins.connection(driver, up=False)
    lab.wait(5)
    lab.kubelet.plugins.connection(driver, up=True)
    lab.wait(60)
    assert lab.slices() == ["own"]


# --- resource health ------------------------------------------------------------------------------


def test_should_reflect_device_health_changes_in_the_pod_s_status(lab, driver):
    lab.pod(seconds=9999)
    for health in ("Healthy", "Unhealthy", "Healthy"):
        driver.tell("dev-0", health)
        assert lab.health() == [health]


def test_should_not_add_health_status_to_pod_when_feature_gate_is_disabled(lab, driver):
    equip(lab.kubelet, with_gates("ResourceHealthStatus=false,ResourceHealthStatusMessage=false"))
    driver.tell("dev-0", "Healthy")
    lab.pod(seconds=60)
    assert lab.phase() == "Running"
    lab.wait(30)
    assert lab.health() == []


def test_should_update_health_to_unknown_when_plugin_stops_and_recover_upon_restart(lab, driver):
    driver.tell("dev-0", "Healthy")
    lab.pod(seconds=9999)
    assert lab.health() == ["Healthy"]
    lab.kubelet.plugins.deregister(driver)
    lab.kubelet.wake_all()
    lab.wait(2)
    assert lab.health() == ["Unknown"]
    again = lab.driver()
    again.tell("dev-0", "Healthy")
    assert lab.health() == ["Healthy"]


def test_devices_of_a_driver_that_reports_no_health_are_unknown(lab, driver):
    lab.pod(seconds=9999)
    assert driver.healths == {}
    assert lab.health() == ["Unknown"]


def test_should_automatically_reconnect_both_dra_and_health_api_after_connection_drop(lab, driver):
    driver.tell("dev-0", "Healthy")
    lab.pod(seconds=9999)
    lab.kubelet.plugins.deregister(driver)
    lab.kubelet.wake_all()
    lab.wait(2)
    assert lab.health() == ["Unknown"]
    again = lab.driver()
    lab.pod(name="second", devices=("dev-1",), seconds=9999)
    assert again.calls == [("prepare", True)]
    again.tell("dev-1", "Unhealthy")
    assert lab.health("second") == ["Unhealthy"]


def test_should_handle_concurrent_dra_operations_and_health_monitoring(lab, driver):
    names = [f"pod-{number}" for number in range(3)]
    for name in names:
        lab.pod(name=name, devices=(f"dev-{name}",), seconds=9999, wait=0)
    lab.wait(10)
    assert driver.count("prepare") >= 3
    for health in ("Healthy", "Unhealthy"):
        for name in names:
            driver.tell(f"dev-{name}", health)
        assert [lab.health(name) for name in names] == [[health]] * 3


def test_should_reflect_device_health_changes_for_devices_with_share_id(lab, driver):
    lab.pod(seconds=9999, shares=SHARES[:1])
    for health in ("Healthy", "Unhealthy", "Healthy"):
        driver.tell("dev-0", health)
        assert lab.health() == [health]


@pytest.mark.parametrize(
    "shares", [(), SHARES[:1], SHARES], ids=["without ShareID", "with a ShareID", "with two"]
)
def test_must_be_functional_with_the_specified_allocation_results(lab, driver, shares):
    lab.pod(shares=shares, wait=20)
    assert lab.phase() == "Succeeded"
    lab.delete()
    lab.wait(30)
    assert driver.calls == [("prepare", True), ("unprepare", True)]
