"""Options on authentication and admission, by the names of kube-apiserver's flags."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from dralab.cli._components import duration_of
from dralab.cli._options import EXISTING, opt
from dralab.cli.errors import refusing
from dralab.values.records import dataclass

if TYPE_CHECKING:
    from ipaddress import IPv4Network

    from dralab.apiserver.access.admission.selection import AdmissionSettings
    from dralab.apiserver.access.authentication.settings import AuthenticationFlags
    from dralab.apiserver.verbs.kinds.outgoing_calls import OutgoingSettings

LONGEST: Final = "service_account_max_token_expiration"
NO_LIMIT: Final = "0s"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticationOptions:
    """The options on authentication of a command that serves an API."""

    token_auth_file: Path | None = opt(
        'Users with static tokens: lines of token,name,uid,"group,group".', EXISTING, metavar="FILE"
    )
    client_ca_file: Path | None = opt(
        "Accept client certificates signed by these CAs (PEM), in addition to the server's "
        "own: the "
        "common name is the user, organizations are its groups.",
        EXISTING,
        metavar="FILE",
    )
    service_account_key_file: tuple[Path, ...] = opt(
        "Accept tokens of service accounts signed by these keys (PEM, public or private), in "
        "addition to the server's own. May be repeated.",
        EXISTING,
        metavar="FILE",
    )
    service_account_signing_key_file: Path | None = opt(
        "Sign tokens of service accounts with this key (PEM).  [default: a generated key, "
        "kept with the data]",
        EXISTING,
        metavar="FILE",
    )
    service_account_issuer: tuple[str, ...] = opt(
        "The issuer in tokens of service accounts. May be repeated: the first signs, all are "
        "accepted.  [default: https://kubernetes.default.svc]",
        metavar="URL",
    )
    service_account_jwks_uri: str = opt(
        "The URL of the issuer's public keys.  [default: the server's /openid/v1/jwks]",
        metavar="URL",
    )
    service_account_max_token_expiration: str = opt(
        "The longest validity of a token, such as 24h.  [default: no limit]",
        metavar="DURATION",
        default=NO_LIMIT,
        show_default=False,
    )
    service_account_extend_token_expiration: bool = opt(
        "Let tokens of pods last a year, for programs that never read them again.",
        click.BOOL,
        metavar="true|false",
        default=True,
        show_default="true",
    )
    api_audiences: str = opt(
        "The names of the server in tokens.  [default: the issuers]", metavar="NAME[,NAME]"
    )
    oidc_issuer_url: str = opt(
        "Accept ID tokens of this OpenID provider (https). Its keys are fetched from it.",
        metavar="URL",
    )
    oidc_client_id: str = opt("The client ID that ID tokens must be issued for.", metavar="ID")
    oidc_ca_file: Path | None = opt(
        "The CAs (PEM) of the provider.  [default: those of this machine]", EXISTING, metavar="FILE"
    )
    oidc_keys_file: Path | None = opt(
        "The provider's public keys (a JSON web key set or PEM); then nothing is fetched.",
        EXISTING,
        metavar="FILE",
    )
    oidc_username_claim: str = opt("The claim with the user name.  [default: sub]", metavar="CLAIM")
    oidc_username_prefix: str = opt(
        "Prefix of user names; - for none.  [default: the issuer and #, unless the claim is email]",
        metavar="TEXT",
    )
    oidc_groups_claim: str = opt("The claim with the groups.  [default: none]", metavar="CLAIM")
    oidc_groups_prefix: str = opt("Prefix of groups.", metavar="TEXT")
    oidc_required_claim: tuple[str, ...] = opt(
        "A claim that tokens must have. May be repeated.", metavar="CLAIM=VALUE"
    )
    oidc_signing_algs: str = opt(
        "The algorithms of accepted signatures.  [default: RS256]", metavar="ALG[,ALG]"
    )
    anonymous_auth: bool = opt(
        "Let requests without a credential be system:anonymous, which may do what roles allow.",
        click.BOOL,
        metavar="true|false",
        default=False,
        show_default="false",
    )
    requestheader_client_ca_file: Path | None = opt(
        "CAs (PEM) of authenticating proxies, which send users in headers.",
        EXISTING,
        metavar="FILE",
    )
    requestheader_allowed_names: str = opt(
        "The common names of these proxies.  [default: all]", metavar="NAME[,NAME]"
    )
    requestheader_username_headers: str = opt(
        "The headers with the user, such as X-Remote-User.", metavar="HEADER[,HEADER]"
    )
    requestheader_uid_headers: str = opt(
        "The headers with the user's UID.", metavar="HEADER[,HEADER]"
    )
    requestheader_group_headers: str = opt(
        "The headers with groups, such as X-Remote-Group.", metavar="HEADER[,HEADER]"
    )
    requestheader_extra_headers_prefix: str = opt(
        "Prefix of headers with extra fields, such as X-Remote-Extra-.", metavar="PREFIX[,PREFIX]"
    )

    def flags(self) -> "AuthenticationFlags":
        """Return their values. UsageError."""
        from dralab.apiserver.access.authentication.settings import AuthenticationFlags

        given = asdict(self)
        longest = given.pop(LONGEST)
        for name in LISTS:
            given[name] = [part.strip() for part in given[name].split(",") if part.strip()]
        return AuthenticationFlags(
            **given,
            service_account_max_token_expiration=duration_of(longest, flag_of(LONGEST))
            if longest != NO_LIMIT
            else 0,
        )

    def check_plain(self) -> None:
        """Refuse options without TLS, where no client-go would send a credential. UsageError."""
        for name, value in asdict(self).items():
            if value not in UNSET:
                raise click.UsageError(
                    f"{flag_of(name)} needs TLS (kubectl sends no credential over plain "
                    "HTTP): omit --plain"
                )


def flag_of(name: str) -> str:
    """Return how an option is spelled on the command line."""
    return f"--{name.replace('_', '-')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionOptions:
    """The options that choose and configure admission plugins, and where the server may call."""

    enable_admission_plugins: str = opt(
        "Admission plugins to enable, by kube-apiserver's names; all available ones are on "
        "by default.",
        metavar="NAME[,NAME]",
    )
    disable_admission_plugins: str = opt(
        "Admission plugins to disable, such as PodSecurity.", metavar="NAME[,NAME]"
    )
    admission_control_config_file: Path | None = opt(
        "An AdmissionConfiguration with the PodSecurity plugin's defaults and exemptions.",
        EXISTING,
        metavar="FILE",
    )
    services: tuple[str, ...] = opt(
        "Where a Service that webhooks name is reached, such as "
        "default/hook=127.0.0.1:9443. May be repeated.",
        flags="--service",
        metavar="NS/NAME[:PORT]=HOST:PORT",
    )
    webhook_networks: tuple[str, ...] = opt(
        "A network, beside loopback, where the server may call webhooks.",
        flags="--webhook-network",
        metavar="CIDR",
    )
    enable_aggregator_routing: str = opt(
        "Reach aggregated API servers at the endpoints of their Services only; a Service of "
        "type ExternalName has none.  [default: (false)]",
        ["true", "false"],
        metavar="true|false",
        default="false",
        show_default=False,
    )
    proxy_client_cert_file: Path | None = opt(
        "The certificate that the server shows to aggregated API servers.  [default: a generated "
        "one, unless there is a --requestheader-client-ca-file]",
        EXISTING,
        metavar="FILE",
    )
    proxy_client_key_file: Path | None = opt(
        "The key of that certificate.", EXISTING, metavar="FILE"
    )

    def settings(self) -> "AdmissionSettings | None":
        """Return the values about plugins; None where none is given. BadParameter."""
        enable, disable = self.enable_admission_plugins, self.disable_admission_plugins
        if not (enable or disable or self.admission_control_config_file):
            return None
        from dralab.apiserver.access.admission.selection import AdmissionFlagError, settings_of

        def names(text: str) -> list[str]:
            return [name.strip() for name in text.split(",") if name.strip()]

        try:
            return settings_of(names(enable), names(disable), self.admission_control_config_file)
        except AdmissionFlagError as error:
            raise click.BadParameter(str(error), param_hint=error.flag) from error

    def outgoing(self, pods: "IPv4Network | None" = None) -> "OutgoingSettings | None":
        """Return where the server may call; None where no option says. BadParameter."""
        certificate, key = self.proxy_client_cert_file, self.proxy_client_key_file
        if (certificate is None) != (key is None):
            raise click.UsageError(
                "--proxy-client-cert-file and --proxy-client-key-file go together"
            )
        routing = self.enable_aggregator_routing == "true"
        given = self.services or self.webhook_networks or certificate is not None or routing
        if not given and pods is None:
            return None
        import ipaddress

        from dralab.apiserver.outgoing.targets import read_service
        from dralab.apiserver.verbs.kinds.outgoing_calls import OutgoingSettings

        with refusing(ValueError, option="--service"):
            found = [read_service(text) for text in self.services]
        with refusing(ValueError, option="--webhook-network"):
            allowed = [ipaddress.ip_network(text) for text in self.webhook_networks]
        shown = (str(certificate), str(key)) if certificate is not None else None
        return OutgoingSettings(
            networks=allowed,
            services=found,
            proxy_certificate=shown,
            aggregator_routing=routing,
            pods=[] if pods is None else [pods],
        )
