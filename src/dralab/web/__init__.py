"""The page that shows a cluster, a snapshot or a simulation: `dralab ui` and `/ui` of a server.

It shows what others compute: states of devices, explanations, what-if, moves, results of runs. The
sources of the page are in `ui/` of the repository; `make ui` builds `page.html` from them.
"""
