"""Errors of authentication: rejected credentials, and settings that cannot be used.

Exception
├── Rejected          a credential was recognised, and is not valid: the request gets 401
└── UnusableSetting   a flag or a file of the operator's; raised before the server starts
"""


class Rejected(Exception):  # noqa: N818 - a verdict, which clients see as 401
    """A credential is not valid; `why` goes to TokenReview and to the log, never to the client."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class UnusableSetting(Exception):  # noqa: N818 - a fact about what an operator gave
    """A setting cannot be used: `flag` is the option, `why` says what is wrong."""

    def __init__(self, flag: str, why: str) -> None:
        super().__init__(f"{flag}: {why}")
        self.flag = flag
        self.why = why
