"""The hub of all watches: delivers each change once, in order, and with bounded memory.

One hub listens to the store and serves every watcher, in this process or over HTTP. Watchers who
want the same in the same spelling share the bytes of each event. What a watch wants and how an
event is spelled is said by the verbs (`WatchScope`, `Spelling`); how it travels, by the transport.
"""

from dralab.apiserver.watching.hub import Hub, Limits, TooManyWatchers
from dralab.apiserver.watching.interfaces import Spelling, WatchScope
from dralab.apiserver.watching.subscription import Subscription

__all__ = ["Hub", "Limits", "Spelling", "Subscription", "TooManyWatchers", "WatchScope"]
