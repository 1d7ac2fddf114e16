"""The entries of metadata.managedFields: who owns which fields, read and written.

Rules: k8s.io/apimachinery `util/managedfields`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from dralab.apiserver.managed_fields import paths
from dralab.apiserver.managed_fields.paths import FieldSet
from dralab.values.records import dataclass

APPLY: Final = "Apply"
UPDATE: Final = "Update"
# As upstream: more writers than that become one, and what they wrote is "ancient".
MAX_UPDATERS: Final = 10
ANCIENT: Final = "ancient-changes"


class Owner(NamedTuple):
    """Who owns fields. An applier is the same whichever version it uses."""

    manager: str
    operation: str
    api_version: str
    subresource: str

    @classmethod
    def applier(cls, manager: str, subresource: str) -> "Owner":
        """Return the owner of an apply."""
        return cls(manager, APPLY, "", subresource)

    @classmethod
    def updater(cls, manager: str, api_version: str, subresource: str) -> "Owner":
        """Return the owner of a create, update or patch."""
        return cls(manager or "unknown", UPDATE, api_version, subresource)

    def shown(self, api_version: str) -> str:
        """Return the owner as conflicts name it."""
        text = f'"{self.manager}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return f"{text} using {api_version}" if self.operation == UPDATE else text


@dataclass(frozen=True, slots=True)
class OwnedFields:
    """The fields of one owner: their set, the time (RFC 3339, or empty), and the API version."""

    fields: FieldSet
    api_version: str
    time: str


Owners = dict[Owner, OwnedFields]


def is_reset(entries: Sequence[Any] | None) -> bool:
    """Return whether a client resets all owners, by one empty entry."""
    return entries is not None and len(entries) == 1 and not entries[0]


def read(entries: Any, *, trusted: bool = False) -> Owners:
    """Return the owners that entries name; empty if any entry cannot be read.

    `trusted` entries were written here: their sets of fields are not looked at again.
    """
    found: Owners = {}
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, Mapping) or entry.get("operation") not in (APPLY, UPDATE):
            return {}
        fields = entry.get("fieldsV1") or {}
        if not isinstance(fields, dict) or not (trusted or paths.is_field_set(fields)):
            return {}
        api_version = str(entry.get("apiVersion") or "")
        applies = entry["operation"] == APPLY
        owner = Owner(
            str(entry.get("manager") or ""),
            entry["operation"],
            "" if applies else api_version,
            str(entry.get("subresource") or ""),
        )
        found[owner] = OwnedFields(fields, api_version, str(entry.get("time") or ""))
    return found


def written(owners: Owners) -> list[dict[str, Any]]:
    """Return the entries of owners: appliers first, then by time and name."""

    def place(item: tuple[Owner, OwnedFields]) -> tuple[str, ...]:
        owner, owned = item
        return (
            owner.operation,
            owned.time,
            owner.manager,
            owned.api_version,
            owner.subresource,
        )

    found = []
    for owner, owned in sorted(owners.items(), key=place) if len(owners) > 1 else owners.items():
        entry: dict[str, Any] = {
            "manager": owner.manager,
            "operation": owner.operation,
            "apiVersion": owned.api_version,
            "time": owned.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": owned.fields,
        }
        if not owned.time:
            del entry["time"]
        if owner.subresource:
            entry["subresource"] = owner.subresource
        found.append(entry)
    return found


def capped(owners: Owners, limit: int = MAX_UPDATERS) -> Owners:
    """Return owners with the oldest updaters made one per version, until few enough are left."""
    updaters = [owner for owner in owners if owner.operation == UPDATE]
    if len(updaters) <= limit:
        return owners
    updaters.sort(key=lambda owner: (owners[owner].time, owner))
    found = dict(owners)
    firsts: dict[str, Owner] = {}
    joined: dict[Owner, tuple[list[FieldSet], str]] = {}
    count = len(updaters)
    for owner in updaters:
        if count <= limit:
            break
        version = found[owner].api_version
        bucket = Owner(ANCIENT, UPDATE, version, "")
        first = firsts.setdefault(version, owner)
        if owner in {first, bucket}:
            continue
        if bucket not in joined:
            known = found.pop(bucket if bucket in found else first)
            joined[bucket] = ([known.fields], known.time)
        late = found.pop(owner)
        sets, _ = joined[bucket]
        sets.append(late.fields)
        joined[bucket] = sets, late.time
        count -= 1
    for bucket, (sets, time) in joined.items():
        found[bucket] = OwnedFields(paths.union_of(sets), bucket.api_version, time)
    return found
