"""Images, windows and norms: resizes, crops, colours, pools, convolutions that oneDNN has no say in (see `numbers`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.op_cases.numbers import Build, add_case, random, whole

CASES: dict[str, Build] = {}


def case(name: str, function: Callable[..., Any], *arrays: Any, kind: str | None = None) -> None:
    add_case(CASES, name, function, *arrays, kind=kind)


def gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient of what `function` gives with respect to its first argument."""
    return lambda tf, *values: tf.gradients(function(tf, *values), values[0])[0]


_PHOTOS, _BYTES, _MAPS = random(8, 128, 128, 3, low=0), whole(8, 128, 128, 3, high=256, kind=np.uint8), random(8, 32, 32, 64)

# -- sizes and crops --------------------------------------------------------------------------------------------------------

for _method, _name in enumerate(("bilinear", "nearest", "bicubic", "area")):
    for _size in (64, 224):
        case(f"resize {_name} to {_size}", lambda tf, x, m=_method, s=_size: tf.image.resize_images(x, [s, s], m), _PHOTOS)
        case(f"resize {_name} bytes to {_size}", lambda tf, x, m=_method, s=_size: tf.image.resize_images(x, [s, s], m), _BYTES)
    case(f"resize {_name} of maps to 64", lambda tf, x, m=_method: tf.image.resize_images(x, [64, 64], m), _MAPS)
    if _name != "area":
        case(f"resize {_name} gradient", gradient(lambda tf, x, m=_method: tf.image.resize_images(x, [64, 64], m)), _MAPS)
_CORNERS = np.array([[0.1, 0.1, 0.8, 0.9]] * 64, np.float32)
case("crop_and_resize 64 boxes", lambda tf, x, b, i: tf.image.crop_and_resize(x, b, i, [14, 14]), _MAPS, _CORNERS, whole(64, high=8))
case("crop_and_resize nearest 64 boxes", lambda tf, x, b, i: tf.image.crop_and_resize(x, b, i, [14, 14], "nearest"), _MAPS, _CORNERS, whole(64, high=8))
case("crop_and_resize gradient", gradient(lambda tf, x, b, i: tf.image.crop_and_resize(x, b, i, [14, 14])), _MAPS, _CORNERS, whole(64, high=8))
_BOXES = np.sort(random(1000, 2, 2, low=0), 1).reshape(1000, 4).astype(np.float32)
case("non_max_suppression 1000 boxes", lambda tf, b, s: tf.image.non_max_suppression(b, s, 100, 0.5), _BOXES, random(1000))
case("draw_bounding_boxes", lambda tf, x, b: tf.image.draw_bounding_boxes(x, b), _PHOTOS, np.sort(random(8, 10, 2, 2, low=0), 2).reshape(8, 10, 4).astype(np.float32))
case("extract_image_patches 3 x 3", lambda tf, x: tf.extract_image_patches(x, [1, 3, 3, 1], [1, 1, 1, 1], [1, 1, 1, 1], "SAME"), _PHOTOS)
case("extract_image_patches 8 x 8 apart", lambda tf, x: tf.extract_image_patches(x, [1, 8, 8, 1], [1, 8, 8, 1], [1, 1, 1, 1], "VALID"), _PHOTOS)
case("extract_glimpse", lambda tf, x, o: tf.image.extract_glimpse(x, [32, 32], o), _PHOTOS, random(8, 2))
case("central_crop", lambda tf, x: tf.image.central_crop(x, 0.5), _PHOTOS)
case("flip_left_right", lambda tf, x: tf.image.flip_left_right(x), _PHOTOS)
case("rot90", lambda tf, x: tf.image.rot90(x), _PHOTOS)

# -- colours ----------------------------------------------------------------------------------------------------------------

for _name, _arguments in (("adjust_brightness", (0.1,)), ("adjust_contrast", (1.3,)), ("adjust_hue", (0.1,)), ("adjust_saturation", (1.3,)), ("adjust_gamma", (1.2,)),
                          ("rgb_to_hsv", ()), ("rgb_to_grayscale", ()), ("rgb_to_yuv", ()), ("per_image_standardization", ())):  # fmt: skip
    case(_name, lambda tf, x, f=_name, a=_arguments: getattr(tf.image, f)(x, *a), _PHOTOS)
    if _name not in ("rgb_to_hsv", "rgb_to_yuv", "adjust_gamma"):
        case(f"{_name} bytes", lambda tf, x, f=_name, a=_arguments: getattr(tf.image, f)(x, *a), _BYTES)
case("hsv_to_rgb", lambda tf, x: tf.image.hsv_to_rgb(x), _PHOTOS)
case("convert_image_dtype", lambda tf, x: tf.image.convert_image_dtype(x, tf.float32), _BYTES)
case("convert_image_dtype back", lambda tf, x: tf.image.convert_image_dtype(x, tf.uint8), _PHOTOS)
case("image_gradients", lambda tf, x: tf.image.image_gradients(x), _PHOTOS)
case("sobel_edges", lambda tf, x: tf.image.sobel_edges(x), _PHOTOS)
case("total_variation", lambda tf, x: tf.image.total_variation(x), _PHOTOS)
case("ssim", lambda tf, x, y: tf.image.ssim(x, y, 1.0), _PHOTOS, _PHOTOS[::-1].copy())

# -- windows ----------------------------------------------------------------------------------------------------------------

_WINDOW, _APART, _NEXT = [1, 3, 3, 1], [1, 2, 2, 1], [1, 1, 1, 1]
for _kind in ("float32", "float64", "bfloat16", "half"):
    for _name in ("max_pool", "avg_pool"):
        def pool(tf: Any, x: Any, f: str = _name) -> Any:
            return getattr(tf.nn, f)(x, _WINDOW, _APART, "SAME")

        if (_name, _kind) != ("max_pool", "none"):
            case(f"{_name} {_kind}", pool, _MAPS, kind=_kind)
            case(f"{_name} {_kind} gradient", gradient(pool), _MAPS, kind=_kind)
_VOLUME = random(4, 16, 16, 16, 16)
for _name in ("max_pool3d", "avg_pool3d"):
    def pool3(tf: Any, x: Any, f: str = _name) -> Any:
        return getattr(tf.nn, f)(x, [1, 2, 2, 2, 1], [1, 2, 2, 2, 1], "SAME")

    case(_name, pool3, _VOLUME)
    case(f"{_name} gradient", gradient(pool3), _VOLUME)
case("max_pool_with_argmax", lambda tf, x: tf.nn.max_pool_with_argmax(x, _WINDOW, _APART, "SAME"), _MAPS)
case("max_pool_with_argmax gradient", gradient(lambda tf, x: tf.nn.max_pool_with_argmax(x, _WINDOW, _APART, "SAME")[0]), _MAPS)
case("max_pool gradient of gradient", lambda tf, x, g: tf.gradients(tf.gradients(tf.nn.max_pool(x, _WINDOW, _APART, "SAME"), x, [g])[0], g)[0], _MAPS, random(8, 16, 16, 64))
for _name in ("fractional_max_pool", "fractional_avg_pool"):
    for _more in ({}, {"pseudo_random": True, "overlapping": True}):
        def fractional(tf: Any, x: Any, f: str = _name, more: Any = _more) -> Any:
            return getattr(tf.nn, f)(x, [1.0, 1.44, 1.73, 1.0], **more)[0]

        _label = f"{_name}{' overlapping' if _more else ''}"
        case(_label, fractional, _MAPS)
        case(f"{_label} gradient", gradient(fractional), _MAPS)
        case(f"{_label} float64", fractional, _MAPS.astype(np.float64))
case("fractional_max_pool small", lambda tf, x: tf.nn.fractional_max_pool(x, [1.0, 1.44, 1.73, 1.0], deterministic=True, seed=5)[0], _MAPS[:1, :8, :8, :4].copy())  # few regions: without a seed results differ
case("fractional_avg_pool int32", lambda tf, x: tf.nn.fractional_avg_pool(x, [1.0, 1.44, 1.73, 1.0])[0], whole(8, 32, 32, 64, high=99))
_FILTER = random(3, 3, 64, low=-0.1)
case("dilation2d", lambda tf, x, w: tf.nn.dilation2d(x, w, _NEXT, _NEXT, "SAME"), _MAPS, _FILTER)
case("erosion2d", lambda tf, x, w: tf.nn.erosion2d(x, w, _NEXT, _NEXT, "SAME"), _MAPS, _FILTER)
case("dilation2d gradient", gradient(lambda tf, x, w: tf.nn.dilation2d(x, w, _NEXT, _NEXT, "SAME")), _MAPS, _FILTER)
case("dilation2d filter gradient", gradient(lambda tf, w, x: tf.nn.dilation2d(x, w, _NEXT, _NEXT, "SAME")), _FILTER, _MAPS)

# -- convolutions -----------------------------------------------------------------------------------------------------------

_KERNEL3 = random(3, 3, 3, 16, 32)


def conv3(tf: Any, x: Any, w: Any) -> Any:
    return tf.nn.conv3d(x, w, [1, 1, 1, 1, 1], "SAME")


case("conv3d", conv3, _VOLUME, _KERNEL3)
case("conv3d gradient", gradient(conv3), _VOLUME, _KERNEL3)
case("conv3d filter gradient", gradient(lambda tf, w, x: conv3(tf, x, w)), _KERNEL3, _VOLUME)
case("conv3d_transpose", lambda tf, x, w: tf.nn.conv3d_transpose(x, w, [4, 32, 32, 32, 8], [1, 2, 2, 2, 1]), _VOLUME, random(3, 3, 3, 8, 16))
case("conv2d_transpose", lambda tf, x, w: tf.nn.conv2d_transpose(x, w, [8, 64, 64, 32], [1, 2, 2, 1]), _MAPS, random(3, 3, 32, 64))
case("conv2d float64", lambda tf, x, w: tf.nn.conv2d(x, w, _NEXT, "SAME"), _MAPS.astype(np.float64), random(3, 3, 64, 64, kind=np.float64))
case("conv1d", lambda tf, x, w: tf.nn.conv1d(x, w, 1, "SAME"), random(16, 200, 32), random(5, 32, 64))


def depthwise(tf: Any, x: Any, w: Any) -> Any:
    return tf.nn.depthwise_conv2d(x, w, _NEXT, "SAME")


case("depthwise_conv2d", depthwise, _MAPS, random(3, 3, 64, 1))
case("depthwise_conv2d twice the channels", depthwise, _MAPS, random(3, 3, 64, 2))
case("depthwise_conv2d gradient", gradient(depthwise), _MAPS, random(3, 3, 64, 1))
case("depthwise_conv2d filter gradient", gradient(lambda tf, w, x: depthwise(tf, x, w)), random(3, 3, 64, 1), _MAPS)
case("separable_conv2d", lambda tf, x, w, p: tf.nn.separable_conv2d(x, w, p, _NEXT, "SAME"), _MAPS, random(3, 3, 64, 1), random(1, 1, 64, 64))

# -- norms ------------------------------------------------------------------------------------------------------------------

for _beta in (0.5, 0.75, 1.0, 0.6):
    def normalised(tf: Any, x: Any, beta: float = _beta) -> Any:
        return tf.nn.local_response_normalization(x, 5, 1.0, 1e-4, beta)

    case(f"lrn beta {_beta}", normalised, _MAPS)
    case(f"lrn beta {_beta} gradient", gradient(normalised), _MAPS)


def batch_norm(tf: Any, x: Any, scale: Any) -> Any:
    return tf.nn.fused_batch_norm(x, scale, scale)[0]


case("fused_batch_norm", batch_norm, _MAPS, random(64))
case("fused_batch_norm gradient", gradient(batch_norm), _MAPS, random(64))
case("batch_normalization", lambda tf, x, v: tf.nn.batch_normalization(x, v, v * v, v, v, 1e-3), _MAPS, random(64))
case("bias_add", lambda tf, x, v: tf.nn.bias_add(x, v), _MAPS, random(64))
case("bias_add gradient", lambda tf, x: tf.raw_ops.BiasAddGrad(out_backprop=x), _MAPS)
