"""Bytes <-> objects: protocol buffers, tensors and attributes as TensorFlow writes them.

- `protos`: every message of TensorFlow's formats, under TensorFlow's names.
- `values`: Python values -> arrays, by the rules of `tf.constant`.
- `tensor_proto`: TensorProto <-> arrays.
- `attr_value`: AttrValue <-> Python values.

Nothing is imported here, so that a program pays only for the formats it uses.
"""
