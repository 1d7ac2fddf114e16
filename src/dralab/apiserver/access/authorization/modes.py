"""The authorization modes of a server, tried in order until one decides.

Source: k8s.io/apiserver `authorization/union`, `authorization/authorizerfactory`;
k8s.io/kubernetes `pkg/kubeapiserver/authorizer`.
"""

from collections.abc import Callable, Sequence
from typing import Final

from dralab.apiserver.access.admission.chain import Admission
from dralab.apiserver.access.authorization.attributes import (
    ALLOWED,
    AlwaysAllow,
    AlwaysDeny,
    Attributes,
    Authorizer,
    Decision,
    RuleList,
)
from dralab.apiserver.access.authorization.escalation import RoleEscalation
from dralab.apiserver.access.authorization.node_restriction import NodeRestriction
from dralab.apiserver.access.authorization.nodes import ClaimsOfPods, NodeAuthorizer, PodsOn
from dralab.apiserver.access.authorization.rbac import COLLECTIONS, RbacAuthorizer, RoleIndex
from dralab.apiserver.access.authorization.signers import CertificateApproval, CertificateSigning
from dralab.apiserver.access.users import User
from dralab.apiserver.storage import Store
from dralab.apiserver.storage.store import follow
from dralab.values.go_text import aggregate
from dralab.values.records import dataclass

MODES: Final = ("AlwaysAllow", "AlwaysDeny", "Node", "RBAC")


class Union:
    """Several authorizers: the first that allows or denies decides. Superusers may do anything."""

    def __init__(self, authorizers: Sequence[Authorizer]) -> None:
        self.authorizers = tuple(authorizers)

    def authorize(self, attributes: Attributes) -> Decision:
        """Return the first decision; without one, all that the authorizers say about it."""
        if attributes.user.is_superuser:
            return ALLOWED
        found = []
        for authorizer in self.authorizers:
            decision = authorizer.authorize(attributes)
            if decision.verdict != "no opinion":
                return decision
            found.append(decision)
        reasons = [decision.reason for decision in found if decision.reason]
        errors = [decision.error for decision in found if decision.error]
        return Decision("no opinion", "\n".join(reasons), aggregate(errors))

    def rules_for(self, user: User, namespace: str) -> RuleList:
        """Return the rules of all of them."""
        found = [authorizer.rules_for(user, namespace) for authorizer in self.authorizers]
        return RuleList(
            resource_rules=[rule for each in found for rule in each.resource_rules],
            non_resource_rules=[rule for each in found for rule in each.non_resource_rules],
            incomplete=any(each.incomplete for each in found),
            error=aggregate([each.error for each in found if each.error]),
        )


class ModeError(ValueError):
    """An authorization mode that does not exist, or one that is given twice."""


def parse_modes(text: str) -> tuple[str, ...]:
    """Return the modes of a comma-separated list, as kube-apiserver's flag has them. ModeError.

    >>> parse_modes("Node,RBAC")
    ('Node', 'RBAC')
    """
    found = tuple(mode.strip() for mode in text.split(",") if mode.strip())
    for mode in found:
        if mode not in MODES:
            raise ModeError(f"{mode!r} is not a mode; the modes are {', '.join(MODES)}")
        if found.count(mode) > 1:
            raise ModeError(f"{mode!r} is given twice")
    if not found:
        raise ModeError(f"no mode is given; the modes are {', '.join(MODES)}")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorization:
    """The authorizer of some modes, and the admission plugins that belong to it.

    `connecting` is asked about subresources that are created as well, such as `pods/eviction`.
    """

    authorizer: Authorizer | None = None
    admission: Sequence[Admission] = ()
    connecting: Sequence[Admission] = ()


def authorization_of(
    modes: Sequence[str], store: Store, pods_on: PodsOn, more_claims: ClaimsOfPods | None = None
) -> Authorization:
    """Return the authorizer of these modes, which follows the objects of a store.

    `pods_on` finds the pods of a node, `more_claims` what they use of other APIs. ModeError. There
    is no authorizer where every user may do everything.
    """
    if parse_modes(",".join(modes)) == ("AlwaysAllow",):
        return Authorization()
    index = RoleIndex()
    if "RBAC" in modes:
        follow(store, COLLECTIONS, index.put)
    made: dict[str, Callable[[], Authorizer]] = {
        "AlwaysAllow": AlwaysAllow,
        "AlwaysDeny": AlwaysDeny,
        "Node": lambda: NodeAuthorizer(store, pods_on, more_claims),
        "RBAC": lambda: RbacAuthorizer(index),
    }
    union = Union([made[mode]() for mode in modes])
    nodes: list[Admission] = [NodeRestriction()] if "Node" in modes else []
    admission = [*nodes, CertificateApproval(union), CertificateSigning(union)]
    if "RBAC" in modes:
        admission.append(RoleEscalation(index, union))
    return Authorization(authorizer=union, admission=admission, connecting=nodes)
