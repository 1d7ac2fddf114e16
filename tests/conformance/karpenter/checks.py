"""What Karpenter must not do, of the objects at the end and of what it asked for."""

from itertools import pairwise

KIND = "nodeclaims.karpenter.sh"


def _asked(history, verb):
    """The times at which Karpenter's requests for NodeClaims were carried out, with their names."""
    return [
        (entry.at, entry.request.name)
        for entry in history.of("write", who="karpenter")
        if entry.request.verb == verb and entry.request.plural == KIND and not entry.code
    ]


def _first_deletions(history):
    """When the deletion of each NodeClaim was asked for, and when it was last asked for."""
    found = {}
    for at, name in _asked(history, "delete"):
        found[name] = (found.get(name, (at,))[0], at)
    return sorted(found.values())


def limits_hold(objects, history):
    """A NodePool has no more NodeClaims than its limit, at the end and while one replaces another."""
    pools = {each["metadata"]["name"]: each for each in objects if each.get("kind") == "NodePool"}
    owners = [
        each["metadata"]["labels"]["karpenter.sh/nodepool"]
        for each in objects
        if each.get("kind") == "NodeClaim"
    ]
    for name, pool in pools.items():
        limit = int(pool["spec"]["limits"]["nodes"])
        if owners.count(name) > limit:
            return f"NodePool {name} has {owners.count(name)} NodeClaims, its limit is {limit}"
    most = sum(int(pool["spec"]["limits"]["nodes"]) for pool in pools.values())
    gone = [begun for begun, _ in _first_deletions(history)]
    for number, (at, _) in enumerate(_asked(history, "create"), 1):
        if number - sum(each <= at for each in gone) > most:
            return f"a NodeClaim beyond the limit of {most} is created at {at / 1e9:g}s"
    return ""


def both_pools_are_used(objects, history):
    """Pods that do not fit within the limit of one NodePool get a node of the other."""
    used = {
        each["metadata"]["labels"]["karpenter.sh/nodepool"]
        for each in objects
        if each.get("kind") == "NodeClaim"
    }
    return "" if len(used) == 2 else f"only NodePool {', '.join(used)} is used"


def a_limit_of_zero_allows_no_node(objects, history):
    """Nothing is created in a NodePool that is limited to none of a resource."""
    return "a NodePool with a limit of 0 gets a node" if _asked(history, "create") else ""


def one_node_is_enough(objects, history):
    """One pod needs one NodeClaim."""
    made = len(_asked(history, "create"))
    return f"{made} NodeClaims are created for one pod" if made > 1 else ""


def nothing_is_created_of_a_class_that_is_not_ready(objects, history):
    """No NodeClaim is created while its NodeClass is not ready: from step 2 to 4 of the script."""
    steps = [entry.at for entry in history.of("step")]
    early = [at for at, _ in _asked(history, "create") if steps[1] < at < steps[3]]
    return f"a NodeClaim is created at {early[0] / 1e9:g}s" if early else ""


def one_node_is_disrupted_at_a_time(objects, history):
    """The budget of disruptions is one node: the next one waits until the first has gone."""
    begun = _first_deletions(history)
    for (_, end), (start, _) in pairwise(begun):
        if start < end:
            return f"a second node is disrupted at {start / 1e9:g}s, before the first has gone"
    return ""
