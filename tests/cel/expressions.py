"""Random expressions that the checker accepts, and devices for them."""

import re

from hypothesis import strategies as st

from dralab.cel import device_value

WORDS = ["", "a", "fish", "Bird", "ünï", "1.2.3"]
PIECES = re.compile(r"\{\{|\}\}|\{[^{}]+\}|[^{}]+")
NUMBERS = [-3, -1, 0, 1, 2, 7, 2**63 - 1]
NAMES = ["text", "number", "flag", "version", "words", "numbers", "missing"]


def literals(kind):
    match kind:
        case "bool":
            return st.sampled_from(["true", "false"])
        case "int":
            return st.sampled_from(NUMBERS).map(str)
        case "double":
            return st.sampled_from(["0.0", "1.5", "-2.0", "1e3"])
        case "string":
            return st.sampled_from(WORDS).map(lambda word: f'"{word}"')
        case "list(int)":
            return st.lists(st.sampled_from(NUMBERS).map(str), min_size=1, max_size=3).map(
                lambda items: f"[{', '.join(items)}]"
            )
        case "list(string)":
            return st.lists(literals("string"), min_size=1, max_size=3).map(
                lambda items: f"[{', '.join(items)}]"
            )
    raise ValueError(kind)


# {kind} stands for a smaller expression of a type, {v} for a variable that is used inside.
TEMPLATES = {
    "bool": [
        "({bool} && {bool})", "({bool} || {bool})", "(!{bool})", "({bool} ? {bool} : {bool})",
        "({int} < {int})", "({int} == {int})", "({string} != {string})", "({double} >= {double})",
        "({string} in {list(string)})", "({int} in {list(int)})",
        "{string}.startsWith({string})", "{string}.contains({string})",
        '{string}.matches("^[a-f]+$")', "{list(int)}.exists(v, v > {int} && {bool})",
        "{list(int)}.all(v, {int} / v > 0)", "{list(string)}.exists_one(v, v == {string})",
        "{list(int)}.exists(i, v, i == v || {bool})",
        "cel.bind(b, {bool}, b || {bool})", "({list(int)} == {list(int)})",
        '("a" in {{"a": {int}}})', "optional.of({int}).hasValue()",
    ],
    "int": [
        "({int} + {int})", "({int} - {int})", "({int} * {int})", "({int} / {int})",
        "({int} % {int})", "(-{int})", "({bool} ? {int} : {int})", "size({string})",
        "{list(string)}.size()", "{list(int)}[{int}]", "int({double})",
        "{{1: {int}, 2: {int}}}[{int}]", "optional.of({int}).orValue({int})",
        "optional.none().orValue({int})", "cel.bind(b, {int}, b * b)",
        "{list(int)}.map(v, v + {int})[0]",
    ],
    "double": ["({double} + {double})", "({double} / {double})", "double({int})"],
    "string": [
        "({string} + {string})", "({bool} ? {string} : {string})", "string({int})",
        "{list(string)}[{int}]", '{{"a": {string}}}.a', '{{"a": {string}}}[{string}]',
    ],
    "list(int)": [
        "({list(int)} + {list(int)})", "{list(int)}.filter(v, v != {int})",
        "{list(int)}.map(v, v * {int})", "{list(string)}.map(v, size(v))",
        "[{int}, {int}]", "{list(int)}.map(v, v > {int}, v)",
    ],
    "list(string)": [
        "{list(string)}.filter(v, v != {string})", "[{string}]",
        "{list(int)}.map(v, string(v))",
    ],
}  # fmt: skip
# Only with Kubernetes' libraries, and about a device.
KUBERNETES = {
    "bool": [
        "({double} >= {int})",
        "has(device.attributes.d.{name})", "device.attributes.d.flag", "device.attributes.d.{name}",
        "(device.attributes.d.{name} == {int})", "(device.attributes.d.{name} == {string})",
        'device.attributes["d"].{name}.includes({string})',
        "device.attributes.d.words.exists(v, v == {string})",
        '(device.capacity["d"].memory.compareTo(quantity("1Gi")) >= 0)',
        'device.attributes["d"].version.isLessThan(semver("2.0.0"))',
        'device.attributes["d"].?{name}.hasValue()', '("{name}" in device.attributes["d"])',
        'device.attributes[?"d"].optMap(m, "{name}" in m).orValue({bool})',
        "{list(int)}.isSorted()", "sets.contains({list(int)}, {list(int)})",
        "device.allowMultipleAllocations", "(device.attributes.d.number > {int})",
    ],
    "int": [
        'int(device.attributes["d"].number)', "int(device.attributes.d.?number.orValue({int}))",
        "{list(int)}.sum()", "{list(int)}.max()", "{string}.indexOf({string})",
        "{list(int)}.sort()[0]", "device.attributes.size()",
    ],
    "string": [
        "device.driver", 'string(device.attributes["d"].text)', "{string}.lowerAscii()",
        "{string}.substring({int})", '{list(string)}.join("-")',
        'string(device.attributes["d"].?{name}.orValue({string}))', '"%s:%d".format([{string}, {int}])',
    ],
    "list(int)": ["{list(int)}.reverse()", "{list(int)}.distinct()", "lists.range(3)"],
    "list(string)": ['{string}.split("i")'],
}  # fmt: skip


@st.composite
def expressions(draw, kind="bool", depth=4, *, kubernetes=True):
    """Draw the text of an expression of a type."""
    if depth <= 0 or draw(st.integers(0, 5)) == 0:
        return draw(literals(kind))
    templates = TEMPLATES[kind] + (KUBERNETES.get(kind, []) if kubernetes else [])
    text = draw(st.sampled_from(templates))
    parts = []
    for piece in PIECES.findall(text):
        if piece in {"{{", "}}"}:
            parts.append(piece[0])
        elif piece == "{name}":
            parts.append(draw(st.sampled_from(NAMES)))
        elif piece.startswith("{"):
            parts.append(draw(expressions(piece[1:-1], depth - 1, kubernetes=kubernetes)))
        else:
            parts.append(piece)
    return "".join(parts)


VALUES = {
    "text": st.sampled_from(WORDS).map(lambda value: {"string": value}),
    "number": st.sampled_from(NUMBERS).map(lambda value: {"int": value}),
    "flag": st.booleans().map(lambda value: {"bool": value}),
    "version": st.sampled_from(["1.0.0", "2.0.0-rc.1"]).map(lambda value: {"version": value}),
    "words": st.lists(st.sampled_from(WORDS), max_size=3).map(lambda value: {"strings": value}),
    "numbers": st.lists(st.sampled_from(NUMBERS), max_size=3).map(lambda value: {"ints": value}),
}


@st.composite
def devices(draw):
    """Draw a device in the domain `d`, which may lack any attribute."""
    present = draw(st.sets(st.sampled_from(sorted(VALUES))))
    return device_value(
        driver="d",
        attributes={name: draw(VALUES[name]) for name in sorted(present)},
        capacity={"memory": draw(st.sampled_from(["1", "1Gi", "1500Mi"]))}
        if draw(st.booleans())
        else {},
        allow_multiple_allocations=draw(st.booleans()),
    )
