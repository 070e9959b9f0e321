"""tf.gfile and tf.io.gfile on the local file system, with TF's error classes."""

import pathlib

import pytest

import penstock as tf

gfile = tf.gfile


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "sub" / "deep").mkdir(parents=True)
    (tmp_path / "a.txt").write_text("héllo\nline2\n")
    (tmp_path / ".hidden").write_text("")
    return str(tmp_path)


def test_reading(folder):
    path = folder + "/a.txt"
    with gfile.GFile(path) as f:
        assert f.read() == "héllo\nline2\n" and f.read() == ""
    with gfile.GFile(path, "rb") as f:
        assert f.read(3) == "hé".encode() and f.tell() == 3
        f.seek(1)
        assert f.read(2) == "é".encode() and f.size() == 13
        f.seek(-6, 2)
        assert f.readline() == b"line2\n"
    assert list(gfile.GFile(path)) == gfile.FastGFile(path).readlines() == ["héllo\n", "line2\n"]
    assert gfile.Open is gfile.GFile is tf.io.gfile.GFile
    assert gfile.GFile("file://" + path).readline() == "héllo\n"
    assert gfile.GFile(pathlib.Path(path)).readline() == "héllo\n"


def test_writing(folder):
    path = folder + "/w.txt"
    with gfile.GFile(path, "w") as f:
        f.write("ab")
        f.write(b"c")
        f.flush()
        assert gfile.GFile(path).read() == "abc"
    with gfile.GFile(path, "a") as f:
        f.write("d")
    assert gfile.GFile(path).read() == "abcd"
    with gfile.GFile(folder + "/empty", "w"):
        pass
    assert gfile.Exists(folder + "/empty")
    with pytest.raises(TypeError, match="Expected binary or unicode string"):
        gfile.GFile(path, "w").write(3)


@pytest.mark.parametrize("action, error, text", [
    (lambda d: gfile.GFile(d + "/no").read(), tf.errors.NotFoundError, "No such file or directory"),
    (lambda d: gfile.GFile(d + "/a.txt").write("x"), tf.errors.PermissionDeniedError, "File isn't open for writing"),
    (lambda d: gfile.GFile(d + "/w", "w").read(), tf.errors.PermissionDeniedError, "File isn't open for reading"),
    (lambda d: gfile.GFile(d + "/a.txt", "z"), tf.errors.InvalidArgumentError, "mode is not"),
    (lambda d: gfile.GFile(d).read(), tf.errors.FailedPreconditionError, "Is a directory"),
    (lambda d: gfile.GFile(d + "/no/file", "w").write(""), tf.errors.NotFoundError, "No such file or directory"),
    (lambda d: gfile.GFile(d + "/a.txt").seek(100), tf.errors.OutOfRangeError, "end of file"),
    (lambda d: gfile.GFile(d + "/a.txt").seek(-1), tf.errors.InvalidArgumentError, "negative position"),
    (lambda d: gfile.Remove(d + "/no"), tf.errors.NotFoundError, "No such file or directory"),
    (lambda d: gfile.Remove(d + "/sub"), tf.errors.FailedPreconditionError, "Is a directory"),
    (lambda d: gfile.MkDir(d + "/no/new"), tf.errors.NotFoundError, "No such file or directory"),
    (lambda d: gfile.MakeDirs(d + "/a.txt/new"), tf.errors.FailedPreconditionError, "is not a directory"),
    (lambda d: gfile.Copy(d + "/a.txt", d + "/.hidden"), tf.errors.AlreadyExistsError, "file already exists"),
    (lambda d: gfile.Copy(d + "/no", d + "/new"), tf.errors.NotFoundError, "No such file or directory"),
    (lambda d: gfile.Rename(d + "/a.txt", d + "/.hidden"), tf.errors.AlreadyExistsError, "file already exists"),
    (lambda d: gfile.ListDirectory(d + "/no"), tf.errors.NotFoundError, "Could not find directory"),
    (lambda d: gfile.Stat(d + "/no"), tf.errors.NotFoundError, "No such file or directory"),
    (lambda d: gfile.DeleteRecursively(d + "/no"), tf.errors.NotFoundError, "not found"),
    (lambda d: gfile.Exists("hdfs://x/y"), tf.errors.UnimplementedError, "File system scheme 'hdfs' not implemented"),
])
def test_errors(folder, action, error, text):
    with pytest.raises(error, match=text):
        action(folder)


def test_looking_around(folder):
    assert gfile.Exists(folder) and not gfile.Exists(folder + "/no")
    assert gfile.IsDirectory(folder) and not gfile.IsDirectory(folder + "/a.txt")
    assert sorted(gfile.ListDirectory(folder)) == [".hidden", "a.txt", "sub"]
    assert gfile.Glob(folder + "/*") == [folder + "/.hidden", folder + "/a.txt", folder + "/sub"]
    assert gfile.Glob([folder + "/s*/d*", folder + "/?.txt"]) == [folder + "/sub/deep", folder + "/a.txt"]
    assert gfile.Glob(folder + "/no*") == [] and gfile.Glob(folder + "/a.txt") == [folder + "/a.txt"]
    assert gfile.Stat(folder + "/a.txt").length == 13 and gfile.Stat(folder).is_directory
    top, sub, deep = (folder, ["sub"], [".hidden", "a.txt"]), (folder + "/sub", ["deep"], []), (folder + "/sub/deep", [], [])
    assert list(gfile.Walk(folder)) == [top, sub, deep]
    assert list(tf.io.gfile.walk(folder, topdown=False)) == [deep, sub, top]
    assert list(gfile.Walk(folder + "/no")) == []


def test_changes(folder):
    gfile.MakeDirs(folder + "/x/y")
    gfile.MakeDirs(folder + "/x/y")
    gfile.Copy(folder + "/a.txt", folder + "/x/b.txt")
    gfile.Copy(folder + "/a.txt", folder + "/x/b.txt", overwrite=True)
    gfile.Rename(folder + "/x/b.txt", folder + "/x/c.txt")
    assert gfile.ListDirectory(folder + "/x/y") == [] and gfile.GFile(folder + "/x/c.txt").readline() == "héllo\n"
    gfile.DeleteRecursively(folder + "/x")
    assert not gfile.Exists(folder + "/x")
    tf.io.gfile.remove(folder + "/a.txt")
    assert tf.io.gfile.listdir(folder + "/sub") == ["deep"] and tf.io.gfile.join("a", "b") == "a/b"
