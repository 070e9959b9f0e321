"""`tf.flags` and `tf.app.flags`: flags of the command line, with the interface of absl.flags that TF1 programs use.

    tf.flags.DEFINE_float("rate", 0.1, "Learning rate.")
    FLAGS = tf.flags.FLAGS
    ...
    if __name__ == "__main__":
        tf.app.run()                # parses sys.argv, calls main(argv)
"""

from __future__ import annotations

import sys as _sys

from penstock.api.flags.define import (
    DEFINE,
    FLAGS,
    DEFINE_alias,
    DEFINE_bool,
    DEFINE_boolean,
    DEFINE_enum,
    DEFINE_enum_class,
    DEFINE_flag,
    DEFINE_float,
    DEFINE_integer,
    DEFINE_list,
    DEFINE_multi,
    DEFINE_multi_enum,
    DEFINE_multi_enum_class,
    DEFINE_multi_float,
    DEFINE_multi_integer,
    DEFINE_multi_string,
    DEFINE_spaceseplist,
    DEFINE_string,
    adopt_module_key_flags,
    declare_key_flag,
    disclaim_key_flags,
    flag_dict_to_args,
    mark_bool_flags_as_mutual_exclusive,
    mark_flag_as_required,
    mark_flags_as_mutual_exclusive,
    mark_flags_as_required,
    multi_flags_validator,
    override_value,
    register_multi_flags_validator,
    register_validator,
    set_default,
    validator,
)
from penstock.api.flags.flag import (
    BooleanFlag,
    EnumClassFlag,
    EnumFlag,
    Flag,
    FlagHolder,
    MultiEnumClassFlag,
    MultiFlag,
)
from penstock.api.flags.help import doc_to_help, get_help_width, text_wrap
from penstock.api.flags.parsers import (
    ArgumentParser,
    ArgumentSerializer,
    BaseListParser,
    BooleanParser,
    CantOpenFlagFileError,
    CsvListSerializer,
    DuplicateFlagError,
    EnumClassListSerializer,
    EnumClassParser,
    EnumClassSerializer,
    EnumParser,
    Error,
    FlagNameConflictsWithMethodError,
    FloatParser,
    IllegalFlagValueError,
    IntegerParser,
    ListParser,
    ListSerializer,
    UnparsedFlagAccessError,
    UnrecognizedFlagError,
    ValidationError,
    WhitespaceSeparatedListParser,
)
from penstock.api.flags.values import FlagValues

#: This module, which is what `tf.flags` and `tf.app.flags` are.
MODULE = _sys.modules[__name__]

__all__ = [
    "DEFINE", "FLAGS", "ArgumentParser", "ArgumentSerializer", "BaseListParser", "BooleanFlag", "BooleanParser",
    "CantOpenFlagFileError", "CsvListSerializer", "DEFINE_alias", "DEFINE_bool", "DEFINE_boolean", "DEFINE_enum",
    "DEFINE_enum_class", "DEFINE_flag", "DEFINE_float", "DEFINE_integer", "DEFINE_list", "DEFINE_multi", "DEFINE_multi_enum",
    "DEFINE_multi_enum_class", "DEFINE_multi_float", "DEFINE_multi_integer", "DEFINE_multi_string", "DEFINE_spaceseplist",
    "DEFINE_string", "DuplicateFlagError", "EnumClassFlag", "EnumClassListSerializer", "EnumClassParser", "EnumClassSerializer",
    "EnumFlag", "EnumParser", "Error", "Flag", "FlagHolder", "FlagNameConflictsWithMethodError", "FlagValues", "FloatParser",
    "IllegalFlagValueError", "IntegerParser", "ListParser", "ListSerializer", "MultiEnumClassFlag", "MultiFlag",
    "UnparsedFlagAccessError", "UnrecognizedFlagError", "ValidationError", "WhitespaceSeparatedListParser",
    "adopt_module_key_flags", "declare_key_flag", "disclaim_key_flags", "doc_to_help", "flag_dict_to_args", "get_help_width",
    "mark_bool_flags_as_mutual_exclusive", "mark_flag_as_required", "mark_flags_as_mutual_exclusive", "mark_flags_as_required",
    "multi_flags_validator", "override_value", "register_multi_flags_validator", "register_validator", "set_default", "text_wrap",
    "validator",
]  # fmt: skip
