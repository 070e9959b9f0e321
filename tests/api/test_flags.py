"""tf.flags and tf.app.run: what TF1 programs do with the command line."""

import enum
import subprocess
import sys
import textwrap

import pytest

import penstock as tf
from penstock.api.flags import FlagValues

flags = tf.flags


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


def some_flags():
    f = FlagValues()
    flags.DEFINE_string("name", "d", "A name.", flag_values=f)
    flags.DEFINE_integer("steps", 3, "Steps.", lower_bound=0, flag_values=f)
    flags.DEFINE_float("rate", None, "Rate.", flag_values=f)
    flags.DEFINE_bool("fast", False, "Fast.", flag_values=f, short_name="q")
    flags.DEFINE_enum("mode", "x", ["x", "y"], "Mode.", flag_values=f)
    flags.DEFINE_enum_class("colour", Colour.RED, Colour, "Colour.", flag_values=f)
    flags.DEFINE_list("parts", "a,b", "Parts.", flag_values=f)
    flags.DEFINE_spaceseplist("words", "a b", "Words.", flag_values=f)
    flags.DEFINE_multi_string("files", None, "Files.", flag_values=f)
    flags.DEFINE_multi_integer("sizes", [1], "Sizes.", flag_values=f)
    return f


@pytest.mark.parametrize("arguments, changed, rest", [
    ([], {}, []),
    (["--name=1", "--steps", "0x10"], {"name": "1", "steps": 16}, []),
    (["-name=1", "-rate", "1e3"], {"name": "1", "rate": 1000.0}, []),
    (["--fast"], {"fast": True, "q": True}, []),
    (["-q"], {"fast": True, "q": True}, []),
    (["--nofast", "x"], {}, ["x"]),
    (["--fast=true", "--mode=y", "--colour=blue"], {"fast": True, "q": True, "mode": "y", "colour": Colour.BLUE}, []),
    (['--parts=1,"2,3"', "--words=x y"], {"parts": ["1", "2,3"], "words": ["x", "y"]}, []),
    (["--files=a", "--files=b", "--sizes=4"], {"files": ["a", "b"], "sizes": [4]}, []),
    (["one", "--steps=4", "two", "--", "--steps=5"], {"steps": 4}, ["one", "two", "--steps=5"]),
    (["--undefok=zz", "--zz=1"], {}, []),
])
def test_parsing(arguments, changed, rest):
    f = some_flags()
    before = f.flag_values_dict()
    assert f(["prog", *arguments]) == ["prog", *rest]
    assert f.flag_values_dict() == {**before, **changed}


@pytest.mark.parametrize("arguments, error, text", [
    (["--steps=-1"], flags.IllegalFlagValueError, "flag --steps=-1: -1 is not a non-negative integer"),
    (["--steps=a"], flags.IllegalFlagValueError, "flag --steps=a: invalid literal"),
    (["--fast=maybe"], flags.IllegalFlagValueError, "Non-boolean argument to boolean flag"),
    (["--mode=z"], flags.IllegalFlagValueError, "value should be one of <x|y>"),
    (["--zz=1"], flags.UnrecognizedFlagError, "Unknown command line flag 'zz'"),
    (["--step=1"], flags.UnrecognizedFlagError, "Did you mean: steps"),
    (["--noname"], flags.UnrecognizedFlagError, "Unknown command line flag 'noname'"),
    (["--name"], flags.Error, "Missing value for flag --name"),
])
def test_wrong_command_lines(arguments, error, text):
    with pytest.raises(error) as caught:
        some_flags()(["prog", *arguments])
    assert text in str(caught.value)


def test_undefined_flags_are_kept_where_asked():
    assert some_flags()(["prog", "--zz", "1", "--steps=2", "--", "x"], known_only=True) == ["prog", "--zz", "1", "--", "x"]


def test_values_can_be_read_and_set():
    f = some_flags()
    with pytest.raises(flags.UnparsedFlagAccessError, match="before flags were parsed"):
        f.name
    f(["prog"])
    f.steps = 7
    assert f.steps == 7 and f["steps"].value == 7 and "steps" in f
    with pytest.raises(flags.IllegalFlagValueError):
        f.steps = -1
    with pytest.raises(flags.UnrecognizedFlagError):
        f.other = 1
    with pytest.raises(AttributeError):
        f.other
    f.set_default("name", "n")
    assert f.name == "n" and "--name=n\n" in f.flags_into_string()
    assert dict(f.__flags.items())["name"].value == "n"


def test_definitions_are_checked():
    f = some_flags()
    with pytest.raises(flags.DuplicateFlagError, match="The flag 'name' is defined twice"):
        flags.DEFINE_string("name", "", "Again.", flag_values=f)
    with pytest.raises(flags.IllegalFlagValueError):
        flags.DEFINE_integer("other", "x", "Not a number.", flag_values=f)
    with pytest.raises(flags.FlagNameConflictsWithMethodError):
        flags.DEFINE_integer("is_parsed", 1, "A method.", flag_values=f)


def test_validators():
    f = some_flags()
    flags.mark_flag_as_required("rate", flag_values=f)
    with pytest.raises(flags.IllegalFlagValueError, match="Flag --rate must have a value other than None"):
        f(["prog"])
    f = some_flags()
    flags.register_validator("steps", lambda n: n % 2 == 0, "must be even", flag_values=f)
    with pytest.raises(flags.IllegalFlagValueError, match="flag --steps=3: must be even"):
        f(["prog"])
    f(["prog", "--steps=4"])
    with pytest.raises(flags.IllegalFlagValueError):
        f.steps = 5
    f = some_flags()
    flags.mark_flags_as_mutual_exclusive(["rate", "files"], flag_values=f)
    with pytest.raises(flags.IllegalFlagValueError, match="At most one of"):
        f(["prog", "--rate=1", "--files=a"])


def test_flagfile(tmp_path):
    inner = tmp_path / "inner.txt"
    inner.write_text("--mode=y\n")
    outer = tmp_path / "outer.txt"
    outer.write_text(f"# a comment\n--steps=9\n--flagfile={inner}\n\n--flagfile={outer}\n")
    f = some_flags()
    assert f(["prog", f"--flagfile={outer}", "x"]) == ["prog", "x"]
    assert (f.steps, f.mode) == (9, "y")
    with pytest.raises(flags.CantOpenFlagFileError):
        some_flags()(["prog", "--flagfile=/no/such/file"])


def test_old_argument_names_and_aliases():
    f = FlagValues()
    holder = flags.DEFINE_string(flag_name="a", default_value="v", docstring="Text.", flag_values=f)
    flags.DEFINE_alias("b", "a", flag_values=f)
    f(["prog", "--b=w"])
    assert holder.value == f.a == f.b == "w" and holder.name == "a" and holder.default == "v"


def test_help_text():
    text = some_flags().get_help()
    assert "  -q,--[no]fast: Fast.\n    (default: 'false')" in text
    assert "  --mode: <x|y>: Mode.\n    (default: 'x')" in text
    assert "  --steps: Steps.\n    (default: '3')\n    (a non-negative integer)" in text


PROGRAM = textwrap.dedent("""
    '''Trains nothing.'''
    import penstock as tf
    tf.app.flags.DEFINE_integer("steps", 3, "How many steps.")
    FLAGS = tf.app.flags.FLAGS

    def main(argv):
        print(FLAGS.steps, argv[1:])
        return 4

    if __name__ == "__main__":
        tf.app.run()
""")


def program(tmp_path, *arguments):
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    return subprocess.run([sys.executable, str(path), *arguments], capture_output=True, text=True)


def test_app_run(tmp_path):
    done = program(tmp_path, "--steps=5", "x", "--unknown")
    assert (done.returncode, done.stdout) == (4, "5 ['x', '--unknown']\n")


def test_app_run_reports_wrong_values_and_help(tmp_path):
    wrong = program(tmp_path, "--steps=many")
    assert wrong.returncode == 1 and "flag --steps=many: invalid literal" in wrong.stderr
    shown = program(tmp_path, "--help")
    assert shown.returncode == 1 and "Trains nothing." in shown.stdout and "--steps: How many steps." in shown.stdout


def test_reading_a_flag_parses_the_command_line():
    code = "import penstock as tf\ntf.flags.DEFINE_float('rate', 0.1, '')\nprint(tf.flags.FLAGS.rate)"
    done = subprocess.run([sys.executable, "-c", code, "--rate=2"], capture_output=True, text=True)
    assert done.stdout == "2.0\n", done.stderr
