"""Content negotiation: which form of a response a client's Accept header allows.

A media type that asks for another kind (`as`) than there is is skipped, never half matched: a
client that asks for a form we do not have must not get another one under its name. Parameters that
nobody knows mean nothing, as in k8s.io/apiserver `endpoints/handlers/negotiation`.
"""

from typing import Final, Literal

from dralab.api.kinds import Kind
from dralab.api.status import ApiError
from dralab.values.records import dataclass
from dralab.values.remembering import remembered

Encoding = Literal["json", "yaml", "protobuf", "cbor"]
As = Literal["", "Table", "PartialObjectMetadata", "PartialObjectMetadataList"]
META_VERSIONS: Final = frozenset({"v1", "v1beta1"})
REPRESENTATIONS: Final = (
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
)
CBOR: Final = "application/cbor"
CBOR_SEQUENCE: Final = "application/cbor-seq"
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
MEDIA: Final = {"protobuf": PROTOBUF}
STREAMS: Final = (
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
)
DISCOVERY: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """The form of an answer: `as_` names another kind than the object's own."""

    encoding: Encoding = "json"
    as_: As = ""
    version: str = "v1"

    @property
    def content_type(self) -> str:
        """The Content-Type of an answer in this form."""
        return MEDIA.get(self.encoding, f"application/{self.encoding}")


PLAIN: Final = AnswerForm()


@dataclass(frozen=True, slots=True)
class MediaRange:
    """One media type of an Accept header, with its parameters."""

    media: str
    parameters: tuple[tuple[str, str], ...]
    quality: float


@remembered(512)
def clauses(accept: str) -> tuple[MediaRange, ...]:
    """Return the media types of an Accept header, the most wanted first."""
    found = []
    for part in accept.split(","):
        media, *rest = [piece.strip() for piece in part.split(";")]
        if not media:
            continue
        quality, parameters = 1.0, []
        for piece in rest:
            key, _, value = piece.partition("=")
            value = value.strip('"')
            if key == "q":
                try:
                    quality = float(value)
                except ValueError:
                    quality = 1.0
            else:
                parameters.append((key.lower(), value))
        found.append(MediaRange(media.lower(), tuple(parameters), quality))
    return tuple(sorted(found, key=lambda clause: -clause.quality))


@remembered(1024)
def form_of(
    accept: str, *, protobuf: bool = False, cbor: bool = False, tables: bool = True
) -> AnswerForm | None:
    """Return the form for an object, list or watch; None if no clause can be met.

    `protobuf` says that objects of the kind can be written as such; its metadata always can.
    `cbor` says that the server speaks it, `tables` that there are tables of the kind.
    """
    if not accept:
        return PLAIN
    for clause in clauses(accept):
        form = _form(clause, protobuf=protobuf, cbor=cbor)
        if form is not None and (tables or form.as_ != "Table"):
            return form
    return None


def _form(clause: MediaRange, *, protobuf: bool, cbor: bool) -> AnswerForm | None:
    encoding: Encoding
    if clause.media in {"application/json", "*/*", "application/*"}:
        encoding = "json"
    elif clause.media == "application/yaml":
        encoding = "yaml"
    elif clause.media == PROTOBUF:
        encoding = "protobuf"
    elif clause.media == CBOR and cbor:
        encoding = "cbor"
    else:
        return None
    parameters = dict(clause.parameters)
    stream = parameters.get("stream", "")
    if parameters.get("sv") or (stream and (stream != "watch" or encoding in {"yaml", "cbor"})):
        return None
    as_, group, version = (parameters.get(name, "") for name in ("as", "g", "v"))
    if not as_:
        if group or version or (encoding == "protobuf" and not protobuf):
            return None
        return AnswerForm(encoding)
    if group != "meta.k8s.io" or version not in META_VERSIONS:
        return None
    match as_:
        case "Table" if encoding not in {"protobuf", "cbor"}:
            return AnswerForm(encoding, "Table", version)
        case "PartialObjectMetadata":
            return AnswerForm(encoding, "PartialObjectMetadata", version)
        case "PartialObjectMetadataList":
            return AnswerForm(encoding, "PartialObjectMetadataList", version)
        case _:
            return None


@remembered(512)
def discovery_form(
    accept: str, *, aggregated: bool = True
) -> Literal["aggregated", "json", "yaml", "protobuf", ""]:
    """Return the form of discovery; None if no clause can be met.

    `aggregated` says that the document is there with all groups in one.
    """
    if not accept:
        return "json"
    for clause in clauses(accept):
        parameters = dict(clause.parameters)
        parameters.pop("charset", None)
        wanted = {"g": "apidiscovery.k8s.io", "v": "v2", "as": "APIGroupDiscoveryList"}
        if clause.media == "application/json" and parameters == wanted and aggregated:
            return "aggregated"
        if parameters:
            continue
        if clause.media in {"application/json", "*/*", "application/*"}:
            return "json"
        if clause.media == "application/yaml":
            return "yaml"
        if clause.media == PROTOBUF:
            return "protobuf"
    return ""


def not_acceptable(accept: str, *, listing: bool, cbor: bool = False) -> ApiError:
    """Return the error for an Accept header that cannot be met: its media types, or what they ask.

    The two are refused in two places of a real server: its router, which knows no `application/*`,
    and its negotiation.
    """
    plain = (*REPRESENTATIONS, *([CBOR] if cbor else []))
    streams = (*STREAMS, *([CBOR_SEQUENCE] if cbor else [])) if listing else ()
    routed = {*plain, *streams, "*/*"}
    if any(clause.media in routed for clause in clauses(accept)):
        return unmet(plain)
    known = ", ".join((*plain, *streams))
    return ApiError(
        "NotAcceptable",
        f"406: Not Acceptable\n\nAvailable representations: {known}",
        details={},
    )


def unmet(known: tuple[str, ...] = REPRESENTATIONS) -> ApiError:
    """Return the error for media types that are known, but not with what they ask for."""
    accepted = ", ".join(known)
    return ApiError("NotAcceptable", f"only the following media types are accepted: {accepted}")


def check_shape(form: AnswerForm, kind: Kind, *, listing: bool) -> None:
    """Refuse metadata of one object for a list, and of a list for one object. ApiError."""
    refused = "PartialObjectMetadata" if listing else "PartialObjectMetadataList"
    if form.as_ != refused:
        return
    if kind.custom is not None:
        name = "unstructured.Unstructured"
    else:
        name = f"{kind.group.partition('.')[0] or 'core'}.{kind.kind}"
    shape = f"a list (*{name}List)" if listing else f"not a list (*{name})"
    raise ApiError("NotAcceptable", f"you requested {refused}, but the requested object is {shape}")
