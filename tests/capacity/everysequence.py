"""Every sequence of moves on a cluster of plain GPUs, told in a few lines: the oracle.

A cluster is nodes of GPUs, half of them on each NUMA node, and pods that hold some; pods ask for
so many, of one NUMA node or not. Whoever comes takes the first GPUs in order that do. Breadth
first over states, so the first that has room for the pod is the nearest.
"""

from itertools import combinations


class Ask:
    def __init__(self, count, together=False, cpu=0):
        self.count, self.together, self.cpu = count, together, cpu


def taken(gpus, used, ask):
    """The GPUs that an allocator in order gives on a node; None if there are too few."""
    free = [n for n in range(gpus) if n not in used]
    for found in combinations(free, ask.count):
        if not ask.together or len({n * 2 // gpus for n in found}) <= 1:
            return found
    return None


def place(nodes, state, asks, name, node):
    """The GPUs of a pod on a node in a state; None if it does not fit."""
    gpus, cpu = nodes[node]
    there = [other for other, (where, _) in state.items() if where == node]
    if sum(asks[other].cpu for other in there) + asks[name].cpu > cpu:
        return None
    used = {n for other in there for n in state[other][1]}
    return taken(gpus, used, asks[name])


def fewest(nodes, state, asks, name, most):
    """The least number of moves until a pod fits; None if more than `most` are needed."""
    edge, seen = [dict(state)], {key(state)}
    for moves in range(most + 1):
        following = []
        for now in edge:
            if any(place(nodes, now, asks, name, node) is not None for node in nodes):
                return moves
            for pod in now:
                rest = {other: at for other, at in now.items() if other != pod}
                for node in nodes:
                    found = place(nodes, rest, asks, pod, node)
                    if found is None:
                        continue
                    after = {**rest, pod: (node, found)}
                    if key(after) not in seen:
                        seen.add(key(after))
                        following.append(after)
        edge = following
    return None


def key(state):
    return tuple(sorted(state.items()))
