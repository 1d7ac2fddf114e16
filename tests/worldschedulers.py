"""Other people's schedulers in simulated time: their programs, and how work is put to each.

Programs and sources, whose CRDs a cluster needs, are named by environment variables: nothing of
those projects is kept here. `docs/guides/untouched-schedulers.md` says how they are built.
"""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

START = "2026-01-01T00:00:00Z"
PATIENCE = 900  # seconds of a run
CONTAINER = {
    "name": "c",
    "image": "i",
    "resources": {"requests": {"cpu": "1", "memory": "1Mi"}},
}


def _program(name):
    """A program's path: `DRALAB_` and its name in capitals says it, or it is on the PATH."""
    given = os.environ.get("DRALAB_" + name.upper().replace("-", "_"))
    return given or shutil.which(name)


def _crds(sources, *folders):
    """All CRDs in these folders of a project's sources."""
    return [
        one
        for folder in folders
        for path in sorted((sources / folder).glob("**/*.yaml"))
        for one in yaml.load_all(path.read_text(), yaml.CSafeLoader)
        if one and one["kind"] == "CustomResourceDefinition"
    ]


def _of(kind, version, name, spec, *, namespace=""):
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def _times(runs, arrives):
    return {
        "simulation.dralab.dev/runs": f"{runs}s",
        "simulation.dralab.dev/arrives": f"{arrives}s",
    }


def _pod(name, scheduler, times, labels=None, annotations=None, priority=""):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": labels or {},
            "annotations": {**times, **(annotations or {})},
        },
        "spec": {
            "schedulerName": scheduler,
            "restartPolicy": "Never",
            "containers": [CONTAINER],
            **({"priorityClassName": priority} if priority else {}),
        },
    }


class WorldScheduler:
    """Programs, and the objects that say to them what the tests mean.

    A queue has `own` cores, which it gets back from those that borrowed them, and `most` cores.
    """

    programs = ()
    sources = ""  # the variable that names them; empty: none are needed
    queue_of_urgent = "team"

    def missing(self):
        """What is needed and not there."""
        found = [name for name in self.programs if not _program(name)]
        if self.sources and self.sources not in os.environ:
            found.append(f"sources, named by {self.sources}")
        return ", ".join(found)

    def sources_of(self):
        """The folder of its sources."""
        return Path(os.environ[self.sources])

    def commands(self, folder):
        """The commands of the scenario."""
        raise NotImplementedError

    def options(self):
        """More of the scenario's `external`."""
        return {}

    def base(self):
        """What a cluster has to have."""
        return []

    def queues(self, **queues):
        """Queues by name, each with its cores (own, most)."""
        raise NotImplementedError

    def priorities(self, **values):
        """Priorities by name."""
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        return [
            kind | {"metadata": {"name": name}, "value": value} for name, value in values.items()
        ]

    def work(self, name, queue, *, runs, arrives=0, priority=""):
        """A pod of a core."""
        raise NotImplementedError

    def gang(self, name, queue, size, *, runs, arrives=0):
        """Pods of a core each that are to run together."""
        raise NotImplementedError

    def play(self, folder, work, *, nodes, until):
        """Run work in simulated time; the rows of its tasks."""
        folder.mkdir()
        objects = [*self.base(), *work]
        (folder / "objects.yaml").write_text(yaml.dump_all(objects, Dumper=yaml.CSafeDumper))
        external = {"start": START, "timer_slack": 1, **self.options()}
        scenario = {
            "fleet": {"nodes": [{"name": "node", "count": nodes, "cpu": 1, "memory": "4Gi"}]},
            "workload": {"manifests": "objects.yaml"},
            "scheduler": "external",
            "external": external | {"schedulers": self.commands(folder)},
            "stop": {"at": until},
        }
        (folder / "scenario.yaml").write_text(yaml.safe_dump(scenario))
        ran = subprocess.run(
            [sys.executable, "-m", "dralab", "simulate", "run", "scenario.yaml", "--write", "r"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        assert "late binds: 0" in ran.stderr
        with (folder / "r" / "tasks.csv").open() as file:
            return list(csv.DictReader(file))


class YuniKorn(WorldScheduler):
    """YuniKorn: applications are labels, a gang's placeholders an annotation."""

    programs = ("yunikorn-scheduler",)
    queue_of_urgent = "urgent"  # it takes nothing back within a queue

    def commands(self, folder):
        return {"yunikorn": [_program("yunikorn-scheduler")]}

    def queues(self, **queues):
        leaves = [
            {
                "name": name,
                "resources": {"guaranteed": {"vcore": str(own)}, "max": {"vcore": str(most)}},
            }
            for name, (own, most) in queues.items()
        ]
        root = {"name": "root", "submitacl": "*", "queues": leaves}
        text = yaml.safe_dump({"partitions": [{"name": "default", "queues": [root]}]})
        return [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "yunikorn-configs", "namespace": "default"},
                "data": {"queues.yaml": text},
            }
        ]

    def work(self, name, queue, *, runs, arrives=0, priority=""):
        labels = {"applicationId": name, "queue": f"root.{queue}"}
        return [_pod(name, "yunikorn", _times(runs, arrives), labels, priority=priority)]

    def gang(self, name, queue, size, *, runs, arrives=0):
        labels = {"applicationId": name, "queue": f"root.{queue}"}
        group = {"name": "w", "minMember": size, "minResource": {"cpu": "1", "memory": "1Mi"}}
        said = {
            "yunikorn.apache.org/task-group-name": "w",
            "yunikorn.apache.org/task-groups": json.dumps([group]),
        }
        return [
            _pod(f"{name}-{number}", "yunikorn", _times(runs, arrives), labels, said)
            for number in range(size)
        ]


class Volcano(WorldScheduler):
    """Volcano and its controllers: pods get a PodGroup, a gang is a Job of Volcano's."""

    programs = ("vc-scheduler", "vc-controller-manager")
    sources = "DRALAB_VOLCANO_SOURCES"

    def commands(self, folder):
        first = ["priority", "conformance"]
        second = ["drf", "predicates", "proportion", "nodeorder", "binpack"]
        calm = [{"name": "gang", "enablePreemptable": False}]
        tiers = [[*({"name": name} for name in first), *calm], [{"name": name} for name in second]]
        # Without the action "enqueue", which admits no more work than the cluster has room for.
        actions = "allocate, preempt, reclaim, backfill"
        said = {"actions": actions, "tiers": [{"plugins": plugins} for plugins in tiers]}
        (folder / "scheduler.conf").write_text(yaml.safe_dump(said))
        shared = ["--kubeconfig={kubeconfig}", "--leader-elect=false", "--logtostderr"]
        return {
            "volcano": [_program("vc-scheduler"), *shared, "--scheduler-conf=scheduler.conf"],
            "manager": [_program("vc-controller-manager"), *shared, "--scheduler-name=volcano"],
        }

    def options(self):
        return {"controllers": ["garbage-collector-controller"]}

    def base(self):
        folders = ("config/crd/volcano/bases", "config/crd/jobflow/bases")
        return [*_crds(self.sources_of(), *folders), *self.queues(default=(1, 1000))]

    def queues(self, **queues):
        version = "scheduling.volcano.sh/v1beta1"
        return [
            _of("Queue", version, name, {"weight": max(1, own), "capability": {"cpu": most}})
            for name, (own, most) in queues.items()
        ]

    def work(self, name, queue, *, runs, arrives=0, priority=""):
        said = {"scheduling.volcano.sh/queue-name": queue}
        times = _times(runs, arrives)
        return [_pod(name, "volcano", times, annotations=said, priority=priority)]

    def gang(self, name, queue, size, *, runs, arrives=0):
        template = {
            "metadata": {"annotations": {"simulation.dralab.dev/runs": f"{runs}s"}},
            "spec": {"restartPolicy": "Never", "containers": [CONTAINER]},
        }
        task = {"name": "w", "replicas": size, "template": template}
        spec = {"schedulerName": "volcano", "minAvailable": size, "queue": queue, "tasks": [task]}
        return [_of("Job", "batch.volcano.sh/v1alpha1", name, spec, namespace="default")]


class Kueue(WorldScheduler):
    """Kueue, which admits Jobs, with the stock kube-scheduler and dralab's job controller."""

    programs = ("kueue", "kube-scheduler")
    sources = "DRALAB_KUEUE_SOURCES"
    version = "kueue.x-k8s.io/v1beta2"

    def commands(self, folder):
        # It reads a certificate from there, whatever its configuration says.
        certificates = folder / "etc" / "kueue" / "metrics" / "certs"
        certificates.mkdir(parents=True)
        key = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=kueue"
        words = ["openssl", *key.split(), "-keyout", "tls.key", "-out", "tls.crt"]
        subprocess.run(words, cwd=certificates, capture_output=True, check=True)
        said = {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "health": {"healthProbeBindAddress": "127.0.0.1:0"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"port": 19443, "certDir": str(certificates)},
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "integrations": {"frameworks": ["batch/job"]},
        }
        (folder / "kueue.yaml").write_text(yaml.safe_dump(said))
        mount = f'mount -t overlay overlay -o lowerdir={folder / "etc"}:/etc /etc && exec "$@"'
        private = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]
        own = ["--kubeconfig={kubeconfig}", "--config=kueue.yaml"]
        gates = "--feature-gates=VisibilityOnDemand=false"
        stock = [_program("kube-scheduler")]
        return {
            "default-scheduler": [*stock, "--config={config}", "--secure-port=0"],
            "kueue": [*private, _program("kueue"), *own, gates],
        }

    def options(self):
        return {
            "controllers": ["job-controller", "garbage-collector-controller"],
            "warm_up": 30,
        }

    def base(self):
        crds = _crds(self.sources_of(), "config/components/crd/bases")
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}}
        return [*crds, namespace, _of("ResourceFlavor", self.version, "default", {})]

    def queues(self, **queues):
        found = []
        for name, (own, most) in queues.items():
            cores = {"name": "cpu", "nominalQuota": own, "borrowingLimit": most - own}
            memory = {"name": "memory", "nominalQuota": "1Ti"}
            flavors = [{"name": "default", "resources": [cores, memory]}]
            spec = {
                "cohortName": "all",
                "namespaceSelector": {},
                "preemption": {
                    "reclaimWithinCohort": "Any",
                    "withinClusterQueue": "LowerPriority",
                },
                "resourceGroups": [
                    {"coveredResources": ["cpu", "memory"], "flavors": flavors},
                ],
            }
            found.append(_of("ClusterQueue", self.version, name, spec))
            local = {"clusterQueue": name}
            found.append(_of("LocalQueue", self.version, name, local, namespace="default"))
        return found

    def work(self, name, queue, *, runs, arrives=0, priority=""):
        (job,) = self.gang(name, queue, 1, runs=runs, arrives=arrives)
        if priority:
            # Not the pods': else kube-scheduler takes back as well what Kueue does.
            job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = priority
        return [job]

    def priorities(self, **values):
        kind = {"apiVersion": self.version, "kind": "WorkloadPriorityClass"}
        return [
            kind | {"metadata": {"name": name}, "value": value} for name, value in values.items()
        ]

    def gang(self, name, queue, size, *, runs, arrives=0):
        template = {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}
        spec = {"suspend": True, "parallelism": size, "completions": size, "template": template}
        job = _of("Job", "batch/v1", name, spec, namespace="default")
        job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": queue}
        job["metadata"]["annotations"] = _times(runs, arrives)
        return [job]


class Kai(WorldScheduler):
    """KAI with its binder and its pod grouper; a gang is a PodGroup of its own."""

    programs = ("kai-scheduler", "kai-binder", "kai-podgrouper")
    sources = "DRALAB_KAI_SOURCES"

    def commands(self, folder):
        def address(name, first):
            metrics, probes = f"127.0.0.1:{first}", f"127.0.0.1:{first + 1}"
            own = [f"--metrics-bind-address={metrics}", f"--health-probe-bind-address={probes}"]
            return [_program(name), *own]

        return {
            "kai-scheduler": [_program("kai-scheduler")],
            "binder": address("kai-binder", 28090),
            "podgrouper": address("kai-podgrouper", 28092),
        }

    def options(self):
        return {"controllers": ["garbage-collector-controller"], "warm_up": 30}

    def base(self):
        crds = _crds(self.sources_of(), "deployments/kai-scheduler/crds")
        return [*crds, self._queue("top", 1000, 1000, {})]

    def queues(self, **queues):
        top = {"parentQueue": "top"}
        return [self._queue(name, own, most, top) for name, (own, most) in queues.items()]

    def _queue(self, name, own, most, more):
        free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
        cores = {"quota": 1000 * own, "limit": 1000 * most, "overQuotaWeight": 1}
        spec = {**more, "resources": {"cpu": cores, "gpu": free, "memory": free}}
        return _of("Queue", "scheduling.run.ai/v2", name, spec)

    def work(self, name, queue, *, runs, arrives=0, priority=""):
        labels = {"kai.scheduler/queue": queue}
        return [_pod(name, "kai-scheduler", _times(runs, arrives), labels, priority=priority)]

    def gang(self, name, queue, size, *, runs, arrives=0):
        spec = {"minMember": size, "queue": queue}
        version = "scheduling.run.ai/v2alpha2"
        group = _of("PodGroup", version, name, spec, namespace="default")
        labels, said = {"kai.scheduler/queue": queue}, {"pod-group-name": name}
        pods = (
            _pod(f"{name}-{number}", "kai-scheduler", _times(runs, arrives), labels, said)
            for number in range(size)
        )
        return [group, *pods]


SCHEDULERS = {one.__name__.lower(): one() for one in (YuniKorn, Volcano, Kueue, Kai)}
