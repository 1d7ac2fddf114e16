"""What envtest starts as kube-apiserver: `dralab apiserver` with the flags of a real one."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import click

# Flags that change nothing for a client here: objects are in memory, and logs are not glog's.
WITHOUT_EFFECT: Final = frozenset(
    (
        "advertise-address", "allow-privileged", "contention-profiling", "default-watch-cache-size",
        "delete-collection-workers", "enable-garbage-collector", "enable-priority-and-fairness",
        "endpoint-reconciler-type", "goaway-chance", "http2-max-streams-per-connection",
        "min-request-timeout", "profiling", "request-timeout", "v", "vmodule",
    )
)  # fmt: skip
FAMILIES_WITHOUT_EFFECT: Final = (
    "cloud-", "etcd-", "insecure-", "kubelet-", "log", "max-", "permit-", "shutdown-", "storage-",
    "watch-cache",
)  # fmt: skip
CERT_DIR: Final = "cert-dir"
# What a kube-apiserver does without a flag.
DEFAULTS: Final = ("--data", ":memory:", "--api-versions", "default", "--anonymous-auth", "true")


@dataclass(frozen=True, slots=True)
class UnknownFlag(Exception):  # noqa: N818 - named for what it is about
    """A flag that this server does not have, and whose effect a client could miss."""

    name: str

    def __str__(self) -> str:
        return f"--{self.name} is not a flag of dralab's API server: see `dralab apiserver --help`"


def arguments_of(given: Sequence[str], known: Iterable[str]) -> list[str]:
    """Return the arguments of `dralab apiserver` for those of a kube-apiserver. UnknownFlag.

    >>> arguments_of(["--v=2", "--etcd-servers=http://e", "--secure-port=1"], ["secure-port"])
    [..., '--anonymous-auth', 'true', '--secure-port', '1']
    """
    found = list(DEFAULTS)
    names = frozenset(known)
    certificates = ""
    for name, value in _flags(given):
        if name == CERT_DIR:
            certificates = value
        elif name in WITHOUT_EFFECT or name.startswith(FAMILIES_WITHOUT_EFFECT):
            continue
        elif name in names:
            found += [f"--{name}", value]
        else:
            raise UnknownFlag(name)
    if certificates and "--tls-cert-file" not in found:
        found += ["--tls-cert-file", f"{certificates}/apiserver.crt"]
        found += ["--tls-private-key-file", f"{certificates}/apiserver.key"]
    return found


def _flags(given: Sequence[str]) -> Iterable[tuple[str, str]]:
    """Yield names and values; a flag without a value is true, as for Go's pflag."""
    rest = list(given)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            raise UnknownFlag(word)
        if not equals:
            value = rest.pop(0) if rest and not rest[0].startswith("-") else "true"
        yield name, value


def main() -> None:
    """Serve with the arguments of this process."""
    from dralab.cli._terminal import echo
    from dralab.cli.apiserver import apiserver

    known = {
        name.removeprefix("--")
        for option in apiserver.params
        for name in option.opts
        if not (isinstance(option, click.Option) and option.is_flag)
    }
    try:
        arguments = arguments_of(sys.argv[1:], known)
    except UnknownFlag as error:
        echo(f"Error: {error}", err=True)
        sys.exit(1)
    apiserver(arguments, prog_name="kube-apiserver")


if __name__ == "__main__":
    main()
