"""Second public names of things that stand elsewhere: `tf.dtypes.cast`, `tf.manip.*`, the small types of `tf.dtypes.experimental`."""

from __future__ import annotations

from penstock import dtypes
from penstock.api.export import export_value
from penstock.api.math_ops import cast, saturate_cast
from penstock.api.nn.space_to_batch import batch_to_space_nd, space_to_batch_nd

export_value("dtypes.cast", cast)
export_value("dtypes.saturate_cast", saturate_cast)
export_value("manip.batch_to_space_nd", batch_to_space_nd)
export_value("manip.space_to_batch_nd", space_to_batch_nd)

for _name in (
    "float4_e2m1fn", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "int2", "int4",
    "uint2", "uint4",
):  # fmt: skip
    export_value(f"dtypes.experimental.{_name}", getattr(dtypes, _name))
    export_value(f"experimental.{_name}", getattr(dtypes, _name))
