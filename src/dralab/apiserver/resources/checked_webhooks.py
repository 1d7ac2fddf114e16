"""Checks of webhook configurations before they are stored.

Source of rules and words: k8s.io/kubernetes `pkg/apis/admissionregistration/validation`,
k8s.io/apiserver `pkg/util/webhook/validation.go`.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from dralab.api import fields
from dralab.api.core.addresses import domain_errors, port_problems
from dralab.api.core.policies import WebhookStrategy
from dralab.api.fields import FieldError
from dralab.api.label_selectors import label_selector_problems
from dralab.apiserver.resources.checked_policies import condition_problems, rule_problems
from dralab.values import names
from dralab.values.json_types import JsonDict, JsonObject

CHOICES: Final = {"failurePolicy": ("Fail", "Ignore"), "matchPolicy": ("Equivalent", "Exact")}
AGAIN: Final = ("IfNeeded", "Never")
SIDE_EFFECTS: Final = ("None", "NoneOnDryRun")
VERSIONS: Final = ("v1", "v1beta1")
LONGEST_WAIT: Final = 30  # seconds
FORM: Final = "; desired format: https://host[/path]"


class CheckedWebhooks(WebhookStrategy):
    """Webhook configurations, whose conditions must compile."""

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return what is wrong with a configuration."""
        errors: list[FieldError] = []
        seen = set()
        for index, hook in enumerate(value.get("webhooks") or ()):
            path, name = f"webhooks[{index}]", hook.get("name") or ""
            errors += self._hook_errors(hook, path)
            errors += _version_errors(
                hook.get("admissionReviewVersions") or (), f"{path}.admissionReviewVersions"
            )
            if name and name in seen:
                errors.append(fields.duplicate(f"{path}.name", name))
            seen.add(name)
        return errors

    def _hook_errors(self, hook: JsonDict, path: str) -> Iterator[FieldError]:
        from dralab.apiserver.admission.expressions import environment

        yield from domain_errors(hook.get("name") or "", f"{path}.name", labels=3)
        for index, rule in enumerate(hook.get("rules") or ()):
            yield from rule_problems(rule, f"{path}.rules[{index}]")
        for part, known in CHOICES.items():
            if (given := hook.get(part)) not in known:
                yield fields.not_supported(f"{path}.{part}", given, known)
        if (effects := hook.get("sideEffects")) is None:
            why = f"must specify one of {', '.join(SIDE_EFFECTS)}"
            yield fields.required(f"{path}.sideEffects", why)
        elif effects not in SIDE_EFFECTS:
            yield fields.not_supported(f"{path}.sideEffects", effects, SIDE_EFFECTS)
        timeout = hook.get("timeoutSeconds")
        if timeout is not None and not 1 <= timeout <= LONGEST_WAIT:
            why = f"the timeout value must be between 1 and {LONGEST_WAIT} seconds"
            yield fields.invalid_value(f"{path}.timeoutSeconds", timeout, why)
        for part in ("namespaceSelector", "objectSelector"):
            yield from label_selector_problems(hook.get(part) or {}, f"{path}.{part}")
        if self.mutating and (again := hook.get("reinvocationPolicy")) not in AGAIN:
            yield fields.not_supported(f"{path}.reinvocationPolicy", again, AGAIN)
        yield from _client_errors(hook.get("clientConfig") or {}, f"{path}.clientConfig")
        conditions, at = hook.get("matchConditions") or (), f"{path}.matchConditions"
        yield from condition_problems(conditions, at, environment(params=False))


def _client_errors(client: JsonObject, path: str) -> Iterator[FieldError]:
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        yield fields.required(path, "exactly one of url or service is required")
    elif url is not None:
        yield from _url_errors(url, f"{path}.url")
    else:
        yield from _service_errors(service, f"{path}.service")


def _url_errors(url: str, path: str) -> Iterator[FieldError]:
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
    except ValueError as error:
        yield fields.required(path, f"url must be a valid URL: {error}{FORM}")
        return
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


def _version_errors(versions: Sequence[str], path: str) -> Iterator[FieldError]:
    if not versions:
        yield fields.required(path, f"must specify one of {', '.join(VERSIONS)}")
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
