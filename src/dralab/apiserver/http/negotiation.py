"""Content negotiation: which form of a response a client's Accept header allows.

A media type with parameters that are not known is skipped, never half matched: a client that
asks for a form we do not have must not get another one under its name.
"""

from dataclasses import dataclass
from typing import Final, Literal

from dralab.api.status import ApiError
from dralab.values.remembering import remembered

Encoding = Literal["json", "yaml", "protobuf"]
As = Literal["", "Table", "PartialObjectMetadata", "PartialObjectMetadataList"]
META_VERSIONS: Final = frozenset({"v1", "v1beta1"})
REPRESENTATIONS: Final = (
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
)
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
def form_of(accept: str, *, listing: bool, protobuf: bool = False) -> AnswerForm | None:
    """Return the form for an object, list or watch; None if no clause can be met.

    `protobuf` says that objects of the kind can be written as such; its metadata always can.
    """
    if not accept:
        return PLAIN
    for clause in clauses(accept):
        form = _form(clause, listing=listing, protobuf=protobuf)
        if form is not None:
            return form
    return None


def _form(clause: MediaRange, *, listing: bool, protobuf: bool) -> AnswerForm | None:
    encoding: Encoding
    if clause.media in {"application/json", "*/*", "application/*"}:
        encoding = "json"
    elif clause.media in {"application/yaml", "application/x-yaml"}:
        encoding = "yaml"
    elif clause.media == PROTOBUF:
        encoding = "protobuf"
    else:
        return None
    parameters = dict(clause.parameters)
    parameters.pop("charset", None)
    parameters.pop("stream", None)
    parameters.pop("profile", None)
    parameters.pop("pretty", None)
    as_ = parameters.pop("as", "")
    group, version = parameters.pop("g", ""), parameters.pop("v", "")
    if parameters:
        return None
    if not as_:
        if group or version or (encoding == "protobuf" and not protobuf):
            return None
        return AnswerForm(encoding)
    if group != "meta.k8s.io" or version not in META_VERSIONS:
        return None
    match as_:
        case "Table" if encoding != "protobuf":
            return AnswerForm(encoding, "Table", version)
        case "PartialObjectMetadata":
            return AnswerForm(encoding, "PartialObjectMetadata", version)
        case "PartialObjectMetadataList" if listing:
            return AnswerForm(encoding, "PartialObjectMetadataList", version)
        case _:
            return None


@remembered(512)
def discovery_form(accept: str) -> Literal["aggregated", "json", "yaml", ""]:
    """Return the form of discovery; nothing where no clause can be met."""
    if not accept:
        return "json"
    for clause in clauses(accept):
        parameters = dict(clause.parameters)
        parameters.pop("charset", None)
        wanted = {"g": "apidiscovery.k8s.io", "v": "v2", "as": "APIGroupDiscoveryList"}
        if clause.media == "application/json" and parameters == wanted:
            return "aggregated"
        if parameters:
            continue
        if clause.media in {"application/json", "*/*", "application/*"}:
            return "json"
        if clause.media == "application/yaml":
            return "yaml"
    return ""


def not_acceptable(*, listing: bool) -> ApiError:
    """Return the error for an Accept header that cannot be met."""
    known = ", ".join(REPRESENTATIONS + (STREAMS if listing else ()))
    return ApiError(
        "NotAcceptable",
        f"406: Not Acceptable\n\nAvailable representations: {known}",
        details={},
    )


def discovery_not_acceptable() -> ApiError:
    """Return the same for discovery."""
    known = ", ".join(REPRESENTATIONS)
    return ApiError("NotAcceptable", f"only the following media types are accepted: {known}")
