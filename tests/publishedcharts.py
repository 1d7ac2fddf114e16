"""Popular Helm charts: where each is published, and the version that is installed with its defaults.

`docs/guides/operators.md` shows them in a table; `tests/charts/test_published_charts.py` compares.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class PublishedChart:
    """A chart by its name, in a repository (https) or a registry (oci).

    `settings` are what differs from the defaults; `secret` is a Secret that a container of the
    chart would make, with its keys.
    """

    name: str
    version: str
    where: str
    settings: tuple[str, ...] = ()
    secret: tuple[str, str] = ("", "")

    @property
    def reference(self) -> list[str]:
        """What `helm pull` gets to find it."""
        if self.where.startswith("oci:"):
            return [f"{self.where}/{self.name}", "--version", self.version]
        return [self.name, "--repo", self.where, "--version", self.version]

    @property
    def file(self) -> str:
        """Its archive, as `helm pull` names it."""
        return f"{self.name}-{self.version}.tgz"


BITNAMI = "oci://registry-1.docker.io/bitnamicharts"
ARGO = "https://argoproj.github.io/argo-helm"
PROMETHEUS = "https://prometheus-community.github.io/helm-charts"
CHARTS = (
    PublishedChart("nginx", "22.1.1", BITNAMI),
    PublishedChart("postgresql", "17.1.0", BITNAMI),
    PublishedChart("mysql", "14.0.5", BITNAMI),
    PublishedChart("mongodb", "17.0.2", BITNAMI),
    PublishedChart("rabbitmq", "16.0.16", BITNAMI),
    PublishedChart("redis", "23.1.1", BITNAMI),
    PublishedChart("prometheus", "29.27.0", PROMETHEUS),
    PublishedChart("grafana", "12.11.1", "https://grafana-community.github.io/helm-charts"),
    PublishedChart("ingress-nginx", "4.15.1", "https://kubernetes.github.io/ingress-nginx"),
    PublishedChart("metrics-server", "3.13.1", "https://kubernetes-sigs.github.io/metrics-server"),
    PublishedChart("traefik", "41.3.0", "https://traefik.github.io/charts"),
    PublishedChart("keda", "2.20.2", "https://kedacore.github.io/charts"),
    PublishedChart("reloader", "2.2.16", "https://stakater.github.io/stakater-charts"),
    PublishedChart("vault", "0.34.1", "https://helm.releases.hashicorp.com"),
    PublishedChart(
        "cert-manager", "v1.21.1", "https://charts.jetstack.io", settings=("crds.enabled=true",)
    ),
    PublishedChart(
        "external-dns",
        "1.21.1",
        "https://kubernetes-sigs.github.io/external-dns",
        settings=("policy=upsert-only",),
    ),
    PublishedChart(
        "argo-cd",
        "10.1.1",
        ARGO,
        secret=("argocd-redis", "auth"),
    ),
    PublishedChart("kube-prometheus-stack", "88.5.3", PROMETHEUS),
    PublishedChart("cilium", "1.19.6", "https://helm.cilium.io"),
    PublishedChart("argo-workflows", "1.0.18", ARGO),
    PublishedChart("argo-rollouts", "2.41.0", ARGO),
    PublishedChart("argo-events", "2.4.22", ARGO),
    PublishedChart("nats", "2.14.2", "https://nats-io.github.io/k8s/helm/charts"),
    PublishedChart("kueue", "0.19.2", "oci://registry.k8s.io/kueue/charts"),
    PublishedChart("jobset", "0.12.0", "oci://registry.k8s.io/jobset/charts"),
    PublishedChart("kafka", "32.4.4", BITNAMI),
    PublishedChart("wordpress", "27.0.0", BITNAMI),
    PublishedChart("elasticsearch", "22.1.7", BITNAMI),
    PublishedChart("keycloak", "25.4.0", BITNAMI),
    PublishedChart("airflow", "25.1.0", BITNAMI),
    PublishedChart("harbor", "27.0.4", BITNAMI),
)
