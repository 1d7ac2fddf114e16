"""Names in Kubernetes: DNS labels and subdomains, label keys and values, qualified names.

Each `…_problems` function returns the sentences in which k8s.io/apimachinery `validation`
answers; an empty list means that the name is good.
"""

import re
from typing import Final

from dralab.values.remembering import remembered

LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
LABEL_1035: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?", re.ASCII)
SUBDOMAIN: Final = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII
)
QUALIFIED: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", re.ASCII)
VALUE: Final = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", re.ASCII)
UNDERSCORED: Final = re.compile(
    r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*", re.ASCII
)
CONFIG_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+", re.ASCII)
HEADER: Final = re.compile(r"[-A-Za-z0-9]+", re.ASCII)
VARIABLE: Final = re.compile(r"[ -<>-~]*", re.ASCII)
C_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def _problems(name: str, most: int, pattern: re.Pattern[str], unit: str, told: str) -> list[str]:
    """Return that a name is too long, and `told` where it does not match a pattern."""
    problems = [f"must be no more than {most} {unit}"] if len(name) > most else []
    return problems if pattern.fullmatch(name) else [*problems, told]


def label_problems(name: str, unit: str = "characters") -> list[str]:
    """Return the problems of a DNS label (RFC 1123)."""
    problems = []
    if len(name) > 63:
        problems.append(f"must be no more than 63 {unit}")
    if not LABEL.fullmatch(name):
        if SUBDOMAIN.fullmatch(name):
            return [*problems, "must not contain dots"]
        problems.append(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or "
            "'-', and must start and end with an alphanumeric character (e.g. 'my-name',  or "
            "'123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
        )
    return problems


def label_1035_problems(name: str) -> list[str]:
    """Return the problems of a DNS label that begins with a letter (RFC 1035)."""
    return _problems(
        name, 63, LABEL_1035, "characters",
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start "
        "with an alphabetic character, and end with an alphanumeric character (e.g. "
        "'my-name',  or 'abc-123', regex used for validation is "
        "'[a-z]([-a-z0-9]*[a-z0-9])?')",
    )  # fmt: skip


def subdomain_problems(name: str, unit: str = "characters") -> list[str]:
    """Return the problems of a DNS subdomain (RFC 1123)."""
    return _problems(
        name, 253, SUBDOMAIN, unit,
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "
        "'-' or '.', and must start and end with an alphanumeric character (e.g. "
        "'example.com', regex used for validation is "
        "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
    )  # fmt: skip


def qualified_problems(name: str) -> list[str]:
    """Return the problems of a qualified name: an optional subdomain, `/`, and a name."""
    problems = []
    prefix, slash, rest = name.rpartition("/")
    if name.count("/") > 1:
        return [
            "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must "
            "start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or "
            "'123-abc', regex used for validation is "
            "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix "
            "and '/' (e.g. 'example.com/MyName')"
        ]
    if slash and not prefix:
        problems.append("prefix part must be non-empty")
    elif slash:
        problems += [
            f"prefix part {problem.replace('253 characters', '253 bytes')}"
            for problem in subdomain_problems(prefix)
        ]
    if not rest:
        problems.append("name part must be non-empty")
    elif len(rest) > 63:
        problems.append("name part must be no more than 63 bytes")
    if not QUALIFIED.fullmatch(rest):
        problems.append(
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must start "
            "and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', "
            "regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
        )
    return problems


@remembered(16384)
def is_label(name: str) -> bool:
    """Return whether a text is a DNS label; the same few come again and again."""
    return not label_problems(name)


@remembered(16384)
def is_qualified(name: str) -> bool:
    """Return whether a text is a qualified name; the same few come again and again."""
    return not qualified_problems(name)


def label_value_problems(value: str) -> list[str]:
    """Return the problems of a label value."""
    return _problems(
        value, 63, VALUE, "bytes",
        "a valid label must be an empty string or consist of alphanumeric characters, '-', "
        "'_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  "
        "or 'my_value',  or '12345', regex used for validation is "
        "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
    )  # fmt: skip


def c_identifier_problems(name: str) -> list[str]:
    """Return the problems of a C identifier."""
    if C_IDENTIFIER.fullmatch(name):
        return []
    return [
        "a valid C identifier must start with alphabetic character or '_', followed by a string "
        "of alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex "
        "used for validation is '[A-Za-z_][A-Za-z0-9_]*')"
    ]


def config_key_problems(key: str) -> list[str]:
    """Return the problems of a key of a config map or secret."""
    problems = []
    if len(key) > 253:
        problems.append("must be no more than 253 characters")
    if not CONFIG_KEY.fullmatch(key):
        problems.append(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' "
            "(e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is "
            "'[-._a-zA-Z0-9]+')"
        )
    if key in {".", ".."}:
        problems.append(f"must not be '{key}'")
    elif key.startswith(".."):
        problems.append("must not start with '..'")
    return problems


def variable_problems(name: str) -> list[str]:
    """Return the problems of an environment variable's name."""
    problems = [] if name else ["environment variable name must be non-empty"]
    if not VARIABLE.fullmatch(name):
        problems.append(
            "a valid environment variable name must consist only of printable ASCII characters "
            "other than '='"
        )
    return problems


def header_problems(name: str) -> list[str]:
    """Return the problems of an HTTP header's name, as probes may send it."""
    if HEADER.fullmatch(name):
        return []
    return [
        "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. "
        "'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')"
    ]


def search_path_problems(name: str) -> list[str]:
    """Return the problems of a domain to search in: a subdomain that may have underscores."""
    return _problems(
        name, 253, UNDERSCORED, "characters",
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "
        "'_', '-' or '.', and must start and end with an alphanumeric character (e.g. "
        "'example.com', regex used for validation is "
        "'_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')",
    )  # fmt: skip
