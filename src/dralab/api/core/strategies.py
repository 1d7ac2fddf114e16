"""All strategies of the standard kinds, by the hub they belong to."""

from collections.abc import Mapping
from functools import lru_cache

from dralab.api.core import (
    access,
    api_services,
    autoscalers,
    certificates,
    cluster,
    configuration,
    definitions,
    events,
    flow_rules,
    jobs,
    limits,
    networking,
    pods,
    policies,
    runtime_classes,
    services,
    stateful_sets,
    storage,
    volumes,
    workloads,
)
from dralab.api.core.declared import DeclaredStrategy, GroupStrategy, WorkloadStrategy
from dralab.api.resource.features import DEFAULT_1_36, Features
from dralab.api.strategy import Strategy


@lru_cache(maxsize=4)
def strategies(features: Features = DEFAULT_1_36) -> Mapping[str, Strategy]:
    """Return the strategies; kinds that are missing have no special rules."""
    rbac = access.RBAC
    hooks = "admissionregistration.k8s.io"
    return {
        "configmaps": configuration.ConfigMapStrategy(),
        "endpoints": services.EndpointsStrategy(),
        "events": events.EventStrategy(),
        "limitranges": limits.LimitRangeStrategy(),
        "namespaces": cluster.NamespaceStrategy(),
        "nodes": cluster.NodeStrategy(),
        "persistentvolumeclaims": volumes.ClaimStrategy(),
        "persistentvolumes": volumes.VolumeStrategy(),
        "pods": pods.PodStrategy(features),
        "replicationcontrollers": workloads.ReplicationControllerStrategy(features),
        "resourcequotas": limits.ResourceQuotaStrategy(),
        "secrets": configuration.SecretStrategy(),
        "serviceaccounts": configuration.ServiceAccountStrategy(),
        "services": services.ServiceStrategy(features),
        definitions.HUB: definitions.DefinitionStrategy(),
        "apiregistration.k8s.io/apiservices": api_services.ApiServiceStrategy(),
        "apps/controllerrevisions": workloads.RevisionStrategy(),
        "apps/daemonsets": workloads.DaemonSetStrategy(features),
        "apps/deployments": workloads.DeploymentStrategy(features),
        "apps/replicasets": workloads.ReplicaSetStrategy(features),
        "apps/statefulsets": stateful_sets.StatefulSetStrategy(features),
        "events.k8s.io/events": events.NewEventStrategy(),
        "autoscaling/horizontalpodautoscalers": autoscalers.AutoscalerStrategy(),
        "batch/cronjobs": jobs.CronJobStrategy(features),
        "batch/jobs": jobs.JobStrategy(features),
        "certificates.k8s.io/certificatesigningrequests": certificates.CertificateRequestStrategy(),
        "coordination.k8s.io/leases": cluster.LeaseStrategy(),
        "discovery.k8s.io/endpointslices": networking.EndpointSliceStrategy(),
        "flowcontrol.apiserver.k8s.io/flowschemas": flow_rules.FlowSchemaStrategy(),
        "flowcontrol.apiserver.k8s.io/prioritylevelconfigurations": (
            flow_rules.PriorityLevelStrategy()
        ),
        "networking.k8s.io/ingressclasses": networking.IngressClassStrategy(),
        "networking.k8s.io/ingresses": networking.IngressStrategy(features),
        "networking.k8s.io/ipaddresses": networking.IpAddressStrategy(),
        "networking.k8s.io/networkpolicies": networking.NetworkPolicyStrategy(),
        "networking.k8s.io/servicecidrs": networking.ServiceCidrStrategy(),
        "node.k8s.io/runtimeclasses": runtime_classes.RuntimeClassStrategy(),
        "policy/poddisruptionbudgets": policies.BudgetStrategy(),
        f"{rbac}/clusterrolebindings": access.BindingStrategy(features, namespaced=False),
        f"{rbac}/clusterroles": access.RoleStrategy(namespaced=False),
        f"{rbac}/rolebindings": access.BindingStrategy(features, namespaced=True),
        f"{rbac}/roles": access.RoleStrategy(namespaced=True),
        "lifecycle.k8s.io/evictionrequests": DeclaredStrategy(features),
        "lifecycle.k8s.io/evictions": DeclaredStrategy(features),
        "scheduling.k8s.io/compositepodgroups": GroupStrategy(features),
        "scheduling.k8s.io/podgroups": GroupStrategy(features),
        "scheduling.k8s.io/priorityclasses": cluster.PriorityClassStrategy(),
        "scheduling.k8s.io/workloads": WorkloadStrategy(features),
        "storage.k8s.io/csidrivers": storage.CsiDriverStrategy(features),
        "storage.k8s.io/csinodes": storage.CsiNodeStrategy(),
        "storage.k8s.io/csistoragecapacities": storage.StorageCapacityStrategy(),
        "storage.k8s.io/volumeattachments": storage.AttachmentStrategy(),
        "storage.k8s.io/volumeattributesclasses": storage.AttributesClassStrategy(),
        "storage.k8s.io/storageclasses": storage.StorageClassStrategy(),
        f"{hooks}/mutatingadmissionpolicies": policies.AdmissionPolicyStrategy(),
        f"{hooks}/mutatingwebhookconfigurations": policies.WebhookStrategy(mutating=True),
        f"{hooks}/validatingadmissionpolicies": policies.AdmissionPolicyStrategy(),
        f"{hooks}/validatingwebhookconfigurations": policies.WebhookStrategy(mutating=False),
    }
