"""FLAGS: all flags of a program, and how a command line is read into them.

Flags may stand anywhere before "--": `--name=value`, `--name value`, `--name` and `--noname` for booleans, with one or two
dashes. `--flagfile=path` inserts flags from a file, `--undefok=a,b` lets undefined flags pass. In TF1 style, the first read of
a flag parses sys.argv if nothing else did.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterator
from typing import Any

from penstock.api.flags import parsers
from penstock.api.flags.flag import Flag
from penstock.api.flags.help import flag_help

_STATE = ("_table", "_module_of", "_key_flags", "_parsed", "_gnu", "_validators", "_auto")


class FlagValues:
    """A table of flags. `FLAGS.name` is a flag's value, `FLAGS["name"]` the Flag itself."""

    _table: dict[str, Flag]
    _module_of: dict[str, str]
    _key_flags: dict[str, list[str]]
    _parsed: bool
    _gnu: bool
    _validators: list[Any]
    _auto: bool

    def __init__(self, parse_on_first_access: bool = False) -> None:
        state = self.__dict__
        state["_table"] = {}  # by name and by short name
        state["_module_of"] = {}  # flag name -> module that defined it
        state["_key_flags"] = {}  # module -> names of flags that its help shows
        state["_parsed"] = False
        state["_gnu"] = True
        state["_validators"] = []
        state["_auto"] = parse_on_first_access

    # -- the table ----------------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Flag:
        return self._table[name]

    def __setitem__(self, name: str, flag: Flag) -> None:
        self._add(name, flag, sys.argv[0] if sys.argv else "")

    def _add(self, name: str, flag: Flag, module: str) -> None:
        """Defines `flag`; `module` is what help shows it under."""
        if not isinstance(flag, Flag):
            raise parsers.IllegalFlagValueError(f"Expect Flag instances, found type {type(flag)}.")
        if not isinstance(name, str):
            raise parsers.Error("Flag name must be a string")
        if not name:
            raise parsers.Error("Flag name cannot be empty")
        if " " in name:
            raise parsers.Error("Flag name cannot contain a space")
        if not flag.allow_using_method_names and callable(getattr(type(self), name, None)):
            raise parsers.FlagNameConflictsWithMethodError(
                f'Cannot define a flag named "{name}". It conflicts with a method on class "{type(self).__name__}". '
                f"To allow defining it, use allow_using_method_names and access the flag value with FLAGS['{name}'].value."
            )
        old = self._table.get(name)
        if old is not None and old is not flag and not flag.allow_override and not old.allow_override:
            raise parsers.DuplicateFlagError(
                f"The flag '{name}' is defined twice. First from {self._module_of.get(name, '<unknown>')}, second from {module}. "
                f"Description from first occurrence: {old.help}"
            )
        self._table[name] = flag
        self._module_of[name] = module
        if flag.short_name:
            other = self._table.get(flag.short_name)
            if other is not None and other is not flag and other.name != name:
                raise parsers.DuplicateFlagError.from_flag(flag.short_name, self)
            self._table[flag.short_name] = flag

    def __contains__(self, name: str) -> bool:
        return name in self._table

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)

    def __getattr__(self, name: str) -> Any:
        if name == "__flags":  # what TF1 programs loop over to show all flags
            return self._table
        if name.startswith("__") or name in _STATE:
            raise AttributeError(name)
        flag = self._table.get(name)
        if flag is None:
            raise AttributeError(name)
        if not self._parsed:
            if not self._auto:
                raise parsers.UnparsedFlagAccessError(f"Trying to access flag --{name} before flags were parsed.")
            self(sys.argv)
        return flag.value

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _STATE:
            self.__dict__[name] = value
            return
        flag = self._flag(name)
        if self._auto and not self._parsed:
            self(sys.argv)
        flag.value = value
        flag.using_default_value = False
        self._validate([name])

    def __delattr__(self, name: str) -> None:
        flag = self._flag(name)
        for key in [key for key, known in self._table.items() if known is flag]:
            del self._table[key]
            self._module_of.pop(key, None)

    def __dir__(self) -> list[str]:
        return sorted({*self._table, *super().__dir__()})

    def _flag(self, name: str) -> Flag:
        if name not in self._table:
            raise parsers.UnrecognizedFlagError(name)
        return self._table[name]

    def _flags(self) -> dict[str, Flag]:
        return self._table

    # -- parsing ------------------------------------------------------------------------------------------------------

    def __call__(self, argv: Any, known_only: bool = False) -> list[str]:
        """Parses a command line (`argv[0]` is the program); what is not a flag is returned, after the program's name.

        With `known_only`, undefined flags are returned as well instead of raising UnrecognizedFlagError.
        """
        if isinstance(argv, (str, bytes)):
            raise TypeError("argv should be a tuple/list of strings, not bytes or string.")
        if not argv:
            raise ValueError("argv cannot be an empty list, and must contain the program name as the first element.")
        for flag in self._table.values():
            if flag.using_default_value:
                flag.unparse()
        rest = self._read(self.read_flags_from_files(argv[1:], force_gnu=False), known_only)
        self._parsed = True
        self.validate_all_flags()
        return [argv[0], *rest]

    def _read(self, arguments: list[str], known_only: bool) -> list[str]:
        rest: list[str] = []
        unknown: list[tuple[str, str]] = []
        allowed: set[str] = set()
        position = 0
        while position < len(arguments):
            argument = arguments[position]
            position += 1
            if not argument.startswith("-") or argument == "-":
                rest.append(argument)
                if not self._gnu:
                    rest += arguments[position:]
                    break
                continue
            if argument == "--":
                rest += ["--", *arguments[position:]] if known_only else arguments[position:]
                break
            name, given, value = argument.lstrip("-").partition("=")
            if name == "undefok":
                if not given:
                    value, position = self._following(arguments, position, name)
                allowed |= {part.strip() for part in value.split(",")}
                allowed |= {"no" + part.strip() for part in value.split(",")}
                continue
            flag = self._table.get(name)
            if flag is None and not given and name.startswith("no") and name[2:] in self._table and self._table[name[2:]].boolean:
                flag, value, given = self._table[name[2:]], "false", "="
            if flag is None:
                unknown.append((name, argument))
                if known_only:
                    rest.append(argument)
                continue
            if not given:
                if flag.boolean:
                    value = "true"
                else:
                    value, position = self._following(arguments, position, name)
            flag.parse(value)
        for name, argument in unknown:
            if name in allowed and known_only:
                rest.remove(argument)
            elif name not in allowed and not known_only:
                raise parsers.UnrecognizedFlagError(name, argument, difflib.get_close_matches(name, self._table, 1, 0.8))
        return rest

    @staticmethod
    def _following(arguments: list[str], position: int, name: str) -> tuple[str, int]:
        if position >= len(arguments):
            raise parsers.Error(f"Missing value for flag --{name}")
        return arguments[position], position + 1

    def read_flags_from_files(self, argv: Any, force_gnu: bool = True, _open_files: tuple[str, ...] = ()) -> list[str]:
        """`argv` with every --flagfile replaced by the flags in that file."""
        result: list[str] = []
        rest = list(argv)
        while rest:
            argument = rest.pop(0)
            if argument == "--":
                return [*result, argument, *rest]
            name, given, value = argument.lstrip("-").partition("=")
            if argument.startswith("-") and name == "flagfile":
                path = value if given else rest.pop(0) if rest else None
                if path is None:
                    raise parsers.IllegalFlagValueError("--flagfile with no argument")
                result += self._flags_of_file(os.path.expanduser(path), force_gnu, _open_files)
            else:
                result.append(argument)
        return result

    def _flags_of_file(self, path: str, force_gnu: bool, open_files: tuple[str, ...]) -> list[str]:
        path = os.path.abspath(path)
        if path in open_files:
            return []  # a file that includes itself
        try:
            with open(path, encoding="utf-8") as f:
                lines = [line.strip() for line in f]
        except OSError as error:
            raise parsers.CantOpenFlagFileError(f"ERROR:: Unable to open flagfile: {error}") from error
        lines = [line for line in lines if line and not line.startswith(("#", "//"))]
        return self.read_flags_from_files(lines, force_gnu, (*open_files, path))

    def is_parsed(self) -> bool:
        """Whether a command line was parsed."""
        return self._parsed

    def mark_as_parsed(self) -> None:
        """Lets flags be read without parsing."""
        self._parsed = True

    def unparse_flags(self) -> None:
        """Back to before parsing, with defaults."""
        for flag in self._table.values():
            flag.unparse()
        self._parsed = False

    def is_gnu_getopt(self) -> bool:
        return self._gnu

    def set_gnu_getopt(self, gnu_getopt: bool = True) -> None:
        """With False, the first argument that is not a flag ends the flags."""
        self._gnu = gnu_getopt

    # -- values -------------------------------------------------------------------------------------------------------

    def flag_values_dict(self) -> dict[str, Any]:
        """The values of all flags by name."""
        return {name: flag.value for name, flag in self._table.items()}

    def get_flag_value(self, name: str, default: Any) -> Any:
        """A flag's value, `default` if that is None."""
        value = getattr(self, name)
        return default if value is None else value

    def set_default(self, name: str, value: Any) -> None:
        """Changes the default of a flag."""
        self._flag(name)._set_default(value)
        self._validate([name])

    def append_flag_values(self, flag_values: FlagValues) -> None:
        """Adds the flags of another table."""
        for name, flag in flag_values._table.items():
            if name == flag.name:
                self._add(name, flag, flag_values._module_of.get(name, ""))

    def remove_flag_values(self, flag_values: Any) -> None:
        """Removes the flags of another table, or of a dict."""
        for name in list(flag_values):
            if name in self._table:
                delattr(self, name)

    def flags_into_string(self) -> str:
        """All flags as lines of a flagfile."""
        lines = [flag.serialize() for name, flag in sorted(self._table.items()) if name == flag.name]
        return "".join(line + "\n" for line in lines if line)

    def append_flags_into_file(self, filename: str) -> None:
        """Appends all flags to a flagfile."""
        with open(filename, "a", encoding="utf-8") as f:
            f.write(self.flags_into_string())

    # -- validators ---------------------------------------------------------------------------------------------------

    def _add_validator(self, validator: Any) -> None:
        self._validators.append(validator)

    def _validate(self, names: Any) -> None:
        for validator in self._validators:
            if any(name in validator.names for name in names):
                validator.check(self)

    def validate_all_flags(self) -> None:
        """Runs every validator; IllegalFlagValueError if one refuses."""
        for validator in self._validators:
            validator.check(self)

    # -- modules and help ---------------------------------------------------------------------------------------------

    def find_module_defining_flag(self, flagname: str, default: Any = None) -> Any:
        """The module that defined a flag."""
        flag = self._table.get(flagname)
        return default if flag is None else self._module_of.get(flag.name, default)

    def find_module_id_defining_flag(self, flagname: str, default: Any = None) -> Any:
        name = self.find_module_defining_flag(flagname)
        return default if name is None else id(sys.modules.get(name, name))

    def flags_by_module_dict(self) -> dict[str, list[Flag]]:
        """Module -> the flags that it defined."""
        result: dict[str, list[Flag]] = {}
        for name, module in self._module_of.items():
            result.setdefault(module, []).append(self._table[name])
        return result

    def key_flags_by_module_dict(self) -> dict[str, list[str]]:
        """Module -> names of flags of other modules that it declared its own."""
        return self._key_flags

    def get_flags_for_module(self, module: Any) -> list[Flag]:
        name = module if isinstance(module, str) else module.__name__
        return self.flags_by_module_dict().get(name, [])

    def get_key_flags_for_module(self, module: Any) -> list[Flag]:
        name = module if isinstance(module, str) else module.__name__
        own = self.get_flags_for_module(name)
        declared = [self._table[n] for n in self._key_flags.get(name, ()) if n in self._table]
        return own + [flag for flag in declared if flag not in own]

    def get_help(self, prefix: str = "", include_special_flags: bool = True) -> str:
        """The help of all flags, module by module, the program's own first."""
        modules = sorted(self.flags_by_module_dict())
        main = _main_name()
        ordered = ([main] if main in modules else []) + [m for m in modules if m != main]
        return "\n".join(self.module_help(m) for m in ordered)

    def module_help(self, module: Any) -> str:
        """The help of one module's flags."""
        name = module if isinstance(module, str) else module.__name__
        flags = sorted(self.get_key_flags_for_module(name), key=lambda flag: flag.name)
        return "\n".join([f"{name}:", *(flag_help(flag) for flag in flags)])

    def main_module_help(self) -> str:
        """The help of the program's own flags."""
        return self.module_help(_main_name())

    def __str__(self) -> str:
        return self.get_help()


def _main_name() -> str:
    """The name under which flags of the main program are listed."""
    return sys.argv[0] if sys.argv and sys.argv[0] else "__main__"
