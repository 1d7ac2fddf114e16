"""client-go's messages about unexpected answers.

Source of the words: k8s.io/client-go `rest/request.go`, k8s.io/apimachinery
`pkg/runtime/serializer/json/meta.go`.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import orjson

from dralab.apiserver.outgoing.client import CallAnswer
from dralab.values.json_patches import go_json_kind
from dralab.values.json_syntax import go_error, has_more_values

MOST_VALUES: Final = 1_000_000  # which are read in a tenth of a second
SHOWN: Final = 2048  # characters of an answer that is not understood
META: Final = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; '
    'Kind string "json:\\"kind,omitempty\\"" }'
)


def parsed(body: bytes) -> Any:
    """Return the value of an answer's JSON, if it neither nests too deeply nor has too many parts.

    ValueError, as orjson.JSONDecodeError where it is not JSON.
    """
    if has_more_values(body, MOST_VALUES):
        raise ValueError(f"the response body has more than {MOST_VALUES} objects, lists and items")
    found = orjson.loads(body)
    try:
        orjson.dumps(found)
    except orjson.JSONEncodeError as error:
        raise ValueError("exceeded max depth") from error
    return found


def read_answer(answer: CallAnswer) -> Mapping[str, Any]:
    """Return the object of an answer. ValueError."""
    why = "couldn't get version/kind; json parse error: "
    if not answer.body:
        type_ = answer.headers.get("content-type", "")
        raise ValueError(
            f"0-length response with status code: {answer.status} and content type: {type_}"
        )
    try:
        found = parsed(answer.body)
    except orjson.JSONDecodeError as error:
        if answer.body[:1] not in {b"{", b"["} and answer.body.strip():
            # As YAML, such a text is one string.
            text = f"json: cannot unmarshal string into Go value of type {META}"
            raise ValueError(why + text) from error
        raise ValueError(why + go_error(answer.body)) from error
    except ValueError as error:
        raise ValueError(f"{why}{error}") from error
    if not isinstance(found, dict):
        given = f"json: cannot unmarshal {go_json_kind(found)} into Go value of type {META}"
        raise ValueError(why + given)  # noqa: TRY004 - the text of another server has no type
    return found


def status_words(answer: CallAnswer) -> str:
    """Return client-go's message for an answer with an unexpected status."""
    match answer.status:
        case 404:
            return "the server could not find the requested resource"
        case 503:
            return "the server is currently unable to handle the request"
        case 429:
            return "the server has received too many requests and has asked us to try again later"
        case status if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            shown = orjson.dumps(_text(answer)).decode()
            return f"an error on the server ({shown}) has prevented the request from succeeding"
        case status if status < HTTPStatus.BAD_REQUEST:
            return f"it answered {status}, and redirects are not followed"
        case status:
            return f"the server rejected our request with {status}: {_text(answer)}"


def _text(answer: CallAnswer) -> str:
    """Return the text of an answer, if it says that it is one."""
    if not answer.headers.get("content-type", "").startswith("text/"):
        return "unknown"
    return answer.body[:SHOWN].decode(errors="replace").strip()
