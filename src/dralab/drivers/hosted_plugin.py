"""A driver as a plugin: checkpoints, CDI files and checks around the driver's own code.

One call at a time; the same answer again for a claim that is prepared, its files written again (a
reboot loses them, kubernetes#141433); every claim answered; devices of another claim refused.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dralab.api.status import ApiError
from dralab.contracts.cdi import CdiDevice, CdiError, CdiSpec, ContainerEdits, file_name, qualified
from dralab.contracts.cdi_cache import CdiDirectory
from dralab.contracts.plugin import (
    ClaimRef,
    DeviceHealth,
    PluginError,
    PreparedDevice,
    PrepareResult,
)
from dralab.drivers.checkpoint import CheckpointedClaim, DriverCheckpoint, MemoryCheckpoint
from dralab.drivers.driver import AllocatedClaim, AllocatedDevice, Driver, PrepareError, claim_of
from dralab.runtime.client import Client, Resource, amend
from dralab.runtime.resources import CLAIMS

logger = logging.getLogger(__name__)

VERSIONS = ("v1", "v1beta2", "v1beta1")


class HostedPlugin:
    """One driver on one node, as the kubelet calls it."""

    def __init__(
        self,
        driver: Driver,
        client: Client,
        directory: CdiDirectory,
        checkpoint: DriverCheckpoint | None = None,
    ) -> None:
        self.code = driver
        self.client = client
        self.directory = directory
        self.checkpoint = checkpoint or MemoryCheckpoint()
        # Only for the driver's own code: what happens around a call.
        self.before: Callable[[str, Sequence[ClaimRef]], None] = lambda _verb, _claims: None
        self.after: Callable[[str, Sequence[ClaimRef]], None] = lambda _verb, _claims: None
        self._version = VERSIONS[0]
        self._lock = threading.Lock()
        self._write_common()

    @property
    def driver(self) -> str:
        """The driver's name."""
        return self.code.name

    @property
    def kind(self) -> str:
        """The CDI kind of its devices."""
        return f"k8s.{self.code.name}/{self.code.cdi_class}"

    def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareResult]:
        """Make the devices of claims ready. PluginError: the checkpoint cannot be read.

        A claim that is not what it should be is an error of that claim alone.
        """
        answers, found = {}, {}
        for ref in claims:
            try:
                found[ref.uid] = self._fetch(ref)
            except (ApiError, ValueError) as error:
                answers[ref.uid] = PrepareResult(error=f"get resource claim: {error}")
        with self._lock:
            self.before("prepare", claims)
            try:
                held = dict(self.checkpoint.load())
            except ValueError as error:
                raise PluginError(str(error)) from error
            self._write_common()
            known = set(held)
            for uid, claim in found.items():
                try:
                    answers[uid] = self._prepare(claim, held)
                except ApiError as error:
                    answers[uid] = PrepareResult(error=f"get resource claim: {error}")
            if set(held) != known:
                # Before the answer: a restarted driver then knows the claims.
                self.checkpoint.save(held)
            self.after("prepare", claims)
            return answers

    def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]:
        """Give devices back; a claim that was never prepared is not an error."""
        with self._lock:
            self.before("unprepare", claims)
            try:
                held = dict(self.checkpoint.load())
            except ValueError:
                held = {}  # Nothing can be read: what is kept from now on can.
            answers = {}
            for ref in claims:
                try:
                    self.code.unprepare(ref)
                except PrepareError as error:
                    answers[ref.uid] = f"error unpreparing devices for claim {ref.uid}: {error}"
                    continue
                self.directory.remove(file_name(self.kind, ref.uid))
                held.pop(ref.uid, None)
                answers[ref.uid] = ""
            self.checkpoint.save(held)
            self.after("unprepare", claims)
            return answers

    def health(self) -> Sequence[DeviceHealth]:
        """Return what the driver knows of its devices' health."""
        return self.code.health()

    # --- one claim --------------------------------------------------------------------------

    def _fetch(self, ref: ClaimRef) -> AllocatedClaim:
        claim = None
        for version in (self._version, *VERSIONS):
            try:
                resource = Resource(CLAIMS.group, version, CLAIMS.plural)
                claim = self.client.get(resource, ref.name, ref.namespace)
            except ApiError as error:
                if error.code != 404:
                    raise
                continue
            self._version = version
            break
        if claim is None:
            raise ValueError(
                f"retrieve claim {ref.namespace}/{ref.name}: resourceclaims.resource.k8s.io "
                f'"{ref.name}" not found'
            )
        found = claim_of(claim, self.code.name)
        if found.ref.uid != ref.uid:
            raise ValueError(f"claim {ref.namespace}/{ref.name} got replaced")
        return found

    def _prepare(self, claim: AllocatedClaim, held: dict[str, CheckpointedClaim]) -> PrepareResult:
        uid = claim.ref.uid
        try:
            if uid not in held:
                self._refuse_taken(claim, held)
            edits = self.code.prepare(claim)
        except PrepareError as error:
            text = f"error preparing devices for claim {uid}: prepare failed: {error}"
            return PrepareResult(error=text)
        except (ApiError, PluginError):
            raise
        except Exception as error:
            # A defect that one claim shows must not keep the others of the call from their devices.
            logger.exception("claim %s: prepare failed", uid)
            text = f"error preparing devices for claim {uid}: {type(error).__name__}: {error}"
            return PrepareResult(error=text)
        devices = tuple(
            CdiDevice(f"{uid}-{result.id}", _never_empty(found, claim, result))
            for result, found in edits.items()
        )
        try:
            if devices:
                self.directory.write(
                    file_name(self.kind, uid), CdiSpec(kind=self.kind, devices=devices)
                )
        except (CdiError, OSError) as error:
            return PrepareResult(error=f"unable to create CDI spec file for claim: {error}")
        if uid not in held:
            self._tell_status(claim)
            held[uid] = CheckpointedClaim(claim.ref, _alone(claim))
        common = qualified(self.kind, "common")
        return PrepareResult(
            devices=tuple(
                PreparedDevice(
                    requests=(result.base,),
                    pool=result.pool,
                    device=result.device,
                    # Its own id first: by that the kubelet tells devices' health apart.
                    cdi_ids=(qualified(self.kind, f"{uid}-{result.id}"), common),
                    share_id=result.share_id,
                )
                for result in edits
            )
        )

    def _refuse_taken(self, claim: AllocatedClaim, held: dict[str, CheckpointedClaim]) -> None:
        """Refuse devices that another claim holds; take over those of claims that lost them."""
        wanted = _alone(claim)
        for other in list(held.values()):
            taken = wanted & other.devices
            if not taken:
                continue
            if self._still_has(other, taken):
                ref = other.ref
                raise PrepareError(
                    f"device {min(taken)} is held by claim {ref.namespace}/{ref.name}"
                )
            self.code.unprepare(other.ref)
            self.directory.remove(file_name(self.kind, other.ref.uid))
            del held[other.ref.uid]

    def _still_has(self, other: CheckpointedClaim, devices: frozenset[str]) -> bool:
        """Return whether a claim's allocation still contains some devices."""
        try:
            return bool(_alone(self._fetch(other.ref)) & devices)
        except ValueError:
            return False

    def _tell_status(self, claim: AllocatedClaim) -> None:
        entries = self.code.status(claim)
        if entries is None:
            return

        def change(latest: dict[str, object]) -> bool:
            status = latest["status"]
            if not isinstance(status, dict):
                return False
            others = [e for e in status.get("devices") or () if e["driver"] != self.code.name]
            wanted = [*others, *entries]
            if status.get("devices") == wanted:
                return False
            status["devices"] = wanted
            return True

        try:
            obj = self.client.get(CLAIMS, claim.ref.name, claim.ref.namespace)
            amend(self.client, CLAIMS, obj, change, subresource="status")
        except ApiError:
            return  # For those who look at it; no container waits for it.

    def _write_common(self) -> None:
        edits = self.code.common()
        if edits:
            spec = CdiSpec(kind=self.kind, devices=(CdiDevice("common", edits),))
            self.directory.write(file_name(self.kind, "common"), spec)


def _alone(claim: AllocatedClaim) -> frozenset[str]:
    """Return the devices that a claim holds exclusively: neither shared nor for admin access."""
    return frozenset(
        f"{result.pool}/{result.device}"
        for result in claim.results
        if not result.share_id and not result.admin_access
    )


def _never_empty(
    edits: ContainerEdits, claim: AllocatedClaim, result: AllocatedDevice
) -> ContainerEdits:
    """Return edits with at least one variable: a spec may not be empty."""
    if edits:
        return edits
    name = "".join(c if c.isalnum() else "_" for c in result.device.upper())
    return replace(edits, env=(f"DEVICE_{name}_RESOURCE_CLAIM={claim.ref.uid}",))
