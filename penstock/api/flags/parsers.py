"""How the text of a flag becomes a value and back: parsers, serializers, and the errors of flags."""

from __future__ import annotations

import csv
import enum
import io
from typing import Any


class Error(Exception):
    """The base of all errors of flags."""


class CantOpenFlagFileError(Error):
    """A --flagfile cannot be read."""


class DuplicateFlagError(Error):
    """A flag is defined twice."""

    @classmethod
    def from_flag(cls, flagname: str, flag_values: Any, other_flag_values: Any = None) -> DuplicateFlagError:
        first = flag_values.find_module_defining_flag(flagname, default="<unknown>")
        second = first if other_flag_values is None else other_flag_values.find_module_defining_flag(flagname, default="<unknown>")
        return cls(
            f"The flag '{flagname}' is defined twice. First from {first}, second from {second}. "
            f"Description from first occurrence: {flag_values[flagname].help}"
        )


class IllegalFlagValueError(Error):
    """The value of a flag does not parse or is refused by a validator."""


class UnrecognizedFlagError(Error):
    """A flag is given that was not defined. `flagname` and `flagvalue` say which."""

    def __init__(self, flagname: str, flagvalue: Any = "", suggestions: Any = ()) -> None:
        self.flagname = flagname
        self.flagvalue = flagvalue
        hint = f". Did you mean: {', '.join(suggestions)} ?" if suggestions else ""
        super().__init__(f"Unknown command line flag '{flagname}'{hint}")


class UnparsedFlagAccessError(Error):
    """A flag is read before the command line was parsed."""


class ValidationError(Error):
    """What a validator raises to say why it refuses a value."""


class FlagNameConflictsWithMethodError(Error):
    """A flag has the name of a method of FlagValues."""


# -- parsers ----------------------------------------------------------------------------------------------------------


class ArgumentParser:
    """Text to value. This one keeps the text; subclasses override `parse`."""

    syntactic_help = ""

    def parse(self, argument: Any) -> Any:
        if not isinstance(argument, str):
            raise TypeError(f"flag value must be a string, found '{type(argument)}'")
        return argument

    def flag_type(self) -> str:
        return "string"


class _NumericParser(ArgumentParser):
    number_article = ""
    number_name = ""

    def __init__(self, lower_bound: Any = None, upper_bound: Any = None) -> None:
        self.lower_bound = lower_bound
        self.upper_bound = upper_bound
        article, name = self.number_article, self.number_name
        if lower_bound is not None and upper_bound is not None:
            help = f"{article} {name} in the range [{lower_bound}, {upper_bound}]"
        elif lower_bound == 1:
            help = f"a positive {name}"
        elif upper_bound == -1:
            help = f"a negative {name}"
        elif lower_bound == 0:
            help = f"a non-negative {name}"
        elif upper_bound == 0:
            help = f"a non-positive {name}"
        elif upper_bound is not None:
            help = f"{article} {name} <= {upper_bound}"
        elif lower_bound is not None:
            help = f"{article} {name} >= {lower_bound}"
        else:
            help = f"{article} {name}"
        self.syntactic_help = help

    def is_outside_bounds(self, val: Any) -> bool:
        return (self.lower_bound is not None and val < self.lower_bound) or (
            self.upper_bound is not None and val > self.upper_bound
        )

    def convert(self, argument: Any) -> Any:
        raise NotImplementedError

    def parse(self, argument: Any) -> Any:
        value = self.convert(argument)
        if self.is_outside_bounds(value):
            raise ValueError(f"{value} is not {self.syntactic_help}")
        return value


class FloatParser(_NumericParser):
    """Text to float, within bounds."""

    number_article = "a"
    number_name = "number"

    def convert(self, argument: Any) -> float:
        if isinstance(argument, bool) or not isinstance(argument, (int, float, str)):
            raise TypeError(f"Expect argument to be a string, int, or float, found {type(argument)}")
        return float(argument)

    def flag_type(self) -> str:
        return "float"


class IntegerParser(_NumericParser):
    """Text to int, within bounds; 0x10 and 0o20 are understood."""

    number_article = "an"
    number_name = "integer"

    def convert(self, argument: Any) -> int:
        if isinstance(argument, int) and not isinstance(argument, bool):
            return argument
        if not isinstance(argument, str):
            raise TypeError(f"Expect argument to be a string or int, found {type(argument)}")
        base = 10
        if len(argument) > 2 and argument[0] == "0":
            base = {"x": 16, "X": 16, "o": 8, "O": 8}.get(argument[1], 10)
        return int(argument, base)

    def flag_type(self) -> str:
        return "int"


class BooleanParser(ArgumentParser):
    """true, t, 1, yes, y (in any case) to True; false, f, 0, no, n to False."""

    def parse(self, argument: Any) -> bool:
        if isinstance(argument, str):
            if argument.lower() in ("true", "t", "1", "yes", "y"):
                return True
            if argument.lower() in ("false", "f", "0", "no", "n"):
                return False
            raise ValueError("Non-boolean argument to boolean flag", argument)
        if isinstance(argument, (int, float)) and argument in (0, 1):
            return bool(argument)
        raise TypeError("Non-boolean argument to boolean flag", argument)

    def flag_type(self) -> str:
        return "bool"


class EnumParser(ArgumentParser):
    """One of given strings."""

    def __init__(self, enum_values: Any, case_sensitive: bool = True) -> None:
        if not enum_values:
            raise ValueError(f'enum_values cannot be empty, found "{enum_values}"')
        if isinstance(enum_values, str):
            raise ValueError(f'enum_values cannot be a str, found "{enum_values}"')
        self.enum_values = list(enum_values)
        self.case_sensitive = case_sensitive

    def parse(self, argument: Any) -> str:
        for value in self.enum_values:
            if argument == value or (not self.case_sensitive and str(argument).upper() == value.upper()):
                return value
        raise ValueError(f"value should be one of <{'|'.join(self.enum_values)}>")

    def flag_type(self) -> str:
        return "string enum"


class EnumClassParser(ArgumentParser):
    """A member of an Enum, by its name."""

    def __init__(self, enum_class: Any, case_sensitive: bool = True) -> None:
        if not (isinstance(enum_class, type) and issubclass(enum_class, enum.Enum)):
            raise TypeError(f"{enum_class} is not a subclass of Enum.")
        if not enum_class.__members__:
            raise ValueError(f'enum_class cannot be empty, but "{enum_class}" is empty.')
        self.enum_class = enum_class
        self.case_sensitive = case_sensitive
        names = list(enum_class.__members__)
        self._names = names if case_sensitive else [name.lower() for name in names]

    @property
    def member_names(self) -> tuple[str, ...]:
        return tuple(self._names)

    def parse(self, argument: Any) -> Any:
        if isinstance(argument, self.enum_class):
            return argument
        if not isinstance(argument, str):
            raise ValueError(f"{argument} is not an enum member or a name of a member in {self.enum_class}")
        for name, member in self.enum_class.__members__.items():
            if argument == name or (not self.case_sensitive and argument.lower() == name.lower()):
                return member
        raise ValueError(f"value should be one of <{'|'.join(self._names)}>")

    def flag_type(self) -> str:
        return "enum class"


class BaseListParser(ArgumentParser):
    """A list of strings with `token` between them."""

    def __init__(self, token: str | None = None, name: str | None = None) -> None:
        if not name:
            raise ValueError("A list parser needs a name for its help text.")
        self._token = token
        self._name = name
        self.syntactic_help = f"a {name} separated list"

    def parse(self, argument: Any) -> list[str]:
        if isinstance(argument, list):
            return argument
        if not argument:
            return []
        return [part.strip() for part in argument.split(self._token)]

    def flag_type(self) -> str:
        return f"{self._name} separated list of strings"


class ListParser(BaseListParser):
    """A list with commas, read as a line of CSV: quotes protect commas."""

    def __init__(self) -> None:
        super().__init__(",", "comma")

    def parse(self, argument: Any) -> list[str]:
        if isinstance(argument, list):
            return argument
        if not argument:
            return []
        try:
            return [part.strip() for part in next(csv.reader([argument], strict=True))]
        except csv.Error as error:
            raise ValueError(f"Unable to parse the value {argument!r} as a {self.flag_type()}: {error}") from error


class WhitespaceSeparatedListParser(BaseListParser):
    """A list with white space between its parts; with `comma_compat` also commas."""

    def __init__(self, comma_compat: bool = False) -> None:
        self._comma_compat = comma_compat
        super().__init__(None, "whitespace or comma" if comma_compat else "whitespace")

    def parse(self, argument: Any) -> list[str]:
        if isinstance(argument, str) and self._comma_compat:
            argument = argument.replace(",", " ")
        return super().parse(argument)


# -- serializers ------------------------------------------------------------------------------------------------------


class ArgumentSerializer:
    """Value to text."""

    def serialize(self, value: Any) -> str:
        return str(value)


class ListSerializer(ArgumentSerializer):
    """A list to text, with `list_sep` between its parts."""

    def __init__(self, list_sep: str) -> None:
        self.list_sep = list_sep

    def serialize(self, value: Any) -> str:
        return self.list_sep.join(str(part) for part in value)


class CsvListSerializer(ListSerializer):
    """A list to a line of CSV."""

    def serialize(self, value: Any) -> str:
        output = io.StringIO()
        csv.writer(output, delimiter=self.list_sep).writerow([str(part) for part in value])
        return output.getvalue().strip()


class EnumClassSerializer(ArgumentSerializer):
    """A member of an Enum to its name."""

    def __init__(self, lowercase: bool) -> None:
        self._lowercase = lowercase

    def serialize(self, value: Any) -> str:
        return value.name.lower() if self._lowercase else value.name


class EnumClassListSerializer(ListSerializer):
    """Members of an Enum to their names."""

    def __init__(self, list_sep: str, **kwargs: Any) -> None:
        super().__init__(list_sep)
        self._element = EnumClassSerializer(**kwargs)

    def serialize(self, value: Any) -> str:
        if isinstance(value, list):
            return self.list_sep.join(self._element.serialize(part) for part in value)
        return self._element.serialize(value)
