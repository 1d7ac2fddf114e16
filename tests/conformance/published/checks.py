"""What must not happen to what is alive."""


def _deleted_after_the_last(step, kind, history):
    made = [n for n, e in enumerate(history.entries) if e.who == "user" and step in e.text]
    after = history.entries[made[-1] if made else 0 :]
    return [e for e in after if e.text.startswith(f"delete {kind}") and e.revision]


def volumes_of_the_new_cluster_stay(objects, history):
    """No volume is deleted after the cluster was made again."""
    gone = _deleted_after_the_last("apply", "persistentvolumeclaims", history)
    return f"a volume of the new cluster is deleted at {gone[0].at / 1e9:g}s" if gone else ""


def volumes_of_members_stay(objects, history):
    """No volume is deleted after the cluster was scaled up again."""
    gone = _deleted_after_the_last("scale", "persistentvolumeclaims", history)
    return f"a volume of a member is deleted at {gone[0].at / 1e9:g}s" if gone else ""


def the_server_of_the_new_cluster_stays(objects, history):
    """No StatefulSet is deleted after the cluster was made again."""
    gone = _deleted_after_the_last("apply", "statefulsets.apps", history)
    return f"the server of the new cluster is deleted at {gone[0].at / 1e9:g}s" if gone else ""
