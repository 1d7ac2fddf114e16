"""A kube-apiserver on an etcd, to be measured beside dralab: `tools/build_clients.py` builds one.

It serves HTTPS to one token of the administrator. Admission is the default but for ServiceAccount,
which would need a controller for the pods' accounts.
"""

import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Sequence
from http import HTTPStatus
from http.client import HTTPException, HTTPSConnection
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

TOKEN = "benchmark"
START = 120  # seconds


class KubeApiserver:
    """A kube-apiserver process on an etcd, ready when it is made."""

    def __init__(self, program: str, place: Path, etcd: str, *, more: Sequence[str] = ()) -> None:
        place.mkdir(parents=True)
        key = ec.generate_private_key(ec.SECP256R1())
        signing = place / "sa.key"
        signing.write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        )
        tokens = place / "tokens.csv"
        tokens.write_text(f'{TOKEN},admin,1,"system:masters"\n')
        port = free_port()
        self.url, self.token = f"https://127.0.0.1:{port}", TOKEN
        self._log = (place / "log").open("wb")
        self.process = subprocess.Popen(
            [
                program, f"--etcd-servers={etcd}", "--etcd-prefix=/kube", f"--secure-port={port}",
                "--bind-address=127.0.0.1", f"--cert-dir={place / 'certificates'}",
                f"--token-auth-file={tokens}", "--authorization-mode=RBAC",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={signing}",
                f"--service-account-signing-key-file={signing}",
                "--service-cluster-ip-range=10.0.0.0/24",
                "--disable-admission-plugins=ServiceAccount", *more,
            ],
            stdout=self._log, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            self._await(place)
        except BaseException:
            self.stop()
            raise

    def _await(self, place: Path) -> None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        head = {"Authorization": f"Bearer {TOKEN}"}
        until = time.monotonic() + START
        while time.monotonic() < until and self.process.poll() is None:
            asked = HTTPSConnection(self.url.removeprefix("https://"), context=context)
            try:
                asked.request("GET", "/api/v1/namespaces/default", headers=head)
                if asked.getresponse().status == HTTPStatus.OK:
                    return
            except (OSError, HTTPException):
                pass
            finally:
                asked.close()
            time.sleep(0.2)
        sys.exit(f"kube-apiserver is not ready; its log: {(place / 'log').read_text()[-2000:]}")

    def seconds(self) -> float:
        """Return the processor time that the server has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().split()
        return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()
        self._log.close()


def program(release: str = "") -> str | None:
    """Return the kube-apiserver that a variable names, or the one on the PATH; of a release or any.

    The variables are DRALAB_KUBE_APISERVER and, for instance, DRALAB_KUBE_APISERVER_1_37.
    """
    suffix = release and f"_{release.replace('.', '_')}"
    found = os.environ.get(f"DRALAB_KUBE_APISERVER{suffix}")
    return found or shutil.which("kube-apiserver" + (release and f"-{release}"))


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
