"""Help that fits a screen: everyday options first, all others with --help-all, by subject.

Commands with many options name those of every day; `get_params` still returns all of them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from dralab.cli._terminal import echo

# Subjects, and how the names of their options begin.
SUBJECTS: Final[Mapping[str, tuple[str, ...]]] = {
    "Users and tokens": (
        "token-", "client-ca", "service-account", "api-audiences", "anonymous-auth",
        "authorization-",
    ),
    "OpenID Connect": ("oidc-",),
    "Authenticating proxies": ("requestheader-",),
    "Audit log": ("audit-",),
    "Admission, webhooks and aggregated servers": (
        "enable-admission", "disable-admission", "admission-", "webhook-", "enable-aggregator",
        "proxy-client",
    ),
    "Storage": ("store", "etcd-", "durability", "event-ttl"),
    "Addresses and TLS": ("tls", "bind-", "secure-", "accept-hosts", "service-cluster"),
    "Versions of the API": ("api", "kubernetes-version", "runtime-config", "feature-gates"),
    "Nodes and their network": (
        "node", "image-map", "mount-", "cluster-", "root", "load-balancers", "system-pods",
    ),
}  # fmt: skip
OTHER: Final = "Other options"


class EverydayCommand(click.Command):
    """A command whose help shows the options named in `everyday`, and all with --help-all."""

    def __init__(
        self,
        *arguments: Any,
        everyday: Sequence[str],
        subjects: Mapping[str, tuple[str, ...]] = SUBJECTS,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self.everyday = everyday
        self.subjects = subjects
        self.params.append(
            click.Option(
                ["--help-all"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_show_all,
                help="Show all options and exit.",
            )
        )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the everyday options, or all by subject."""
        rows: dict[str, list[tuple[str, str]]] = {"Options": []}
        for each in sorted(self.get_params(ctx), key=self._place):
            record = each.get_help_record(ctx)
            if record is None:
                continue
            is_everyday = _name(each) in self.everyday or _name(each) in {"help", "help-all"}
            subject = "Options" if is_everyday else self._subject(_name(each))
            rows.setdefault(subject, []).append(record)
        everyday = rows.pop("Options")
        if everyday:
            with formatter.section("Options"):
                formatter.write_dl(everyday)
        if not ctx.meta.get(ALL):
            count = sum(map(len, rows.values()))
            with formatter.indentation():
                formatter.write_text(f"{count} more options: {ctx.command_path} --help-all")
            return
        for subject in (*self.subjects, OTHER):
            if subject in rows:
                with formatter.section(subject):
                    formatter.write_dl(rows[subject])

    def _subject(self, name: str) -> str:
        return next(
            (subject for subject, starts in self.subjects.items() if name.startswith(starts)),
            OTHER,
        )

    def _place(self, option: click.Parameter) -> int:
        name = _name(option)
        return self.everyday.index(name) if name in self.everyday else len(self.everyday)


ALL: Final = "dralab.help-all"


def _show_all(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta[ALL] = True
        echo(ctx.get_help())
        ctx.exit()


def _name(option: click.Parameter) -> str:
    return max(option.opts, key=len).lstrip("-") if isinstance(option, click.Option) else ""
