"""The small shell of simulated containers: what a script writes, and the code it ends with."""

import subprocess

import pytest

from dralab.node import shell
from dralab.node.shell import MOST_BACKGROUND, lasts, run, trapped, understood
from dralab.node.shell_commands import ShellState, Sleep, UnknownProgram, WriteLine
from dralab.node.shell_words import SHORT, exported, tokens

# What a real shell writes, and its exit code.
AS_IN_SH = [
    ("echo a; echo b", ["a", "b"], 0),
    ("echo a\necho b", ["a", "b"], 0),
    ("echo a \\\n b", ["a b"], 0),
    ("echo a;", ["a"], 0),
    ("echo 'a;b' \"c && d\"", ["a;b c && d"], 0),
    ("false; echo $?", ["1"], 0),
    ("false; exit", [], 1),
    ("exit 3; echo no", [], 3),
    ("exit 5 || echo no", [], 5),
    ("true && echo a || echo b", ["a"], 0),
    ("false && echo a || echo b", ["b"], 0),
    ("true || echo a && echo b", ["b"], 0),
    ("true || echo a; echo b", ["b"], 0),
    ("false && echo a & echo b", ["b"], 0),
    ("false && { echo a; echo b; }; echo c", ["c"], 0),
    ("false && (echo a; echo b) || echo c", ["c"], 0),
    ("false && if true; then echo a; fi; echo b", ["b"], 0),
    ("! true; echo $?", ["1"], 0),
    ("! false && echo a", ["a"], 0),
    ("false & echo $?", ["0"], 0),
    ("{ echo a; echo b; }", ["a", "b"], 0),
    ("A=1; { A=2; }; echo $A", ["2"], 0),
    ("A=1; (A=2; echo $A); echo $A", ["2", "1"], 0),
    ("(exit 3); echo $?", ["3"], 0),
    ("((echo a); echo b)", ["a", "b"], 0),
    ("echo a | cat; echo b", ["a", "b"], 0),
    ("echo a | cat | cat && echo b", ["a", "b"], 0),
    ("false | true; echo $?", ["0"], 0),
    ("false | cat || echo a", [], 0),
    ("if true; then echo a; else echo b; fi", ["a"], 0),
    ("if false; then echo a; else echo b; fi; echo c", ["b", "c"], 0),
    ("if false; then echo a; fi; echo $?", ["0"], 0),
    ("if false; then echo a; elif true; then echo b; else echo c; fi", ["b"], 0),
    ("if true; then echo a; elif true; then echo b; else echo c; fi", ["a"], 0),
    ("if false; then :; elif false; then :; else echo c; fi", ["c"], 0),
    ("if true; then if false; then echo a; else echo b; fi; else echo c; fi", ["b"], 0),
    ("if true; then false; fi; echo $?", ["1"], 0),
    ("if true; then exit 2; fi; echo a", [], 2),
    ("for i in 1 2 3; do echo $i; done", ["1", "2", "3"], 0),
    ("for i in in out\ndo echo $i\ndone", ["in", "out"], 0),
    ("for i in 1 2; do for j in a b; do echo $i$j; done; done; echo c", ["1a", "1b", "2a", "2b", "c"], 0),
    ("for i in 1 2; do false; done; echo $?", ["1"], 0),
    ("for i in; do false; done; echo $?", ["0"], 0),
    ("for i in 1 2 3; do echo $i; break; done; echo $?", ["1", "0"], 0),
    ("for i in 1 2; do echo a; continue; echo b; done", ["a", "a"], 0),
    ("while false; do echo a; done; echo $?", ["0"], 0),
    ("until true; do echo a; done; echo $?", ["0"], 0),
    ("while true; do echo a; break; echo b; done; echo c", ["a", "c"], 0),
    ("echo a > /dev/null; echo b", ["b"], 0),
    ("echo a >/dev/null 2>&1; echo b", ["b"], 0),
    ("echo a 1>/dev/null; echo b", ["b"], 0),
    ("echo a 2> /dev/null", ["a"], 0),
    ("echo a 2>/dev/null", ["a"], 0),
    ("echo a 2>&1", ["a"], 0),
    ("echo a 2>&1 && echo b", ["a", "b"], 0),
    ("echo a < /dev/null", ["a"], 0),
    ("(exit 4) 2>/dev/null; echo $?", ["4"], 0),
    ("A=1; echo $A ${A} ${A:-x} ${B:-x}", ["1 1 1 x"], 0),
    ("A=1 true; echo ${A:-none}", ["none"], 0),
    ("A=b; B=$A; echo $B", ["b"], 0),
    ("A=1; echo \"$A\" '$A' \\$A \"\\$A\" a\\b", ["1 $A $A $A ab"], 0),
    ("export A=x=1; echo $A", ["x=1"], 0),
    ("printf 'a%sb%d\\nc\\n' x 5", ["axb5", "c"], 0),
    ("exec echo a; echo b", ["a"], 0),
    ("exec && echo b", ["b"], 0),
    ("export A=1 && A=2 && sleep 0 && echo $A", ["2"], 0),
    ("export > /dev/null && echo a", ["a"], 0),
    ("export -p >/dev/null && echo a", ["a"], 0),
    ("for i in 1 2; do false; continue; done; echo $?", ["0"], 0),
    ("echo a > /dev/null b; echo c", ["c"], 0),
    ("false & echo a 2> /dev/null b", ["a b"], 0),
    ("wait; echo $?", ["0"], 0),
    ("trap 'echo no' TERM; echo a", ["a"], 0),
    ("sleep 0; echo a", ["a"], 0),
]  # fmt: skip


def steps(argv, env=None, most=50, **fields):
    """Return what a command does: lines as texts, sleeps as seconds, other programs in brackets."""
    found, running = [], run(argv, env or {}, **fields)
    try:
        while len(found) < most:
            match next(running):
                case WriteLine(line):
                    found.append(line)
                case Sleep(seconds):
                    found.append(seconds)
                case UnknownProgram(name):
                    found.append(f"<{name}>")
    except StopIteration as over:
        return found, over.value
    return found, None


def sh(script, env=None, **fields):
    return steps(["sh", "-c", script], env, **fields)


@pytest.mark.parametrize(("script", "lines", "code"), AS_IN_SH)
def test_a_script_does_what_it_does_in_sh(script, lines, code):
    found, ended = sh(script)
    assert ([each for each in found if isinstance(each, str)], ended) == (lines, code)


@pytest.mark.conformance
@pytest.mark.parametrize(("script", "lines", "code"), AS_IN_SH)
def test_sh_itself_says_so(script, lines, code):
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout.splitlines(), done.returncode) == (lines, code)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("sleep 2", [2.0]),
        ("sleep 1m 2 .5s", [62.5]),
        ("sleep 1h; sleep 1d", [3600.0, 86400.0]),
        ("sleep infinity; echo a", [None, "a"]),
        ("sleep soon || echo a", ["sleep: invalid time interval 'soon'", "a"]),
        ("sleep 3 & sleep 5 & sleep 1 & wait; wait; echo a", [5.0, "a"]),
        ("sleep 3 & sleep infinity & wait", [None]),
        ("(sleep 3; sleep 4) & wait", [7.0]),
        ("nginx & wait", [None]),
        ("echo a & wait; echo b", [0.0, "b"]),
        ("exit 3 & wait; echo b", [0.0, "b"]),
        ("A=1; A=2 & wait; echo $A", [0.0, "1"]),
        ("while true; do sleep 1; done & wait", [None]),
        ("tail -f /dev/null", [None]),
        ("tail -F log", [None]),
        ("tail log && echo a", ["a"]),
        ("sleep 5 > /dev/null", [5.0]),
        ("while sleep 7; do break; done", [7.0]),
    ],
)
def test_a_script_sleeps_as_long_as_it_says(script, expected):
    assert sh(script)[0] == expected


def test_a_loop_that_never_sleeps_is_slowed_down():
    assert sh("while true; do echo a; done", most=5)[0] == ["a", 1.0, "a", 1.0, "a"]
    assert sh("until false; do echo a; sleep 3; done", most=4)[0] == ["a", 3.0, "a", 3.0]


def test_a_loop_ends_at_last(monkeypatch):
    monkeypatch.setattr(shell, "MOST_STEPS", 3)
    assert sh("while true; do :; done; echo over") == ([1.0, 1.0, 1.0, "over"], 0)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo a |", ["a"]),
        ("!", []),
        ("if true; then echo a", ["a"]),
        ("while true; do echo a; break", ["a"]),
        ("(echo a", ["a"]),
        ("for", []),
    ],
)
def test_a_script_that_is_not_closed_does_what_it_can(script, expected):
    assert sh(script)[0] == expected


def test_a_background_command_is_looked_at_for_so_long():
    assert sh(f"for i in {'a ' * MOST_BACKGROUND}; do sleep 1; done & wait")[0] == [MOST_BACKGROUND]
    assert sh(f"for i in {'a ' * MOST_BACKGROUND} b; do sleep 1; done & wait")[0] == [None]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("nginx -g x", ["<nginx>"]),
        ("/usr/sbin/nginx", ["<nginx>"]),
        ("nginx; echo a", ["a"]),  # Only the last program may last.
        ("echo a; nginx", ["a", "<nginx>"]),
        ("true && nginx", ["<nginx>"]),
        ("nginx;", ["<nginx>"]),
        ("(nginx)", ["<nginx>"]),
        ("{ nginx; }", ["<nginx>"]),
        ("if true; then nginx; fi", ["<nginx>"]),
        ("if true; then nginx; fi; echo a", ["a"]),
        ("if nginx; then echo a; fi", ["a"]),
        ("nginx | tee log", ["<nginx>"]),
        ("ls /", []),
        ("sh -c 'echo a; nginx'", ["a", "<nginx>"]),
        ("sh run.sh", ["<run.sh>"]),
        ("sh -e run.sh now", ["<run.sh>"]),
        ("exec nginx", ["<nginx>"]),
    ],
)
def test_an_unknown_program_runs_only_as_the_last_thing(script, expected):
    assert sh(script)[0] == expected


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["sh", "-c"], ([], 0)),
        (["/bin/bash", "-xc", "echo a", "name"], (["a"], 0)),
        (["busybox", "sh", "-c", "echo a"], (["a"], 0)),
        (["busybox", "echo", "a"], (["a"], 0)),
        (["busybox", "sleep", "3"], ([3.0], 0)),
        (["busybox", "false"], ([], 1)),
        (["busybox"], ([], 0)),
        (["sh", "run.sh", "now"], (["<run.sh>"], 0)),
        (["echo", "-n", "-e", "a", "b"], (["a b"], 0)),
        (["echo", "a\nb"], (["a", "b"], 0)),
        (["printf"], ([""], 0)),
        (["printenv", "A", "C"], (["1"], 1)),
        (["printenv", "B"], (["2"], 0)),
        (["env"], (["A=1", "B=2"], 0)),
        (["hostname"], ([""], 0)),
        (["pause"], ([None], 0)),
        (["sleep", "x"], (["sleep: invalid time interval 'x'"], 1)),
        (["false"], ([], 1)),
    ],
)  # fmt: skip
def test_a_command_without_a_shell(argv, expected):
    assert steps(argv, {"A": "1", "B": "2"}) == expected


def test_what_is_understood():
    assert [
        understood(argv) for argv in ([], ["sh"], ["/bin/echo"], ["nginx"], ["busybox", "ls"])
    ] == [False, True, True, False, True]


def test_a_command_lasts_as_long_as_its_sleeps():
    assert lasts(["nginx"], 30) == 0
    assert lasts(["sh", "-c", "sleep 10; sleep 19"], 30) == 29
    assert lasts(["sh", "-c", "sleep 20; sleep 10; exit"], 30) == 30
    assert lasts(["sh", "-c", "sleep 0; nginx"], 0) == 0
    assert lasts(["sh", "-c", "sleep 20; sleep 20"], 30) == 30
    assert lasts(["sh", "-c", "while true; do sleep 1; done"], 5) == 5


@pytest.mark.parametrize("name", ["TERM", "SIGTERM"])
def test_a_trap_runs_at_its_signal(name):
    def ends(action):
        state = ShellState({})
        assert sh(f"trap {action} INT {name}", state=state) == ([], 0)
        assert trapped(state, "HUP") is None
        assert trapped(state, "INT") is not None
        acting, lines = trapped(state, "TERM"), []
        try:
            while True:
                lines.append(next(acting).line)
        except StopIteration as over:
            return lines, over.value

    assert ends("'echo bye; exit 3; echo no'") == (["bye"], 3)
    assert ends("'echo bye'") == (["bye"], -1)  # The script goes on.


def test_export_shows_all_variables_as_each_shell_does():
    env = {"B": "it's", "A": "1"}
    assert sh("export C=2; export", env)[0] == [
        "export A='1'", "export B='it'\"'\"'s'", "export C='2'", "export PWD='/'"
    ]  # fmt: skip
    assert steps(["bash", "-c", "export -p"], {"A": "1"})[0] == [
        'declare -x A="1"', "declare -x OLDPWD", 'declare -x PWD="/"', 'declare -x SHLVL="1"'
    ]  # fmt: skip
    assert sh("PWD=/tmp; export", {})[0] == ["export PWD='/tmp'"]
    assert steps(["bash", "-c", "export"], {"SHLVL": "4", "PWD": "/x", "OLDPWD": "/"})[0] == [
        'declare -x OLDPWD="/"', 'declare -x PWD="/x"', 'declare -x SHLVL="4"'
    ]  # fmt: skip


def test_bash_quotes_what_it_exports():
    lines = list(exported({"A": 'a"$`\\', "B": "a\tb'", "C": " ", "D": "\x1f"}, "bash"))
    assert lines[:4] == [
        'declare -x A="a\\"\\$\\`\\\\"', "declare -x B=$'a\\tb\\''", 'declare -x C=" "',
        "declare -x D=$'\\x1f'",
    ]  # fmt: skip


def test_the_words_of_a_script():
    assert list(tokens("a&&b||c|d;(e)&f")) == [*"a", "&&", "b", "||", *"c|d;(e)&f"]
    assert list(tokens("a >&2 b 2>&1 &> f & c")) == ["a", ">&2", "b", "2>&1", ">", "f", "&", "c"]
    assert list(tokens("echo 'open; true")) == ["echo", "'open;", "true"]  # It is not closed.


def test_long_scripts_are_not_kept():
    assert tokens("a " * (SHORT // 2)) is tokens("a " * (SHORT // 2))
    assert tokens("a " * SHORT) is not tokens("a " * SHORT)
