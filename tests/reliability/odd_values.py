"""Values that no field asks for, and objects and bytes that are odd in a few places."""

import json
import random
import string
from typing import Any

ODD: list[Any] = [
    None, True, False, 0, -1, 1.5, 1e308, -0.0, 2**31, 2**63, -(2**63), 2**64, "", "x", "é" * 300, "a" * 70_000,
    "\x00", "\u2028", "../..", "%s%n", "\ud83d\ude00", "1e9999999Gi", "-1", "9e99", "1Gi", "0001-01-01T00:00:00Z",
    "0000-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z", "2026-02-30T00:00:00Z", "10000-01-01T00:00:00Z", "::1",
    "300.1.1.1", "(" * 1000 + "1" + ")" * 1000, "^(a+)+$", "[", "true || " * 200 + "true", "{{", "$patch", "*/0 * * * *",
    [], [None], [[]], [[[[]]]], {}, {"": ""}, {"a": None}, {"a": {"b": {}}}, ["x", 1, {}], {"$patch": "delete"},
    [{"name": None}], [{"name": "a"}, {"name": "a"}], {"x" * 300: "y"}, ["a"] * 300, [{}] * 300,
]  # fmt: skip
KEYS = (
    "",
    "metadata",
    "x" * 300,
    "$patch",
    "$retainKeys",
    "\x00",
    "é",
    "apiVersion",
    "-",
    "/",
    "~",
)


def odd_text(chance: random.Random, most: int = 20) -> str:
    """Return a short text of any characters."""
    return "".join(
        chance.choice(string.printable + "é☃\x00") for _ in range(chance.randrange(most))
    )


def odd_object(value: Any, chance: random.Random) -> Any:
    """Return a copy of a value in which one to three things are odd."""
    value = json.loads(json.dumps(value))
    for _ in range(chance.randint(1, 3)):
        node = value
        while isinstance(node, (dict, list)) and node:
            key: Any = (
                chance.choice(list(node)) if isinstance(node, dict) else chance.randrange(len(node))
            )
            inner = node[key]
            if isinstance(inner, (dict, list)) and inner and chance.random() < 0.75:
                node = inner
                continue
            _change(node, key, chance)
            break
    return value if chance.random() < 0.98 else chance.choice(ODD)


def _change(node: Any, key: Any, chance: random.Random) -> None:
    """Make one entry of a mapping or a list odd: another value, gone, moved, or there twice."""
    draw = chance.random()
    if draw < 0.15:
        del node[key]
    elif isinstance(node, list):
        if draw < 0.3:
            node.extend(json.loads(json.dumps(node[key])) for _ in range(chance.choice((1, 40))))
        else:
            node[key] = json.loads(json.dumps(chance.choice(ODD)))
    elif draw < 0.3:
        node[chance.choice([*KEYS, f"{key}x", str(key).upper()])] = node.pop(key)
    else:
        node[key] = json.loads(json.dumps(chance.choice(ODD)))


def odd_bytes(content: bytes, chance: random.Random) -> bytes:
    """Return a body whose bytes are odd: flipped, cut, deep, large, repeated."""
    found = bytearray(content or b"{}")
    match chance.randrange(12):
        case 0:
            return b"[" * chance.choice((200, 2_000, 50_000))
        case 1:
            depth = chance.choice((150, 250, 3_000))
            return b'{"a":' * depth + b"1" + b"}" * depth
        case 2:
            return bytes(found).replace(b"{", b'{"kind":"X","kind":"Y",', 1)
        case 3:
            return b""
        case 4:
            return bytes(found) * 2
        case 5:
            return b"a: &a [x,x,x]\nb: &b [*a,*a,*a]\nc: [*b,*b,*b]\n<<: [*a]\n"
        case 6:
            return b'{"metadata":{"name":"a","labels":{%s}}}' % b",".join(
                b'"k%d":"v"' % at for at in range(20_000)
            )
        case 7:
            del found[chance.randrange(len(found)) :]
    for _ in range(chance.randint(1, 6)):
        if found:
            found[chance.randrange(len(found))] = chance.randrange(256)
    return bytes(found)
