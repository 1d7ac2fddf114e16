"""How a webhook is called, and which versions of reviews it accepts.

Source of rules and words: k8s.io/apiserver `pkg/util/webhook/validation.go`.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from dralab.api import fields
from dralab.api.core.addresses import port_problems
from dralab.api.fields import FieldError
from dralab.values import names
from dralab.values.go_text import go_quoted
from dralab.values.json_types import JsonDict, JsonObject

VERSIONS: Final = ("v1", "v1beta1")
FORM: Final = "; desired format: https://host[/path]"


def default_webhook_client(client: JsonDict | None) -> None:
    """Fill in the port of the Service that has the webhook (`SetDefaults_ServiceReference`)."""
    service = (client or {}).get("service")
    if service is not None:
        service.setdefault("port", 443)


def webhook_client_errors(client: JsonObject, path: str) -> Iterator[FieldError]:
    """Yield the errors of how a webhook is reached."""
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        yield fields.required(path, "exactly one of url or service is required")
    elif url is not None:
        yield from _url_errors(url, f"{path}.url")
    else:
        yield from _service_errors(service, f"{path}.service")


def _url_errors(url: str, path: str) -> Iterator[FieldError]:
    from dralab.values.go_urls import url_problem  # not needed to start

    if problem := url_problem(url):
        why = f"url must be a valid URL: parse {go_quoted(url)}: {problem}{FORM}"
        yield fields.required(path, why)
        return
    try:
        parts = urlsplit(url)
    except ValueError as error:
        yield fields.required(path, f"url must be a valid URL: {error}{FORM}")
        return
    host = parts.netloc.rpartition("@")[2]
    if parts.scheme != "https":
        why = f"'https' is the only allowed URL scheme{FORM}"
        yield fields.invalid_value(path, parts.scheme, why)
    if not host:
        yield fields.invalid_value(path, host, f"host must be specified{FORM}")
    if "@" in parts.netloc:
        user = parts.netloc.rpartition("@")[0]
        yield fields.invalid_value(path, user, "user information is not permitted in the URL")
    if parts.fragment:
        yield fields.invalid_value(path, parts.fragment, "fragments are not permitted in the URL")
    if parts.query:
        why = "query parameters are not permitted in the URL"
        yield fields.invalid_value(path, parts.query, why)


def _service_errors(service: Any, path: str) -> Iterator[FieldError]:
    # Upstream confuses the two: where one is missing, the other is said to be required.
    for part, named in (("namespace", "name"), ("name", "namespace")):
        if not service.get(part):
            yield fields.required(f"{path}.{named}")
    port, text = service.get("port") or 0, service.get("path")
    if problems := port_problems(port):
        why = f"port is not valid: {', '.join(problems)}"
        yield fields.invalid_value(f"{path}.port", port, why)
    at = f"{path}.path"
    if not text or text == "/":
        return
    if text == "//":
        yield fields.invalid_value(at, text, "segment[0] may not be empty")
        return
    if not text.startswith("/"):
        yield fields.invalid_value(at, text, "must start with a '/'")
    for index, step in enumerate(text[1:].removesuffix("/").split("/")):
        if not step:
            yield fields.invalid_value(at, text, f"segment[{index}] may not be empty")
        for why in names.subdomain_problems(step) if step else ():
            yield fields.invalid_value(at, text, f"segment[{index}]: {why}")


def review_version_errors(
    versions: Sequence[str], path: str, *, none: str = f"must specify one of {', '.join(VERSIONS)}"
) -> Iterator[FieldError]:
    """Yield the errors of the versions of reviews that a webhook reads.

    `none` is said where there are none.
    """
    if not versions:
        yield fields.required(path, none)
        return
    seen = set()
    for index, version in enumerate(versions):
        if version in seen:
            yield fields.invalid_value(f"{path}[{index}]", version, "duplicate version")
            continue
        seen.add(version)
        for why in names.label_1035_problems(version):
            yield fields.invalid_value(f"{path}[{index}]", version, why)
    if not seen & set(VERSIONS):
        why = f"must include at least one of {', '.join(VERSIONS)}"
        yield fields.invalid_value(path, list(versions), why)
