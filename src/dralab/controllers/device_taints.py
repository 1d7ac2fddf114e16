"""Device taint eviction: evicts pods from devices whose NoExecute taints they do not tolerate.

Source: kube-controller-manager's devicetainteviction controller. Only tolerations copied into the
allocation result whose effect is exactly NoExecute count.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from dralab.controllers import disruptions
from dralab.controllers.workloads import group_key
from dralab.kernel.clock import SECOND, from_rfc3339
from dralab.objects.claims import allocation_of, consumers_of, results_of
from dralab.objects.conditions import with_condition
from dralab.objects.device_taints import DeviceTaint, DeviceToleration, rule_selects
from dralab.objects.metadata import NamespacedName, is_deleting, key_of, status_of, uid_of
from dralab.objects.pods import group_of, is_finished
from dralab.objects.slices import by_pool, devices_of, newest_of, pool_of
from dralab.runtime.manager import Manager
from dralab.runtime.resources import CLAIMS, POD_GROUPS, PODS, SLICES, TAINT_RULES
from dralab.values.json_types import JsonDict, JsonObject

STATUS_PERIOD: Final = 10 * SECOND


class DeviceTaintEviction:
    """Deletes pods in time, and reports the progress in the status of rules."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self.client = manager.client
        self.recorder = manager.recorder("device-taint-eviction")
        self.pods = manager.cache(PODS)
        self.claims = manager.cache(CLAIMS)
        self.slices = manager.cache(SLICES)
        self.rules = manager.cache(TAINT_RULES)
        self.groups = manager.cache(POD_GROUPS)
        self.claims.index("device", _devices)
        self.claims.index("consumer", _consumers)
        self.slices.index("pool", _pool)
        self.pods.index("group", group_key)
        self.queue = manager.queue("device-taint-eviction", self.reconcile)
        self.rule_queue = manager.queue("device-taint-eviction/rules", self.sync_rule)
        self._since: dict[tuple[str, str], int] = {}
        # How many pods each rule has evicted, by its UID.
        self._evicted: dict[str, int] = {}
        self.claims.subscribe(self._claim)
        self.slices.subscribe(self._slice)
        self.rules.subscribe(self._rule)
        self.pods.subscribe(self._pod)

    def _claim(self, old: JsonDict | None, new: JsonDict | None) -> None:
        for claim in (old, new):
            if claim is not None:
                for pod in self._pods_of(claim):
                    self.queue.add(key_of(pod))
                self._rules_may_change()

    def _slice(self, old: JsonDict | None, new: JsonDict | None) -> None:
        for obj in (old, new):
            if obj is None:
                continue
            spec = obj["spec"]
            if any(device.get("taints") for device in spec.get("devices") or ()):
                for claim in self.claims.find("device", f"{spec['driver']}/{spec['pool']['name']}"):
                    for pod in self._pods_of(claim):
                        self.queue.add(key_of(pod))

    def _rule(self, old: JsonDict | None, new: JsonDict | None) -> None:
        for rule in (old, new):
            if rule is not None:
                for claim in self.claims:
                    if any(_selects(rule, result) for result in _results(claim)):
                        for pod in self._pods_of(claim):
                            self.queue.add(key_of(pod))
        if new is not None:
            self.rule_queue.add(key_of(new))
        elif old is not None:
            self._evicted.pop(uid_of(old), None)

    def _pod(self, old: JsonDict | None, new: JsonDict | None) -> None:
        if new is not None and new["spec"].get("resourceClaims"):
            self.queue.add(key_of(new))
        if old is not None and new is None and old["spec"].get("resourceClaims"):
            self._rules_may_change()

    def _rules_may_change(self) -> None:
        for rule in self.rules:
            self.rule_queue.add_after(key_of(rule), STATUS_PERIOD)

    # --- eviction

    def reconcile(self, key: NamespacedName) -> int | None:
        """Delete a pod whose time on its devices is over; look again when it will be."""
        pod = self.pods.get(key)
        if pod is None or is_deleting(pod) or is_finished(pod) or not pod["spec"].get("nodeName"):
            return None
        when = self.eviction_time(pod)
        if when is None:
            return None
        now = self.manager.engine.clock.now()
        if when > now:
            return when - now
        self._evict(pod)
        return None

    def eviction_time(self, pod: JsonDict) -> int | None:
        """Return when a pod must leave (ns since the epoch); None: it may stay."""
        times = [
            when
            for claim in self._claims_of(pod)
            for result in _results(claim)
            if not result.get("adminAccess")
            for taint in self._taints(result)
            if (when := self._leaves(taint, result)) is not None
        ]
        return min(times, default=None)

    def _leaves(self, taint: JsonObject, result: JsonObject) -> int | None:
        added = taint.get("timeAdded")
        if added:
            since = int(from_rfc3339(added))
        else:
            # A server sets the time; where it did not, the first sight counts.
            name = f"{result['driver']}/{result['pool']}/{result['device']}"
            mark = name, f"{taint['key']}={taint.get('value', '')}"
            since = self._since.setdefault(mark, self.manager.engine.clock.now())
        matching = [
            toleration
            for toleration in result.get("tolerations") or ()
            if toleration.get("effect") == "NoExecute"
            and DeviceToleration.read(toleration).tolerates(DeviceTaint.read(taint))
        ]
        if not matching:
            return since
        seconds = [item.get("tolerationSeconds") for item in matching]
        if None in seconds:
            return None
        return since + max(0, min(int(item) for item in seconds if item is not None)) * SECOND

    def _taints(self, result: JsonObject) -> Iterator[JsonObject]:
        pool = f"{result['driver']}/{result['pool']}"
        for item in newest_of(self.slices.find("pool", pool)):
            for device in devices_of(item):
                if device["name"] == result["device"]:
                    for taint in device.get("taints") or ():
                        if taint.get("effect") == "NoExecute":
                            yield taint
        for rule in self.rules:
            taint = rule["spec"]["taint"]
            if taint.get("effect") == "NoExecute" and _selects(rule, result):
                yield taint

    def _evict(self, pod: JsonDict) -> None:
        now = self.manager.now()
        self.recorder.event(pod, "Pod", "DeviceTaintManagerEviction", "Marking for deletion")
        rules = [rule for rule in self.rules if self._evicts(rule, pod)]
        why = "Device Taint manager: deleting due to NoExecute taint"
        condition = disruptions.target("DeletionByDeviceTaintManager", why, now)
        if not disruptions.evict(self.client, pod, condition):
            rules = []
        for rule in rules:
            self._evicted[uid_of(rule)] = self._evicted.get(uid_of(rule), 0) + 1
        self._rules_may_change()

    def _evicts(self, rule: JsonDict, pod: JsonDict) -> bool:
        taint = rule["spec"]["taint"]
        return taint.get("effect") == "NoExecute" and any(
            _selects(rule, result) and self._leaves(taint, result) is not None
            for claim in self._claims_of(pod)
            for result in _results(claim)
        )

    # --- the status of rules

    def sync_rule(self, key: NamespacedName) -> int | None:
        """Write the progress of an eviction into the rule's status."""
        rule = self.rules.get(key)
        if rule is None:
            return None
        now = self.manager.now()
        reason, message, going = self._progress(rule)
        status = status_of(rule)
        known = next(
            (c for c in status.get("conditions") or () if c["type"] == "EvictionInProgress"), None
        )
        new = {
            "type": "EvictionInProgress",
            "status": "True" if going else "False",
            "reason": reason,
            "message": message,
            "observedGeneration": rule["metadata"].get("generation", 0),
        }
        seen = (known or {}).get("observedGeneration") == new["observedGeneration"]
        if known is not None and seen and reason == known.get("reason") == "NoEffect":
            return None  # the effect of NoExecute is reported once, as documented in the API
        if known is not None and all(known.get(name) == new[name] for name in new):
            return None
        conditions = with_condition(status.get("conditions") or (), new, now=now)
        body = {**rule, "status": {**status, "conditions": conditions}}
        self.rules.learn(self.client.update(TAINT_RULES, body, subresource="status"))
        return STATUS_PERIOD if going else None

    def _progress(self, rule: JsonDict) -> tuple[str, str, bool]:
        """Return reason, message, and whether pods are still to go."""
        taint = rule["spec"]["taint"]
        effect = taint.get("effect")
        pods: dict[str, JsonDict] = {}
        allocated = 0
        for claim in self.claims:
            hit = [item for item in _results(claim) if _selects(rule, item)]
            allocated += len(hit)
            would = {**taint, "effect": "NoExecute"}
            if any(self._leaves(would, item) is not None for item in hit):
                pods |= {uid_of(pod): pod for pod in self._pods_of(claim) if _may_go(pod)}
        places = _counted(len({key_of(pod).namespace for pod in pods.values()}), "namespace")
        gone = self._evicted.get(uid_of(rule), 0)
        told = f"{_counted(gone, 'pod')} evicted since starting the controller." if gone else ""
        if effect == "None":
            published = self._published(rule)
            message = (
                f"{_counted(published, 'published device')} selected. "
                f"{_counted(allocated, 'allocated device')} selected. "
                f"{_counted(len(pods), 'pod')} would be evicted in {places} if the effect was "
                "NoExecute. This information will not be updated again. Recreate the "
                "DeviceTaintRule to trigger an update."
            )
            return "NoEffect", f"{message} {told}".strip(), False
        if effect != "NoExecute":
            message = "Eviction only happens for the NoExecute effect."
            return "OtherEffect", f"{message} {told}".strip(), False
        if pods:
            verb = "needs" if len(pods) == 1 else "need"
            message = f"{_counted(len(pods), 'pod')} {verb} to be evicted in {places}."
            return "PodsPendingEviction", f"{message} {told}".strip(), True
        return ("Completed" if gone else "NotStarted"), told, False

    def _published(self, rule: JsonDict) -> int:
        """Return how many devices of the newest slices a rule selects."""
        return sum(
            rule_selects(rule, *pool, device["name"])
            for pool, slices in by_pool(self.slices).items()
            for item in newest_of(slices)
            for device in devices_of(item)
        )

    # --- users of devices

    def _pods_of(self, claim: JsonDict) -> list[JsonDict]:
        namespace = key_of(claim).namespace
        found = []
        for item in consumers_of(claim):
            if item.get("resource") == "pods":
                pod = self.pods.get(NamespacedName(namespace, item["name"]))
                if pod is not None and uid_of(pod) == item["uid"]:
                    found.append(pod)
            elif item.get("resource") == "podgroups":
                found += self.pods.find("group", str(NamespacedName(namespace, item["name"])))
        return found

    def _claims_of(self, pod: JsonDict) -> list[JsonDict]:
        found = self.claims.find("consumer", uid_of(pod))
        name = group_of(pod)
        group = self.groups.get(NamespacedName(key_of(pod).namespace, name)) if name else None
        return found if group is None else [*found, *self.claims.find("consumer", uid_of(group))]


def _counted(number: int, noun: str) -> str:
    """Return a number of things in the words of the status of rules."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} different {noun}s" if noun == "namespace" else f"{number} {noun}s"


def _may_go(pod: JsonDict) -> bool:
    return bool(pod["spec"].get("nodeName")) and not is_deleting(pod) and not is_finished(pod)


def _results(claim: JsonDict) -> Sequence[JsonObject]:
    return results_of(allocation_of(claim))


def _devices(claim: JsonDict) -> list[str]:
    return sorted({f"{item['driver']}/{item['pool']}" for item in _results(claim)})


def _consumers(claim: JsonDict) -> list[str]:
    return [item["uid"] for item in consumers_of(claim)]


def _pool(obj: JsonDict) -> list[str]:
    return [str(pool_of(obj))]


def _selects(rule: JsonDict, result: JsonObject) -> bool:
    return rule_selects(rule, result["driver"], result["pool"], result["device"])
