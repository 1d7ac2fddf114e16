"""Several threads write at once, as the moving parts of one process do."""

import threading

from apiserver.verbs.asking import Asked


def test_no_two_services_get_one_address_whoever_makes_them():
    ask = Asked()
    kind = ask.resources.kind("", "v1", "services")
    made, start = [], threading.Barrier(8)

    def run(number):
        start.wait()
        for count in range(20):
            meta = {"name": f"s{number}-{count}"}
            value = {"metadata": meta, "spec": {"type": "NodePort", "ports": [{"port": 80}]}}
            made.append(ask.resources.create(kind, value, "default").value["spec"])

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 160
    assert len({spec["clusterIP"] for spec in made}) == 160
    assert len({spec["ports"][0]["nodePort"] for spec in made}) == 160
