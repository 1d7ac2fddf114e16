"""Options on authentication and admission, by the names of kube-apiserver's flags."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from dralab.cli._components import duration_of

if TYPE_CHECKING:
    from ipaddress import IPv4Network

    from dralab.apiserver.admission.selection import AdmissionSettings
    from dralab.apiserver.authentication.settings import AuthenticationFlags
    from dralab.apiserver.resources.outgoing_calls import OutgoingSettings

Command = TypeVar("Command", bound=Callable[..., Any])
FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
LONGEST: Final = "service_account_max_token_expiration"
NO_LIMIT: Final = "0s"
OPTIONS: Final = [
    click.option(
        "--token-auth-file",
        type=FILE,
        metavar="FILE",
        help='Users with static tokens: lines of token,name,uid,"group,group".',
    ),
    click.option(
        "--client-ca-file",
        type=FILE,
        metavar="FILE",
        help="Accept client certificates signed by these CAs (PEM), in addition to the server's "
        "own: the "
        "common name is the user, organizations are its groups.",
    ),
    click.option(
        "--service-account-key-file",
        type=FILE,
        metavar="FILE",
        multiple=True,
        help="Accept tokens of service accounts signed by these keys (PEM, public or private), in "
        "addition to the server's own. May be repeated.",
    ),
    click.option(
        "--service-account-signing-key-file",
        type=FILE,
        metavar="FILE",
        help="Sign tokens of service accounts with this key (PEM).  [default: a generated key, "
        "kept with the data]",
    ),
    click.option(
        "--service-account-issuer",
        metavar="URL",
        multiple=True,
        help="The issuer in tokens of service accounts. May be repeated: the first signs, all are "
        "accepted.  [default: https://kubernetes.default.svc]",
    ),
    click.option(
        "--service-account-jwks-uri",
        metavar="URL",
        default="",
        help="The URL of the issuer's public keys.  [default: the server's /openid/v1/jwks]",
    ),
    click.option(
        "--service-account-max-token-expiration",
        metavar="DURATION",
        default=NO_LIMIT,
        help="The longest validity of a token, such as 24h.  [default: no limit]",
    ),
    click.option(
        "--service-account-extend-token-expiration",
        type=bool,
        metavar="true|false",
        default=True,
        show_default="true",
        help="Let tokens of pods last a year, for programs that never read them again.",
    ),
    click.option(
        "--api-audiences",
        metavar="NAME[,NAME]",
        default="",
        help="The names of the server in tokens.  [default: the issuers]",
    ),
    click.option(
        "--oidc-issuer-url",
        metavar="URL",
        default="",
        help="Accept ID tokens of this OpenID provider (https). Its keys are fetched from it.",
    ),
    click.option(
        "--oidc-client-id",
        metavar="ID",
        default="",
        help="The client ID that ID tokens must be issued for.",
    ),
    click.option(
        "--oidc-ca-file",
        type=FILE,
        metavar="FILE",
        help="The CAs (PEM) of the provider.  [default: those of this machine]",
    ),
    click.option(
        "--oidc-keys-file",
        type=FILE,
        metavar="FILE",
        help="The provider's public keys (a JSON web key set or PEM); then nothing is fetched.",
    ),
    click.option(
        "--oidc-username-claim",
        metavar="CLAIM",
        default="",
        help="The claim with the user name.  [default: sub]",
    ),
    click.option(
        "--oidc-username-prefix",
        metavar="TEXT",
        default="",
        help="Prefix of user names; - for none.  [default: the issuer and #, unless the "
        "claim is email]",
    ),
    click.option(
        "--oidc-groups-claim",
        metavar="CLAIM",
        default="",
        help="The claim with the groups.  [default: none]",
    ),
    click.option("--oidc-groups-prefix", metavar="TEXT", default="", help="Prefix of groups."),
    click.option(
        "--oidc-required-claim",
        metavar="CLAIM=VALUE",
        multiple=True,
        help="A claim that tokens must have. May be repeated.",
    ),
    click.option(
        "--oidc-signing-algs",
        metavar="ALG[,ALG]",
        default="",
        help="The algorithms of accepted signatures.  [default: RS256]",
    ),
    click.option(
        "--anonymous-auth",
        type=bool,
        metavar="true|false",
        default=False,
        show_default="false",
        help="Let requests without a credential be system:anonymous, which may do what roles "
        "allow.",
    ),
    click.option(
        "--requestheader-client-ca-file",
        type=FILE,
        metavar="FILE",
        help="CAs (PEM) of authenticating proxies, which send users in headers.",
    ),
    *(
        click.option(f"--requestheader-{name}", metavar=f"{word}[,{word}]", default="", help=text)
        for name, word, text in (
            ("allowed-names", "NAME", "The common names of these proxies.  [default: all]"),
            ("username-headers", "HEADER", "The headers with the user, such as X-Remote-User."),
            ("uid-headers", "HEADER", "The headers with the user's UID."),
            ("group-headers", "HEADER", "The headers with groups, such as X-Remote-Group."),
            (
                "extra-headers-prefix",
                "PREFIX",
                "Prefix of headers with extra fields, such as X-Remote-Extra-.",
            ),
        )
    ),
]
# What the options say that are not given.
UNSET: Final = ((), "", None, NO_LIMIT, True, False)
LISTS: Final = (
    "oidc_signing_algs",
    "api_audiences",
    "requestheader_allowed_names",
    "requestheader_username_headers",
    "requestheader_uid_headers",
    "requestheader_group_headers",
    "requestheader_extra_headers_prefix",
)


def authentication_options(command: Command) -> Command:
    """Add the options to a command that serves an API."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


ADMISSION_OPTIONS: Final = [
    click.option(
        "--enable-admission-plugins",
        metavar="NAME[,NAME]",
        default="",
        help="Admission plugins to enable, by kube-apiserver's names; all available ones are on "
        "by default.",
    ),
    click.option(
        "--disable-admission-plugins",
        metavar="NAME[,NAME]",
        default="",
        help="Admission plugins to disable, such as PodSecurity.",
    ),
    click.option(
        "--admission-control-config-file",
        type=FILE,
        metavar="FILE",
        help="An AdmissionConfiguration with the PodSecurity plugin's defaults and exemptions.",
    ),
    click.option(
        "--service",
        "services",
        multiple=True,
        metavar="NS/NAME[:PORT]=HOST:PORT",
        help="Where a Service that webhooks name is reached, such as "
        "default/hook=127.0.0.1:9443. May be repeated.",
    ),
    click.option(
        "--webhook-network",
        "webhook_networks",
        multiple=True,
        metavar="CIDR",
        help="A network, beside loopback, where the server may call webhooks.",
    ),
    click.option(
        "--enable-aggregator-routing",
        type=click.Choice(["true", "false"]),
        metavar="true|false",
        default="false",
        help="Reach aggregated API servers at the endpoints of their Services only; a Service of "
        "type ExternalName has none.  [default: (false)]",
    ),
    *(
        click.option(f"--proxy-client-{name}-file", type=FILE, metavar="FILE", help=text)
        for name, text in (
            (
                "cert",
                "The certificate that the server shows to aggregated API servers.  [default: a "
                "generated one, unless there is a --requestheader-client-ca-file]",
            ),
            ("key", "The key of that certificate."),
        )
    ),
]


def admission_options(command: Command) -> Command:
    """Add the options that choose and configure admission plugins."""
    for option in reversed(ADMISSION_OPTIONS):
        command = option(command)
    return command


def admission_of(
    enable: str, disable: str, configuration: Path | None
) -> "AdmissionSettings | None":
    """Return the values of these options; None where none is given. BadParameter."""
    if not (enable or disable or configuration):
        return None
    from dralab.apiserver.admission.selection import AdmissionFlagError, settings_of

    def names(text: str) -> list[str]:
        return [name.strip() for name in text.split(",") if name.strip()]

    try:
        return settings_of(names(enable), names(disable), configuration)
    except AdmissionFlagError as error:
        raise click.BadParameter(str(error), param_hint=error.flag) from error


def outgoing_of(
    services: Sequence[str],
    networks: Sequence[str],
    certificate: Path | None = None,
    key: Path | None = None,
    *,
    aggregator_routing: bool = False,
    pods: "IPv4Network | None" = None,
) -> "OutgoingSettings | None":
    """Return where the server may call; None where no option says. BadParameter."""
    if (certificate is None) != (key is None):
        raise click.UsageError("--proxy-client-cert-file and --proxy-client-key-file go together")
    given = services or networks or certificate is not None or aggregator_routing
    if not given and pods is None:
        return None
    import ipaddress

    from dralab.apiserver.outgoing.targets import read_service
    from dralab.apiserver.resources.outgoing_calls import OutgoingSettings

    try:
        found = [read_service(text) for text in services]
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--service") from error
    try:
        allowed = [ipaddress.ip_network(text) for text in networks]
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--webhook-network") from error
    shown = (str(certificate), str(key)) if certificate is not None else None
    return OutgoingSettings(
        networks=allowed,
        services=found,
        proxy_certificate=shown,
        aggregator_routing=aggregator_routing,
        pods=[] if pods is None else [pods],
    )


def flags_of(options: Mapping[str, Any]) -> "AuthenticationFlags":
    """Return the values of these options. UsageError."""
    from dralab.apiserver.authentication.settings import AuthenticationFlags

    given = dict(options)
    longest = given.pop(LONGEST)
    for name in LISTS:
        given[name] = [part.strip() for part in given[name].split(",") if part.strip()]
    return AuthenticationFlags(
        **given,
        service_account_max_token_expiration=duration_of(longest, flag_of(LONGEST))
        if longest != NO_LIMIT
        else 0,
    )


def flag_of(name: str) -> str:
    """Return how an option is spelled on the command line."""
    return f"--{name.replace('_', '-')}"


def check_plain(options: Mapping[str, Any]) -> None:
    """Refuse options without TLS, where no client-go would send a credential. UsageError."""
    for name, value in options.items():
        if value not in UNSET:
            raise click.UsageError(
                f"{flag_of(name)} needs TLS (kubectl sends no credential over plain "
                "HTTP): omit --plain"
            )
