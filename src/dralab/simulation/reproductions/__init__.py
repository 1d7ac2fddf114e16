"""Published experiments, run again: their numbers beside ours, and whether they agree.

To add one:

1. Write a module here with a constant `REPRODUCTION`, a `registry.Reproduction`. It is made of
   cases. A case names the files it reads, and its function gets their paths and a seed and yields
   `registry.ComparedNumber`s, one for each number:

       def _fifo(files: Sequence[Path], seed: int) -> Iterator[ComparedNumber]:
           [trace] = files
           ours = run(read(trace), policy="fifo", seed=seed)
           yield ComparedNumber(what="mean time", published=2.548, ours=ours, unit="h", within=0.05)

   `within` is the largest difference that still agrees, in the unit of the number. A number that
   nobody here could read is `published=None`; a known difference says its reason in `why`. The
   files of others are never part of dralab: `DataFile` says where a user gets each.
2. Name the module in `registry.MODULES`, and its page in `docs/README.md`.
3. Write the page: `dralab reproduce NAME --data DIR --write docs/reproductions/NAME.md`.
   `text` of the `Reproduction` is its prose: what is run, and where artifact and paper differ.

`tests/simulation/reproductions/test_registry.py` holds what is true of all of them.
"""
