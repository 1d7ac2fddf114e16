"""Audit records: one for each stage of a request that the policy wants recorded.

Records of one server come in the order in which it answers, and their ids from its randomness:
two runs with the same seed and the same requests write the same bytes, but for times and the
addresses of clients.

Source: k8s.io/apiserver `pkg/audit` (request, context), `pkg/apis/audit/v1`;
k8s.io/apimachinery `util/net` (SourceIPs).
"""

import ipaddress
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import field
from typing import Any

import orjson

from dralab.apiserver import protobuf
from dralab.apiserver.access.audit.ids import given_id
from dralab.apiserver.access.audit.log import AuditSink
from dralab.apiserver.access.audit.policy import AuditLevel, AuditPolicy, Recorded
from dralab.apiserver.access.authorization.attributes import Attributes, Decision
from dralab.apiserver.access.users import User
from dralab.kernel.clock import Clock
from dralab.kernel.times import rfc3339_micro
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass

MOST_AGENT = 1024  # characters of a User-Agent
SUCCESS = 400  # answers below it are no failures


@dataclass(slots=True, kw_only=True)
class Record:
    """A request that is recorded, from its first stage to its last."""

    recorded: Recorded
    event: JsonDict
    annotations: dict[str, str] = field(default_factory=dict)

    def annotate(self, key: str, value: str) -> None:
        """Add an annotation; the first of a name stays."""
        self.annotations.setdefault(key, value)

    def decided(self, decision: Decision) -> None:
        """Add what authorization said."""
        verdict = "allow" if decision.allowed else "forbid"
        self.annotate("authorization.k8s.io/decision", verdict)
        self.annotate("authorization.k8s.io/reason", decision.reason)


class Auditor:
    """Records requests as a policy wants it, in one sink."""

    def __init__(
        self, policy: AuditPolicy, sink: AuditSink, clock: Clock, new_id: Callable[[], str]
    ) -> None:
        self.policy = policy
        self.sink = sink
        self._clock = clock
        self._new_id = new_id

    def received(
        self,
        asked: Attributes,
        *,
        uri: str,
        headers: Mapping[str, str],
        peer: str = "",
        impersonated: User | None = None,
        constraint: str = "",
        audit_id: str = "",
    ) -> Record | None:
        """Record that a request was received; None if the policy does not record it.

        `asked.user` is the owner of the credential, `impersonated` the user it acts as, by the
        right that `constraint` names.
        """
        recorded = self.policy.recorded(asked)
        if recorded.level is AuditLevel.NONE:
            return None
        now = rfc3339_micro(self._clock.now())
        event: JsonDict = {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": recorded.level.text,
            "auditID": audit_id or given_id(headers) or self._new_id(),
            "stage": "RequestReceived",
            "requestURI": uri,
            "verb": asked.verb,
            "user": asked.user.info,
        }
        if impersonated is not None:
            event["impersonatedUser"] = impersonated.info
            if constraint:
                event["authenticationMetadata"] = {"impersonationConstraint": constraint}
        event["sourceIPs"] = sources(headers, peer)
        if agent := headers.get("user-agent", ""):
            event["userAgent"] = agent[:MOST_AGENT]
        if asked.is_resource_request:
            event["objectRef"] = _reference(asked)
        event["requestReceivedTimestamp"] = now
        record = Record(recorded=recorded, event=event)
        self._write(record, "RequestReceived", now=now)
        return record

    def body(self, record: Record, body: Any) -> None:
        """Add the object that was sent: what it names, and all of it at the level Request."""
        reference = record.event.get("objectRef")
        metadata = body.get("metadata") if isinstance(body, dict) else None
        if reference is not None and isinstance(metadata, dict):
            for name in ("namespace", "name", "uid", "resourceVersion"):
                value = metadata.get(name)
                if isinstance(value, str) and value:
                    reference.setdefault(name, value)
        if record.recorded.level >= AuditLevel.REQUEST and body is not None:
            record.event["requestObject"] = _trimmed(body, record.recorded)

    def started(self, record: Record, code: int) -> None:
        """Record that a long answer begins: a watch, a log that is followed, a connection."""
        record.event["responseStatus"] = {"metadata": {}, "code": code}
        self._write(record, "ResponseStarted")

    def complete(self, record: Record, code: int, content: Callable[[], bytes]) -> None:
        """Record the end of a request; `content` gives the body of the answer."""
        status: JsonDict = {"metadata": {}}
        answer: Any = None
        if code >= SUCCESS or record.recorded.level is AuditLevel.REQUEST_RESPONSE:
            answer = _object(content())
        if code >= SUCCESS and isinstance(answer, dict) and answer.get("kind") == "Status":
            names = ("status", "message", "reason", "details")
            status |= {name: answer[name] for name in names if answer.get(name)}
        record.event["responseStatus"] = {**status, "code": code}
        if record.recorded.level is AuditLevel.REQUEST_RESPONSE and answer is not None:
            record.event["responseObject"] = _trimmed(answer, record.recorded)
        self._write(record, "ResponseComplete")

    def rejected(self, record: Record, status: JsonDict) -> None:
        """Record that a request failed authentication."""
        record.event["responseStatus"] = {"metadata": {}, **status}
        self._write(record, "ResponseStarted")

    def panicked(self, record: Record) -> None:
        """Record that the server failed."""
        reason = {"status": "Failure", "reason": "InternalError"}
        record.event["responseStatus"] = {"metadata": {}, **reason, "code": 500}
        self._write(record, "Panic")

    def _write(self, record: Record, stage: str, *, now: str = "") -> None:
        if stage in record.recorded.omit_stages:
            return
        event = {**record.event, "stage": stage}
        # Times and annotations come last, as in upstream's records.
        received = event.pop("requestReceivedTimestamp")
        event["requestReceivedTimestamp"] = received
        event["stageTimestamp"] = now or rfc3339_micro(self._clock.now())
        if record.annotations:
            event["annotations"] = record.annotations
        self.sink.write(orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE))


def _reference(asked: Attributes) -> JsonDict:
    found = {
        "resource": asked.resource,
        "namespace": asked.namespace,
        "name": asked.name,
        "apiGroup": asked.group,
        "apiVersion": asked.version,
        "subresource": asked.subresource,
    }
    return {key: value for key, value in found.items() if value}


def _object(content: bytes) -> Any:
    """Return the object in an answer; None if it has none."""
    if content.startswith(protobuf.MAGIC):
        with suppress(protobuf.ProtobufError):
            return protobuf.decode(content)
        return None
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        return None


def _trimmed(value: Any, recorded: Recorded) -> Any:
    """Return an object or a list without what the policy omits."""
    if not recorded.omit_managed_fields or not isinstance(value, dict):
        return value
    if isinstance(value.get("items"), list):
        return {**value, "items": [_trimmed(item, recorded) for item in value["items"]]}
    metadata = value.get("metadata")
    if not isinstance(metadata, dict) or "managedFields" not in metadata:
        return value
    kept = {key: item for key, item in metadata.items() if key != "managedFields"}
    return {**value, "metadata": kept}


def sources(headers: Mapping[str, str], peer: str) -> list[str]:
    """Return where a request comes from: what proxies say, which any client can, then its peer.

    >>> sources({"x-forwarded-for": "192.0.2.7, no address"}, "127.0.0.1")
    ['192.0.2.7', '127.0.0.1']
    """
    named = headers.get("x-forwarded-for", "").split(",")
    found = [address for text in named if (address := _address(text))]
    real = _address(headers.get("x-real-ip", ""))
    if real and real not in found:
        found.append(real)
    if peer and found[-1:] != [peer]:
        found.append(peer)
    return found


def _address(text: str) -> str:
    """Return an IP address in its usual form; empty if it is not one."""
    try:
        return str(ipaddress.ip_address(text.strip()))
    except ValueError:
        return ""
