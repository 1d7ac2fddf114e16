"""Where the rules of the checks come from: files of Kubernetes 1.36, and enhancement proposals."""

from typing import Final

PLUGIN_PROTO: Final = "k8s.io/kubelet/pkg/apis/dra/v1/api.proto"
REGISTRATION_PROTO: Final = "k8s.io/kubelet/pkg/apis/pluginregistration/v1/api.proto"
HEALTH_PROTO: Final = "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1/api.proto"
TYPES: Final = "k8s.io/api/resource/v1/types.go"
KUBELET: Final = "kubernetes/pkg/kubelet/cm/dra/manager.go"
PLUGIN_MANAGER: Final = "kubernetes/pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go"
LIBRARY: Final = "k8s.io/dynamic-resource-allocation/kubeletplugin/draplugin.go"
KEP: Final = "KEP-4381"
REBOOT: Final = (
    "kubernetes/kubernetes#141433: after a reboot /var/run is empty, checkpoints are not"
)
