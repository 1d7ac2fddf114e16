"""What a running `dralab node` says of the drivers that registered with it."""

import json
import ssl
import urllib.request
from pathlib import Path
from typing import Any

from dralab.cli._output import echo_table
from dralab.cli._terminal import echo
from dralab.cli.errors import UnusableInput
from dralab.files.reading import read_own

PATIENCE = 10.0


def print_status(root: Path) -> None:
    """Print the sockets below a node's root. UnusableInput: no node answers there."""
    rows: list[list[str]] = []
    problems: list[str] = []
    for each in _plugins(root):
        if "driver" in each:
            state = "Connected" if each["connected"] else "NotConnected"
            rows.append([each["driver"], each["version"], state, each["endpoint"]])
        else:
            problems.append(f"{each['socket']}: {each.get('error') or 'not asked yet'}")
    if rows:
        echo_table([["DRIVER", "VERSION", "STATE", "ENDPOINT"], *rows])
    elif not problems:
        echo(f"no driver has registered below {root / 'plugins_registry'}", err=True)
    for text in problems:
        echo(f"not registered: {text}", err=True)


def _plugins(root: Path) -> list[dict[str, Any]]:
    own = root / "pki"
    try:
        address = read_own(own / "address").decode().strip()
        token = read_own(own / "token").decode().strip()
        read_own(own / "ca.crt")
        context = ssl.create_default_context(cafile=str(own / "ca.crt"))
    except OSError as error:
        raise UnusableInput(f"no node runs with --root {root}: {error}") from error
    request = urllib.request.Request(
        f"https://{address}/plugins", headers={"Authorization": f"Bearer {token}"}
    )
    # A proxy of the environment is not asked: the node is on this machine.
    direct = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    try:
        with direct.open(request, timeout=PATIENCE) as answer:
            found: list[dict[str, Any]] = json.load(answer)["plugins"]
    except (OSError, ValueError, KeyError) as error:
        raise UnusableInput(f"the node at {address} does not answer: {error}") from error
    return found
