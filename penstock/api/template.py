"""`tf.make_template`: a function that makes its variables when it is first called and shares them afterwards."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from typing import Any

from penstock.api.framework import get_collection
from penstock.api.variable_scope import _pure_variable_scope, _unique_scope_name, variable_scope
from penstock.graph.keys import GraphKeys


def make_template(
    name_: str, func_: Callable[..., Any], create_scope_now_: bool = False, unique_name_: str | None = None, custom_getter_: Any = None,
    **kwargs: Any,
) -> Template:  # fmt: skip
    """`func_` with `kwargs` bound, called in a variable scope of its own: variables that it gets by `tf.get_variable` are made once.

    >>> scale = tf.make_template("scale", lambda x: x * tf.get_variable("w", [], initializer=tf.ones_initializer()))
    >>> y, z = scale(tf.constant(1.0)), scale(tf.constant(2.0))        # one variable, scale/w
    """
    function = functools.partial(func_, **kwargs) if kwargs else func_
    return Template(name_, function, create_scope_now=create_scope_now_, unique_name=unique_name_, custom_getter=custom_getter_)


class Template:
    """What `make_template` returns: call it as the function."""

    def __init__(
        self, name: str, func: Callable[..., Any], create_scope_now: bool = False, unique_name: str | None = None, custom_getter: Any = None
    ) -> None:
        if not name:
            raise ValueError("name cannot be None.")
        self._func = func
        self._name = name
        self._unique_name = unique_name
        self._custom_getter = custom_getter
        self._stacktrace = traceback.format_stack()[:-3]
        self._variables_created = False
        self._variable_scope: Any = None
        if create_scope_now:
            options = {"custom_getter": custom_getter}
            with _pure_variable_scope(unique_name or _unique_scope_name(name), None, None, options) as scope:
                self._variable_scope = scope

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._variable_scope is not None:
            with variable_scope(self._variable_scope, reuse=self._variables_created):
                return self._call(args, kwargs)
        with variable_scope(self._unique_name, self._name, custom_getter=self._custom_getter) as scope:
            self._variable_scope = scope
            return self._call(args, kwargs)

    def _call(self, args: Any, kwargs: Any) -> Any:
        trainable = len(get_collection(GraphKeys.TRAINABLE_VARIABLES))
        try:
            result = self._func(*args, **kwargs)
        except Exception as error:
            if error.args:
                arg = f"{error.args[0]}\n\noriginally defined at:\n{''.join(self._stacktrace)}"
                error.args = (arg, *error.args[1:])
            raise
        if self._variables_created:
            new = get_collection(GraphKeys.TRAINABLE_VARIABLES)[trainable:]
            if new:
                raise ValueError(
                    "Trainable variable created when calling a template after the first time, perhaps you used tf.Variable when you "
                    f"meant tf.get_variable: {new}"
                )
        else:
            self._variables_created = True
        return result

    @property
    def name(self) -> str:
        return self._name

    @property
    def func(self) -> Callable[..., Any]:
        return self._func

    @property
    def variable_scope(self) -> Any:
        """The variable scope, None before the first call."""
        return self._variable_scope

    @property
    def var_scope(self) -> Any:
        """The old name of `variable_scope`."""
        return self._variable_scope

    @property
    def variable_scope_name(self) -> str | None:
        """The name of the variable scope, as a prefix of the variables' names."""
        if self._variable_scope is None:
            return None
        name = self._variable_scope.name
        return name if not name or name.endswith("/") else name + "/"

    def _collected(self, key: str) -> list[Any]:
        return get_collection(key, self.variable_scope_name) if self._variables_created else []

    @property
    def variables(self) -> list[Any]:
        """All variables that the function made: global and local ones."""
        return self.global_variables + self.local_variables

    @property
    def trainable_variables(self) -> list[Any]:
        return self._collected(GraphKeys.TRAINABLE_VARIABLES)

    @property
    def non_trainable_variables(self) -> list[Any]:
        trained = {id(v) for v in self.trainable_variables}
        return [v for v in self.variables if id(v) not in trained]

    @property
    def global_variables(self) -> list[Any]:
        return self._collected(GraphKeys.GLOBAL_VARIABLES)

    @property
    def local_variables(self) -> list[Any]:
        return self._collected(GraphKeys.LOCAL_VARIABLES)

    @property
    def weights(self) -> list[Any]:
        return self.variables

    @property
    def trainable_weights(self) -> list[Any]:
        return self.trainable_variables

    @property
    def non_trainable_weights(self) -> list[Any]:
        return self.non_trainable_variables
