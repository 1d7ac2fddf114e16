"""What a store does on a disk that fails: run under the shim, told what to do by its arguments.

python workload.py DIRECTORY DURABILITY journal FILE      one life, its writes recorded
python workload.py DIRECTORY DURABILITY points KIND ERRNO  one life for each write that may fail

Each life is a process of its own. It prints a line of JSON: what was acknowledged, what was
refused, and what a store finds when it is opened again on a good disk.
"""

import ctypes
import json
import os
import random
import shutil
import sys
from pathlib import Path

from dralab.apiserver.storage import Key, StorageUnavailable, Undecided, sqlite
from dralab.apiserver.storage.sqlite import SqliteStore

BATCHES = 8
SLOW = 5  # as in shim.c: all that follows, so one life is enough
shim = ctypes.CDLL(None)


def state_of(store):
    return {item.key.name: item.value["spec"] for item in store.list("pods").items}


def live(place, durability, tell):
    """Write batches; tell what was acknowledged, and what was refused."""
    # The writer itself brings home what was written aside, and often: the same order each time.
    sqlite.CHECKPOINT, sqlite.CHECKPOINT_AT_LAST = 40_000, 0
    chance = random.Random(7)
    try:
        store = SqliteStore(place, durability=durability, window=30)
    except StorageUnavailable:
        tell("unopened", 0, {})
        return
    tell("opened", store.revision, state_of(store))
    for number in range(BATCHES):
        before = tried = store.revision, state_of(store)
        try:
            with store.batch():
                for _ in range(chance.randint(1, 5)):
                    _write(store, chance, number)
                    tried = store.revision, state_of(store)
            tell("done", store.revision, state_of(store))
        except StorageUnavailable as error:
            assert (store.revision, state_of(store)) == before, "a refused batch has happened"
            tell("undecided" if isinstance(error, Undecided) else "refused", *tried)
    try:
        store.close()
        tell("closed", store.revision, state_of(store))
    except StorageUnavailable:
        tell("unclosed", store.revision, state_of(store))


def _write(store, chance, number):
    key = Key("pods", "default", f"p{chance.randrange(9)}")
    value = {"metadata": {}, "spec": number, "much": "x" * chance.randrange(9_000)}
    if store.get(key) is None:
        store.create(key, value)
    elif chance.random() < 0.3:
        store.delete(key)
    else:
        store.update(key, value)


def journalled(place, durability, file):
    told = []

    def tell(what, revision, state):
        shim.faulty_note(f"A {len(told)}\n".encode())
        told.append([what, revision, state])

    shim.faulty_journal(file.encode())
    live(place, durability, tell)
    print(json.dumps(told))


def failing(place, durability, kind, errno):
    """Let each operation fail in turn, until a life has fewer than that."""
    at = 0
    while True:
        at += 1
        shutil.rmtree(place, ignore_errors=True)
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            with os.fdopen(writing, "w", buffering=1) as out:
                shim.faulty_arm(at, kind, errno)
                live(place, durability, lambda *told: print(json.dumps(told), file=out))
                points = shim.faulty_points()
                shim.faulty_arm(0, 0, 0)
                print(json.dumps(["points", points]), file=out)
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as file:
            told = [json.loads(line) for line in file]
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        try:
            store = SqliteStore(place, durability=durability)
            found = [store.revision, state_of(store)]
            store.close()
        except StorageUnavailable as error:
            found = [str(error)]
        print(json.dumps({"at": at, "ended": ended, "told": told, "found": found}), flush=True)
        if kind == SLOW or (told and told[-1][0] == "points" and at > told[-1][1]):
            return


def main():
    place, durability, what, *more = sys.argv[1:]
    if what == "journal":
        journalled(Path(place), durability, more[0])
    else:
        failing(Path(place), durability, *map(int, more))


main()
