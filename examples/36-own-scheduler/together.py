"""Keeps whole nodes free for pods that need one: everything small moves together."""


class KeepTogether:
    def prefer(self, pod, node):
        """Return how good a node is (more is better), or None where the pod must not go."""
        if pod.gpus == 0:
            return -len(node.gpus)  # nodes without GPUs first
        if pod.gpu_milli < 1000:
            tightest = min(left for left in node.gpus if left >= pod.gpu_milli)
            return -tightest  # the GPU that this pod fills best
        return -node.idle_gpus  # the node that is nearly full
