"""Build unmodified Kubernetes programs for `make conformance`: from the public Go modules.

    python tools/build_clients.py FOLDER [NAME ...]

Needs the Go toolchain, the Go module proxy, and some minutes: kubectl and client-go one or two,
kube-scheduler, kube-apiserver and kube-controller-manager about five each. Prints the variables
that lead the tests to what was built.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

VERSION = "1.36.2"
NEWEST = "1.37.2"
STAGED = f"v0.{VERSION.partition('.')[2]}"
TESTS = Path(__file__).parents[1] / "tests/conformance"
MAIN = """package main

import (
\t"os"

\t"k8s.io/component-base/cli"
\t_ "k8s.io/component-base/metrics/prometheus/clientgo"
\t"{package}"
)

func main() {{
\tos.Exit(cli.Run({call}))
}}
"""
# name: (variable, package, call, the module it is part of)
PROGRAMS = {
    "kubectl": (
        "DRALAB_KUBECTL",
        "k8s.io/kubectl/pkg/cmd",
        "cmd.NewDefaultKubectlCommand()",
        f"k8s.io/kubectl {STAGED}",
    ),
    "kube-scheduler": (
        "DRALAB_KUBE_SCHEDULER",
        "k8s.io/kubernetes/cmd/kube-scheduler/app",
        "app.NewSchedulerCommand()",
        f"k8s.io/kubernetes v{VERSION}",
    ),
    # kube-scheduler that also writes why it refuses each node.
    "nodereasons": (
        "DRALAB_NODE_REASONS",
        "k8s.io/kubernetes/cmd/kube-scheduler/app",
        "",
        f"k8s.io/kubernetes v{VERSION}",
    ),
    # For `benchmarks.etcd`, which measures both servers on one etcd.
    "kube-apiserver": (
        "DRALAB_KUBE_APISERVER",
        "k8s.io/kubernetes/cmd/kube-apiserver/app",
        "app.NewAPIServerCommand()",
        f"k8s.io/kubernetes v{VERSION}",
    ),
    "kube-controller-manager": (
        "DRALAB_KUBE_CONTROLLER_MANAGER",
        "k8s.io/kubernetes/cmd/kube-controller-manager/app",
        "app.NewControllerManagerCommand()",
        f"k8s.io/kubernetes v{VERSION}",
    ),
    # To be held against releases that these emulate.
    "kube-apiserver-1.37": (
        "DRALAB_KUBE_APISERVER_1_37",
        "k8s.io/kubernetes/cmd/kube-apiserver/app",
        "app.NewAPIServerCommand()",
        f"k8s.io/kubernetes v{NEWEST}",
    ),
    "kube-scheduler-1.37": (
        "DRALAB_KUBE_SCHEDULER_1_37",
        "k8s.io/kubernetes/cmd/kube-scheduler/app",
        "app.NewSchedulerCommand()",
        f"k8s.io/kubernetes v{NEWEST}",
    ),
}
# Commands that are built as their module has them: (variable, package, module).
COMMANDS = {
    "dra-example-kubeletplugin": (
        "DRALAB_EXAMPLE_DRIVER",
        "sigs.k8s.io/dra-example-driver/cmd/dra-example-kubeletplugin",
        "sigs.k8s.io/dra-example-driver v0.4.0",
    ),
    "dra-example-controller": (
        "DRALAB_EXAMPLE_CONTROLLER",
        "sigs.k8s.io/dra-example-driver/cmd/dra-example-controller",
        "sigs.k8s.io/dra-example-driver v0.4.0",
    ),
    "dra-example-webhook": (
        "DRALAB_EXAMPLE_WEBHOOK",
        "sigs.k8s.io/dra-example-driver/cmd/dra-example-webhook",
        "sigs.k8s.io/dra-example-driver v0.4.0",
    ),
    # Services and names for `dralab up --cluster-cidr`.
    "kube-proxy": (
        "DRALAB_KUBE_PROXY",
        "k8s.io/kubernetes/cmd/kube-proxy",
        f"k8s.io/kubernetes v{VERSION}",
    ),
    "coredns": (
        "DRALAB_COREDNS",
        "github.com/coredns/coredns",
        "github.com/coredns/coredns v1.14.2",
    ),
    # The last release that had classic DRA and structured parameters of v1alpha2 side by side.
    "dra-test-driver": (
        "DRALAB_OLD_DRIVER",
        "k8s.io/kubernetes/test/e2e/dra/test-driver",
        "k8s.io/kubernetes v1.30.4",
    ),
    "kube-scheduler-1.30": (
        "DRALAB_OLD_SCHEDULER",
        "k8s.io/kubernetes/cmd/kube-scheduler",
        "k8s.io/kubernetes v1.30.4",
    ),
    "kube-controller-manager-1.30": (
        "DRALAB_OLD_CONTROLLER_MANAGER",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
        "k8s.io/kubernetes v1.30.4",
    ),
}
# Operators that run beside a cluster, as their modules have them: (package, module). One variable
# names the folder of all.
OPERATORS = {
    "crossplane": (
        "github.com/crossplane/crossplane/v2/cmd/crossplane",
        "github.com/crossplane/crossplane/v2 v2.2.0",
    ),
    "descheduler": (
        "sigs.k8s.io/descheduler/cmd/descheduler",
        "sigs.k8s.io/descheduler v0.36.0",
    ),
    "jobset": ("sigs.k8s.io/jobset", "sigs.k8s.io/jobset v0.12.0"),
    "kubebuilder": ("sigs.k8s.io/kubebuilder/v4", "sigs.k8s.io/kubebuilder/v4 v4.16.0"),
    "setup-envtest": (
        "sigs.k8s.io/controller-runtime/tools/setup-envtest",
        "sigs.k8s.io/controller-runtime/tools/setup-envtest v0.25.1",
    ),
    "kro": (
        "github.com/kubernetes-sigs/kro/cmd/controller",
        "github.com/kubernetes-sigs/kro v0.9.4",
    ),
    "kube-state-metrics": (
        "k8s.io/kube-state-metrics/v2",
        "k8s.io/kube-state-metrics/v2 v2.18.0",
    ),
    "kuberay": (
        "github.com/ray-project/kuberay/ray-operator",
        "github.com/ray-project/kuberay/ray-operator v1.5.0",
    ),
    "k9s": ("github.com/derailed/k9s", "github.com/derailed/k9s v0.50.16"),
    "kueue": ("sigs.k8s.io/kueue/cmd/kueue", "sigs.k8s.io/kueue v0.19.2"),
    "kustomize-controller": (
        "github.com/fluxcd/kustomize-controller",
        "github.com/fluxcd/kustomize-controller v1.9.6",
    ),
    "kwok": ("sigs.k8s.io/kwok/cmd/kwok", "sigs.k8s.io/kwok v0.8.0"),
    "lws": ("sigs.k8s.io/lws/cmd", "sigs.k8s.io/lws v0.9.0"),
    "mpi-operator": (
        "github.com/kubeflow/mpi-operator/cmd/mpi-operator",
        "github.com/kubeflow/mpi-operator v0.6.0",
    ),
    "stern": ("github.com/stern/stern", "github.com/stern/stern v1.33.0"),
    **{
        f"vpa-{name}": (
            f"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/{name}",
            "k8s.io/autoscaler/vertical-pod-autoscaler v1.7.2",
        )
        for name in ("recommender", "updater", "admission-controller")
    },
    "workflow-controller": (
        "github.com/argoproj/argo-workflows/v3/cmd/workflow-controller",
        "github.com/argoproj/argo-workflows/v3 v3.7.4",
    ),
}
# Suites of other repositories: (variable, package, module), built by `go test -c`. They run in the
# folder of their package, which `go list -m` finds.
SUITES = {
    "controller-runtime-client": (
        "DRALAB_CONTROLLER_RUNTIME_CLIENT",
        "sigs.k8s.io/controller-runtime/pkg/client",
        "sigs.k8s.io/controller-runtime v0.24.1",
    ),
    "controller-runtime-cache": (
        "DRALAB_CONTROLLER_RUNTIME_CACHE",
        "sigs.k8s.io/controller-runtime/pkg/cache",
        "sigs.k8s.io/controller-runtime v0.24.1",
    ),
    "controller-runtime-envtest": (
        "DRALAB_CONTROLLER_RUNTIME_ENVTEST",
        "sigs.k8s.io/controller-runtime/pkg/envtest",
        "sigs.k8s.io/controller-runtime v0.24.1",
    ),
}
# Suites are built without `go vet`, which would check all of Kubernetes for eight minutes.
TEST = ("test", "-c", "-vet=off")
# Kubernetes' end-to-end suite, what runs it, and what its pods run: (package, how it is built).
# They take some fifteen minutes, so they are built only if they are named. One variable names the
# folder of all.
E2E = {
    "e2e.test": ("k8s.io/kubernetes/test/e2e", TEST),
    "ginkgo": ("github.com/onsi/ginkgo/v2/ginkgo", ("build",)),
    "agnhost": ("k8s.io/kubernetes/test/images/agnhost", ("build",)),
    "sample-apiserver": ("k8s.io/sample-apiserver", ("build",)),
}
# Upstream's benchmarks of scheduling with devices, one program for each folder, for
# `benchmarks.scheduler_perf --beside`. They look for files beside their sources: paths stay.
BENCHMARKS = {"scheduler-perf": "k8s.io/kubernetes/test/integration/scheduler_perf/dra/..."}
# Programs of our own that use Kubernetes' modules, by the variable that names them.
OWN = {
    "clientgo": "DRALAB_CLIENT_GO",
    "envtest": "DRALAB_ENVTEST",
    "kubeletdra": "DRALAB_KUBELET_DRA",
    "merging": "DRALAB_MERGING",
    "nriplugin": "DRALAB_NRI_PLUGIN",
    "promdiscovery": "DRALAB_PROMETHEUS_DISCOVERY",
}
# Programs in other languages, below tests/conformance/languages: what builds each where it is
# copied to. One variable names the folder of all.
MAVEN = ("mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib")
LANGUAGES = {
    "fabric8": MAVEN,
    "javaclient": MAVEN,
    "clientnode": ("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--silent"),
    "kubers": ("cargo", "install", "--quiet", "--path", ".", "--root", "installed"),
}


def main(arguments: list[str]) -> int:
    """Build the programs named, or those in Go but the end-to-end suite."""
    usual = [*OWN, *PROGRAMS, *COMMANDS, *SUITES, *OPERATORS]
    named = [*usual, *E2E, *LANGUAGES, *BENCHMARKS]
    if not arguments or set(arguments[1:]) - set(named):
        print(__doc__, f"NAME is one of {', '.join(named)}.", file=sys.stderr)
        return 2
    folder = Path(arguments[0]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for name in arguments[1:] or usual:
        target = folder / name
        if name in BENCHMARKS:
            target.mkdir(exist_ok=True)
            _build_package(
                BENCHMARKS[name], f"k8s.io/kubernetes v{VERSION}", target, *TEST, trim=False
            )
            print(f"python -m benchmarks.scheduler_perf --beside {target}", flush=True)
            continue
        if name in OWN:
            variable = OWN[name]
            verbs = TEST if name == "envtest" else ("build",)
            _go(TESTS / name, *verbs, "-o", str(target), ".")
        elif name in LANGUAGES:
            variable = "DRALAB_LANGUAGES"
            shutil.copytree(TESTS / "languages" / name, target, dirs_exist_ok=True)
            subprocess.run(LANGUAGES[name], cwd=target, check=True)
        elif name in OPERATORS:
            variable = "DRALAB_OPERATORS"
            _build_package(*OPERATORS[name], target, "build")
        elif name in E2E:
            variable, (package, verbs) = "DRALAB_E2E", E2E[name]
            _build_package(package, f"k8s.io/kubernetes v{VERSION}", target, *verbs)
        elif name in COMMANDS or name in SUITES:
            variable, package, module = (COMMANDS | SUITES)[name]
            verbs = ("build",) if name in COMMANDS else TEST
            _build_package(package, module, target, *verbs)
        else:
            variable = PROGRAMS[name][0]
            _build(name, folder / f"{name}.source", target)
        of_many = name in {*OPERATORS, *E2E, *LANGUAGES}
        print(f"export {variable}={folder if of_many else target}", flush=True)
    return 0


def _build_package(package: str, module: str, target: Path, *verb: str, trim: bool = True) -> None:
    """Build a package of a module, as it is published, into `target`."""
    source = target.with_name(f"{target.name}.source")
    source.mkdir(exist_ok=True)
    (source / "go.mod").write_text(_manifest(target.name, module))
    # -mod=mod: the sums of what it needs are added as they are found.
    paths = ["-trimpath"] if trim else []
    _go(source, *verb, "-mod=mod", *paths, "-o", str(target), package)


def _build(name: str, source: Path, target: Path) -> None:
    _, package, call, module = PROGRAMS[name]
    source.mkdir(exist_ok=True)
    (source / "go.mod").write_text(_manifest(name, module))
    own = TESTS / name / "main.go"
    main = MAIN.format(package=package, call=call) if call else own.read_text()
    (source / "main.go").write_text(main)
    _go(source, "mod", "tidy")
    minor = re.sub(r".* v[01]\.", "", module)  # kubectl v0.36.2 is of Kubernetes 1.36.2
    facts = {"gitVersion": f"v1.{minor}", "gitMajor": "1", "gitMinor": minor.partition(".")[0]}
    stamp = " ".join(
        f"-X k8s.io/component-base/version.{name}={value}" for name, value in facts.items()
    )
    _go(source, "build", "-trimpath", "-ldflags", f"-s -w {stamp}", "-o", str(target), ".")


def _manifest(name: str, module: str) -> str:
    """Return the go.mod of a program that needs one module."""
    lines = [f"module build/{name}", "", "go 1.26.0", "", f"require {module}", ""]
    path, _, version = module.partition(" v1.")
    if path == "k8s.io/kubernetes":
        staged = re.findall(r"(k8s\.io/[\w-]+) => \./staging", _published(module))
        lines += [f"replace {each} => {each} v0.{version}" for each in sorted(set(staged))]
    else:
        # What a module replaces counts only where it is the one that is built.
        pattern = r"^(?:replace |\t)(\S+(?: v\S+)? => \S+ v\S+)"
        replaced = re.findall(pattern, _published(module), re.MULTILINE)
        lines += [f"replace {each}" for each in replaced]
    return "\n".join(lines) + "\n"


def _published(module: str) -> str:
    """Return the go.mod of a module."""
    command = ["go", "mod", "download", "-json", module.replace(" ", "@")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = re.search(r'"GoMod": "([^"]+)"', done.stdout)
    assert found is not None, done.stdout  # noqa: S101 - a tool may stop
    return Path(found[1]).read_text()


def _go(folder: Path, *arguments: str) -> None:
    subprocess.run(["go", *arguments], cwd=folder, check=True)


if __name__ == "__main__":
    from usage import print_if_asked

    print_if_asked(__doc__)
    sys.exit(main(sys.argv[1:]))
