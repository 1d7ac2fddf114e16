"""The plugins MutatingAdmissionWebhook and ValidatingAdmissionWebhook.

Source of order, failures and words: k8s.io/apiserver `admission/plugin/webhook/mutating` and
`admission/plugin/webhook/validating`.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, Final

import orjson

from dralab.api.kinds import Kind
from dralab.api.status import ApiError
from dralab.apiserver.access.admission.chain import Reinvocation, Review
from dralab.apiserver.access.admission.conditions import ConditionError
from dralab.apiserver.access.admission.expressions import ReviewValues
from dralab.apiserver.access.admission.forms import Forms, internal_error, replace_object, shown_for
from dralab.apiserver.access.admission.webhooks.configurations import Webhook, Webhooks
from dralab.apiserver.access.admission.webhooks.reviews import (
    BadAnswer,
    NoAnswer,
    Verdict,
    denial,
    question,
    verdict,
)
from dralab.apiserver.metrics.families import AdmissionMetrics
from dralab.apiserver.metrics.meters import now
from dralab.apiserver.outgoing.client import CallClient
from dralab.apiserver.outgoing.targets import Targets, Unreachable
from dralab.values.json_patches import UndecodablePatch, json_patch
from dralab.values.json_syntax import go_error
from dralab.values.labels import SelectorError
from dralab.values.patches import PatchError, TooManyOperations

MOST: Final = 8  # validating webhooks of one write that are asked at the same time
OVERDUE: Final = "Timeout: request did not complete within the allotted timeout"

MUTATING: Final = "admit"  # as metrics name the two kinds
VALIDATING: Final = "validating"
UNDECODABLE: Final = "received undecodable patch in webhook response"


class CallFailed(Exception):  # noqa: N818 - a fact, on which the failure policy decides
    """A webhook could not be called, or its answer is not valid."""

    def __init__(self, hook: Webhook, why: str) -> None:
        super().__init__(f'failed calling webhook "{hook.name}": {why}')


class WebhookCalls:
    """Calls webhooks; shared by the plugins of one server."""

    def __init__(
        self, forms: Forms, targets: Targets, client: CallClient, metrics: AdmissionMetrics
    ) -> None:
        self.forms = forms
        self.metrics = metrics
        self.targets = targets
        self.client = client

    def asked(self, hook: Webhook, review: Review) -> Kind | None:
        """Return the version in which a webhook is called for a write; None if it is not called.

        ApiError: whether it is asked cannot be said.
        """
        try:
            kind = hook.criteria.match(review)
        except SelectorError as error:
            raise internal_error(f'webhook "{hook.name}": {error}') from error
        if kind is None or not hook.conditions:
            return kind
        values = ReviewValues(review, kind, self.forms, named=False)
        try:
            met = hook.conditions.match(values, ignore_errors=hook.ignores_failures)
        except ConditionError as error:
            raise ApiError.forbidden(
                review.kind.plural, review.given_name, str(error), group=review.kind.group
            ) from error
        return kind if met else None

    def ask(self, hook: Webhook, review: Review, kind: Kind, *, mutating: bool) -> Verdict:
        """Call a webhook. CallFailed, ApiError."""
        if review.options.dry_run and hook.has_side_effects:
            raise ApiError.bad_request(f'admission webhook "{hook.name}" does not support dry run')
        if hook.version is None:
            raise CallFailed(
                hook,
                "could not create admission objects: webhook does not accept known "
                "AdmissionReview versions (v1, v1beta1)",
            )
        timeout = _timeout(hook, review)
        uid = self.forms.new_uid()
        body = question(
            review,
            kind,
            uid=uid,
            version=hook.version,
            value=shown_for(review, kind, review.value, self.forms),
            old=shown_for(review, kind, review.old, self.forms),
        )
        url = ""
        query = f"timeout={hook.timeout}s"
        try:
            target = self.targets.of_config(hook.client)
            url = target.url
            answer = self.client.call(target, body, timeout=timeout, query=query)
        except Unreachable as error:
            if timeout < hook.timeout:
                _timeout(hook, review)  # it was the time of the request that was over
            url = url or self._url(hook.client)
            raise CallFailed(
                hook, f'failed to call webhook: Post "{url}?{query}": {error}'
            ) from error
        try:
            return verdict(answer, uid=uid, version=hook.version, mutating=mutating)
        except NoAnswer as error:
            raise CallFailed(hook, f"failed to call webhook: {error}") from error
        except BadAnswer as error:
            raise CallFailed(hook, f"received invalid webhook response: {error}") from error

    def record(self, hook: Webhook, review: Review, step: str, began: int, found: Verdict) -> None:
        """Record the metrics of a call that was answered."""
        code, rejected = HTTPStatus.OK.value, not found.allowed
        if rejected:
            given = found.result.get("code")
            code = given if isinstance(given, int) and given else HTTPStatus.BAD_REQUEST.value
        self.metrics.called(hook.name, review.operation, step, began, code=code, rejected=rejected)

    def failed(
        self, hook: Webhook, review: Review, step: str, began: int, *, answered: bool = False
    ) -> None:
        """Record the metrics of a call that failed, or whose answer cannot be applied."""
        self.metrics.called(
            hook.name,
            review.operation,
            step,
            began,
            code=0 if answered else HTTPStatus.SERVICE_UNAVAILABLE.value,
            error="apiserver_internal_error" if answered else "calling_webhook_error",
            rejected=answered or not hook.ignores_failures,
        )

    def note(self, hook: Webhook, review: Review, found: Verdict) -> None:
        """Pass on a webhook's warnings and audit annotations."""
        for key, value in found.annotations.items():
            review.scope.annotate(f"{hook.name}/{key}", value)
        review.scope.warnings.extend(found.warnings)

    def _url(self, client: Mapping[str, Any]) -> str:
        if service := client.get("service"):
            host = f"{service.get('name')}.{service.get('namespace')}.svc"
            return f"https://{host}:{service.get('port') or 443}{service.get('path') or '/'}"
        return str(client.get("url"))


def _timeout(hook: Webhook, review: Review) -> float:
    """Return the timeout in seconds: the webhook's own, limited by the request's. ApiError."""
    left = review.scope.time_left(hook.timeout)
    if not left:
        raise ApiError("Timeout", OVERDUE, details={})
    return left


class _WebhookPlugin:
    """The webhooks of one kind, and how they are called."""

    def __init__(self, hooks: Webhooks, calls: WebhookCalls) -> None:
        self.hooks = hooks
        self.calls = calls

    @property
    def active(self) -> bool:
        """Whether any webhook is configured."""
        return bool(self.hooks.all)


class MutatingWebhooks(_WebhookPlugin):
    """Calls mutating webhooks, one after the other."""

    name = "MutatingAdmissionWebhook"

    def admit(self, review: Review) -> None:
        """Call the webhooks for a write, and patch its object. ApiError, MustWait."""
        state = Reinvocation.of(review, self.name)
        for index, hook in enumerate(self.hooks.all):
            kind = self.calls.asked(hook, review)
            if kind is None or (review.round and hook.uid not in state.again):
                continue
            review.scope.check_waits()
            changed = self._invoke(hook, review, kind, index)
            if changed:
                state.require()
                review.again = not review.round
            if hook.reinvoked:
                state.invoked.append(hook.uid)
            state.seen = review.encoded()

    def _invoke(self, hook: Webhook, review: Review, kind: Kind, index: int) -> bool:
        place = f"round_{review.round}_index_{index}"
        began = now()
        try:
            found = self.calls.ask(hook, review, kind, mutating=True)
            self.calls.note(hook, review, found)
            if not found.allowed:
                self.calls.record(hook, review, MUTATING, began, found)
                self._record(review, place, hook, changed=False)
                raise denial(hook.name, found.result)
            try:
                changed = self._patched(hook, review, kind, found)
            except ApiError:
                self.calls.failed(hook, review, MUTATING, began, answered=True)
                raise
            self.calls.record(hook, review, MUTATING, began, found)
        except CallFailed as error:
            self.calls.failed(hook, review, MUTATING, began)
            _failed(error, hook, review, f"failed-open.mutating.webhook.admission.k8s.io/{place}")
            self._record(review, place, hook, changed=False)
            return False
        self._record(review, place, hook, changed=changed)
        if changed:
            patch = {
                "configuration": hook.configuration,
                "webhook": hook.name,
                "patch": orjson.loads(found.patch),
                "patchType": found.patch_type,
            }
            key = f"patch.webhook.admission.k8s.io/{place}"
            review.scope.annotate(key, orjson.dumps(patch).decode())
        return changed

    def _record(self, review: Review, place: str, hook: Webhook, *, changed: bool) -> None:
        told = {"configuration": hook.configuration, "webhook": hook.name, "mutated": changed}
        key = f"mutation.webhook.admission.k8s.io/{place}"
        review.scope.annotate(key, orjson.dumps(told).decode())

    def _patched(self, hook: Webhook, review: Review, kind: Kind, found: Verdict) -> bool:
        """Patch the object; return whether that changed it. ApiError, CallFailed."""
        if not found.patch:
            return False
        try:
            operations = orjson.loads(found.patch)
        except orjson.JSONDecodeError as error:
            raise CallFailed(hook, f"{UNDECODABLE}: {go_error(found.patch)}") from error
        if operations in ([], None):
            return False
        if found.patch_type != "JSONPatch":
            raise CallFailed(hook, f'unsupported patch type "{found.patch_type}"')
        if review.value is None:
            raise internal_error(
                f'admission webhook "{hook.name}" attempted to modify the object, which is not '
                "supported for this operation"
            )
        shown = shown_for(review, kind, review.value, self.calls.forms)
        try:
            patched = json_patch(shown, operations)
        except UndecodablePatch as error:
            raise CallFailed(hook, f"{UNDECODABLE}: {error}") from error
        except (PatchError, TooManyOperations) as error:
            raise internal_error(str(error)) from error
        if not isinstance(patched, dict):
            raise internal_error("the patched object is not an object")
        return replace_object(review, kind, patched, self.calls.forms)


class ValidatingWebhooks(_WebhookPlugin):
    """Calls validating webhooks, all at the same time."""

    name = "ValidatingAdmissionWebhook"

    def validate(self, review: Review) -> None:
        """Call the webhooks for a write. ApiError, MustWait."""
        asked = [
            (index, hook, kind)
            for index, hook in enumerate(self.hooks.all)
            if (kind := self.calls.asked(hook, review)) is not None
        ]
        if not asked:
            return
        review.scope.check_waits()
        # The first of those that object, in the order of the configurations.
        if len(asked) == 1:
            refusals = [self._outcome(review, *asked[0])]
        else:
            # Threads of this write's own: slow webhooks of another one must not take them.
            with ThreadPoolExecutor(min(len(asked), MOST), "webhooks") as threads:
                refusals = list(threads.map(lambda each: self._outcome(review, *each), asked))
        for refusal in refusals:
            if refusal is not None:
                raise refusal

    def _outcome(self, review: Review, index: int, hook: Webhook, kind: Kind) -> ApiError | None:
        """Return the refusal of a webhook; None if it allows the request."""
        began = now()
        try:
            found = self.calls.ask(hook, review, kind, mutating=False)
            self.calls.record(hook, review, VALIDATING, began, found)
            self.calls.note(hook, review, found)
            return None if found.allowed else denial(hook.name, found.result)
        except CallFailed as error:
            self.calls.failed(hook, review, VALIDATING, began)
            place = f"failed-open.validating.webhook.admission.k8s.io/round_0_index_{index}"
            try:
                _failed(error, hook, review, place)
            except ApiError as refusal:
                return refusal
        except ApiError as refusal:
            return refusal
        return None


def _failed(error: CallFailed, hook: Webhook, review: Review, place: str) -> None:
    """Ignore a failed call if the webhook's failure policy allows that. ApiError."""
    if not hook.ignores_failures:
        raise internal_error(str(error)) from error
    told = {"configuration": hook.configuration, "webhook": hook.name}
    review.scope.annotate(place, orjson.dumps(told).decode())
