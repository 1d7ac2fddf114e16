"""Which answers tell of a fault of the server, and not of the client."""


def is_fault(status: int, body: bytes) -> bool:
    """Whether an answer with a code of 500 or more is the server's fault.

    kube-apiserver answers some bad requests with 500 and a Status without a reason, such as one
    that applies a text where a map belongs; dralab says the same. 504 is a time-out that was asked
    for. What went wrong inside has the reason InternalError, in every form of an answer.
    """
    if status < 500 or status == 504:
        return False
    return status != 500 or b"InternalError" in body
