"""Keeps whole nodes free for pods that need one, by packing small pods together."""


class KeepTogether:
    def prefer(self, pod, node):
        """Return a node's score (more is better), or None if the pod must not run there."""
        if pod.gpus == 0:
            return -len(node.gpus)  # nodes without GPUs first
        if pod.gpu_milli < 1000:
            tightest = min(left for left in node.gpus if left >= pod.gpu_milli)
            return -tightest  # the GPU that this pod fills best
        return -node.idle_gpus  # the node that is nearly full
