"""The vocabulary of options: what each means in every command that has it.

`dralab help words` prints it, docs/reference/words.md shows where each is, and
tests/cli/test_words.py holds every command to it.
"""

from collections.abc import Mapping
from typing import Final

# Of options that several commands explain in their own words.
WORDS: Final[Mapping[str, str]] = {
    "--all": "Show everything, not only what matters most.",
    "--api": "The generation of the device API that is read, served or printed.",
    "--apply": "Change the cluster or the store; without it, nothing is written.",
    "--cdi-root": "A directory of CDI files.",
    "--data": "Where the data is: the objects of a cluster, the files of an experiment.",
    "--driver": "A device driver, by name.",
    "--image-map": "The program on this machine that runs for an image.",
    "--kubeconfig": "The kubeconfig of the cluster; a server writes it, others read it.",
    "--kubernetes-version": "The Kubernetes release to follow.",
    "--listen": "The address to listen on.",
    "--max-moves": "The most pods that may move.",
    "--max-price": "The most that may be spent.",
    "--max-steps": "The most steps of a search.",
    "--namespace": "The namespace of the objects.",
    "--node": "A node, by name.",
    "--nodes": "The number of nodes.",
    "--only": "The checks to run: an ID, a group or a pattern.",
    "--output": "Output format.",
    "--protocol": "The version of Batsim's protocol.",
    "--root": "Where kubelets keep their directories.",
    "--scheduler": "The scheduler of a simulation.",
    "--seed": "The seed of random choices; the same seed gives the same result.",
    "--server": "The address of a Kubernetes API server.",
    "--store": "An etcd with the objects, in place of --data.",
    "--strict": "Treat flaws as failures.",
    "--taint": "A taint of nodes.",
    "--to": "The generation of the device API to convert to.",
    "--until": "The simulated time at which to stop.",
    "--verbose": "Print more.",
    "--without": "Parts of the cluster to leave out.",
    "--workers": "How many processes work at the same time.",
    "--write": "Where results are written: a directory, or a file whose ending says the form.",
}
# Spellings that no command has → the word for it. `_moved` still takes them.
SYNONYMS: Final[Mapping[str, str]] = {
    "--badge": "--write", "--curve": "--write", "--directory": "--write", "--from": "--api",
    "--generation": "--api", "--html": "--write", "--jobs": "--workers", "--json": "--write",
    "--junit": "--write", "--lanes": "--workers", "--markdown": "--write", "--page": "--write",
    "--profile": "--api", "--repair": "--write", "--report": "--write", "--results": "--write",
    "--with": "--to",
}  # fmt: skip
