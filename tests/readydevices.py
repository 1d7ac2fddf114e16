"""Binding conditions: tells, for each device that was given away, that it is ready to be used."""

from typing import Any

from dralab.objects.metadata import NamespacedName, key_of
from dralab.runtime.client import amend
from dralab.runtime.manager import Manager
from dralab.runtime.resources import CLAIMS
from dralab.values.json_types import JsonDict


class ReadyDevices:
    """Sets the binding conditions of one driver's allocated devices to True."""

    def __init__(self, manager: Manager, driver: str) -> None:
        self.manager = manager
        self.driver = driver
        self.claims = manager.cache(CLAIMS)
        self.queue = manager.queue(f"conditions/{driver}", self.sync)
        self.claims.subscribe(lambda _, new: self.queue.add(key_of(new)) if new else None)

    def sync(self, key: NamespacedName) -> int | None:
        """Write what is missing of a claim's conditions, all at once."""
        claim = self.claims.get(key)
        if claim is not None and "allocation" in (claim.get("status") or {}):
            changed = amend(self.manager.client, CLAIMS, claim, self._change, subresource="status")
            self.claims.learn(changed)
        return None

    def _change(self, claim: JsonDict) -> bool:
        status = claim["status"]
        if "allocation" not in status:
            return False
        entries: list[dict[str, Any]] = status.get("devices") or []
        changed = False
        for result in status["allocation"].get("devices", {}).get("results") or ():
            if result["driver"] != self.driver or not result.get("bindingConditions"):
                continue
            name = {key: result[key] for key in ("driver", "pool", "device")}
            if result.get("shareID"):
                name["shareID"] = result["shareID"]
            entry = next((e for e in entries if all(e.get(k) == v for k, v in name.items())), None)
            if entry is None:
                entry = name
                entries.append(entry)
            conditions = entry.setdefault("conditions", [])
            for type_ in result["bindingConditions"]:
                if any(c["type"] == type_ and c["status"] == "True" for c in conditions):
                    continue
                conditions[:] = [c for c in conditions if c["type"] != type_]
                conditions.append(
                    {
                        "type": type_,
                        "status": "True",
                        "reason": "Ready",
                        "message": "Device is ready",
                        "lastTransitionTime": self.manager.now(),
                    }
                )
                changed = True
        if changed:
            status["devices"] = entries
        return changed
