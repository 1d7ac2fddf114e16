"""Whether rules allow all that other rules allow, and what is missing.

Source: k8s.io/component-helpers `auth/rbac/validation` (policy comparator);
k8s.io/kubernetes `pkg/registry/rbac/validation` (policy compactor).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from dralab.apiserver.access.authorization.rules import ALL, PolicyRule, url_covers
from dralab.values.go_text import go_quoted


def missing(held: Sequence[PolicyRule], wanted: Sequence[PolicyRule]) -> list[PolicyRule]:
    """Return the wanted rules that are not covered, split into one verb on one resource each.

    >>> pods = PolicyRule(verbs=("get", "list"), groups=("",), resources=("pods",))
    >>> missing([replace(pods, verbs=("get",))], [pods])
    [PolicyRule(verbs=('list',), groups=('',), resources=('pods',), names=(), urls=())]
    """
    return [
        part
        for rule in wanted
        for part in parts(rule)
        if not any(_covers(each, part) for each in held)
    ]


def parts(rule: PolicyRule) -> Iterator[PolicyRule]:
    """Return a rule split into rules of one verb on one resource each."""
    for group in rule.groups:
        for resource in rule.resources:
            for verb in rule.verbs:
                part = PolicyRule(verbs=(verb,), groups=(group,), resources=(resource,))
                for name in rule.names:
                    yield replace(part, names=(name,))
                if not rule.names:
                    yield part
    for url in rule.urls:
        for verb in rule.verbs:
            yield PolicyRule(verbs=(verb,), urls=(url,))


def number_of_parts(rule: PolicyRule) -> int:
    """Return how many rules `parts` has for a rule."""
    things = len(rule.groups) * len(rule.resources) * max(1, len(rule.names))
    return len(rule.verbs) * (things + len(rule.urls))


def covers_whole(held: Iterable[PolicyRule], rule: PolicyRule) -> bool:
    """Return whether one rule alone allows all that another does, found without its parts."""
    return any(
        _all_in(rule.verbs, each.verbs)
        and _all_in(rule.groups, each.groups)
        and _all_in(rule.resources, each.resources)
        and all(any(url_covers(url, path) for url in each.urls) for path in rule.urls)
        and (not each.names or (bool(rule.names) and set(rule.names) <= set(each.names)))
        for each in held
    )


def _all_in(wanted: Iterable[str], known: Iterable[str]) -> bool:
    return ALL in known or set(wanted) <= set(known)


def _covers(held: PolicyRule, part: PolicyRule) -> bool:
    (verb,) = part.verbs
    if verb not in held.verbs and ALL not in held.verbs:
        return False
    if part.urls:
        return any(url_covers(url, part.urls[0]) for url in held.urls)
    if part.groups[0] not in held.groups and ALL not in held.groups:
        return False
    (resource,) = part.resources
    _, slash, subresource = resource.partition("/")
    known = {ALL, resource, f"*/{subresource}"} if slash else {ALL, resource}
    if known.isdisjoint(held.resources):
        return False
    # A rule without names covers every name; a rule with names never covers one without.
    return not held.names or (bool(part.names) and part.names[0] in held.names)


def compact(rules: Iterable[PolicyRule]) -> list[PolicyRule]:
    """Return rules with the verbs on one resource put together, for people to read."""
    found: list[PolicyRule] = []
    simple: dict[tuple[str, ...], PolicyRule] = {}
    for rule in rules:
        if rule.urls or len(rule.groups) != 1 or len(rule.resources) != 1 or len(rule.names) > 1:
            found.append(rule)
            continue
        place = (*rule.groups, *rule.resources, *rule.names)
        known = simple.get(place)
        simple[place] = replace(rule, verbs=(*known.verbs, *rule.verbs)) if known else rule
    return [*found, *simple.values()]


def described(rules: Iterable[PolicyRule]) -> str:
    """Return rules as messages list them, one a line.

    >>> described([PolicyRule(verbs=("get", "list"), groups=("",), resources=("pods",))])
    '{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}'
    """
    return "\n".join(sorted({_described(rule) for rule in compact(rules)}))


def _described(rule: PolicyRule) -> str:
    named = {
        "APIGroups": rule.groups,
        "Resources": rule.resources,
        "NonResourceURLs": rule.urls,
        "ResourceNames": rule.names,
        "Verbs": rule.verbs,
    }
    shown = (f"{name}:{quoted_list(part)}" for name, part in named.items() if part)
    return f"{{{', '.join(shown)}}}"


def quoted_list(texts: Iterable[str]) -> str:
    """Return texts as Go's %q shows a list of them: `["a" "b"]`."""
    return f"[{' '.join(map(go_quoted, texts))}]"
