"""API Priority and Fairness: decides which request is next, so that no client starves another.

`flow_control` reads FlowSchemas and PriorityLevelConfigurations; `queues` holds what waits. Where
requests come from and how they are answered is left to `http`.
"""
