"""One flag: its name, parser, default and value, and what DEFINE_* functions return for it."""

from __future__ import annotations

import copy
from typing import Any

from penstock.api.flags import parsers


class Flag:
    """A flag of the command line. `value` is what it stands for now, `present` how often it was given."""

    multi = False

    def __init__(
        self, parser: Any, serializer: Any, name: str, default: Any, help_string: str | None, short_name: str | None = None,
        boolean: bool = False, allow_override: bool = False, allow_override_cpp: bool = False, allow_hide_cpp: bool = False,
        allow_overwrite: bool = True, allow_using_method_names: bool = False,
    ) -> None:  # fmt: skip
        self.name = name
        self.help = help_string or "(no help available)"
        self.short_name = short_name
        self.boolean = boolean
        self.present = 0
        self.parser = parser
        self.serializer = serializer
        self.allow_override = allow_override
        self.allow_override_cpp = allow_override_cpp
        self.allow_hide_cpp = allow_hide_cpp
        self.allow_overwrite = allow_overwrite
        self.allow_using_method_names = allow_using_method_names
        self.using_default_value = True
        self.validators: list[Any] = []
        self._value: Any = None
        self._set_default(default)

    @property
    def value(self) -> Any:
        return self._value

    @value.setter
    def value(self, value: Any) -> None:
        self._value = value

    def _set_default(self, value: Any) -> None:
        self.default_unparsed = value
        self.default = None if value is None else self._parse(value)
        self.default_as_str = self._default_text(self.default)
        if self.using_default_value:
            self.value = copy.copy(self.default)

    def _default_text(self, value: Any) -> str | None:
        if value is None:
            return None
        if self.serializer is not None:
            return repr(self.serializer.serialize(value))
        if self.boolean:
            return repr("true" if value else "false")
        return repr(str(value))

    def _parse(self, argument: Any) -> Any:
        try:
            return self.parser.parse(argument)
        except (TypeError, ValueError) as error:
            raise parsers.IllegalFlagValueError(f"flag --{self.name}={argument}: {error}") from error

    def parse(self, argument: Any) -> None:
        """Takes the value of `argument`, as found on the command line."""
        if self.present and not self.allow_overwrite:
            raise parsers.IllegalFlagValueError(f"flag --{self.name}={argument}: already defined as {self.value}")
        self.value = self._parse(argument)
        self.present += 1
        self.using_default_value = False

    def unparse(self) -> None:
        """Goes back to the default."""
        self.value = copy.copy(self.default)
        self.using_default_value = True
        self.present = 0

    def serialize(self) -> str:
        """The flag as it would stand on a command line; empty if it has no value."""
        if self.value is None:
            return ""
        if self.boolean:
            return f"--{self.name}" if self.value else f"--no{self.name}"
        if self.serializer is None:
            raise parsers.Error(f"Serializer not present for flag {self.name}")
        return f"--{self.name}={self.serializer.serialize(self.value)}"

    def flag_type(self) -> str:
        return self.parser.flag_type()


class BooleanFlag(Flag):
    """--name for True, --noname for False."""

    def __init__(self, name: str, default: Any, help: str | None, short_name: str | None = None, **args: Any) -> None:
        super().__init__(parsers.BooleanParser(), None, name, default, help, short_name, True, **args)


class EnumFlag(Flag):
    """One of given strings."""

    def __init__(
        self, name: str, default: Any, help: str | None, enum_values: Any, short_name: str | None = None, case_sensitive: bool = True, **args: Any
    ) -> None:
        parser = parsers.EnumParser(enum_values, case_sensitive)
        super().__init__(parser, parsers.ArgumentSerializer(), name, default, help, short_name, **args)
        self.help = f"<{'|'.join(parser.enum_values)}>: {help or '(no help available)'}"


class EnumClassFlag(Flag):
    """A member of an Enum."""

    def __init__(
        self, name: str, default: Any, help: str | None, enum_class: Any, short_name: str | None = None, case_sensitive: bool = False, **args: Any
    ) -> None:
        parser = parsers.EnumClassParser(enum_class, case_sensitive)
        super().__init__(parser, parsers.EnumClassSerializer(lowercase=not case_sensitive), name, default, help, short_name, **args)
        self.help = f"<{'|'.join(parser.member_names)}>: {help or '(no help available)'}"


class MultiFlag(Flag):
    """A flag that may be given several times; its value is a list."""

    multi = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.help += ";\n    repeat this option to specify a list of values"

    def parse(self, argument: Any) -> None:
        new = self._parse(argument)
        self.value = [*self.value, *new] if self.present else new
        self.present += len(new)
        self.using_default_value = False

    def _parse(self, argument: Any) -> list[Any]:
        items = argument if isinstance(argument, (list, tuple)) else [argument]
        return [super(MultiFlag, self)._parse(item) for item in items]

    def _default_text(self, value: Any) -> str | None:
        return None if value is None else repr(str(value))

    def serialize(self) -> str:
        if not self.value:
            return ""
        if self.serializer is None:
            raise parsers.Error(f"Serializer not present for flag {self.name}")
        return "\n".join(f"--{self.name}={self.serializer.serialize(item)}" for item in self.value)

    def flag_type(self) -> str:
        return "multi " + self.parser.flag_type()


class MultiEnumClassFlag(MultiFlag):
    """Members of an Enum, one each time that the flag is given."""

    def __init__(self, name: str, default: Any, help_string: str | None, enum_class: Any, case_sensitive: bool = False, **args: Any) -> None:
        parser = parsers.EnumClassParser(enum_class, case_sensitive)
        super().__init__(
            parser, parsers.EnumClassSerializer(lowercase=not case_sensitive), name, default,
            f"<{'|'.join(parser.member_names)}>: {help_string or '(no help available)'}", **args,
        )  # fmt: skip


class FlagHolder:
    """What DEFINE_* functions return: `holder.value` is the flag's value."""

    def __init__(self, flag_values: Any, flag: Flag, ensure_non_none_value: bool = False) -> None:
        self._flag_values = flag_values
        self._name = flag.name
        self._ensure_non_none_value = ensure_non_none_value

    def __eq__(self, other: object) -> bool:
        raise TypeError("unsupported operand type(s) for ==: a flag's holder cannot be compared, use holder.value")

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise TypeError("bool() not supported for a flag's holder, use holder.value")

    @property
    def name(self) -> str:
        return self._name

    @property
    def value(self) -> Any:
        value = getattr(self._flag_values, self._name)
        if self._ensure_non_none_value and value is None:
            raise parsers.IllegalFlagValueError(f"Unexpected None value for flag {self._name}")
        return value

    @property
    def default(self) -> Any:
        return self._flag_values[self._name].default

    @property
    def present(self) -> bool:
        return bool(self._flag_values[self._name].present)

    def serialize(self) -> str:
        return self._flag_values[self._name].serialize()
