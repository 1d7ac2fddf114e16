from pathlib import Path

import pytest

from dralab.apiserver.access.authentication.errors import UnusableSetting
from dralab.apiserver.access.authentication.tokens import read_token_file


def test_a_line_names_token_user_uid_and_groups(tmp_path: Path):
    file = tmp_path / "tokens.csv"
    file.write_text('tok,admin,admin,"system:masters"\na, bob ,u-1,"x, y"\n\nc,carol,\n')
    users = read_token_file(file)
    assert {token: (user.name, user.uid, user.groups) for token, user in users.items()} == {
        "tok": ("admin", "admin", ("system:masters",)),
        "a": ("bob", "u-1", ("x", "y")),
        "c": ("carol", "", ()),
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a,b\n", "line 1: expected at least 3 columns (token, user name, user uid), found 2"),
        ("a,b,c\n,d,e\n", "line 2: the token and the user name must not be empty"),
        ("a,b,c\na,d,e\n", "line 2: the same token as in another line, for d"),
        ('a,"b\n', "unexpected end of data"),
    ],
)
def test_a_line_that_means_nothing_is_refused_with_its_number(tmp_path: Path, text, why):
    file = tmp_path / "tokens.csv"
    file.write_text(text)
    with pytest.raises(UnusableSetting) as caught:
        read_token_file(file)
    assert str(caught.value).startswith("--token-auth-file: ")
    assert why in str(caught.value)
