"""Which log is shown for which container, and which of its lines."""

import pytest

from dralab.api.status import ApiError
from dralab.apiserver.http.proxying.nodes import NodeRequest
from dralab.kernel.clock import SECOND
from dralab.node.container_runs import RunningContainer
from dralab.node.logs import ContainerLog
from dralab.node.streams import _follow, _log, _logs

POD = {"metadata": {"name": "p", "uid": "u"}, "status": {"phase": "Running"}}
OVER = {**POD, "status": {"phase": "Succeeded"}}
NOW = 100 * SECOND


def written(*lines, ended=False):
    """Return a log with a line for each second from 90 on."""
    log = ContainerLog()
    for second, line in enumerate(lines, 90):
        log.write(second * SECOND, line)
    if ended:
        log.end()
    return log


def run(*, number=1, previous=None, waiting="ContainerCreating"):
    found = RunningContainer({"name": "c"})
    found.number, found.previous, found.waiting = number, previous, waiting
    return found


def asked(pod, container, **query):
    given = {name: [value] for name, value in query.items()}
    wanted = NodeRequest(
        verb="containerLogs", namespace="default", pod="p", container="c", query=given
    )
    return _log(pod, container, wanted, object())


def test_the_log_is_that_of_the_run_or_of_the_one_before():
    earlier = written("a")
    container = run(previous=earlier)
    assert asked(POD, container) is container.log
    assert asked(POD, container, previous="true") is earlier
    assert asked(POD, container, previous="false") is container.log


@pytest.mark.parametrize(
    ("pod", "container", "query", "why"),
    [
        (POD, None, {}, "is waiting to start: ContainerCreating"),
        (None, None, {}, "is waiting to start: ContainerCreating"),
        (POD, run(number=0, waiting="ErrImagePull"), {}, "is waiting to start: ErrImagePull"),
        (OVER, None, {}, "ended before its node started: its log is lost"),
        (
            POD,
            run(),
            {"previous": "true"},
            'previous terminated container "c" in pod "p" not found',
        ),
        (OVER, None, {"previous": "1"}, 'previous terminated container "c" in pod "p" not found'),
    ],
)
def test_where_there_is_no_log_it_says_why(pod, container, query, why):
    with pytest.raises(ApiError, match=why) as caught:
        asked(pod, container, **query)
    assert caught.value.code == 400


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ({}, "a b c d "),
        ({"sinceSeconds": "8"}, "c d "),
        ({"sinceSeconds": "7"}, "d "),
        ({"sinceTime": "1970-01-01T00:01:31Z"}, "b c d "),
        ({"tailLines": "2"}, "c d "),
        ({"tailLines": "0"}, ""),
        ({"tailLines": "9"}, "a b c d "),
        ({"sinceSeconds": "8", "tailLines": "1"}, "d "),
        ({"limitBytes": "3"}, "a b"),
        ({"limitBytes": "0"}, ""),
        ({"timestamps": "true", "tailLines": "1"}, "1970-01-01T00:01:33.000000Z d "),
        ({"timestamps": "no", "tailLines": "1"}, "d "),
    ],
)
def test_some_lines_are_shown(query, shown):
    found = _logs(written(*"abcd"), {name: [value] for name, value in query.items()}, NOW)
    assert found.body.decode().replace("\n", " ") == shown


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ({"tailLines": "x"}, 'tailLines: "x" is not a whole number'),
        ({"sinceTime": "now"}, "sinceTime: "),
    ],
)
def test_a_bad_option_is_named(query, why):
    with pytest.raises(ApiError, match=why):
        _logs(written("a"), {name: [value] for name, value in query.items()}, NOW)


def test_a_follower_gets_each_line_once_and_one_end():
    log, got = written("a", "b"), []
    stop = _follow(
        log, 1, lambda lines: got.append([each for _, each in lines]), lambda: got.append(0)
    )
    log.write(NOW, "c")
    log.end()
    log.end()
    assert got == [["b"], ["c"], 0]
    stop()
    log.write(NOW, "d")
    assert got == [["b"], ["c"], 0]
    over = []
    _follow(written("a", ended=True), 1, over.append, lambda: over.append("end"))
    assert over == ["end"]
