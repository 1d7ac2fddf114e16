"""Whether the server is alive and ready: `/livez`, `/readyz`, `/healthz`, and their counts.

The checks have kube-apiserver's names. What its hooks do after its start has been done here when
the server answers. Source: k8s.io/apiserver `pkg/server/healthz`, `pkg/server/filters`,
k8s.io/component-base `metrics/prometheus/slis`; the pages of a real server.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from dralab.apiserver.http.messages import HttpResponse
from dralab.apiserver.verbs.state.context import Context

PAGES: Final = ("healthz", "livez", "readyz")
TEXT: Final = (("Content-Type", "text/plain; charset=utf-8"),)
# `etcd` is whatever keeps the objects.
STORAGE: Final = "etcd"
READY_STORAGE: Final = "etcd-readiness"
ROLES: Final = "rbac/bootstrap-roles"
HOOKS: Final = (
    "start-apiserver-admission-initializer", "generic-apiserver-start-informers",
    "priority-and-fairness-config-consumer", "priority-and-fairness-filter",
    "storage-object-count-tracker-hook", "start-apiextensions-informers",
    "start-apiextensions-controllers", "crd-informer-synced", "start-system-namespaces-controller",
    "peer-endpoint-reconciler-controller", "start-cluster-authentication-info-controller",
    "start-kube-apiserver-identity-lease-controller",
    "start-kube-apiserver-identity-lease-garbage-collector", "storage-readiness",
    "start-legacy-token-tracking-controller", "start-service-ip-repair-controllers", ROLES,
    "scheduling/bootstrap-system-priority-classes", "priority-and-fairness-config-producer",
    "bootstrap-controller", "start-kubernetes-service-cidr-controller",
    "aggregator-reload-proxy-client-cert", "start-kube-aggregator-informers",
    "apiservice-status-local-available-controller",
    "apiservice-status-remote-available-controller", "apiservice-registration-controller",
    "apiservice-discovery-controller", "kube-apiserver-autoregistration",
)  # fmt: skip
LAST: Final = (
    "autoregister-completion",
    "poststarthook/apiservice-openapi-controller",
    "poststarthook/apiservice-openapiv3-controller",
)
ALIVE: Final = ("ping", "log", "loopback-serving-certificate", STORAGE)
READY: Final = ("ping", "log", STORAGE, READY_STORAGE, "informer-sync")


class HealthPages:
    """Answers the three pages and the paths below them."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._results: Counter[tuple[str, str, bool]] = Counter()

    def answer(
        self, name: str, *, verbose: bool = False, left_out: frozenset[str] = frozenset()
    ) -> HttpResponse:
        """Answer with the outcome of all checks of a page."""
        checks = self.checks(name)
        failed = [check for check in checks if check not in left_out and not self._run(name, check)]
        if not verbose and not failed:
            return HttpResponse(headers=TEXT, body=b"ok")
        lines = [
            f"[+]{check} excluded: ok"
            if check in left_out
            else f"[-]{check} failed: reason withheld"
            if check in failed
            else f"[+]{check} ok"
            for check in checks
        ]
        if unknown := sorted(left_out.difference(checks)):
            named = ", ".join(f'"{check}"' for check in unknown)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {named}")
        text = "\n".join([*lines, f"{name} check {'failed' if failed else 'passed'}", ""])
        return HttpResponse(status=500 if failed else 200, headers=TEXT, body=text.encode())

    def answer_one(self, name: str, check: str) -> HttpResponse:
        """Answer with the outcome of one check."""
        if self._run(name, check):
            return HttpResponse(headers=TEXT, body=b"ok")
        text = b"internal server error: etcd does not tell what is written"
        return HttpResponse(status=500, headers=TEXT, body=text)

    def checks(self, name: str) -> Sequence[str]:
        """Return the checks of a page, in its order."""
        hooks = [
            f"poststarthook/{hook}"
            for hook in HOOKS
            if hook != ROLES or self.context.authorizer is not None
        ]
        if name == "readyz":
            return (*READY, *hooks, *LAST, "shutdown")
        return (*ALIVE, *hooks, *LAST)

    def paths(self) -> Sequence[str]:
        """Return the path of each check."""
        return [f"/{name}/{check}" for name in PAGES for check in self.checks(name)]

    def indicators(self) -> Iterator[str]:
        """Yield the lines of `/metrics/slis`."""
        yield "# HELP kubernetes_healthcheck [STABLE] The result of a single health check."
        yield "# TYPE kubernetes_healthcheck gauge"
        for name in PAGES:
            for check in self.checks(name):
                result = int(self._holds(name, check))
                yield f'kubernetes_healthcheck{{name="{check}",type="{name}"}} {result}'
        yield "# HELP kubernetes_healthchecks_total [STABLE] The results of all health checks."
        yield "# TYPE kubernetes_healthchecks_total counter"
        for (name, check, good), count in sorted(self._results.items()):
            status = "success" if good else "error"
            labels = f'name="{check}",status="{status}",type="{name}"'
            yield f"kubernetes_healthchecks_total{{{labels}}} {count}"

    def _run(self, name: str, check: str) -> bool:
        good = self._holds(name, check)
        self._results[name, check, good] += 1
        return good

    def _holds(self, name: str, check: str) -> bool:
        """Whether a check passes: a server cut off from other writers is alive but not ready."""
        return (
            name != "readyz"
            or check not in {STORAGE, READY_STORAGE}
            or self.context.store.connected
        )
