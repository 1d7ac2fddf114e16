"""The hub of all watches: delivers each change once, in order, and with bounded memory.

One hub listens to the store and serves every watcher, in this process or over HTTP. Watchers with
the same selection and encoding share the bytes of each event. The verbs say what a watch selects
and how an event is encoded (`Watching`, `Spelling`); the transport sends it.
"""

from dralab.apiserver.storage.watching.hub import Hub, TooManyWatchers, WatchLimits
from dralab.apiserver.storage.watching.interfaces import Spelling, Watching
from dralab.apiserver.storage.watching.subscription import Subscription

__all__ = ["Hub", "Spelling", "Subscription", "TooManyWatchers", "WatchLimits", "Watching"]
