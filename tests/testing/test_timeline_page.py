"""The timeline as a page: self-contained, and safe to open whatever objects are called."""

import base64
import hashlib
import re
from html.parser import HTMLParser

from dralab.kernel.clock import SECOND
from dralab.testing.faults import PlannedFault
from dralab.testing.history import HistoryEntry, TrialViolation
from dralab.testing.page import MOST_ROWS, timeline_page

EVIL = "<script>alert(1)</script>\"'><img src=http://evil.example>"
ENTRIES = [
    HistoryEntry(SECOND, "user", "step", f"apply ConfigMap {EVIL}", 7),
    HistoryEntry(SECOND, EVIL, "write", f"create configmaps default/{EVIL}", 8),
    HistoryEntry(2 * SECOND, "trial", "verdict", EVIL),
]


def page(entries=ENTRIES):
    schedule = [PlannedFault(fault="kill", program=EVIL, verb="create", resource=EVIL, nth=1)]
    return timeline_page(EVIL, [TrialViolation("final-state", EVIL)], schedule, entries)


class Elements(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


def test_names_are_text_and_never_elements():
    tags = Elements(page()).tags
    assert [tag for tag, _ in tags].count("script") == 1
    assert "img" not in {tag for tag, _ in tags}
    assert not [attrs for _, attrs in tags if attrs.keys() & {"src", "href", "onerror"}]


def test_the_policy_allows_only_the_page_s_own_script_and_style():
    text = page()
    policy = next(attrs["content"] for _, attrs in Elements(text).tags if "http-equiv" in attrs)
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    for tag in ("script", "style"):
        content = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def test_a_row_stands_in_the_column_of_its_program():
    entries = [HistoryEntry(SECOND, "a", "write", "one"), HistoryEntry(SECOND, "b", "write", "two")]
    rows = re.findall(r'<tr data-what="write">(.*?)</tr>', page(entries))
    assert rows[0].endswith('<td class="write">one</td><td></td>')
    assert rows[1].endswith('<td></td><td class="write">two</td>')
    assert "1.000s" in rows[0]
    assert "1.000s" not in rows[1]


def test_the_judgement_stands_across_all_columns():
    entries = [
        HistoryEntry(SECOND, "a", "write", "one"),
        HistoryEntry(SECOND, "b", "write", "two"),
        HistoryEntry(2 * SECOND, "trial", "verdict", "a long sentence"),
    ]
    text = page(entries)
    assert '<td class="verdict" colspan="2">a long sentence</td>' in text
    assert "<th>trial</th>" not in text


def test_a_long_history_is_cut_and_says_so():
    entries = [HistoryEntry(n, "a", "write", str(n)) for n in range(MOST_ROWS + 3)]
    assert "3 later entries are left out." in page(entries)
