"""`tf.errors.raise_exception_on_not_ok_status`: the context manager of programs that speak to TF's runtime through statuses."""

from __future__ import annotations

from penstock import errors


class Status:
    """A code of `tf.errors` and a message; both may be set."""

    def __init__(self) -> None:
        self.code = errors.OK
        self.message = ""


class raise_exception_on_not_ok_status:
    """`with raise_exception_on_not_ok_status() as status:` raises the error that the block left in `status`."""

    def __enter__(self) -> Status:
        self.status = Status()
        return self.status

    def __exit__(self, type_arg: object, value_arg: object, traceback_arg: object) -> bool:
        if type_arg is None and self.status.code != errors.OK:
            raise errors.make_error(self.status.code, self.status.message)
        return False
