"""Replays recorded requests and responses of a real API server against this or another server.

A recording is a list of cases in order, over one state. What led to that state but is not in
the recording is done between the cases (`manual_steps`); what differs from run to run (times, uids,
revisions, generated names) is compared by what it stands for (`comparison`).
"""
