"""The small language of scenarios on a simulated cluster."""

from dralab.simulation.engines.cluster.run import ClusterRun
from dralab.simulation.scenario import scenario as scenarios

S = 1_000_000_000


def load(folder, text, manifests="", **files):
    """Write a scenario, and manifests beside it as `pods.yaml`; load it."""
    if manifests:
        (folder / "pods.yaml").write_text(manifests)
    for name, content in files.items():
        (folder / name.replace("_py", ".py").replace("_yaml", ".yaml")).write_text(content)
    path = folder / "scenario.yaml"
    path.write_text(text + ("" if "scheduler:" in text else "\nscheduler: dralab\n"))
    return scenarios.load(path)


def run(folder, text, manifests="", **files):
    """Run a scenario to its end."""
    return ClusterRun(load(folder, text, manifests, **files)).go()


def tasks(result):
    """Return the tasks by name."""
    return {task.id: task for task in result.tasks}


def times(result):
    """Return when each task started and ended, in seconds."""
    return {
        task.id: (task.started / S, task.ended / S)
        for task in result.tasks
        if task.ended is not None
    }


def places(result):
    """Return on which node, or devices, each task was."""
    return {task.id: " ".join(result.lanes[lane] for lane in task.lanes) for task in result.tasks}


def pod(name, *, runs="60s", arrives="0s", more="", spec="", cpu="1", resources=None):
    """Return a pod as YAML."""
    resources = f'{{requests: {{cpu: "{cpu}"}}}}' if resources is None else resources
    return f"""---
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  labels: {{app: {name.rpartition("-")[0] or name}}}
  annotations: {{simulation.dralab.dev/runs: "{runs}", simulation.dralab.dev/arrives: "{arrives}"{more}}}
spec:
  containers: [{{name: main, image: x, resources: {resources}}}]
{spec}
"""
