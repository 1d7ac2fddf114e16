class Patient:
    """Packs, and never takes anybody's GPUs away: what has no room waits."""

    def prefer(self, task, node):
        return -sum(node.gpus) if task.gpus else -node.cpu
