"""Run kubectl's own shell suite (Kubernetes' `test/cmd`) against `dralab apiserver`.

    python tools/kubectl_suite.py FOLDER KUBECTL [NAME ...]

Needs bash, openssl, jq, the Go toolchain (to get the suite's sources), a kubectl of the suite's
version (1.33), and an unmodified kube-controller-manager (`DRALAB_KUBE_CONTROLLER_MANAGER`, or on
the PATH). Takes some minutes on a quiet machine. NAME is a part such as `apply` or `rc`; without
one, all 91 run. The server gets the switches that `hack/make-rules/test-cmd.sh` gives
kube-apiserver. FOLDER keeps the sources, `suite.log` and the logs of both programs. The exit code
is 1 if a part failed.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

VERSION = "1.33.5"
PARTS = ("hack", "test", "third_party", "cluster", "build", "api")
API_PORT, MANAGER_PORT = 17600, 17601
LEFT_OUT = (
    "ServiceAccount,DefaultStorageClass,DefaultTolerationSeconds,MutatingAdmissionWebhook,"
    "ValidatingAdmissionWebhook,StorageObjectInUseProtection"
)
NODE = json.dumps(
    {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "127.0.0.1", "annotations": {"save-managers": "true"}},
        "status": {"capacity": {"memory": "1Gi"}},
    }
)
SCRIPT = f"""
source hack/lib/init.sh; source hack/lib/test.sh; source test/cmd/legacy-script.sh
set +o errexit; set +o nounset
kube::util::ensure-temp-dir; export HOME=$KUBE_TEMP TMPDIR=$KUBE_TEMP; kube::util::ensure-gnu-sed
openssl genrsa -out $TMPDIR/sa.key 2048
openssl req -x509 -newkey rsa:2048 -nodes -keyout $TMPDIR/apiserver.key \\
  -out $TMPDIR/apiserver.crt -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1
"$PYTHON" -m dralab apiserver --secure-port $SECURE_API_PORT --data :memory: \\
  --kubeconfig $TMPDIR/own --api-versions default --authorization-mode RBAC,AlwaysAllow \\
  --anonymous-auth true --enable-admission-plugins LimitRanger,ResourceQuota \\
  --disable-admission-plugins {LEFT_OUT} --runtime-config api/v1 \\
  --service-account-key-file $TMPDIR/sa.key --service-account-signing-key-file $TMPDIR/sa.key \\
  --service-account-issuer https://kubernetes.default.svc --service-cluster-ip-range 10.0.0.0/24 \\
  --tls-cert-file $TMPDIR/apiserver.crt --tls-private-key-file $TMPDIR/apiserver.key \\
  --client-ca-file hack/testdata/ca/ca.crt --token-auth-file hack/testdata/auth-tokens.csv \\
  > "$LOGS/apiserver.log" 2>&1 &
APISERVER_PID=$!
kube::util::wait_for_url_with_bearer_token https://127.0.0.1:$SECURE_API_PORT/healthz \\
  admin-token server
CONTEXT=test
kubectl config set-credentials test-admin --token admin-token
kubectl config set-cluster local --insecure-skip-tls-verify \\
  --server https://127.0.0.1:$SECURE_API_PORT
kubectl config set-context $CONTEXT --user test-admin --cluster local
kubectl config use-context $CONTEXT
cp $HOME/.kube/config $TMPDIR/manager
"$MANAGER" --kubeconfig $TMPDIR/manager --secure-port $SECURE_CTLRMGR_PORT \\
  --cluster-signing-cert-file hack/testdata/ca/ca.crt \\
  --cluster-signing-key-file hack/testdata/ca/ca.key > "$LOGS/controller-manager.log" 2>&1 &
CTLRMGR_PID=$!
trap 'kill $APISERVER_PID $CTLRMGR_PID' EXIT
kube::util::wait_for_url https://127.0.0.1:$SECURE_CTLRMGR_PORT/healthz controller-manager
echo '{NODE}' | kubectl create -f -
runTests
"""


def main(arguments: list[str]) -> int:
    """Run the suite, and print what failed."""
    if len(arguments) < 2 or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    folder, kubectl = Path(arguments[0]).resolve(), Path(arguments[1]).resolve()
    manager = os.environ.get("DRALAB_KUBE_CONTROLLER_MANAGER") or shutil.which(
        "kube-controller-manager"
    )
    if manager is None:
        print("no kube-controller-manager on the PATH", file=sys.stderr)
        return 2
    tree = _sources(folder / "kubernetes")
    programs = tree / "_output" / "bin"
    programs.mkdir(parents=True, exist_ok=True)
    shutil.copy(kubectl, programs / "kubectl")
    (folder / "junit").mkdir(exist_ok=True)
    variables = {
        "SECURE_API_PORT": str(API_PORT),
        "SECURE_CTLRMGR_PORT": str(MANAGER_PORT),
        "SUPPORTED_RESOURCES": "*",
        "ALLOW_SKEW": "1",
        "KUBE_JUNIT_REPORT_DIR": str(folder / "junit"),
        "LOGS": str(folder),
        "MANAGER": manager,
        "PYTHON": sys.executable,
        "WHAT": " ".join(arguments[2:]),
    }
    with (folder / "suite.log").open("wb") as log:
        subprocess.run(
            ["bash", "-c", SCRIPT],
            cwd=tree,
            env=os.environ | variables,
            stdout=log,
            stderr=log,
            check=False,
        )
    text = (folder / "suite.log").read_text(errors="replace")
    ran = set(re.findall(r"^Recording: run_(\w+)_tests$", text, re.MULTILINE))
    failed = sorted(set(re.findall(r"^Error when running run_(\w+)_tests$", text, re.MULTILINE)))
    print(
        f"{len(ran) - len(failed)} of {len(ran)} passed" + "".join(f"\n{each}" for each in failed)
    )
    return 1 if failed or not ran else 0


def _sources(tree: Path) -> Path:
    """Copy what the suite needs of Kubernetes' module, so that it can be written to."""
    if tree.exists():
        return tree
    command = ["go", "mod", "download", "-json", f"k8s.io/kubernetes@v{VERSION}"]
    tree.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(command, cwd=tree.parent, check=True, capture_output=True, text=True)
    module = Path(json.loads(done.stdout)["Dir"])
    for part in PARTS:
        shutil.copytree(module / part, tree / part)
    for each in [tree, *tree.rglob("*")]:
        # A module has neither: its files are read-only, and none is a program.
        each.chmod(each.stat().st_mode | (0o755 if each.name.startswith("kubectl-") else 0o200))
    return tree


if __name__ == "__main__":
    from usage import print_if_asked

    print_if_asked(__doc__)
    sys.exit(main(sys.argv[1:]))
