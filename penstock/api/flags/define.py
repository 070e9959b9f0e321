"""DEFINE_string and relatives, validators, and the program's FLAGS."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from penstock.api.flags import parsers
from penstock.api.flags.flag import (
    BooleanFlag,
    EnumClassFlag,
    EnumFlag,
    Flag,
    FlagHolder,
    MultiEnumClassFlag,
    MultiFlag,
)
from penstock.api.flags.values import FlagValues

#: The flags of the program. Reading one parses sys.argv first, if `tf.app.run` did not.
FLAGS = FlagValues(parse_on_first_access=True)


def _calling_module() -> str:
    """The module that defines a flag: the first one on the stack that is not part of this package."""
    frame: Any = sys._getframe(1)
    package = __name__.rpartition(".")[0]
    while frame is not None:
        name = frame.f_globals.get("__name__", "__main__")
        if not name.startswith(package):
            return (sys.argv[0] if sys.argv and sys.argv[0] else name) if name == "__main__" else name
        frame = frame.f_back
    return "__main__"


def DEFINE_flag(flag: Flag, flag_values: Any = FLAGS, module_name: str | None = None, required: bool = False) -> FlagHolder:
    """Defines a flag from a Flag object."""
    if required and flag.default is not None:
        raise ValueError(f"Required flag --{flag.name} cannot have a non-None default")
    flag_values._add(flag.name, flag, module_name or _calling_module())
    if required:
        mark_flag_as_required(flag.name, flag_values)
    return FlagHolder(flag_values, flag, ensure_non_none_value=flag.default is not None or required)


def DEFINE(
    parser: Any, name: str, default: Any, help: str | None, flag_values: Any = FLAGS, serializer: Any = None,
    module_name: str | None = None, required: bool = False, **args: Any,
) -> FlagHolder:  # fmt: skip
    """Defines a flag whose values `parser` reads."""
    return DEFINE_flag(Flag(parser, serializer, name, default, help, **args), flag_values, module_name, required)


def _tf_names(function: Callable[..., FlagHolder]) -> Any:
    """TF1's own names of arguments, before it took over absl's: flag_name, default_value, docstring."""

    def wrapper(*args: Any, **kwargs: Any) -> FlagHolder:
        for old, new in (("flag_name", "name"), ("default_value", "default"), ("docstring", "help")):
            if old in kwargs:
                kwargs[new] = kwargs.pop(old)
        return function(*args, **kwargs)

    wrapper.__name__ = wrapper.__qualname__ = function.__name__
    wrapper.__doc__ = function.__doc__
    wrapper.__wrapped__ = function  # type: ignore[attr-defined]
    return wrapper


@_tf_names
def DEFINE_string(name: str, default: Any, help: str | None, flag_values: Any = FLAGS, required: bool = False, **args: Any) -> FlagHolder:
    """Defines a flag whose value is text."""
    return DEFINE(parsers.ArgumentParser(), name, default, help, flag_values, parsers.ArgumentSerializer(), required=required, **args)


@_tf_names
def DEFINE_boolean(
    name: str, default: Any, help: str | None, flag_values: Any = FLAGS, module_name: str | None = None, required: bool = False, **args: Any
) -> FlagHolder:
    """Defines a flag that is on (--name) or off (--noname)."""
    return DEFINE_flag(BooleanFlag(name, default, help, **args), flag_values, module_name, required)


DEFINE_bool = DEFINE_boolean


def _with_bounds(holder: FlagHolder, parser: Any, flag_values: Any) -> FlagHolder:
    """Bounds hold for values that the program sets, too."""
    if parser.lower_bound is None and parser.upper_bound is None:
        return holder

    def check(value: Any) -> bool:
        if value is not None and parser.is_outside_bounds(value):
            raise parsers.ValidationError(f"{value} is not {parser.syntactic_help}")
        return True

    register_validator(holder.name, check, flag_values=flag_values)
    return holder


@_tf_names
def DEFINE_integer(
    name: str, default: Any, help: str | None, lower_bound: int | None = None, upper_bound: int | None = None, flag_values: Any = FLAGS,
    required: bool = False, **args: Any,
) -> FlagHolder:  # fmt: skip
    """Defines a flag whose value is a whole number, within bounds if given."""
    parser = parsers.IntegerParser(lower_bound, upper_bound)
    holder = DEFINE(parser, name, default, help, flag_values, parsers.ArgumentSerializer(), required=required, **args)
    return _with_bounds(holder, parser, flag_values)


@_tf_names
def DEFINE_float(
    name: str, default: Any, help: str | None, lower_bound: float | None = None, upper_bound: float | None = None, flag_values: Any = FLAGS,
    required: bool = False, **args: Any,
) -> FlagHolder:  # fmt: skip
    """Defines a flag whose value is a number, within bounds if given."""
    parser = parsers.FloatParser(lower_bound, upper_bound)
    holder = DEFINE(parser, name, default, help, flag_values, parsers.ArgumentSerializer(), required=required, **args)
    return _with_bounds(holder, parser, flag_values)


def DEFINE_enum(
    name: str, default: Any, enum_values: Any, help: str | None, flag_values: Any = FLAGS, module_name: str | None = None,
    required: bool = False, **args: Any,
) -> FlagHolder:  # fmt: skip
    """Defines a flag whose value is one of `enum_values`."""
    return DEFINE_flag(EnumFlag(name, default, help, enum_values, **args), flag_values, module_name, required)


def DEFINE_enum_class(
    name: str, default: Any, enum_class: Any, help: str | None, flag_values: Any = FLAGS, module_name: str | None = None,
    case_sensitive: bool = False, required: bool = False, **args: Any,
) -> FlagHolder:  # fmt: skip
    """Defines a flag whose value is a member of an Enum."""
    flag = EnumClassFlag(name, default, help, enum_class, case_sensitive=case_sensitive, **args)
    return DEFINE_flag(flag, flag_values, module_name, required)


def DEFINE_list(name: str, default: Any, help: str | None, flag_values: Any = FLAGS, required: bool = False, **args: Any) -> FlagHolder:
    """Defines a flag whose value is a list, written with commas."""
    return DEFINE(parsers.ListParser(), name, default, help, flag_values, parsers.CsvListSerializer(","), required=required, **args)


def DEFINE_spaceseplist(
    name: str, default: Any, help: str | None, comma_compat: bool = False, flag_values: Any = FLAGS, required: bool = False, **args: Any
) -> FlagHolder:
    """Defines a flag whose value is a list, written with spaces."""
    parser = parsers.WhitespaceSeparatedListParser(comma_compat)
    return DEFINE(parser, name, default, help, flag_values, parsers.ListSerializer(" "), required=required, **args)


def DEFINE_multi(
    parser: Any, serializer: Any, name: str, default: Any, help: str | None, flag_values: Any = FLAGS, module_name: str | None = None,
    required: bool = False, **args: Any,
) -> FlagHolder:  # fmt: skip
    """Defines a flag that may be given several times; its value is a list."""
    return DEFINE_flag(MultiFlag(parser, serializer, name, default, help, **args), flag_values, module_name, required)


def DEFINE_multi_string(name: str, default: Any, help: str | None, flag_values: Any = FLAGS, required: bool = False, **args: Any) -> FlagHolder:
    """Defines a text flag that may be given several times."""
    return DEFINE_multi(parsers.ArgumentParser(), parsers.ArgumentSerializer(), name, default, help, flag_values, required=required, **args)


def DEFINE_multi_integer(
    name: str, default: Any, help: str | None, lower_bound: Any = None, upper_bound: Any = None, flag_values: Any = FLAGS,
    required: bool = False, **args: Any,
) -> FlagHolder:  # fmt: skip
    """Defines an integer flag that may be given several times."""
    parser = parsers.IntegerParser(lower_bound, upper_bound)
    return DEFINE_multi(parser, parsers.ArgumentSerializer(), name, default, help, flag_values, required=required, **args)


def DEFINE_multi_float(
    name: str, default: Any, help: str | None, lower_bound: Any = None, upper_bound: Any = None, flag_values: Any = FLAGS,
    required: bool = False, **args: Any,
) -> FlagHolder:  # fmt: skip
    """Defines a float flag that may be given several times."""
    parser = parsers.FloatParser(lower_bound, upper_bound)
    return DEFINE_multi(parser, parsers.ArgumentSerializer(), name, default, help, flag_values, required=required, **args)


def DEFINE_multi_enum(
    name: str, default: Any, enum_values: Any, help: str | None, flag_values: Any = FLAGS, case_sensitive: bool = True,
    required: bool = False, **args: Any,
) -> FlagHolder:  # fmt: skip
    """Defines an enum flag that may be given several times."""
    parser = parsers.EnumParser(enum_values, case_sensitive)
    text = f"<{'|'.join(parser.enum_values)}>: {help}"
    return DEFINE_multi(parser, parsers.ArgumentSerializer(), name, default, text, flag_values, required=required, **args)


def DEFINE_multi_enum_class(
    name: str, default: Any, enum_class: Any, help: str | None, flag_values: Any = FLAGS, module_name: str | None = None,
    case_sensitive: bool = False, required: bool = False, **args: Any,
) -> FlagHolder:  # fmt: skip
    """Defines an Enum flag that may be given several times."""
    flag = MultiEnumClassFlag(name, default, help, enum_class, case_sensitive, **args)
    return DEFINE_flag(flag, flag_values, module_name, required)


class _Alias(Flag):
    """Another name of a flag: reads and writes go to the original."""

    def __init__(self, name: str, original: Flag, flag_values: Any) -> None:
        self._original = original
        super().__init__(original.parser, original.serializer, name, None, f"Alias for --{original.name}.", boolean=original.boolean)

    @property
    def value(self) -> Any:
        return self._original.value

    @value.setter
    def value(self, value: Any) -> None:
        if value is not None:
            self._original.value = value

    def parse(self, argument: Any) -> None:
        self._original.parse(argument)
        self.present += 1
        self.using_default_value = False

    def unparse(self) -> None:
        self.present = 0
        self.using_default_value = True


def DEFINE_alias(name: str, original_name: str, flag_values: Any = FLAGS, module_name: str | None = None) -> FlagHolder:
    """Defines another name for a flag."""
    if original_name not in flag_values:
        raise parsers.UnrecognizedFlagError(original_name)
    return DEFINE_flag(_Alias(name, flag_values[original_name], flag_values), flag_values, module_name)


# -- changing flags ---------------------------------------------------------------------------------------------------


def set_default(flag_holder: FlagHolder, value: Any) -> None:
    """Changes the default of a flag."""
    flag_holder._flag_values.set_default(flag_holder.name, value)


def override_value(flag_holder: FlagHolder, value: Any) -> None:
    """Changes the value of a flag."""
    flag = flag_holder._flag_values[flag_holder.name]
    parsed = flag._parse(value)
    if parsed != value:
        raise parsers.IllegalFlagValueError(f"flag {flag.name}: parsed value {parsed!r} not equal to original {value!r}")
    setattr(flag_holder._flag_values, flag_holder.name, value)


def flag_dict_to_args(flag_map: dict[str, Any], multi_flags: Any = None) -> Any:
    """A dict of flags as arguments of a command line."""
    for key, value in flag_map.items():
        if value is None:
            yield f"--{key}"
        elif isinstance(value, bool):
            yield f"--{key}" if value else f"--no{key}"
        elif isinstance(value, (bytes, str)):
            yield f"--{key}={value}"
        else:
            try:
                items = [str(item) for item in value]
            except TypeError:
                yield f"--{key}={value}"
                continue
            if multi_flags and key in multi_flags:
                yield from (f"--{key}={item}" for item in items)
            else:
                yield f"--{key}={','.join(items)}"


# -- validators -------------------------------------------------------------------------------------------------------


class _Validator:
    """A check on one flag or several."""

    def __init__(self, names: list[str], checker: Callable[[Any], Any], message: str, single: bool) -> None:
        self.names = names
        self.checker = checker
        self.message = message
        self.single = single

    def check(self, flag_values: Any) -> None:
        values = {name: flag_values[name].value for name in self.names}
        shown = "flag " if self.single else "flags "
        shown += f"--{self.names[0]}={values[self.names[0]]}" if self.single else ", ".join(f"{k}={v}" for k, v in values.items())
        try:
            accepted = self.checker(values[self.names[0]] if self.single else values)
        except parsers.ValidationError as error:
            raise parsers.IllegalFlagValueError(f"{shown}: {error}") from error
        if not accepted:
            raise parsers.IllegalFlagValueError(f"{shown}: {self.message}")


def _name_of(flag: Any) -> str:
    return flag.name if isinstance(flag, FlagHolder) else flag


def _add_validator(flag_values: Any, validator: _Validator) -> None:
    for name in validator.names:
        if name not in flag_values:
            raise parsers.UnrecognizedFlagError(name)
    flag_values._add_validator(validator)


def register_validator(
    flag_name: Any, checker: Callable[[Any], Any], message: str = "Flag validation failed", flag_values: Any = FLAGS
) -> None:
    """Values of a flag for which `checker(value)` is false, or raises ValidationError, are refused."""
    _add_validator(flag_values, _Validator([_name_of(flag_name)], checker, message, single=True))


def validator(flag_name: Any, message: str = "Flag validation failed", flag_values: Any = FLAGS) -> Any:
    """Decorator: makes a function the validator of a flag."""

    def decorate(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        register_validator(flag_name, function, message, flag_values)
        return function

    return decorate


def register_multi_flags_validator(
    flag_names: Any, multi_flags_checker: Callable[[dict[str, Any]], Any], message: str = "Flags validation failed", flag_values: Any = FLAGS
) -> None:
    """As `register_validator`, for a check that sees a dict of several flags."""
    _add_validator(flag_values, _Validator([_name_of(n) for n in flag_names], multi_flags_checker, message, single=False))


def multi_flags_validator(flag_names: Any, message: str = "Flag validation failed", flag_values: Any = FLAGS) -> Any:
    """Decorator: makes a function the validator of several flags."""

    def decorate(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        register_multi_flags_validator(flag_names, function, message, flag_values)
        return function

    return decorate


def mark_flag_as_required(flag_name: Any, flag_values: Any = FLAGS) -> None:
    """Parsing fails if the flag is None."""
    name = _name_of(flag_name)
    register_validator(name, lambda value: value is not None, f"Flag --{name} must have a value other than None.", flag_values)


def mark_flags_as_required(flag_names: Any, flag_values: Any = FLAGS) -> None:
    """Parsing fails if one of the flags is None."""
    for name in flag_names:
        mark_flag_as_required(name, flag_values)


def _exclusive(flag_names: Any, required: bool, flag_values: Any, is_set: Callable[[Any], bool], what: str) -> None:
    names = [_name_of(n) for n in flag_names]

    def check(values: dict[str, Any]) -> bool:
        count = sum(is_set(value) for value in values.values())
        if count == 1 or (not required and count == 0):
            return True
        raise parsers.ValidationError(f"{'Exactly' if required else 'At most'} one of ({', '.join(names)}) must {what}.")

    register_multi_flags_validator(names, check, flag_values=flag_values)


def mark_flags_as_mutual_exclusive(flag_names: Any, required: bool = False, flag_values: Any = FLAGS) -> None:
    """At most one (exactly one if `required`) of these flags may have a value."""
    _exclusive(flag_names, required, flag_values, lambda v: v is not None, "have a value other than None")


def mark_bool_flags_as_mutual_exclusive(flag_names: Any, required: bool = False, flag_values: Any = FLAGS) -> None:
    """At most one (exactly one if `required`) of these boolean flags may be on."""
    for name in flag_names:
        if not flag_values[_name_of(name)].boolean:
            raise parsers.ValidationError(f"Flag --{_name_of(name)} is not Boolean, which is required for flags used in mark_bool_flags_as_mutual_exclusive.")
    _exclusive(flag_names, required, flag_values, bool, "be True")


# -- key flags --------------------------------------------------------------------------------------------------------


def declare_key_flag(flag_name: Any, flag_values: Any = FLAGS) -> None:
    """Shows a flag of another module in the calling module's help."""
    name = _name_of(flag_name)
    if name not in flag_values:
        raise parsers.UnrecognizedFlagError(name)
    flag_values.key_flags_by_module_dict().setdefault(_calling_module(), []).append(name)


def adopt_module_key_flags(module: Any, flag_values: Any = FLAGS) -> None:
    """Shows all flags of another module in the calling module's help."""
    if not hasattr(module, "__name__"):
        raise parsers.Error(f"Expected a module object, found {type(module)}.")
    names = [flag.name for flag in flag_values.get_key_flags_for_module(module)]
    flag_values.key_flags_by_module_dict().setdefault(_calling_module(), []).extend(names)


def disclaim_key_flags() -> None:
    """Flags are listed under the module whose code defines them; modules that define for others need say nothing."""
