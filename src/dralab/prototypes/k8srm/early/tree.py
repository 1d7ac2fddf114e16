"""The result of a node as the tree that the first prototype printed."""

from collections.abc import Iterator

from dralab.prototypes.k8srm.early.scheduling import NodeResult, PoolResult


def lines(result: NodeResult, word: str = "device") -> Iterator[str]:
    """Yield the tree of a node's result; `word` is `resource` in the files of stage K0."""
    yield f'node "{result.node}" ({result.score}): {_outcome(result.score)}'
    for group in result.claims:
        yield f'- capacity claim "{group.claim}" ({group.score}): {_outcome(group.score)}'
        for claim in group.claims:
            why = claim.reason or _outcome(claim.score)
            yield f'  - {word} claim "{claim.claim}" ({claim.score}): {why}'
            for at, pool in enumerate(claim.pools):
                yield from _pool_lines(pool, word, best=at == claim.best)


def amounts(result: NodeResult) -> Iterator[str]:
    """Yield one line for every capacity taken from the chosen node: claim, device, key, amount."""
    for group in result.claims:
        for claim in group.claims:
            if claim.best < 0:
                continue
            pool = claim.pools[claim.best]
            device = pool.devices[pool.best]
            for part in device.taken:
                yield f"{group.claim}/{claim.claim}: {device.device}: {part.key} = {part.text}"


def _pool_lines(pool: PoolResult, word: str, *, best: bool) -> Iterator[str]:
    outcome = "best" if best else "succeeded"
    yield f'    - pool "{pool.pool}" ({pool.score}): {pool.reason or outcome}'
    for at, device in enumerate(pool.devices):
        chosen = "best" if at == pool.best else "success"
        yield f'      - {word} "{device.device}" ({device.score}): {device.reason or chosen}'


def _outcome(score: int) -> str:
    return "succeeded" if score else "failed"
