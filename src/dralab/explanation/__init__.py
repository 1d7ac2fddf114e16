"""Why not, and why this one: facts, a minimal conflict, remedies, and sentences for people.

    a pod that waits      `why` joins what keeps it from being tried (`beside_devices`), what nodes
                          say (`unfit`, `broken_rules`) and what is wrong with the devices
    questions             `likeness` groups nodes and devices that are alike, `questions` asks the
                          allocator once for each group, `conditions` finds a minimal conflict
    causes                `inquiry` reads and counts, `findings` and `misses` look at devices, and
                          `diagnose` names one cause: data of `causes`, with a code of `codes`
    what would help       `helps` proposes, `edits` changes problem and objects, `trial` has the
                          scheduler confirm it in the whole state
    told                  `sentences` fills in the sentences of `codes`, `text` lays out a page, an
                          event and JSON, `answers` are those of commands and of the scheduler

`why` is the way in. The search itself, and its answers, are left to `allocation`; the typed reasons
of filters to `scheduling`.
"""
