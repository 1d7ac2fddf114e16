"""A real kube-apiserver refuses the recorded requests in the recorded words."""

import json
import ssl
from http.client import HTTPSConnection

import pytest

pytest.importorskip("grpc")

from benchmarks import kube

from etcds import Etcd
from refusals import NAMESPACE, compared, refusals

pytestmark = pytest.mark.conformance


def test_the_recorded_refusals_are_those_of_a_real_server(tmp_path):
    program = kube.program()
    if program is None:
        pytest.skip("there is no kube-apiserver: DRALAB_KUBE_APISERVER names one")
    access = {"Authorization": f"Bearer {kube.TOKEN}"}
    with Etcd(tmp_path) as etcd:
        real = kube.KubeApiserver(program, tmp_path / "kube", etcd.url.replace("etcd:", "http:"))
        try:
            trusting = ssl._create_unverified_context()  # noqa: S323 - its own, on loopback
            line = HTTPSConnection(real.url.removeprefix("https://"), context=trusting)
            head = {**access, "Content-Type": "application/json"}
            line.request("POST", "/api/v1/namespaces", json.dumps(NAMESPACE), head)
            assert line.getresponse().read()
            different = []
            for row in refusals():
                line.request(row.method, row.target, row.body, {**row.headers, **access})
                answer = line.getresponse()
                different.append(compared(row, answer.status, answer.read(), ordered=False))
            line.close()
        finally:
            real.stop()
    assert "\n".join(filter(None, different)) == ""
