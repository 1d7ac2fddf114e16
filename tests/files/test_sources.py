"""Files, directories and archives: what is read of them, in which order, and what is refused."""

import gzip
import io
import os
import tarfile

import pytest

from dralab.files.sources import MAX_DEPTH, SourceError, SourceFile, files_of, found_in

POD = b"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n"


def archive(members, mode="w:gz"):
    """An archive of (name or TarInfo, content) pairs."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as out:
        for name, content in members:
            info = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            info.size = len(content)
            out.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def read(*sources, **options):
    return list(files_of(sources, **options))


def one_error(*sources, **options):
    (found,) = read(*sources, **options)
    assert isinstance(found, SourceError), found
    return found.why


def test_directories_are_read_to_the_bottom_in_the_order_of_names(tmp_path):
    for name in ("b/deep/er/z.yaml", "b/a.json", "c.yml", "a.yaml", "b/readme.md"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(POD)
    found = read(tmp_path)
    assert [(item.name.removeprefix(f"{tmp_path}/"), item.gathered) for item in found] == [
        ("a.yaml", False),
        ("b/a.json", True),
        ("b/deep/er/z.yaml", True),
        ("c.yml", False),
    ]


def test_links_to_directories_are_not_followed(tmp_path):
    (tmp_path / "pod.yaml").write_bytes(POD)
    (tmp_path / "again").symlink_to(tmp_path)
    assert [item.name for item in read(tmp_path)] == [str(tmp_path / "pod.yaml")]


def test_a_link_that_leads_out_of_a_directory_is_refused(tmp_path):
    (tmp_path / "secret.yaml").write_bytes(POD)
    folder = tmp_path / "given"
    folder.mkdir()
    (folder / "a.yaml").symlink_to("../secret.yaml")
    (folder / "b.yaml").write_bytes(POD)
    refused, fine = read(folder)
    assert refused.name == f"{folder}/a.yaml"
    outside = (tmp_path / "secret.yaml").resolve()
    assert refused.why == f"it is a link that leads out of {folder}, to {outside}"
    assert fine.name == f"{folder}/b.yaml"


def test_what_a_kubelet_mounts_is_read_once(tmp_path):
    """ConfigMaps: `a.yaml` leads to `..data/a.yaml`, and `..data` to a directory of this time."""
    (tmp_path / "..2026_11_27").mkdir()
    (tmp_path / "..2026_11_27" / "a.yaml").write_bytes(POD)
    (tmp_path / "..data").symlink_to("..2026_11_27")
    (tmp_path / "a.yaml").symlink_to("..data/a.yaml")
    assert read(tmp_path) == [SourceFile(f"{tmp_path}/a.yaml", POD)]


def test_a_pipe_in_a_directory_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.yaml")
    assert one_error(tmp_path) == "it is a named pipe, not a regular file"
    assert one_error(tmp_path / "a.yaml") == "it is a named pipe, not a regular file"


def test_a_directory_with_too_many_files_is_refused_with_its_folders_together(tmp_path):
    for number in range(4):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "a.yaml").touch()
    assert len(list(found_in(tmp_path, (".yaml",), most=4))) == 4
    with pytest.raises(SourceError, match="more than 3 files: name only the files and folders"):
        list(found_in(tmp_path, (".yaml",), most=3))


def test_files_of_other_kinds_are_counted_too_and_nothing_is_read_before(tmp_path, monkeypatch):
    monkeypatch.setattr("dralab.files.sources.MAX_ENTRIES", 5)
    (tmp_path / "0.yaml").write_bytes(POD)
    for number in range(3):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "log.txt").touch()
    assert one_error(tmp_path) == "more than 5 files: name only the files and folders that matter"


def test_a_sorted_walk_stays_in_the_order_of_names(tmp_path):
    for name in ("b/2.yaml", "b/1.yaml", "a.yaml", "c/c/0.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = [str(each.relative_to(tmp_path)) for each in found_in(tmp_path, (".yaml",))]
    assert found == ["a.yaml", "b/1.yaml", "b/2.yaml", "c/c/0.yaml"]


def test_what_the_shell_connects_is_read(tmp_path):
    source, writing = os.pipe()
    os.write(writing, gzip.compress(POD))
    os.close(writing)
    name = f"/dev/fd/{source}"
    assert read(name) == [SourceFile(name, POD)]
    os.close(source)


def test_directories_without_end_are_refused(tmp_path):
    tmp_path.joinpath(*["d"] * (MAX_DEPTH + 1)).mkdir(parents=True)
    assert f"more than {MAX_DEPTH} directories deep" in one_error(tmp_path)


def test_a_directory_without_manifests_is_told(tmp_path):
    (tmp_path / "notes.txt").write_bytes(b"")
    assert one_error(tmp_path).startswith(
        "contains no file that ends with .yaml, .yml, .json, .tar"
    )


@pytest.mark.parametrize("mode", ["w", "w:gz"])
@pytest.mark.parametrize("name", ["dump", "dump.tar", "dump.tar.gz"])
def test_archives_are_known_by_their_content(tmp_path, mode, name):
    path = tmp_path / name
    path.write_bytes(
        archive([("m/pods.yaml", POD), ("m/log.txt", b"x"), ("m/n.json", b"{}")], mode)
    )
    assert read(path) == [
        SourceFile(f"{path}:m/pods.yaml", POD, gathered=True),
        SourceFile(f"{path}:m/n.json", b"{}", gathered=True),
    ]


def test_standard_input_may_be_packed_too():
    packed = gzip.compress(POD)
    assert read("-", stdin=lambda: packed) == [SourceFile("standard input", POD)]
    assert read("-", stdin=lambda: POD) == [SourceFile("standard input", POD)]


@pytest.mark.parametrize("name", ["../p.yaml", "a/../../p.yaml", "/etc/p.yaml", "a/.."])
def test_a_name_that_leads_out_of_an_archive_is_refused(tmp_path, name):
    path = tmp_path / "dump.tgz"
    path.write_bytes(archive([(name, POD)]))
    assert one_error(path) == f"refused: {name!r} leads out of the archive"


def test_links_in_an_archive_are_not_followed(tmp_path):
    links = []
    for kind, name in ((tarfile.SYMTYPE, "s.yaml"), (tarfile.LNKTYPE, "h.yaml")):
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, "/etc/passwd"
        links.append((info, b""))
    path = tmp_path / "dump.tgz"
    path.write_bytes(archive(links))
    assert read(path) == []


def test_an_archive_with_too_many_files_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("dralab.files.sources.MAX_FILES", 3)
    path = tmp_path / "dump.tgz"
    path.write_bytes(archive([(f"{number}.yaml", POD) for number in range(4)]))
    *found, last = read(path)
    assert len(found) == 3
    assert last.why == "more than 3 files: name only the files and folders that matter"


def test_empty_files_of_an_archive_are_passed_over(tmp_path):
    path = tmp_path / "dump.tgz"
    path.write_bytes(archive([("a.yaml", b""), ("b.yaml", POD)]))
    assert [each.name for each in read(path)] == [f"{path}:b.yaml"]


@pytest.mark.parametrize(
    "packed",
    [
        gzip.compress(b"a: " + b"x" * 100_000),
        archive([("a.yaml", b"x" * 100_000)]),
        archive([("log.txt", b"x" * 100_000)]),
        archive([(f"{n}.yaml", b"x" * 1000) for n in range(100)]),
    ],
    ids=["gzip", "member", "skipped member", "many members"],
)
def test_a_bomb_is_not_unpacked_beyond_the_limit(tmp_path, packed):
    path = tmp_path / "bomb.tgz"
    path.write_bytes(packed)
    assert len(packed) < 10_000
    *_, last = read(path, max_bytes=50_000)
    assert (
        last.why
        == "the input is larger than 50,000 bytes: name only the files and folders that matter"
    )


def test_the_limit_is_of_all_sources_together(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_bytes(b"x" * 600)
    assert [type(item) for item in read(path, path, path, max_bytes=1000)] == [
        SourceFile,
        SourceError,
    ]


@pytest.mark.parametrize("keep", [40, 200, -20, -5])
def test_an_archive_that_breaks_off_is_damaged(tmp_path, keep):
    content = bytes(range(256)) * 20  # does not compress to nothing
    path = tmp_path / "half.tar.gz"
    path.write_bytes(archive([("a.yaml", content), ("b.yaml", content[::-1])])[:keep])
    *_, last = read(path)
    assert last.why.startswith("the archive is damaged or breaks off: ")


def test_a_file_that_is_larger_than_what_is_stored_is_refused(tmp_path):
    """A sparse member of a few bytes says that it has a terabyte of zeros."""
    info = tarfile.TarInfo("a.yaml")
    sparse = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.map": "0,1"}
    info.pax_headers = sparse | {"GNU.sparse.size": str(10**12)}
    path = tmp_path / "dump.tar"
    path.write_bytes(archive([(info, b"x")], "w"))
    assert "larger than what is stored" in one_error(path)
